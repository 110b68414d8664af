package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// onwardFile has names that are in no other word, so that they are found wherever they get to.
const onwardFile = `clusters:
- name: milan
  nodes: 1
  addons: [coredns]
- name: rome
  nodes: 1
  addons: [coredns]
- name: farawayoslo
  nodes: 1
  addons: [coredns]
`

// far is the cluster that milan is not to learn of.
const far = "farawayoslo"

// onward is a namespace of milan's whose pods run at rome, and really at a provider of rome's.
type onward struct {
	crossing
	// secret is what else milan is not to read anywhere.
	secret []string
	there  string // the namespace at rome
	at     string // and at the far provider
}

// TestOnward has pods of milan's run at a provider of its provider's, if milan lets them, as at
// home, and nobody tells milan where that is.
func TestOnward(t *testing.T) {
	inBoth(t, onwardFile, func(t *testing.T, file string) { onwardHolds(t, file) })
	// A provider whose addresses nobody else has is seen as it is, unless its consumer says otherwise.
	t.Run("OwnRanges", func(t *testing.T) {
		onwardHolds(t, strings.Replace(onwardFile, far+"\n", far+"\n  podRanges: [10.77.0.0/16]\n  serviceRanges: [10.78.0.0/20]\n", 1), "10.77.", "10.78.")
	})
}

// onwardHolds tries it with clusters of a file, with what milan is not to read anywhere.
func onwardHolds(t *testing.T, file string, secret ...string) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "onward", File: sandboxFile(t, file), Pelago: true})
	c := newContinuum(t, s, "milan", "rome", far)
	box(t, s, "milan", "rome", far)
	for _, pair := range [][2]string{{"milan", "rome"}, {"rome", far}} {
		c.peer(t, pair[0], pair[1])
		c.nodeReady(t, pair[0], pair[1])
	}
	o := &onward{crossing: crossing{shop: c.offloaded(t, "milan")}, secret: secret}
	o.there, o.at = o.name+"-milan", o.name+"-milan-rome"
	t.Run("NotAllowed", o.notAllowed)
	t.Run("Allowed", o.allowed)
	if t.Failed() {
		return
	}
	o.create(t, whoService("near", "near", nil))
	o.create(t, whoService("gone", "gone", nil))
	o.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"colour": "blue"}})
	o.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}, StringData: map[string]string{"word": "xyzzy"}})
	o.create(t, whoPod("", "near", "milan-1"))
	pod := whoPod("", "gone", "rome")
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "password"}}},
	}
	pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "MY_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}})
	o.create(t, pod)
	o.front = o.running(t, "near")
	gone := o.running(t, "gone")
	if len(secret) > 0 {
		t.Run("Untranslated", func(t *testing.T) { o.untranslated(t, gone) })
	}
	t.Run("Where", func(t *testing.T) { o.where(t, gone) })
	t.Run("Reached", func(t *testing.T) { o.reached(t, gone) })
	t.Run("Kubectl", func(t *testing.T) { o.used(t, gone) })
	t.Run("Strangers", func(t *testing.T) { o.strangers(t, gone) })
	t.Run("Unsaid", o.unsaid)
	t.Run("Restart", func(t *testing.T) { o.restarts(t, gone) })
	t.Run("Cut", func(t *testing.T) { o.cut(t, gone) })
	t.Run("Path", func(t *testing.T) { o.path(t, gone) })
	t.Run("Deleted", func(t *testing.T) { o.deleted(t, gone) })
	t.Run("NotAllowedAnyMore", o.notAllowedAnyMore)
}

// pass has rome offload the namespace that is there for milan.
func (o *onward) pass(t *testing.T, args ...string) kubetest.Result {
	t.Helper()
	return o.TryPelago(t, "rome", append([]string{"offload", "namespace", o.there, "--pod-offloading-strategy", "Remote"}, args...)...)
}

