package consumer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	notReady    = corev1.TaintNodeNotReady
	unreachable = corev1.TaintNodeUnreachable
)

// forTaint is a toleration as Kubernetes gives it to every pod; without end if seconds is
// negative.
func forTaint(key string, seconds int64) corev1.Toleration {
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if seconds >= 0 {
		t.TolerationSeconds = &seconds
	}
	return t
}

// tolerated is the tolerations of a pod in words, and its mark.
func tolerated(p *corev1.Pod) map[string]string {
	all := map[string]string{}
	for _, t := range p.Spec.Tolerations {
		switch {
		case t.Key == v1alpha1.TaintVirtualNode:
		case t.TolerationSeconds == nil:
			all[t.Key] = "endless"
		default:
			all[t.Key] = fmt.Sprint(*t.TolerationSeconds)
		}
	}
	if text, ok := p.Annotations[v1alpha1.AnnotationKeep]; ok {
		all["mark"] = text
	}
	return all
}

// TestTolerations: what a pod on a virtual node tolerates, and for how long.
func TestTolerations(t *testing.T) {
	usual := []corev1.Toleration{forTaint(notReady, 300), forTaint(unreachable, 300)}
	kept := []corev1.Toleration{forTaint(notReady, -1), forTaint(unreachable, -1)}
	both := notReady + "," + unreachable
	endless := map[string]string{notReady: "endless", unreachable: "endless", "mark": both}
	limited := map[string]string{notReady: "300", unreachable: "300"}
	equal := forTaint(notReady, 300)
	equal.Operator, equal.Value = corev1.TolerationOpEqual, "x"
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(300))}
	noSchedule := forTaint(notReady, 300)
	noSchedule.Effect = corev1.TaintEffectNoSchedule
	const keep, replace = v1alpha1.UnreachableKeep, v1alpha1.UnreachableReplace
	for _, c := range []struct {
		reason string
		facts  keepFacts
		have   []corev1.Toleration
		mark   string
		want   map[string]string // nil: it stays as it is
	}{
		{"its provider is away", keepFacts{virtual: true, lost: true, policy: keep}, usual, "", endless},
		{"its provider answers", keepFacts{virtual: true, policy: keep}, usual, "", nil},
		{"it is on a node of this cluster", keepFacts{lost: true, policy: keep}, usual, "", nil},
		{"it has been done", keepFacts{virtual: true, lost: true, policy: keep}, kept, both, nil},
		{"the provider is back: it stays done", keepFacts{virtual: true, policy: keep}, kept, both, nil},
		{"admission did it, or the user", keepFacts{virtual: true, lost: true, policy: keep}, kept, "", nil},
		{"half of it is the user's own", keepFacts{virtual: true, lost: true, policy: keep}, []corev1.Toleration{forTaint(notReady, 60), usual[1]}, "",
			map[string]string{notReady: "60", unreachable: "endless", "mark": unreachable}},
		{"all of it is the user's own", keepFacts{virtual: true, lost: true, policy: keep}, []corev1.Toleration{forTaint(notReady, 60), forTaint(unreachable, 0)}, "", nil},
		{"only one taint is tolerated", keepFacts{virtual: true, lost: true, policy: keep}, usual[:1], "", map[string]string{notReady: "endless", "mark": notReady}},
		{"of another kind are what Kubernetes does not give", keepFacts{virtual: true, lost: true, policy: keep}, []corev1.Toleration{equal, everything, noSchedule}, "", nil},
		{"somebody has put an end to it again", keepFacts{virtual: true, lost: true, policy: keep}, usual, both, endless},
		{"one is given twice", keepFacts{virtual: true, lost: true, policy: keep}, append(slices.Clone(usual), usual[0]), "", endless},
		{"the namespace is not offloaded", keepFacts{virtual: true, lost: true}, usual, "", nil},
		{"a policy of later builds", keepFacts{virtual: true, lost: true, policy: "Fence"}, usual, "", nil},
		{"it may be replaced", keepFacts{virtual: true, lost: true, policy: replace}, usual, "", nil},
		{"it may be replaced from now on", keepFacts{virtual: true, lost: true, policy: replace}, kept, both, limited},
		{"it may be replaced the next time", keepFacts{virtual: true, policy: replace}, kept, both, limited},
		{"it may be replaced but for the user's own", keepFacts{virtual: true, lost: true, policy: replace}, kept, unreachable,
			map[string]string{notReady: "endless", unreachable: "300"}},
		{"it may be replaced, and the user has limited it", keepFacts{virtual: true, lost: true, policy: replace}, []corev1.Toleration{forTaint(notReady, 60), kept[1]}, both,
			map[string]string{notReady: "60", unreachable: "300"}},
		{"the mark names nothing that is", keepFacts{virtual: true, lost: true, policy: replace}, kept, "example.org/x", map[string]string{notReady: "endless", unreachable: "endless"}},
	} {
		pod := template("shop", "web", "milan")
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, c.have...)
		if c.mark != "" {
			pod.Annotations = map[string]string{v1alpha1.AnnotationKeep: c.mark}
		}
		c.facts.pod = pod
		before := pod.DeepCopy()
		next := tolerations(c.facts)
		if d := cmp.Diff(before, pod); d != "" {
			t.Errorf("%s: the cache's own pod was changed\n%s", c.reason, d)
		}
		switch {
		case next == nil && c.want != nil:
			t.Errorf("%s: it stays as it is", c.reason)
		case next != nil && c.want == nil:
			t.Errorf("%s: it is changed to %v", c.reason, tolerated(next))
		case next != nil:
			if d := cmp.Diff(c.want, tolerated(next)); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, d)
			}
			c.facts.pod = next
			if again := tolerations(c.facts); again != nil {
				t.Errorf("%s: it is changed again, to %v", c.reason, tolerated(again))
			}
		}
		now := metav1.Now()
		pod.DeletionTimestamp, c.facts.pod = &now, pod
		if tolerations(c.facts) != nil {
			t.Errorf("%s: it ends, and is changed", c.reason)
		}
	}
}

