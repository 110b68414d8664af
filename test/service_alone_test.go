package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// aloneLimit is how long a Service may take to be called that a rule has just sent: milan's DNS
	// may remember for a while that there was none.
	aloneLimit = 2 * networkLimit
	// aloneGone is how long one may take to go that no rule sends any more: it stays for a minute.
	aloneGone = 2 * time.Minute
)

// alone is a namespace of rome's that has no pod at milan, and a pod of milan's own.
type alone struct {
	*crossing
	// there is the namespace at milan, host what milan's pods call the Service of it.
	there, host string
	pod, caller *corev1.Pod
	// bystander is another pod of milan's own.
	bystander *corev1.Pod
}

// serviceAlone holds that a pod of milan's own calls a Service of rome's by its name at milan, where no
// pod of its namespace is, while a rule sends the Service and both sides let all of their pods take part, or
// that one call.
func serviceAlone(t *testing.T, c *continuum) {
	a := newAlone(t, c)
	t.Cleanup(func() { a.say(t, "", "", "") })
	a.say(t, v1alpha1.ReachFull, v1alpha1.ReachFull, "")
	a.unknown(t, "no rule sends it", aloneLimit)

	begin := time.Now()
	a.reflect(t, v1alpha1.ReflectionRule{Kind: "Service", Policy: v1alpha1.ReflectAll, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"shared": "yes"}}})
	as := seen(t, a.milan, a.caller.Status.PodIP)
	a.answers(t, "a rule sends it", as, "catalogue")
	t.Logf("it is called %s after the rule, at milan as %s, by %s", time.Since(begin).Round(10*time.Millisecond), seen(t, a.rome, a.pod.Status.PodIP), as)
	a.nothingElse(t)
	if out := c.Pelago(t, "rome", "explain", "namespace", a.name); !strings.Contains(out, "catalogue") {
		t.Errorf("pelago explain namespace does not tell of the Service:\n%s", out)
	}

	a.say(t, "", "", "")
	a.check(t, reachLimit, "it is not reached as usual, by whoever is milan's own", func() error {
		if _, server, err := a.ask("milan", a.caller, a.host, 80); err == nil {
			return fmt.Errorf("%s answers", server)
		}
		return nil
	})
	a.callers(t, as)
	a.say(t, v1alpha1.ReachFull, v1alpha1.ReachFull, "")
	a.answers(t, "all may again", as, "catalogue")

	second := whoPod("", "catalogue-2", "rome-1")
	second.Labels["app"] = "catalogue"
	a.create(t, second)
	a.running(t, "catalogue-2")
	a.answers(t, "another pod is behind it", as, "catalogue-2")

	begin = time.Now()
	a.reflect(t)
	a.unknown(t, "no rule sends it any more", aloneGone)
	t.Logf("it is gone %s after the rule", time.Since(begin).Round(time.Second))
}

// callers has both owners say that milan's pod calls, while neither lets more pods take part than is usual: it
// is answered while both say so and it has the label, and no other pod of milan's is.
func (a *alone) callers(t *testing.T, as string) {
	t.Helper()
	named := map[string]string{"uses": "rome"}
	silent := func(why string, from *corev1.Pod) {
		t.Helper()
		a.check(t, reachLimit, why+": it is not answered", func() error {
			if _, server, err := a.ask("milan", from, a.host, 80); err == nil {
				return fmt.Errorf("%s answers", server)
			}
			return nil
		})
	}
	t.Cleanup(func() { a.lend(t, "", nil) })
	a.lend(t, v1alpha1.CallersProvider, named)
	silent("it has not the label", a.caller)
	a.wear(t, named)
	a.answers(t, "both owners say so, and it has the label", as, "catalogue")
	silent("another pod of milan's has no label", a.bystander)
	a.lend(t, v1alpha1.CallersOwn, named)
	silent("home takes its word back", a.caller)
	a.lend(t, v1alpha1.CallersProvider, nil)
	silent("the provider takes its word back", a.caller)
	a.lend(t, v1alpha1.CallersProvider, named)
	a.answers(t, "both say it again", as, "catalogue")
	a.wear(t, map[string]string{"uses": "nothing"})
	silent("it has lost the label", a.caller)
}