// notAllowed holds that nothing goes onward as long as milan does not let it.
func (o *onward) notAllowed(t *testing.T) {
	r := o.pass(t, "--timeout", "20s")
	if r.Code == 0 || !strings.Contains(r.Out+r.Errs, "onward") {
		t.Errorf("offloading what its tenant does not let go onward: exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	o.create(t, onto(o.sleeper("stays"), "rome"))
	o.running(t, "stays")
	pods, err := o.podsAt(far)
	if err != nil || len(pods) != 0 {
		t.Errorf("the far provider runs %v, %v", pods, err)
	}
	if out, err := o.kubectl(t, "delete", "pod", "stays", "--wait=true", "--timeout=3m"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// allowed has milan let it, and both show that it is so.
func (o *onward) allowed(t *testing.T) {
	o.Pelago(t, "milan", "offload", "namespace", o.name, "--onward")
	o.eventually(t, offloadLimit, "rome may pass the namespace on", func() error {
		n, err := get[corev1.Namespace](o.continuum, "rome", "", o.there)
		if err == nil && n.Labels[v1alpha1.LabelOnward] != "true" {
			err = fmt.Errorf("its labels are %v", n.Labels)
		}
		return err
	})
	// What was refused before is told until the manager has looked again.
	o.eventually(t, offloadLimit, "rome offloads it", func() error {
		if r := o.pass(t); r.Code != 0 {
			return fmt.Errorf("exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
		return nil
	})
	o.eventually(t, offloadLimit, "milan is told", func() error {
		now, err := o.offloading()
		if err == nil && (len(now.Status.Clusters) != 1 || !now.Status.Clusters[0].Onward) {
			err = fmt.Errorf("its clusters are %+v", now.Status.Clusters)
		}
		return err
	})
	n, err := get[corev1.Namespace](o.continuum, far, "", o.at)
	if err != nil || n.Labels[v1alpha1.LabelOriginNamespace] != o.name || strings.Contains(n.Labels[v1alpha1.LabelOriginOwner], "milan") {
		t.Errorf("the namespace at the far provider: %v, labels %v", err, n.Labels)
	}
}

// podsAt are the pods that a provider runs for others.
func (o *onward) podsAt(cluster string) (names []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var list corev1.PodList
	err = o.Clients[cluster].List(ctx, &list, client.HasLabels{v1alpha1.LabelHomeUID})
	for i := range list.Items {
		names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	return names, err
}

// twins are the pod at rome and the one at the far provider of a pod of milan's.
func (o *onward) twins(home *corev1.Pod) (middle, last *corev1.Pod, err error) {
	if middle, err = o.twin("rome", home); err != nil {
		return nil, nil, err
	}
	last, err = o.twin(far, middle)
	return middle, last, err
}

// where holds which pod is where, with what it needs.
func (o *onward) where(t *testing.T, gone *corev1.Pod) {
	middle, last, err := o.twins(gone)
	if err != nil {
		t.Fatal(err)
	}
	if middle.Spec.NodeName != far || last.Spec.NodeName != far+"-1" || last.Namespace != o.at || middle.Namespace != o.there {
		t.Errorf("it is %s/%s on %s, and %s/%s on %s", middle.Namespace, middle.Name, middle.Spec.NodeName, last.Namespace, last.Name, last.Spec.NodeName)
	}
	out, err := o.kubectl(t, "exec", "gone", "--", "sh", "-c", `echo "$colour $word $MY_NAMESPACE $(hostname)"`)
	if want := "blue xyzzy " + o.name + " gone"; err != nil || strings.TrimSpace(out) != want {
		t.Errorf("the pod has %q, %v, want %q", out, err, want)
	}
}

// untranslated holds that milan is not told the address of a pod that rome sees as it is, and that rome's owner is told
// why; and has rome see it as another.
func (o *onward) untranslated(t *testing.T, gone *corev1.Pod) {
	if _, _, err := o.twins(gone); err != nil {
		t.Fatal(err)
	}
	o.eventually(t, networkLimit, "rome's owner is told what milan is not", func() error {
		p, err := get[v1alpha1.Peering](o.continuum, "rome", "", "milan")
		if err != nil {
			return err
		}
		if said := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionNetworkReady); said == nil || !strings.Contains(said.Message, "set spec.translate") || !strings.Contains(said.Message, far) {
			return fmt.Errorf("it is told %+v", said)
		}
		return nil
	})
	if now := o.running(t, "gone"); now.Status.PodIP != "" {
		t.Errorf("milan knows the pod by %s", now.Status.PodIP)
	}
	o.unsaid(t)
	o.Kubectl(t, "rome", "patch", "peering", far, "--type", "merge", "-p", `{"spec":{"translate":true}}`)
}

// views are what rome publishes of one peer to the other, and how that sees it.
func (o *onward) views(cluster, peering string, side string) ([]v1alpha1.NetworkView, error) {
	n, err := get[v1alpha1.NetworkConfig](o.continuum, cluster, v1alpha1.PeeringNamespace(peering), side)
	if err != nil {
		return nil, err
	}
	return n.Status.Views, nil
}

// reached holds that pods at milan and at the far provider call each other, by addresses of milan's
// and by names of milan's.
func (o *onward) reached(t *testing.T, gone *corev1.Pod) {
	var as string
	o.eventually(t, 3*networkLimit, "milan sees the pod by an address", func() error {
		now, err := get[corev1.Pod](o.continuum, "milan", o.name, gone.Name)
		if err == nil && now.Status.PodIP == "" {
			err = errors.New("it has none")
		}
		if err == nil {
			as = now.Status.PodIP
		}
		return err
	})
	calls := func(from *corev1.Pod, host string, port int32, as, server string) {
		t.Helper()
		o.eventually(t, 3*networkLimit, from.Name+" reaches "+server+" by "+host, func() error {
			client, got, err := o.ask("milan", from, host, port)
			if err == nil && (got != server || as != "" && client != as) {
				err = fmt.Errorf("%s answered, and saw %s, want %s and %s", got, client, server, as)
			}
			return err
		})
	}
	calls(o.front, as, webPort, "", "gone")
	for _, name := range []string{"gone", "gone." + o.name, "gone." + o.name + ".svc.cluster.local"} {
		calls(o.front, name, 80, "", "gone")
	}
	// A Service of rome's owner of the same name, in a namespace of the same name, is another one's.
	theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.name}}
	if err := o.Clients["rome"].Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := o.Clients["rome"].Delete(ctx, theirs); err != nil {
			t.Error(err)
		}
	})
	trap := whoService("near", "trap", nil)
	trap.SetNamespace(o.name)
	if err := o.Clients["rome"].Create(t.Context(), trap); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"near", "near." + o.name, "near." + o.name + ".svc", "near." + o.name + ".svc.cluster.local"} {
		calls(gone, name, 80, as, "near")
	}
}

// used holds that what people do with a pod works two clusters away.
func (o *onward) used(t *testing.T, gone *corev1.Pod) {
	o.create(t, onto(o.script("talker", "echo hello; trap 'exit 0' TERM; while true; do sleep 0.2; done"), "rome"))
	talker := o.running(t, "talker")
	if _, _, err := o.twins(talker); err != nil {
		t.Error(err)
	}
	o.eventually(t, offloadLimit, "its log is read", func() error {
		out, err := o.kubectl(t, "logs", "talker")
		if err == nil && strings.TrimSpace(out) != "hello" {
			err = fmt.Errorf("it is %q", out)
		}
		return err
	})
	o.create(t, o.job("ends", "exit 0"))
	if out, err := o.kubectl(t, "wait", "job/ends", "--for=condition=complete", "--timeout=3m"); err != nil {
		t.Errorf("a job: %v\n%s", err, out)
	}
	if out, err := o.kubectl(t, "delete", "pod", "talker", "--wait=true", "--timeout=3m"); err != nil {
		t.Errorf("deleting talker: %v\n%s", err, out)
	}
	o.eventually(t, offloadLimit, "talker is gone everywhere", func() error {
		for _, cluster := range []string{"rome", far} {
			names, err := o.podsAt(cluster)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, "/talker") }) {
				return fmt.Errorf("%s runs %v", cluster, names)
			}
		}
		return nil
	})
}