// TestLost: of which nodes pods are evicted.
func TestLost(t *testing.T) {
	is := func(s corev1.ConditionStatus) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: s}}
	}
	for _, c := range []struct {
		reason     string
		conditions []corev1.NodeCondition
		taints     []corev1.Taint
		want       bool
	}{
		{"it is ready", is(corev1.ConditionTrue), []corev1.Taint{{Key: v1alpha1.TaintVirtualNode, Effect: corev1.TaintEffectNoExecute}}, false},
		{"the provider does not answer", is(corev1.ConditionFalse), nil, true},
		{"no manager has kept it up", is(corev1.ConditionUnknown), nil, true},
		{"nothing is said of it", nil, nil, true},
		{"it is ready again, and Kubernetes has not seen it", is(corev1.ConditionTrue), []corev1.Taint{{Key: notReady, Effect: corev1.TaintEffectNoExecute}}, true},
		{"it is ready again after no manager was there", is(corev1.ConditionTrue), []corev1.Taint{{Key: unreachable, Effect: corev1.TaintEffectNoExecute}}, true},
		{"nothing is evicted for that", is(corev1.ConditionTrue), []corev1.Taint{{Key: notReady, Effect: corev1.TaintEffectNoSchedule}}, false},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: c.taints}, Status: corev1.NodeStatus{Conditions: c.conditions}}
		if got := lost(node); got != c.want {
			t.Errorf("%s: lost %v, want %v", c.reason, got, c.want)
		}
	}
}

// ready says how a node is.
func (w *world) ready(node string, status corev1.ConditionStatus) {
	w.t.Helper()
	text := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
	err := w.admin.Status().Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch("application/strategic-merge-patch+json", []byte(text)))
	if err != nil {
		w.t.Fatal(err)
	}
}

