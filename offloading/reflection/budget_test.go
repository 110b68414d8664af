package reflection

import (
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// newBudget is a world whose provider takes budgets, with one of which one pod may go, and its name.
func newBudget(t *testing.T) (*world, *policyv1.PodDisruptionBudget) {
	t.Helper()
	w := newWorld(t)
	w.kind = kindBudget
	w.terms(func(terms *v1alpha1.TenantTerms) { terms.DisruptionBudgets = new(true) })
	b := &policyv1.PodDisruptionBudget{ObjectMeta: objectMeta(w.home, "web"), Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	w.create(b)
	return w, b
}

// ofBudget makes a pod of the budget on a node, ready or not.
func (w *world) ofBudget(name, node string, is corev1.ConditionStatus) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: objectMeta(w.home, name), Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}}}
	p.Labels = map[string]string{"app": "web"}
	w.create(p)
	w.become(p, is)
	return p
}

func (w *world) become(p *corev1.Pod, is corev1.ConditionStatus) {
	w.t.Helper()
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}
	if err := w.raw.Status().Update(ctx, p); err != nil {
		w.t.Fatal(err)
	}
}

// count does what home's own controller does.
func (w *world) count(b *policyv1.PodDisruptionBudget, desired, expected int32) {
	w.t.Helper()
	b.Status.ObservedGeneration, b.Status.DesiredHealthy, b.Status.ExpectedPods = b.Generation, desired, expected
	if err := w.raw.Status().Update(ctx, b); err != nil {
		w.t.Fatal(err)
	}
}

// TestCountedBudget: a budget of how many may go is a number at the provider, which follows what is at home
// and elsewhere, and not what is there.
func TestCountedBudget(t *testing.T) {
	t.Parallel()
	w, b := newBudget(t)
	oslo := w.another()
	is := func(when string, want int) {
		t.Helper()
		w.both("web")
		got := -1
		if made := get(w, w.remote, "web", &policyv1.PodDisruptionBudget{}); made != nil {
			got = made.Spec.MinAvailable.IntValue()
			if made.Spec.MaxUnavailable != nil || made.Spec.Selector.MatchLabels["app"] != "web" {
				t.Errorf("%s: %+v", when, made.Spec)
			}
		}
		if got != want {
			t.Errorf("%s: %d have to stay, not %d (%s)", when, got, want, w.answer("web"))
		}
	}
	first := w.ofBudget("web-1", w.name, corev1.ConditionTrue)
	w.ofBudget("web-2", w.name, corev1.ConditionTrue)
	is("home's controller has not counted yet", -1)
	w.count(b, 1, 2)
	is("two are there, one may go", 1)
	before := w.writes
	w.become(first, corev1.ConditionFalse)
	is("one is not well there, which the provider sees", 1)
	if w.writes != before {
		t.Errorf("%d writes for what happens there", w.writes-before)
	}
	w.count(b, 3, 4)
	is("two more are wanted, and none of them is well", 3)
	home := w.ofBudget("web-3", "node-1", corev1.ConditionTrue)
	is("one is well at home", 2)
	far := w.ofBudget("web-4", oslo, corev1.ConditionTrue)
	is("and one at another provider", 1)
	w.ofBudget("other", "node-1", corev1.ConditionTrue)
	home.Labels = map[string]string{"app": "other"}
	w.update(home)
	is("one is not of the budget any more, and another one is", 1)
	w.become(far, corev1.ConditionFalse)
	is("one elsewhere is not well", 2)
	w.become(far, corev1.ConditionTrue)
	b.Status.DisruptedPods = map[string]metav1.Time{far.Name: metav1.Now()}
	w.count(b, 3, 4)
	is("one elsewhere was let go, and is about to end", 2)
	b.Status.DisruptedPods = nil
	w.count(b, 1, 2)
	is("fewer are wanted: enough are elsewhere", 0)
	if p := get(w, w.remote, "web", &policyv1.PodDisruptionBudget{}).Spec.UnhealthyPodEvictionPolicy; p == nil || *p != policyv1.AlwaysAllow {
		t.Error("none has to stay, and one that is not ready has to")
	}
	w.count(b, 3, 4)
	is("as before", 1)
	b.Spec.MaxUnavailable = new(intstr.FromString("50%"))
	w.update(b)
	is("home's controller has not counted for the new budget: what is there stays", 1)
	w.count(b, 2, 4)
	is("it has", 0)
	w.count(b, 0, 0)
	is("no controller of its pods is known: home lets none go, nor does the provider", math.MaxInt32)
	b.Spec.MaxUnavailable, b.Spec.MinAvailable = nil, new(intstr.FromInt32(7))
	w.update(b)
	is("a number goes as it is", 7)
}

// TestCountedBudgetIsPaced: however many pods come and go, a budget is written once a second, and
// looked at within a minute if nothing says that it is another one.
func TestCountedBudgetIsPaced(t *testing.T) {
	t.Parallel()
	w, b := newBudget(t)
	w.ofBudget("there", w.name, corev1.ConditionTrue)
	const seconds, burst = 5, 10
	w.count(b, seconds*burst, seconds*burst+1)
	shadows, numbers := 0, map[int]bool{}
	w.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*v1alpha1.ShadowObject); ok && verb != "status" {
			shadows++
		}
		return nil
	}
	begin := w.clock.Now()
	for second := range seconds {
		for pod := range burst { // each is told of by a write of the budget's status, which asks for it
			w.clock.Step(readEvery / burst)
			w.ofBudget(fmt.Sprintf("web-%d-%d", second, pod), "node-1", corev1.ConditionTrue)
			res, err := w.consumer.Reconcile(ctx, at(w.name, w.of("web")))
			if err != nil {
				t.Fatal(err)
			}
			if res.RequeueAfter <= 0 || res.RequeueAfter > rereadEvery {
				t.Errorf("looked at again after %s", res.RequeueAfter)
			}
		}
		w.take("web")
		numbers[get(w, w.remote, "web", &policyv1.PodDisruptionBudget{}).Spec.MinAvailable.IntValue()] = true
	}
	took := w.clock.Since(begin)
	if shadows > int(took.Seconds())+1 || len(numbers) < 2 {
		t.Errorf("%d writes in %s, the numbers %v", shadows, took, numbers)
	}
	t.Logf("%d pods, %d writes in %s", seconds*burst, shadows, took)
	w.send("web")
	w.take("web")
	if least := get(w, w.remote, "web", &policyv1.PodDisruptionBudget{}).Spec.MinAvailable.IntValue(); least != 0 {
		t.Errorf("enough are elsewhere in the end, and %d have to stay", least)
	}
}

// TestCountedBudgetWakes: what home's controller counts asks for the budget.
func TestCountedBudgetWakes(t *testing.T) {
	t.Parallel()
	w, b := newBudget(t)
	old := b.DeepCopy()
	w.count(b, 1, 2)
	wakers := wakers{cache: indexed{w.raw}, fleet: w, spaces: w.consumer.spaces}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	wakers.ofHome(kindBudget).Update(ctx, event.UpdateEvent{ObjectOld: old, ObjectNew: b}, q)
	for q.Len() > 0 {
		r, _ := q.Get()
		q.Done(r)
		if r == at(w.name, w.of("web")) {
			return
		}
	}
	t.Error("not asked for when its status changes")
}