// lend has both owners say who calls.
func (a *alone) lend(t *testing.T, home v1alpha1.CallersPolicy, provider map[string]string) {
	t.Helper()
	tenant, err := get[v1alpha1.Tenant](a.continuum, "milan", "", "rome")
	if err != nil {
		t.Fatal(err)
	}
	o, err := a.offloading()
	if err != nil {
		t.Fatal(err)
	}
	before, had := tenant.DeepCopy(), o.DeepCopy()
	o.Spec.Callers, tenant.Spec.Callers = home, nil
	if provider != nil {
		tenant.Spec.Callers = &metav1.LabelSelector{MatchLabels: provider}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // also when the test is over
	defer cancel()
	if err := a.Clients["milan"].Patch(ctx, tenant, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := a.Clients["rome"].Patch(ctx, o, client.MergeFrom(had)); err != nil {
		t.Fatal(err)
	}
}

// wear gives milan's pod labels.
func (a *alone) wear(t *testing.T, labels map[string]string) {
	t.Helper()
	pod, err := get[corev1.Pod](a.continuum, "milan", a.caller.Namespace, a.caller.Name)
	if err != nil {
		t.Fatal(err)
	}
	before := pod.DeepCopy()
	for key, value := range labels {
		pod.Labels[key] = value
	}
	if err := a.Clients["milan"].Patch(t.Context(), pod, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// newAlone makes both ends: in rome a Service that is to be sent and one that is not, of one pod.
func newAlone(t *testing.T, c *continuum) *alone {
	t.Helper()
	a := &alone{crossing: &crossing{shop: c.offloaded(t, "rome", "--pod-offloading-strategy", "Local", "--cluster-selector", "region=north")}}
	a.there = a.name + "-rome"
	a.host = "catalogue." + a.there + ".svc.cluster.local"
	sent := whoService("catalogue", "catalogue", nil)
	sent.Labels = map[string]string{"shared": "yes"}
	a.create(t, sent)
	a.create(t, whoService("private", "catalogue", nil))
	a.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}})
	a.create(t, whoPod("", "catalogue", "rome-1"))
	own := c.shop(t, "milan")
	own.create(t, whoPod("", "caller", "milan-1"))
	own.create(t, whoPod("", "bystander", "milan-2"))
	a.bystander = own.running(t, "bystander")
	a.pod, a.caller = a.running(t, "catalogue"), own.running(t, "caller")
	a.check(t, offloadLimit, "the namespace is at milan, and both sides have views", func() error {
		if _, err := get[corev1.Namespace](c, "milan", "", a.there); err != nil {
			return err
		}
		for name, views := range map[string]*[]v1alpha1.NetworkView{v1alpha1.NetworkConsumer: &a.rome, v1alpha1.NetworkProvider: &a.milan} {
			n, err := get[v1alpha1.NetworkConfig](c, "rome", v1alpha1.PeeringNamespace("milan"), name)
			if err != nil {
				return err
			}
			if *views = n.Status.Views; len(*views) == 0 {
				return fmt.Errorf("the ranges of the %s have no view: %s", name, condition(n.Status.Conditions, v1alpha1.ConditionReady))
			}
		}
		return nil
	})
	return a
}

// reflect gives the namespace rules.
func (a *alone) reflect(t *testing.T, rules ...v1alpha1.ReflectionRule) {
	t.Helper()
	o, err := a.offloading()
	if err != nil {
		t.Fatal(err)
	}
	before := o.DeepCopy()
	o.Spec.Reflection = rules
	if err := a.Clients["rome"].Patch(t.Context(), o, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// answers holds that one of rome's pods answers milan's, and sees it by an address.
func (a *alone) answers(t *testing.T, why, as, server string) {
	t.Helper()
	a.check(t, aloneLimit, fmt.Sprintf("%s: %s answers milan's own pod by %s", why, server, a.host), func() error {
		client, name, err := a.ask("milan", a.caller, a.host, 80)
		switch {
		case err != nil:
			return err
		case client != as:
			return fmt.Errorf("%s sees %s, want %s", name, client, as)
		case name != server:
			return fmt.Errorf("%s answers", name)
		}
		return nil
	})
}

// unknown holds that milan has no such Service, and that nobody answers by its name.
func (a *alone) unknown(t *testing.T, why string, limit time.Duration) {
	t.Helper()
	a.check(t, limit, why+": milan does not know the Service", func() error {
		if s, err := get[corev1.Service](a.continuum, "milan", a.there, "catalogue"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there, since %s, with the addresses %v: %v", s.CreationTimestamp, s.Spec.ClusterIPs, err)
		}
		if client, server, err := a.ask("milan", a.caller, a.host, 80); err == nil {
			return fmt.Errorf("%s answers %s", server, client)
		}
		return nil
	})
}

// nothingElse holds that nothing but the Service has come with it.
func (a *alone) nothingElse(t *testing.T) {
	t.Helper()
	var found []string
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.PodList{}} {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := a.Clients["milan"].List(ctx, list, client.InNamespace(a.there)); err != nil {
			t.Fatal(err)
		}
		for _, name := range namesOf(list) {
			found = append(found, fmt.Sprintf("%T %s", list, name))
		}
	}
	want := []string{"*v1.ServiceList catalogue", "*v1.ConfigMapList kube-root-ca.crt"}
	if !slices.Equal(found, want) {
		t.Errorf("in %s of milan are %q, want %q", a.there, found, want)
	}
}

func namesOf(list client.ObjectList) (names []string) {
	switch l := list.(type) {
	case *corev1.ServiceList:
		for i := range l.Items {
			names = append(names, l.Items[i].Name)
		}
	case *corev1.ConfigMapList:
		for i := range l.Items {
			names = append(names, l.Items[i].Name)
		}
	case *corev1.SecretList:
		for i := range l.Items {
			names = append(names, l.Items[i].Name)
		}
	case *corev1.PodList:
		for i := range l.Items {
			names = append(names, l.Items[i].Name)
		}
	}
	return names
}

// check waits, and shows each step of the way when it was in vain: what was sent, what came of it, and
// what DNS, the gateways and both owners say.
func (a *alone) check(t *testing.T, limit time.Duration, what string, is func() error) {
	t.Helper()
	before := t.Failed()
	defer func() {
		if before || !t.Failed() {
			return
		}
		a.show(t, "rome", "get", "services,endpointslices,pods,namespaceoffloadings", "-n", a.name, "-o", "yaml")
		a.show(t, "milan", "get", "services,endpointslices,pods", "-n", a.there, "-o", "yaml")
		a.show(t, "milan", "get", "shadowobjects", "-n", v1alpha1.TenantNamespace("rome"), "-o", "custom-columns=NAME:.metadata.name,HOME:.spec.home,SINCE:.metadata.creationTimestamp,SAID:.status.conditions")
		a.show(t, "rome", "get", "namespacemaps,networkconfigs", "-n", v1alpha1.PeeringNamespace("milan"), "-o", "yaml")
		a.show(t, "rome", "get", "peerings", "milan", "-o", "jsonpath={.spec.reachability}{\"\\n\"}{.status.conditions}")
		a.show(t, "milan", "get", "tenants", "rome", "-o", "jsonpath={.spec.reachability}{\"\\n\"}{.status.conditions}")
		if a.caller != nil {
			a.show(t, "milan", "exec", "-n", a.caller.Namespace, a.caller.Name, "--", "sh", "-c", "cat /etc/resolv.conf; nslookup "+a.host+"; ip route")
		}
		if a.caller != nil && len(a.rome) > 0 {
			a.show(t, "milan", "exec", "-n", a.caller.Namespace, a.caller.Name, "--", "timeout", "5", "wget", "-q", "-O", "-",
				"http://"+join(seen(t, a.rome, a.pod.Status.PodIP), webPort)+"/cgi-bin/who") // past names and the Service
		}
		for _, cluster := range []string{"rome", "milan"} {
			a.show(t, cluster, "logs", "-n", v1alpha1.NetworkNamespace, "-l", "app.kubernetes.io/name=pelago-agent", "--prefix", "--tail=30")
			a.show(t, cluster, "logs", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=pelago-manager", "--prefix", "--tail=40")
		}
		t.Log(a.TryPelago(t, "rome", "explain", "namespace", a.name).Out)
	}()
	a.eventually(t, limit, what, is)
}

func (a *alone) show(t *testing.T, cluster string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := a.Try(ctx, append([]string{"kubectl", cluster, "--"}, args...)...)
	t.Logf("%s$ kubectl %s\n%s%v", cluster, strings.Join(args, " "), out, err)
}