// unreachablePolicy changes the offloading of the home namespace.
func (w *world) unreachablePolicy(p v1alpha1.UnreachablePolicy) {
	w.t.Helper()
	o := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: v1alpha1.OffloadingName}}
	if err := w.admin.Patch(ctx, o, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"whenUnreachable":%q}}`, p))); err != nil {
		w.t.Fatal(err)
	}
}

// keeps looks at pods once, as a program does that has just begun.
func (w *world) keeps(pods ...*corev1.Pod) {
	w.t.Helper()
	k := &keeper{client: w.counted("here")}
	for _, p := range pods {
		if res, err := k.Reconcile(ctx, request(p)); err != nil || res.RequeueAfter != 0 {
			w.t.Fatalf("%s: %v, %v", p.Name, res, err)
		}
	}
}

// TestKeep takes pods through outages by a real API server, which gives them their
// tolerations and judges every change of them.
func TestKeep(t *testing.T) {
	w := newWorld(t)
	real := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node + "-real"}}
	w.make(real)
	t.Cleanup(func() { _ = w.admin.Delete(ctx, real) })
	local := w.pod("local", func(p *corev1.Pod) { p.Spec.NodeName = real.Name })
	own := w.pod("own", func(p *corev1.Pod) {
		p.Annotations = map[string]string{"example.org/a": "b"}
		p.Spec.Tolerations = append(p.Spec.Tolerations, forTaint(unreachable, 60))
	})
	var pods []*corev1.Pod
	for name, edit := range map[string]func(*corev1.Pod){
		"bare": func(*corev1.Pod) {}, "set": owned("StatefulSet"), "replica": owned("ReplicaSet"),
		"job": func(p *corev1.Pod) { owned("Job")(p); never1(p) },
	} {
		pods = append(pods, w.pod(name, edit))
	}
	all := append(slices.Clone(pods), local, own)
	usual := map[string]string{notReady: "300", unreachable: "300"}
	endless := map[string]string{notReady: "endless", unreachable: "endless", "mark": notReady + "," + unreachable}
	check := func(when string, writes int, of, mine map[string]string) {
		t.Helper()
		before := w.total
		w.keeps(all...)
		if w.total-before != writes {
			t.Errorf("%s: %d writes, want %d", when, w.total-before, writes)
		}
		for _, p := range pods {
			if d := cmp.Diff(of, tolerated(w.now(p))); d != "" {
				t.Errorf("%s: %s (-want +got):\n%s", when, p.Name, d)
			}
		}
		if d := cmp.Diff(mine, tolerated(w.now(own))); d != "" {
			t.Errorf("%s: one with a time of its own (-want +got):\n%s", when, d)
		}
		if d := cmp.Diff(usual, tolerated(w.now(local))); d != "" {
			t.Errorf("%s: one on a node of this cluster (-want +got):\n%s", when, d)
		}
		if got := w.now(own).Annotations["example.org/a"]; got != "b" {
			t.Errorf("%s: an annotation of another one's is %q", when, got)
		}
	}
	mine := map[string]string{notReady: "300", unreachable: "60"}
	w.ready(w.node, corev1.ConditionTrue)
	w.ready(real.Name, corev1.ConditionFalse)
	check("well", 0, usual, mine)

	// The offloading does not say, as those from before the field.
	w.ready(w.node, corev1.ConditionFalse)
	check("away", len(pods)+1, endless, map[string]string{notReady: "endless", unreachable: "60", "mark": notReady})
	check("away, and the manager began anew", 0, endless, map[string]string{notReady: "endless", unreachable: "60", "mark": notReady})

	w.unreachablePolicy(v1alpha1.UnreachableReplace)
	check("away, and Replace from now on", len(pods)+1, usual, mine)
	w.unreachablePolicy(v1alpha1.UnreachableKeep)
	check("away, and Keep again", len(pods)+1, endless, map[string]string{notReady: "endless", unreachable: "60", "mark": notReady})

	w.ready(w.node, corev1.ConditionTrue)
	check("back", 0, endless, map[string]string{notReady: "endless", unreachable: "60", "mark": notReady})
	w.unreachablePolicy(v1alpha1.UnreachableReplace)
	check("back, and Replace", len(pods)+1, usual, mine)
	w.ready(w.node, corev1.ConditionUnknown)
	check("away with Replace", 0, usual, mine)

	w.unreachablePolicy(v1alpha1.UnreachableKeep)
	w.label(false)
	check("the namespace is not offloaded any more", 0, usual, mine)
	w.label(true)
	w.drop(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: v1alpha1.OffloadingName}})
	check("nobody says", 0, usual, mine)
}

// TestKeepAtOnce: while others write the pod, what they write stays, and it is tried again.
func TestKeepAtOnce(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web")
	added := corev1.Toleration{Key: "example.org/x", Operator: corev1.TolerationOpExists}
	w.fail = func(n int, _ string) (before, after error) {
		if n == 1 { // between what was read and what is written
			now := w.now(p)
			now.Spec.Tolerations = append(now.Spec.Tolerations, added)
			return w.admin.Update(ctx, now), nil
		}
		return nil, nil
	}
	k := &keeper{client: w.counted("here")}
	if res, err := k.Reconcile(ctx, request(p)); err != nil || res.RequeueAfter != keepRetry {
		t.Fatalf("written by another one: %v, %v", res, err)
	}
	w.keeps(p)
	want := map[string]string{notReady: "endless", unreachable: "endless", added.Key: "endless", "mark": notReady + "," + unreachable}
	if d := cmp.Diff(want, tolerated(w.now(p))); d != "" {
		t.Errorf("tried again (-want +got):\n%s", d)
	}
	late := w.pod("late")
	w.fail = func(int, string) (before, after error) { return errors.New("injected"), nil }
	if _, err := k.Reconcile(ctx, request(late)); err == nil {
		t.Error("a failure is not told")
	}
	w.fail = func(int, string) (before, after error) {
		return apierrors.NewNotFound(corev1.Resource("pods"), late.Name), nil
	}
	w.keeps(late)
	w.delete(late, client.GracePeriodSeconds(0))
	w.fail = nil
	w.keeps(late)
}

// awaitTold waits until a pod has these tolerations.
func (w *world) awaitTold(what string, p *corev1.Pod, want map[string]string) {
	w.t.Helper()
	w.await(what, func() bool { return maps.Equal(tolerated(w.now(p)), want) })
}

// keepsThroughOutages is the part of TestManager that what happens wakes the keeper.
func (w *world) keepsThroughOutages() {
	w.t.Helper()
	usual := map[string]string{notReady: "300", unreachable: "300"}
	endless := map[string]string{notReady: "endless", unreachable: "endless", "mark": notReady + "," + unreachable}
	w.ready(w.node, corev1.ConditionTrue)
	w.unreachablePolicy(v1alpha1.UnreachableReplace)
	p := w.pod("kept", owned("StatefulSet"))
	w.await("the pod is carried that is to be kept", func() bool { return w.shadow(p) != nil })
	w.ready(w.node, corev1.ConditionFalse)
	w.unreachablePolicy(v1alpha1.UnreachableKeep)
	w.awaitTold("it is kept from the change of the field on", p, endless)
	late := w.pod("kept-late", func(p *corev1.Pod) { p.Spec.NodeName = "" })
	if err := w.admin.SubResource("binding").Create(ctx, late, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: w.node}}); err != nil {
		w.t.Fatal(err)
	}
	w.awaitTold("one is kept that was bound during the outage", late, endless)
	w.unreachablePolicy(v1alpha1.UnreachableReplace)
	w.awaitTold("it may be replaced from the change of the field on", p, usual)
	w.ready(w.node, corev1.ConditionTrue)
	w.unreachablePolicy(v1alpha1.UnreachableKeep)
	next := w.pod("kept-next")
	w.await("the pod is carried that is there before the outage", func() bool { return w.shadow(next) != nil })
	if got := tolerated(w.now(next)); !maps.Equal(got, usual) {
		w.t.Errorf("before the outage it tolerates %v", got)
	}
	w.ready(w.node, corev1.ConditionFalse)
	w.awaitTold("it is kept when its provider goes", next, endless)
	w.ready(w.node, corev1.ConditionTrue)
	for _, gone := range []*corev1.Pod{p, late, next} {
		w.delete(gone, client.GracePeriodSeconds(0))
		w.await("what was left of a kept one is ended", func() bool { s := w.shadow(gone); return s == nil || s.DeletionTimestamp != nil })
		w.release(string(gone.UID))
	}
}
