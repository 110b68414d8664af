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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// TestAway holds that a partition shows at once, that nothing is done over it, and that
// all is as before when it is over.
func TestAway(t *testing.T) {
	w := newWorld(t)
	p, q := w.runs("web"), w.pod("late")
	before := w.now(p).Status
	w.peer.state = fleet.State{Reason: v1alpha1.ReasonTooMany, Err: fleet.ErrTooLarge} // as good as away
	w.reconcile(p)
	w.reconcile(q)
	got := w.now(p)
	w.peer.state = silent
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

// TestEndsUnready holds that a pod that ends slowly, and is not ready any more, is not told to be: where its provider
// does not answer, and where it says so; and that one that is gone at once costs nothing.
func TestEndsUnready(t *testing.T) {
	ready := func(w *world, p *corev1.Pod) corev1.PodCondition { return condition(w.now(p), corev1.PodReady) }
	w := newWorld(t)
	p := w.runs("web", owned("StatefulSet"))
	w.delete(p)
	w.reconcile(p)
	if c := ready(w, p); c.Status != corev1.ConditionTrue {
		t.Fatalf("it ends, and is ready there: %+v", c)
	}
	w.peer.state = silent
	w.reconcile(p)
	if c := ready(w, p); c.Status != corev1.ConditionFalse || c.Reason != v1alpha1.ReasonPeerUnreachable {
		t.Errorf("the provider does not answer: %+v", c)
	}

	w = newWorld(t)
	p = w.runs("web", owned("StatefulSet"))
	w.delete(p)
	for range 2 {
		w.reconcile(p)
	}
	s := running()
	for i := range s.Conditions {
		if s.Conditions[i].Type == corev1.PodReady || s.Conditions[i].Type == corev1.ContainersReady {
			s.Conditions[i].Status, s.Conditions[i].Reason = corev1.ConditionFalse, "ContainersNotReady"
		}
	}
	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].Ready = false
	}
	w.tell(p, s, accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	if res := w.reconcile(p); ready(w, p).Status != corev1.ConditionTrue || res.RequeueAfter <= 0 || res.RequeueAfter > lingers {
		t.Errorf("at once: %+v, again in %s", ready(w, p), res.RequeueAfter)
	}
	w.clock.Step(lingers)
	w.reconcile(p)
	if c := ready(w, p); c.Status != corev1.ConditionFalse || w.now(p).Status.Phase != corev1.PodRunning {
		t.Errorf("when it is not gone: %+v", c)
	}
	writes := w.total
	if w.reconcile(p); w.total != writes {
		t.Errorf("%d writes when nothing is new", w.total-writes)
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
		{"the offloading of a tenant's is deleted", func(w *world) {
			w.tenants()
			w.drop(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: v1alpha1.OffloadingName}})
		}, away1, false},
		{"the peering is deleted, of a tenant's", func(w *world) {
			w.tenants()
			w.drop(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: w.peering}})
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

// TestEndsWhileNobodyLooks holds what becomes of a pod whose provider answers and does not end it: as its namespace ends it
// is let go in time, and else it waits, and says for what.
func TestEndsWhileNobodyLooks(t *testing.T) {
	for _, c := range []struct {
		reason string
		change func(*world)
		gone   bool
	}{
		{"only the pod is deleted", func(*world) {}, false},
		{"the offloading is deleted", func(w *world) {
			w.drop(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: v1alpha1.OffloadingName}})
		}, false},
		{"the namespace is deleted, of a tenant's", func(w *world) {
			w.tenants()
			w.drop(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.home}})
		}, false},
		{"the namespace is deleted", func(w *world) { w.drop(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.home}}) }, true},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := newWorld(t)
			p := w.runs("web", owned("StatefulSet"))
			s := w.shadow(p)
			s.Finalizers = []string{v1alpha1.FinalizerShadowPod}
			if err := w.admin.Update(ctx, s); err != nil {
				t.Fatal(err)
			}
			w.delete(p)
			c.change(w)
			w.peer.state.Since = w.clock.Now().Add(-time.Hour)
			w.restart()
			w.reconcile(p)
			if w.shadow(p).DeletionTimestamp == nil {
				t.Fatal("the provider is not told")
			}
			grace := time.Duration(*w.now(p).DeletionGracePeriodSeconds) * time.Second
			if again := w.reconcile(p).RequeueAfter; again <= 0 || again > grace+patience {
				t.Errorf("looked at again in %s", again)
			}
			w.clock.Step(grace + patience + 2*time.Second)
			w.reconcile(p)
			if got := w.now(p); got == nil || got.Status.Reason != v1alpha1.ReasonTerminating || !strings.Contains(got.Status.Message, w.peering) {
				t.Fatalf("it does not say for what it waits: %v", got)
			}
			w.clock.Step(shadow.LongestGrace)
			w.reconcile(p)
			if gone := w.now(p) == nil; gone != c.gone {
				t.Errorf("gone: %v, want %v", gone, c.gone)
			}
			if told := w.happened("OffloadingLeft"); told != c.gone {
				t.Errorf("told in an event: %v", told)
			}
		})
	}
}

// happened says whether there was an event of a reason.
func (w *world) happened(reason string) bool {
	for {
		select {
		case text := <-w.recorded.Events:
			if strings.Contains(text, " "+reason+" ") {
				return true
			}
		default:
			return false
		}
	}
}

// tenants makes the home namespace one that is here for a tenant.
func (w *world) tenants() {
	w.t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.home}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:"turin"}}}`, v1alpha1.LabelTenant))
	if err := w.admin.Patch(ctx, n, patch); err != nil {
		w.t.Fatal(err)
	}
}

type fleetState struct {
	state   fleetStateOf
	missing bool
}

// TestManyDeletedWhileAway deletes many pods while the provider is away: all go when it
// is back, those at the provider first.
func TestManyDeletedWhileAway(t *testing.T) {
	many := 100
	if kubetest.All() {
		many = 500
	}
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