// strangers holds that nobody else of all three clusters takes part.
func (o *onward) strangers(t *testing.T, gone *corev1.Pod) {
	middle, last, err := o.twins(gone)
	if err != nil {
		t.Fatal(err)
	}
	atRome, atFar := o.continuum.shop(t, "rome"), o.continuum.shop(t, far)
	atRome.create(t, whoPod("", "romes", "rome-1"))
	atFar.create(t, whoPod("", "fars", far+"-1"))
	romes, fars := atRome.running(t, "romes"), atFar.running(t, "fars")
	toRome, err := o.views("milan", "rome", v1alpha1.NetworkConsumer) // how rome sees what milan publishes
	if err != nil {
		t.Fatal(err)
	}
	toFar, err := o.views("rome", far, v1alpha1.NetworkConsumer) // how the far provider sees what rome publishes
	if err != nil {
		t.Fatal(err)
	}
	near := seen(t, toRome, o.front.Status.PodIP)
	o.misses(t, "rome", romes, middle.Status.PodIP)
	o.misses(t, "rome", romes, near)
	o.misses(t, far, fars, seen(t, toFar, near))
	if client, server, err := o.ask(far, last, seen(t, toFar, romes.Status.PodIP), webPort); err == nil {
		t.Errorf("gone reaches %s of rome's own, as %s", server, client)
	}
}

