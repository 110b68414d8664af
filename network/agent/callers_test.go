package agent

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/network/plan"
)

const usesTurin = "!" + v1alpha1.LabelTenant + ",uses=turin"

// callerFacts are those of a cluster whose pods with a label call turin's Services, and whose namespace shop
// lets milan's pods call its Service back.
func callerFacts() facts {
	f := someFacts()
	f.configs[2].Spec.Callers = &metav1.LabelSelector{MatchLabels: map[string]string{"uses": "turin"}}
	f.labelled = map[string][]corev1.Pod{usesTurin: {podAt(labelled("clerks", "till"), "a", "10.42.1.20"), podAt(labelled("clerks", "desk"), "b", "10.42.2.20")}}
	f.namespaces = []corev1.Namespace{{ObjectMeta: labelled("", "x", v1alpha1.LabelTenant, "turin", v1alpha1.LabelHomeNamespace, "shop")}}
	f.offloaded = []v1alpha1.NamespaceOffloading{{ObjectMeta: labelled("shop", "offloading"), Spec: v1alpha1.NamespaceOffloadingSpec{
		Callers:    v1alpha1.CallersProvider,
		Reflection: []v1alpha1.ReflectionRule{{Kind: "Service", Policy: v1alpha1.ReflectAll, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"shared": "yes"}}}},
	}}}
	f.home["shop"] = []discoveryv1.EndpointSlice{
		sliceOf(labelled("shop", "back-1", discoveryv1.LabelServiceName, "back"), "a", "10.42.1.5"),
		sliceOf(labelled("shop", "front-1", discoveryv1.LabelServiceName, "front"), "a", "10.42.1.6"),
	}
	f.services = map[string][]corev1.Service{"shop": {{ObjectMeta: labelled("shop", "back", "shared", "yes")}, {ObjectMeta: labelled("shop", "front")}}}
	f.inside = map[string][]corev1.Pod{"shop": {podAt(labelled("shop", "back"), "a", "10.42.1.5"), podAt(labelled("shop", "front"), "a", "10.42.1.6"), podAt(labelled("shop", "away"), "milan", "10.81.3.4")}}
	return f
}

