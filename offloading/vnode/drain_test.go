package vnode

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

type podMeta = metav1.PartialObjectMetadata

func deleting(age time.Duration, grace int64) func(*podMeta) {
	return func(p *podMeta) {
		at := metav1.NewTime(noon.Add(-age))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	}
}

func daemonOf(p *podMeta) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "u", Controller: ptr.To(true)}}
}

func TestDrain(t *testing.T) {
	up := &fleet.State{Reachable: true, Reason: v1alpha1.ReasonPeerReachable}
	gone := func(age time.Duration) *fleet.State {
		return &fleet.State{Reason: v1alpha1.ReasonPeerUnreachable, Since: noon.Add(-age)}
	}
	type want struct{ Evict, Remove, Kill, Left int }
	for _, c := range []struct {
		reason string
		begun  time.Duration // ago
		forced bool
		state  *fleet.State
		pod    []func(*podMeta)
		want   want
	}{
		{reason: "a pod is evicted", state: up, want: want{Evict: 1, Left: 1}},
		{reason: "budgets hold for a minute", begun: budgetsFor - time.Second, state: up, want: want{Evict: 1, Left: 1}},
		{reason: "and no longer", begun: budgetsFor, state: up, want: want{Remove: 1, Left: 1}},
		{reason: "what goes is waited for", state: up, pod: []func(*podMeta){deleting(0, 30)}, want: want{Left: 1}},
		{reason: "beyond its grace too", state: up, pod: []func(*podMeta){deleting(overdue-time.Second, 30)}, want: want{Left: 1}},
		{reason: "not for ever", state: up, pod: []func(*podMeta){deleting(overdue, 30)}, want: want{Kill: 1, Left: 1}},
		{reason: "the peer is away: it may come back", state: gone(awayFor - time.Second), pod: []func(*podMeta){deleting(0, 30)}, want: want{Left: 1}},
		{reason: "away for a minute: given up", state: gone(awayFor), pod: []func(*podMeta){deleting(0, 30)}, want: want{Kill: 1, Left: 1}},
		{reason: "away for a minute: evicted first", state: gone(awayFor), want: want{Evict: 1, Left: 1}},
		{reason: "refused for a minute is away", state: &fleet.State{Reachable: true, Reason: v1alpha1.ReasonForbidden, Since: noon.Add(-awayFor)}, pod: []func(*podMeta){deleting(0, 30)}, want: want{Kill: 1, Left: 1}},
		{reason: "no connection", begun: awayFor - time.Second, pod: []func(*podMeta){deleting(0, 30)}, want: want{Left: 1}},
		{reason: "no connection for a minute", begun: awayFor, pod: []func(*podMeta){deleting(0, 30)}, want: want{Kill: 1, Left: 1}},
		{reason: "force", state: up, forced: true, want: want{Kill: 1, Left: 1}},
		{reason: "force, and going already", state: up, forced: true, pod: []func(*podMeta){deleting(0, 30)}, want: want{Kill: 1, Left: 1}},
		{reason: "given up, and held by another's finalizer", state: up, pod: []func(*podMeta){deleting(overdue-time.Second, 0)}, want: want{Left: 1}},
		{reason: "that is not waited for for ever", state: up, pod: []func(*podMeta){deleting(overdue, 0)}},
		{reason: "less with force", state: up, forced: true, pod: []func(*podMeta){deleting(stuckForced, 0)}},
		{reason: "a DaemonSet's goes with the node", state: up, forced: true, pod: []func(*podMeta){daemonOf}},
	} {
		var pod podMeta
		for _, f := range c.pod {
			f(&pod)
		}
		s := drain(drainFacts{now: noon, since: noon.Add(-c.begun), forced: c.forced, state: c.state, pods: []podMeta{pod}})
		if diff := cmp.Diff(c.want, want{len(s.evict), len(s.remove), len(s.kill), s.left}); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.reason, diff)
		}
	}
	s := drain(drainFacts{now: noon, since: noon, state: up, pods: make([]podMeta, 3*maxPerPass)})
	if len(s.evict) != maxPerPass || !s.more || s.left != 3*maxPerPass {
		t.Errorf("many pods: %d evicted, more %v, left %d", len(s.evict), s.more, s.left)
	}
}

// TestDrainOfDeletedNode holds that a drain begins though somebody has deleted the node and a finalizer of his keeps it.
func TestDrainOfDeletedNode(t *testing.T) {
	w := newWorld(t)
	w.offer(w.key("default"))
	w.settle("default")
	guarded := w.pod(w.options.Namespace, w.name, func(p *corev1.Pod) { p.Labels = map[string]string{"guarded": w.name} })
	w.run(guarded)
	w.create(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.options.Namespace, Name: "deleted-node"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &intstr.IntOrString{IntVal: 1}, Selector: &metav1.LabelSelector{MatchLabels: guarded.Labels},
	}})
	finalizers := func(all ...string) {
		t.Helper()
		n := w.node("default")
		n.Finalizers = all
		if err := w.client.Update(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	finalizers("example.com/theirs")
	if err := w.client.Delete(ctx, w.node("default")); err != nil {
		t.Fatal(err)
	}
	w.decide(w.key("default"), false, v1alpha1.ReasonDeclined)
	w.settle("default")
	there := func() bool {
		return w.exists(client.ObjectKeyFromObject(guarded), guarded) && guarded.DeletionTimestamp == nil
	}
	if !there() || !draining(w.node("default")) {
		t.Errorf("its budget holds: %v; since when it is drained is noted: %v", there(), draining(w.node("default")))
	}
	w.clock.SetTime(w.clock.Now().Add(budgetsFor))
	if w.settle("default"); there() {
		t.Error("a budget holds up the end for more than a minute")
	}
	w.finishAll(guarded)
	finalizers()
	w.settle("default")
	w.expect("drained", "default", "False/Declined", "")
}

func TestDrainingSince(t *testing.T) {
	f := usual(made)
	for text, want := range map[string]time.Time{
		"2026-01-02T11:59:00Z": noon.Add(-time.Minute), "2036-01-02T11:59:00Z": noon, "when?": noon, "": noon,
	} {
		f.node.Annotations[annotationDraining] = text
		if got := drainingSince(f.node, noon); !got.Equal(want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