// unsaid holds that no object of milan's says a word of the far provider: its names and addresses.
func (o *onward) unsaid(t *testing.T) {
	_, last, err := o.twins(o.running(t, "gone"))
	if err != nil {
		t.Fatal(err)
	}
	words := append([]string{far, o.at, string(last.UID), "\"" + last.Status.HostIP + "\""}, o.secret...)
	if len(o.secret) > 0 && !strings.HasPrefix(last.Status.PodIP, o.secret[0]) {
		t.Errorf("the pod has %s at the far provider, want one of %s", last.Status.PodIP, o.secret[0])
	}
	for _, kind := range []string{"pods", "events", "services", "endpointslices.discovery.k8s.io", "nodes", "namespaces", "leases.coordination.k8s.io",
		"namespacemaps", "namespaceoffloadings", "networkconfigs", "networkrules", "peerings", "resourceoffers", "resourcerequests"} {
		out := o.Run(t, "kubectl", "milan", "--", "get", kind, "-A", "-o", "json")
		o.without(t, "milan's "+kind, out, words)
	}
	// What milan may read of rome is what is in its tenant namespace there.
	for _, kind := range []string{"shadowpods", "shadowobjects", "namespacemaps", "networkconfigs", "networkrules", "resourceoffers", "resourcerequests", "identities"} {
		out := o.Run(t, "kubectl", "rome", "--", "get", kind, "-n", v1alpha1.TenantNamespace("milan"), "-o", "json")
		o.without(t, kind+" that milan has at rome", out, words)
	}
	out, errs := o.kubectl(t, "logs", "gone", "-c", "nothing")
	o.without(t, "an error of kubectl logs", fmt.Sprint(out, errs), words)
}

// without holds that none of some words is in a text, but where people of the sandbox put it.
func (o *onward) without(t *testing.T, what, text string, words []string) {
	t.Helper()
	for _, word := range words {
		if at := strings.Index(text, word); at >= 0 {
			t.Errorf("%s say %q: …%s…", what, word, text[max(0, at-200):min(len(text), at+200)])
		}
	}
}