func TestInputCallers(t *testing.T) {
	both := []string{"10.42.1.20", "10.42.2.20"}
	for _, c := range []struct {
		reason        string
		facts         func(*facts)
		callers, open []string
		problem       string
	}{
		{reason: "pods with the label call, and what travels without a pod is called", callers: both, open: []string{"10.42.1.5"}},
		// Who calls.
		{reason: "the Tenant names none", facts: func(f *facts) { f.configs[2].Spec.Callers = nil }, open: []string{"10.42.1.5"}},
		{reason: "it names all pods there are", facts: func(f *facts) { f.configs[2].Spec.Callers = &metav1.LabelSelector{} }, open: []string{"10.42.1.5"}},
		{reason: "it names what nobody can read", facts: func(f *facts) {
			f.configs[2].Spec.Callers = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "uses", Operator: "Like"}}}
		}, open: []string{"10.42.1.5"}, problem: "callers of its Tenant cannot be read"},
		{reason: "the tenant itself says it", facts: func(f *facts) {
			f.configs[3].Spec.Callers, f.configs[2].Spec.Callers = f.configs[2].Spec.Callers, nil
		}, open: []string{"10.42.1.5"}},
		{reason: "a pod in a tenant's namespace, whatever its labels are", facts: func(f *facts) { f.labelled[usesTurin][0].Namespace = "x" }, callers: both[1:], open: []string{"10.42.1.5"}},
		{reason: "a pod of a tenant's", facts: func(f *facts) { f.labelled[usesTurin][0].Labels[v1alpha1.LabelTenant] = "genoa" }, callers: both[1:], open: []string{"10.42.1.5"}},
		{reason: "a pod that has ended", facts: func(f *facts) { f.labelled[usesTurin][0].Status.Phase = corev1.PodFailed }, callers: both[1:], open: []string{"10.42.1.5"}},
		{reason: "a pod that has its node's address", facts: func(f *facts) { f.labelled[usesTurin][0].Spec.HostNetwork = true }, callers: both[1:], open: []string{"10.42.1.5"}},
		{reason: "a pod that runs at a provider", facts: func(f *facts) { f.labelled[usesTurin][0].Status.PodIPs[0].IP = "10.81.3.9" }, callers: both[1:], open: []string{"10.42.1.5"}},
		{reason: "all pods take part, so that none has to be named", facts: func(f *facts) { f.configs[2].Spec.Reachability = v1alpha1.ReachFull }, open: []string{"10.42.1.5"}},
		{reason: "none does", facts: func(f *facts) { f.configs[2].Spec.Reachability = v1alpha1.ReachNone }, open: []string{"10.42.1.5"}},
		// Who is called.
		{reason: "home does not say so", facts: func(f *facts) { f.offloaded[0].Spec.Callers = "" }, callers: both},
		{reason: "home says the contrary", facts: func(f *facts) { f.offloaded[0].Spec.Callers = v1alpha1.CallersOwn }, callers: both},
		{reason: "a word of another build", facts: func(f *facts) { f.offloaded[0].Spec.Callers = "Everybody" }, callers: both},
		{reason: "something that is not the namespace's", facts: func(f *facts) { f.offloaded[0].Name = "other" }, callers: both},
		{reason: "a Service that its annotation sends", facts: func(f *facts) {
			f.services["shop"][1].Annotations = map[string]string{v1alpha1.AnnotationReflect: "true"}
		}, callers: both, open: []string{"10.42.1.5", "10.42.1.6"}},
		{reason: "a Service that its annotation keeps home", facts: func(f *facts) {
			f.services["shop"][0].Annotations = map[string]string{v1alpha1.AnnotationReflect: "false"}
		}, callers: both},
		{reason: "a Service that lost its label", facts: func(f *facts) { f.services["shop"][0].Labels = nil }, callers: both},
		{reason: "Services are not known yet", facts: func(f *facts) { f.services = nil }, callers: both},
		{reason: "a slice of somebody's that names a pod of another namespace", facts: func(f *facts) {
			f.home["shop"] = append(f.home["shop"], sliceOf(labelled("shop", "forged", discoveryv1.LabelServiceName, "back"), "", "10.42.2.9"))
		}, callers: both, open: []string{"10.42.1.5"}},
		{reason: "an endpoint at a provider, which is no pod here", facts: func(f *facts) {
			f.home["shop"] = append(f.home["shop"], sliceOf(labelled("shop", "far", discoveryv1.LabelServiceName, "back"), "", "10.81.3.4"))
		}, callers: both, open: []string{"10.42.1.5"}},
		{reason: "a namespace that is at another provider", facts: func(f *facts) { f.maps[0].Namespace = "pelago-peering-genoa" }, callers: both},
		{reason: "a namespace that is here for a tenant", facts: func(f *facts) { f.namespaces[0].Name = "shop" }, callers: both},
		{reason: "a namespace of which none is reached", facts: func(f *facts) { f.offloaded[0].Spec.Reachability = v1alpha1.ReachNone }, callers: both},
	} {
		f := callerFacts()
		if c.facts != nil {
			c.facts(&f)
		}
		k := input(f)
		milan, turin := k.input.Peerings[0], k.input.Peerings[1]
		want, got := [][]netip.Addr{addrs(c.callers...), addrs(c.open...)}, [][]netip.Addr{turin.Callers, milan.Open}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); d != "" || len(milan.Callers)+len(turin.Open) > 0 {
			t.Errorf("%s: callers and what is open (-want +got):\n%s", c.reason, d)
		}
		if problems := texts(k.problems); c.problem == "" && problems != "" || !strings.Contains(problems, c.problem) {
			t.Errorf("%s: problems %s, want %s", c.reason, problems, c.problem)
		}
		if p := plan.Compute(k.input); p.Config.Check() != nil {
			t.Errorf("%s: no kernel can follow: %v", c.reason, p.Config.Check())
		}
	}
}

// TestManyCallers holds that no tenant has more callers than count, and that the oldest ones do.
func TestManyCallers(t *testing.T) {
	f := callerFacts()
	var pods []corev1.Pod
	for i := range maxCallers + 7 {
		pod := podAt(labelled("clerks", fmt.Sprint("till-", i)), "a", fmt.Sprintf("10.42.%d.%d", 100+i/250, 1+i%250))
		pod.CreationTimestamp = metav1.Unix(int64(10000-i), 0)
		pods = append(pods, pod)
	}
	f.labelled[usesTurin] = pods
	k := input(f)
	callers := k.input.Peerings[1].Callers
	if len(callers) != maxCallers || callers[0] != netip.MustParseAddr("10.42.100.8") {
		t.Errorf("%d callers count, from %v on", len(callers), callers[0])
	}
	if got, want := texts(k.problems), "peering tenant-turin: 1007 pods are callers by its Tenant, and only the 1000 oldest ones of them count"; got != want {
		t.Errorf("told is %q", got)
	}
}

// TestPlacesOfCallers holds that packets find a caller whose address is in no node's range.
func TestPlacesOfCallers(t *testing.T) {
	f := callerFacts()
	f.labelled[usesTurin][0].Status.PodIPs[0].IP = "10.42.77.7"
	if got := input(f).input.Nodes[0].Pods; len(got) != 1 || got[0] != netip.MustParseAddr("10.42.77.7") {
		t.Errorf("at its node are %v", got)
	}
}

