package reflection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestMadeAgain: a Service that is made again at home while a controller at the provider still holds the one before is not
// taken for it, is made when that has gone, and is looked for ever more seldom until then.
func TestMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.build(v1alpha1.FeatureOfKind(kindService))
	w.terms(func(t *v1alpha1.TenantTerms) { t.Services = &v1alpha1.TenantServices{LoadBalancers: true} })
	balancer := func() *corev1.Service {
		s := service(w.home, "web")
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		return s
	}
	w.create(balancer())
	w.pod("web")
	w.as(kindService, "web")
	there := func() *corev1.Service { return get(w, w.remote, "web", &corev1.Service{}) }
	held := there()
	held.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
	w.update(held)
	held.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	if err := w.raw.Status().Update(ctx, held); err != nil {
		t.Fatal(err)
	}
	if w.as(kindService, "web"); w.answer("web") != "True/Ready" || len(w.shadow("web").Status.Addresses) != 1 {
		t.Fatalf("%s, by %v", w.answer("web"), w.shadow("web").Status.Addresses)
	}
	w.remove(get(w, w.home, "web", &corev1.Service{}))
	w.as(kindService, "web")
	w.create(balancer())
	w.told("")
	w.send("web")
	for wait := 2 * soon; wait < 20*soon; wait *= 2 {
		res := w.take("web")
		if res.RequeueAfter <= 0 || res.RequeueAfter > wait {
			t.Errorf("looked at again after %s, want %s", res.RequeueAfter, wait)
		}
		if s := w.shadow("web"); w.answer("web") != "False/Pending" || len(s.Status.Addresses) != 0 || !same(s.Status.Ref, &v1alpha1.ObjectRef{Namespace: w.remote, Name: "web"}) {
			t.Errorf("%s by %v as %v, while the one before ends", w.answer("web"), s.Status.Addresses, s.Status.Ref)
		}
	}
	writes := w.writes
	if w.take("web"); w.writes != writes {
		t.Errorf("%d writes while it waits", w.writes-writes)
	}
	if w.send("web"); w.told("NotReflected") != 0 {
		t.Error("home tells that it is refused")
	}
	ending := there()
	ending.Finalizers = nil
	w.update(ending)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	h := (&watcher{client: w.raw, pace: newPacer(w.clock)}).services(w.provider.notes)
	if h.Delete(ctx, event.DeleteEvent{Object: ending}, q); q.Len() != 1 {
		t.Error("that it has gone wakes nothing")
	}
	w.take("web")
	if s := there(); s == nil || s.UID == held.UID || w.answer("web") != "True/Ready" {
		t.Errorf("%s: %v", w.answer("web"), s)
	}
	if h.Delete(ctx, event.DeleteEvent{Object: ending}, q); q.Len() != 1 {
		t.Error("it does not wait any more, and is woken")
	}
	if err := w.raw.Delete(ctx, w.shadow("web"), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if w.take("web"); there() != nil {
		t.Error("it stays")
	}
}