// restarts has all managers go, and the pods go on.
func (o *onward) restarts(t *testing.T, gone *corev1.Pod) {
	_, last, err := o.twins(gone)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"rome", far} {
		o.Run(t, "kubectl", cluster, "--", "delete", "pods", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=pelago-manager", "--now")
		o.Run(t, "kubectl", cluster, "--", "rollout", "status", "-n", v1alpha1.SystemNamespace, "deployment/pelago-manager", "--timeout=3m")
	}
	o.create(t, onto(o.sleeper("later"), "rome"))
	o.running(t, "later")
	o.same(t, gone, last)
	o.reached(t, gone)
}

// same holds that the pod at the far provider is still the same.
func (o *onward) same(t *testing.T, gone, last *corev1.Pod) {
	t.Helper()
	_, now, err := o.twins(gone)
	if err != nil || now.UID != last.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod at the far provider was %s and is %+v, %v", last.UID, now, err)
	}
}

// cut cuts rome off the far provider for as long as a node needs to count as dead, and then milan off rome.
func (o *onward) cut(t *testing.T, gone *corev1.Pod) {
	_, last, err := o.twins(gone)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range [][2]string{{"rome", far}, {"milan", "rome"}} {
		heal := func() { o.Run(t, "link", "heal", link[0], link[1]) }
		t.Cleanup(heal)
		o.Run(t, "link", "cut", link[0], link[1])
		o.eventually(t, 2*time.Minute, link[0]+" sees that "+link[1]+" is away", func() error {
			p, err := get[v1alpha1.Peering](o.continuum, link[0], "", link[1])
			if err == nil && !strings.HasPrefix(condition(p.Status.Conditions, v1alpha1.ConditionReachable), "Reachable=False") {
				err = errors.New(condition(p.Status.Conditions, v1alpha1.ConditionReachable))
			}
			return err
		})
		now, err := o.podsAt(far)
		if err != nil || !slices.Contains(now, o.at+"/gone") {
			t.Errorf("with %v cut the far provider runs %v, %v", link, now, err)
		}
		heal()
		o.nodeReady(t, link[0], link[1])
		o.running(t, "gone")
		o.same(t, gone, last)
	}
	o.reached(t, gone)
}

// deleted holds that a pod that is deleted at milan is gone at all three.
func (o *onward) deleted(t *testing.T, gone *corev1.Pod) {
	middle, _, err := o.twins(gone)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := o.kubectl(t, "delete", "pod", "gone", "--wait=true", "--timeout=3m"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	o.eventually(t, offloadLimit, "it is gone everywhere", func() error {
		for cluster, home := range map[string]*corev1.Pod{"rome": gone, far: middle} {
			if twin, err := o.twin(cluster, home); err == nil {
				return fmt.Errorf("it is at %s, phase %s", cluster, twin.Status.Phase)
			}
		}
		return nil
	})
}

// notAllowedAnyMore has milan change its mind: nothing of it is left at the far provider, and its
// pods run at rome.
func (o *onward) notAllowedAnyMore(t *testing.T) {
	o.create(t, o.deployment("app", 2))
	o.runningAll(t, "app", 2)
	o.Pelago(t, "milan", "offload", "namespace", o.name, "--onward=false", "--pod-offloading-strategy", "Remote")
	o.eventually(t, 4*time.Minute, "nothing is left at the far provider", func() error {
		names, err := o.podsAt(far)
		if err != nil || len(names) > 0 {
			return fmt.Errorf("it runs %v, %w", names, err)
		}
		if _, err := get[corev1.Namespace](o.continuum, far, "", o.at); !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %s is there: %v", o.at, err)
		}
		return nil
	})
	n, err := get[v1alpha1.NamespaceOffloading](o.continuum, "rome", o.there, v1alpha1.OffloadingName)
	if err == nil {
		text, _ := json.Marshal(n.Status)
		if !regexp.MustCompile("onward").Match(text) {
			t.Errorf("rome's offloading does not say why: %s", text)
		}
		err = o.Clients["rome"].Delete(t.Context(), n)
	}
	if err != nil {
		t.Errorf("deleting rome's offloading: %v", err)
	}
	o.runningAll(t, "app", 2)
}
