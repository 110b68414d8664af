package consumer

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestLife is a pod that starts, runs and is deleted: it costs four writes of ours, and
// no events.
func TestLife(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web")
	w.reconcile(p)
	s := w.shadow(p)
	if s == nil || s.Spec.Home != (v1alpha1.HomePod{Namespace: w.home, Name: "web"}) || s.Spec.Request != v1alpha1.DefaultRequestName || len(s.Finalizers) != 1 {
		t.Fatalf("the shadow pod is %+v", s)
	}
	w.reconcile(p)
	w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(p)
	got := w.now(p)
	if got.Status.Phase != corev1.PodRunning || condition(got, corev1.PodReady).Status != corev1.ConditionTrue || got.Status.HostIP != "192.0.2.7" || got.Status.PodIP != "" {
		t.Errorf("the home pod says %+v", got.Status)
	}
	w.reconcile(p)
	w.delete(p)
	w.reconcile(p)
	if s := w.shadow(p); s.DeletionTimestamp == nil || s.Spec.GracePeriodSeconds != nil {
		t.Errorf("the shadow pod is not being deleted with its own grace: %+v", s.ObjectMeta)
	}
	w.tell(p, ended(corev1.PodFailed, 143), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(p)
	if w.now(p) == nil {
		t.Fatal("the home pod is gone before the provider's")
	}
	w.release(string(p.UID))
	w.reconcile(p)
	if w.now(p) != nil {
		t.Error("the home pod stays")
	}
	w.reconcile(p)
	want := map[string]int{"there create": 1, "here status": 1, "there delete": 1, "here delete": 1}
	if diff := cmp.Diff(want, w.writes); diff != "" {
		t.Errorf("writes (-want +got)\n%s", diff)
	}
	if len(w.recorded.Events) > 0 {
		t.Errorf("an event: %s", <-w.recorded.Events)
	}
	if len(w.pods.ledger.entries) != 0 || len(w.pods.ledger.count) != 0 {
		t.Errorf("it is remembered: %v", w.pods.ledger.entries)
	}
}

// TestRestartAtEveryWrite lets each write fail, before or after it was done, and the
// program restart there: it ends the same, with one pod made.
func TestRestartAtEveryWrite(t *testing.T) {
	lives := []struct {
		reason string
		edit   func(*corev1.Pod)
		refuse bool
	}{
		{"runs and is deleted", func(*corev1.Pod) {}, false},
		{"runs once and is deleted", never1, false},
		{"is refused and evicted", owned("ReplicaSet"), true},
	}
	for _, c := range lives {
		for _, late := range []bool{false, true} {
			w := newWorld(t)
			for n := 1; n < 20; n++ {
				failed := w.breakAt(n, late)
				p := w.pod(fmt.Sprint("web-", n), c.edit)
				settle := func() {
					for range 3 {
						if _, err := w.pods.Reconcile(ctx, request(p)); err != nil {
							w.restart()
						}
					}
				}
				settle()
				if c.refuse {
					w.tell(p, nil, accepted(metav1.ConditionFalse, v1alpha1.ReasonUnschedulable, "no room"))
				} else {
					w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
				}
				settle()
				if !c.refuse {
					w.delete(p)
				}
				settle()
				w.release(string(p.UID))
				settle()
				if w.now(p) != nil || w.shadow(p) != nil || w.made != 1 {
					t.Errorf("%s, write %d fails (late: %v): home pod there %v, shadow there %v, %d made",
						c.reason, n, late, w.now(p) != nil, w.shadow(p) != nil, w.made)
				}
				if list := w.refused(); c.refuse && (len(list) != n || list[0].Count != 1) {
					t.Errorf("%s, write %d fails (late: %v): refusals %+v", c.reason, n, late, list)
				}
				if !*failed {
					break
				}
			}
		}
	}
}

// breakAt lets the n-th write from now on fail, before or after it was done, and
// returns whether it came to that.
func (w *world) breakAt(n int, late bool) *bool {
	broken, failed := errors.New("broken"), new(bool)
	w.total, w.made = 0, 0
	w.fail = func(i int, _ string) (error, error) {
		switch {
		case i != n:
			return nil, nil
		case late:
			*failed = true
			return nil, broken
		}
		*failed = true
		return broken, nil
	}
	return failed
}

// refused is what is remembered of refusals.
func (w *world) refused() []v1alpha1.Refusal {
	w.t.Helper()
	m := &v1alpha1.NamespaceMap{}
	if err := w.admin.Get(ctx, mapKey(w.peering), m); err != nil {
		w.t.Fatal(err)
	}
	return m.Status.Refusals
}

// TestGrace holds that a deletion's own grace period reaches the provider, also when it
// gets shorter later.
func TestGrace(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	w.delete(p, client.GracePeriodSeconds(5))
	w.reconcile(p)
	if s := w.shadow(p); s.DeletionTimestamp == nil || s.Spec.GracePeriodSeconds == nil || *s.Spec.GracePeriodSeconds != 5 || s.Spec.Pod == "" {
		t.Errorf("first: %+v", s.Spec.GracePeriodSeconds)
	}
	w.reconcile(p)
	w.delete(p, client.GracePeriodSeconds(1))
	w.reconcile(p)
	if s := w.shadow(p); *s.Spec.GracePeriodSeconds != 1 {
		t.Errorf("then: %d", *s.Spec.GracePeriodSeconds)
	}
	if w.writes["there patch"] != 2 || w.writes["there delete"] != 1 {
		t.Errorf("writes %v", w.writes)
	}
}

// TestAway holds that a partition shows at once, that nothing is done over it, and that
// all is as before when it is over.
func TestAway(t *testing.T) {
	w := newWorld(t)
	p, q := w.runs("web"), w.pod("late")
	before := w.now(p).Status
	w.peer.state = silent
	w.reconcile(p)
	w.reconcile(q)
	got := w.now(p)
	if c := condition(got, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != v1alpha1.ReasonPeerUnreachable || got.Status.Phase != corev1.PodRunning {
		t.Errorf("away: %+v", got.Status)
	}
	if w.shadow(q) != nil {
		t.Error("a shadow pod was created at a provider that is away")
	}
	writes := w.total
	w.reconcile(p)
	if w.total != writes {
		t.Error("what is known was written again")
	}
	w.delete(q)
	w.clock.Step(time.Hour)
	if res := w.reconcile(q); w.now(q) == nil || res.RequeueAfter != 0 {
		t.Errorf("a deletion did not wait for the provider, or polls: %v", res)
	}
	w.peer.state = answering
	w.reconcile(p)
	w.reconcile(q)
	after := w.now(p).Status
	for i := range after.Conditions {
		after.Conditions[i].LastTransitionTime, before.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("back (-before +after)\n%s", diff)
	}
	if w.now(q) != nil {
		t.Error("back: the deleted pod stays")
	}
}

// TestStarting holds that a program that has just started takes nothing for lost.
func TestStarting(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	for reason, set := range map[string]func(){
		"no connection yet": func() { w.peer.missing = true },
		"first attempt":     func() { w.peer.state = starting; w.peer.hidden[string(p.UID)] = true },
		"not read yet":      func() { w.peer.blind = true },
	} {
		w.peer.missing, w.peer.blind, w.peer.state = false, false, answering
		set()
		w.restart()
		writes := w.total
		w.reconcile(p)
		if w.total != writes {
			t.Errorf("%s: something was written", reason)
		}
	}
}

// TestEndsWhileAway holds when a home pod goes though its provider does not answer: if
// something larger ends, a minute after the provider went.
func TestEndsWhileAway(t *testing.T) {
	for _, c := range []struct {
		reason string
		change func(*world)
		state  fleetState
		gone   bool
	}{
		{"only the pod is deleted", func(*world) {}, away1, false},
		{"the offloading is deleted", func(w *world) {
			w.drop(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: v1alpha1.OffloadingName}})
		}, away1, true},
		{"the peering is deleted", func(w *world) { w.drop(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: w.peering}}) }, away1, true},
		{"the namespace is deleted", func(w *world) { w.drop(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.home}}) }, away1, true},
		{"the node is deleted", func(w *world) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}}
			if err := w.admin.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["example.org/x"]}}`))); err != nil {
				w.t.Fatal(err)
			}
			w.drop(node)
			w.t.Cleanup(func() {
				_ = w.admin.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
			})
		}, away1, true},
		{"there is no connection any more", func(w *world) {
			w.drop(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: w.peering}})
		}, none1, true},
		{"the provider answers", func(w *world) {
			w.drop(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: w.peering}})
		}, here1, false},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := newWorld(t)
			p := w.runs("web", never1)
			w.peer.state, w.peer.missing = c.state.state, c.state.missing
			w.peer.state.Since = w.clock.Now()
			w.delete(p)
			c.change(w)
			// Deletion times are the server's.
			w.clock.SetTime(time.Now().Truncate(time.Second))
			w.peer.state.Since = w.clock.Now()
			w.restart()
			res := w.reconcile(p)
			if w.now(p) == nil {
				t.Fatal("the pod is gone at once")
			}
			if c.gone && (res.RequeueAfter <= 0 || res.RequeueAfter > patience) {
				t.Errorf("looked at again in %s", res.RequeueAfter)
			}
			w.clock.Step(patience + time.Second)
			w.reconcile(p)
			if gone := w.now(p) == nil; gone != c.gone {
				t.Errorf("gone after a minute: %v, want %v", gone, c.gone)
			}
			if w.shadow(p) == nil {
				t.Error("the provider's was deleted over a cut link")
			}
			if !c.gone {
				return
			}
			w.peer.state, w.peer.missing = answering, false
			w.look(p)
			if s := w.shadow(p); s.DeletionTimestamp == nil {
				t.Error("the provider is back, and what is left there stays")
			}
		})
	}
}

type fleetState struct {
	state   fleetStateOf
	missing bool
}

// drop deletes an object.
func (w *world) drop(obj client.Object) {
	w.t.Helper()
	if err := w.admin.Delete(ctx, obj); err != nil {
		w.t.Fatal(err)
	}
}

// look lets the controller of orphans look at a pod's ShadowPod.
func (w *world) look(p *corev1.Pod) ctrl.Result {
	w.t.Helper()
	res, err := w.orphans.Reconcile(ctx, shadowAt(w.peering, string(p.UID)))
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

// TestManyDeletedWhileAway deletes many pods while the provider is away: all go when it
// is back, those at the provider first.
func TestManyDeletedWhileAway(t *testing.T) {
	const many = 500
	w := newWorld(t)
	all := make([]*corev1.Pod, many)
	each := func(do func(i int) error) {
		t.Helper()
		var running sync.WaitGroup
		next := make(chan int)
		for range 16 {
			running.Go(func() {
				for i := range next {
					if err := do(i); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for i := range many {
			next <- i
		}
		close(next)
		running.Wait()
	}
	look := func(i int) error {
		_, err := w.pods.Reconcile(ctx, request(all[i]))
		return err
	}
	each(func(i int) error {
		all[i] = template(w.home, fmt.Sprint("web-", i), w.node)
		return errors.Join(w.admin.Create(ctx, all[i]), look(i))
	})
	w.peer.state = silent
	each(func(i int) error { return errors.Join(w.admin.Delete(ctx, all[i].DeepCopy()), look(i)) })
	if left := w.left(); left != many || w.writes["there delete"] != 0 {
		t.Fatalf("%d of %d pods are left, %d deletions were sent", left, many, w.writes["there delete"])
	}
	w.peer.state = answering
	w.restart() // what is remembered does not matter
	each(look)
	each(func(i int) error { w.release(string(all[i].UID)); return look(i) })
	if left := w.left(); left != 0 {
		t.Errorf("%d pods are left", left)
	}
	list := &v1alpha1.ShadowPodList{}
	if err := w.admin.List(ctx, list, client.InNamespace(w.peer.namespace)); err != nil || len(list.Items) > 0 {
		t.Errorf("%d shadow pods are left, %v", len(list.Items), err)
	}
	if want := (map[string]int{"there create": many, "there delete": many, "here delete": many}); !cmp.Equal(want, w.writes) {
		t.Errorf("writes %v", w.writes)
	}
}

func (w *world) left() int {
	w.t.Helper()
	list := &corev1.PodList{}
	if err := w.admin.List(ctx, list, client.InNamespace(w.home)); err != nil {
		w.t.Fatal(err)
	}
	return len(list.Items)
}

// TestForcedAndReused holds that what a pod deleted by force leaves behind is ended,
// and that its successor of the same name is another pod.
func TestForcedAndReused(t *testing.T) {
	w := newWorld(t)
	old := w.runs("web-0")
	if w.look(old); w.shadow(old).DeletionTimestamp != nil {
		t.Fatal("a shadow pod with a home pod was ended")
	}
	w.delete(old, client.GracePeriodSeconds(0))
	fresh := w.pod("web-0")
	w.reconcile(fresh)
	if w.shadow(fresh) == nil || w.shadow(old).DeletionTimestamp != nil {
		t.Fatal("the new pod has no shadow pod, or the old one's was taken for it")
	}
	w.look(old)
	w.look(fresh)
	if w.shadow(old).DeletionTimestamp == nil || w.shadow(fresh).DeletionTimestamp != nil {
		t.Error("not the old one was ended")
	}
	w.release(string(old.UID))
	w.tell(fresh, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(fresh)
	if got := w.now(fresh); got.Status.Phase != corev1.PodRunning {
		t.Errorf("the new pod is %s", got.Status.Phase)
	}
	// A status of the old pod's, decided before it was replaced, is not the new one's.
	stale := *old
	stale.Status = corev1.PodStatus{Phase: corev1.PodPending}
	if err := w.pods.status(ctx, &facts{pod: &stale, now: w.clock.Now()}, plan{status: ended(corev1.PodFailed, 1)}); err != nil {
		t.Fatal(err)
	}
	if got := w.now(fresh); got.Status.Phase != corev1.PodRunning {
		t.Errorf("the old pod's status was written into the new one: %s", got.Status.Phase)
	}
}

// TestWaiting holds that a provider that is not ready for a pod only says so.
func TestWaiting(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web", owned("ReplicaSet"))
	w.reconcile(p)
	w.tell(p, nil, accepted(metav1.ConditionFalse, v1alpha1.ReasonNamespaceMissing, "being made"))
	w.reconcile(p)
	got := w.now(p)
	if got.Status.Reason != v1alpha1.ReasonNamespaceMissing || got.DeletionTimestamp != nil || len(w.refused()) > 0 || len(w.recorded.Events) > 0 {
		t.Errorf("waiting: %+v", got.Status)
	}
	w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(p)
	if got = w.now(p); got.Status.Reason != "" || condition(got, corev1.PodReady).Status != corev1.ConditionTrue {
		t.Errorf("running: %+v", got.Status)
	}
}

// TestNotForged holds which pods on a virtual node are not carried.
func TestNotForged(t *testing.T) {
	w := newWorld(t)
	tolerant := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	bare := w.pod("everything", tolerant)
	w.reconcile(bare)
	if got := w.now(bare); got.Status.Reason != v1alpha1.ReasonRefused || w.shadow(bare) != nil || !strings.Contains(got.Status.Message, v1alpha1.TaintVirtualNode) {
		t.Errorf("not admitted: %+v", got.Status)
	}
	w.label(false)
	outside, daemon := w.pod("outside"), w.pod("daemon", owned("DaemonSet"))
	w.reconcile(outside)
	w.reconcile(daemon)
	if got := w.now(outside); got.Status.Reason != v1alpha1.ReasonRefused || w.shadow(outside) != nil {
		t.Errorf("not offloaded: %+v", got.Status)
	}
	if got := w.now(daemon); got.Status.Reason != "" || w.shadow(daemon) != nil {
		t.Errorf("a pod of a DaemonSet: %+v", got.Status)
	}
	for _, p := range []*corev1.Pod{bare, outside} {
		w.delete(p)
		w.reconcile(p)
		if w.now(p) != nil {
			t.Errorf("%s stays", p.Name)
		}
	}
	w.label(true)
	p := w.runs("inside")
	w.label(false) // what runs goes on until it is evicted
	w.tell(p, ended(corev1.PodRunning, 1), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(p)
	if got := w.now(p); condition(got, corev1.PodReady).Status != corev1.ConditionFalse {
		t.Errorf("its status does not come home: %+v", got.Status)
	}
}

// TestFinished holds that an end is told once and stays, that a disruption comes home
// as one, and that nothing is made again.
func TestFinished(t *testing.T) {
	for _, c := range []struct {
		reason string
		status *corev1.PodStatus
	}{
		{"succeeded", ended(corev1.PodSucceeded, 0)},
		{"failed", ended(corev1.PodFailed, 3)},
		{"disrupted", func() *corev1.PodStatus {
			s := ended(corev1.PodFailed, 137)
			s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "NodeLost"})
			return s
		}()},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := newWorld(t)
			p := w.runs("job", never1)
			w.tell(p, c.status, accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
			w.reconcile(p)
			got := w.now(p)
			if got.Status.Phase != c.status.Phase || (condition(got, corev1.DisruptionTarget).Status == corev1.ConditionTrue) != (c.reason == "disrupted") {
				t.Errorf("home says %+v", got.Status)
			}
			writes := w.total
			w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
			w.reconcile(p)
			w.drop(w.shadow(p))
			w.release(string(p.UID))
			w.reconcile(p)
			if got := w.now(p); w.total != writes || got.Status.Phase != c.status.Phase {
				t.Errorf("after the end: %d writes more, %s", w.total-writes, got.Status.Phase)
			}
			w.delete(p) // finished pods go at once
			if w.reconcile(p); w.now(p) != nil || w.made != 1 {
				t.Errorf("it stays, or %d were made", w.made)
			}
		})
	}
}

// TestFinishedWhileDeleted holds that a deleted pod of a Job, which the Job's finalizer
// keeps, gets a terminal phase.
func TestFinishedWhileDeleted(t *testing.T) {
	keep := func(p *corev1.Pod) { never1(p); p.Finalizers = []string{"batch.kubernetes.io/job-tracking"} }
	for _, c := range []struct {
		reason string
		status *corev1.PodStatus
		want   corev1.PodPhase
	}{
		{"it finished in time", ended(corev1.PodSucceeded, 0), corev1.PodSucceeded},
		{"it was ended", ended(corev1.PodFailed, 143), corev1.PodFailed},
		{"nobody said", nil, corev1.PodFailed},
	} {
		for _, forgetful := range []bool{false, true} {
			w := newWorld(t)
			p := w.runs("job", keep)
			w.delete(p)
			w.reconcile(p)
			if c.status != nil {
				w.tell(p, c.status, accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
				w.reconcile(p)
			}
			w.release(string(p.UID))
			if forgetful {
				w.restart()
			}
			w.reconcile(p)
			got := w.now(p)
			if got == nil || got.Status.Phase != c.want || *got.DeletionGracePeriodSeconds != 0 {
				t.Errorf("%s (restarted: %v): %+v", c.reason, forgetful, got.Status.Phase)
			}
			writes := w.total
			if w.reconcile(p); w.total != writes {
				t.Errorf("%s: %d writes while a finalizer keeps it", c.reason, w.total-writes)
			}
			got.Finalizers = nil
			_ = w.admin.Update(ctx, got)
		}
	}
}