// TestSubjectsCallers holds that what is followed is what somebody says something of, and that changes of it
// are seen.
func TestSubjectsCallers(t *testing.T) {
	f := callerFacts()
	all := f.subjects()
	for _, s := range []subject{{callers: usesTurin}, {services: "shop"}, {pods: "shop"}} {
		if !all[s] {
			t.Errorf("%+v is not followed", s)
		}
	}
	f.configs[2].Spec.Callers, f.offloaded[0].Spec.Callers = nil, v1alpha1.CallersOwn
	for s := range f.subjects() {
		if s.callers != "" || s.services != "" || s.pods != "" {
			t.Errorf("%+v is followed, and nobody says anything of it", s)
		}
	}
	offloading := func(change func(*v1alpha1.NamespaceOffloading)) client.Object {
		o := callerFacts().offloaded[0]
		change(&o)
		return trimmed(t, &o)
	}
	service := func(change func(*corev1.Service)) client.Object {
		s := corev1.Service{ObjectMeta: labelled("shop", "back", "shared", "yes"), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1"}}
		change(&s)
		return trimmed(t, &s)
	}
	config := func(change func(*v1alpha1.NetworkConfig)) client.Object {
		n := callerFacts().configs[2]
		change(&n)
		return trimmed(t, &n)
	}
	for _, c := range []struct {
		reason        string
		before, after client.Object
		same          bool
	}{
		{"home takes its word back", offloading(func(*v1alpha1.NamespaceOffloading) {}), offloading(func(o *v1alpha1.NamespaceOffloading) { o.Spec.Callers = "" }), false},
		{"a rule", offloading(func(*v1alpha1.NamespaceOffloading) {}), offloading(func(o *v1alpha1.NamespaceOffloading) { o.Spec.Reflection[0].Policy = v1alpha1.ReflectDeny }), false},
		{"a rule of something else", offloading(func(*v1alpha1.NamespaceOffloading) {}), offloading(func(o *v1alpha1.NamespaceOffloading) {
			o.Spec.Reflection = append(o.Spec.Reflection, v1alpha1.ReflectionRule{Kind: "Secret", Policy: v1alpha1.ReflectAll})
		}), true},
		{"the label of a Service", service(func(*corev1.Service) {}), service(func(s *corev1.Service) { s.Labels = nil }), false},
		{"its annotation", service(func(*corev1.Service) {}), service(func(s *corev1.Service) { s.Annotations = map[string]string{v1alpha1.AnnotationReflect: "false"} }), false},
		{"another annotation, and its address", service(func(*corev1.Service) {}), service(func(s *corev1.Service) {
			s.Annotations, s.Spec.ClusterIP = map[string]string{"a": "b"}, "10.96.0.2"
		}), true},
		{"whom the Tenant names", config(func(*v1alpha1.NetworkConfig) {}), config(func(n *v1alpha1.NetworkConfig) { n.Spec.Callers = nil }), false},
	} {
		if got := same(c.before, c.after); got != c.same {
			t.Errorf("%s: is no change is %t", c.reason, got)
		}
	}
}

// TestCallersAreFollowed holds at a real API server that pods are callers while they have the label, and what
// is behind a Service open while it travels.
func TestCallersAreFollowed(t *testing.T) {
	server := kubetest.Server(t)
	api := server.Client(t)
	system, users := server.Namespace(t), server.Namespace(t)
	word := server.Name(t, "word")
	create := func(o client.Object) {
		t.Helper()
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
	}
	pod := &corev1.Pod{ObjectMeta: labelled(users, "till", "uses", word), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	other := &corev1.Pod{ObjectMeta: labelled(users, "other", "uses", "other"), Spec: pod.Spec}
	service := &corev1.Service{ObjectMeta: labelled(users, "back", "shared", word), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	create(pod)
	create(other)
	create(service)
	c, changed := begun(t, server.Config, system)
	f := callerFacts()
	f.configs[2].Spec.Callers.MatchLabels["uses"] = word
	selector, is, err := f.pairs()[atTurin].callers()
	if err != nil || !is {
		t.Fatal(err)
	}
	c.follow(map[subject]bool{{callers: selector}: true, {services: users}: true})
	limit := time.After(30 * time.Second)
	await := func(what, want string) {
		t.Helper()
		for {
			got := ""
			for s, on := range c.followed() {
				var pods corev1.PodList
				var services corev1.ServiceList
				switch {
				case !on.Synced():
				case s.callers != "" && on.List(t.Context(), &pods) == nil:
					for i := range pods.Items {
						got += pods.Items[i].Name + " "
					}
				case s.services != "" && on.List(t.Context(), &services) == nil:
					for i := range services.Items {
						got += services.Items[i].Labels["shared"] + " "
					}
				}
			}
			parts := strings.Fields(got)
			if len(parts) == len(strings.Fields(want)) && !strings.Contains(got, "other") && sameWords(parts, strings.Fields(want)) {
				return
			}
			select {
			case <-changed:
			case <-limit:
				t.Fatalf("%s: known are %q, want %q", what, got, want)
			}
		}
	}
	await("all that has its label", "till "+word)
	pod.Labels["uses"] = "nothing"
	if err := api.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	await("a pod that lost its label", word)
	service.Labels["shared"] = "no"
	if err := api.Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	await("a Service of another label", "no")
}

// sameWords says whether both have the same words, in any order.
func sameWords(a, b []string) bool {
	count := map[string]int{}
	for i := range a {
		count[a[i]]++
		count[b[i]]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}
