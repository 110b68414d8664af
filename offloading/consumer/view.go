package consumer

import (
	"context"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// Views says by which addresses this cluster sees pods of providers. It may be asked at
// any time, by many at once. It is asked again of all pods of a peering soon after the
// NetworkConfig in which the views are kept says others.
type Views interface {
	// View is the address by which this cluster sees a pod that has a real one at the
	// provider of a peering; false if it does not see it, or that is not known yet.
	View(peering string, real netip.Addr) (here netip.Addr, ok bool)
}

const (
	// viewPace is how soon after views changed pods are looked at: who answers for Views
	// learns of it as we do, perhaps later.
	viewPace = 2 * time.Second
	// settling is how long after the start no pod loses its address because there is no
	// view: who answers for Views has to learn them first.
	settling = time.Minute
)

// view is how pods of a peering are seen, nil if there is no network.
func (r *reconciler) view(peering string) shadow.View {
	if r.views == nil {
		return nil
	}
	return func(real netip.Addr) (netip.Addr, bool) { return r.views.View(peering, real) }
}

// settled keeps the addresses that a pod has while views are being learnt, and says when to
// look again; 0 if that is over, or the pod keeps nothing.
func settled(f facts, next *corev1.PodStatus) time.Duration {
	left := f.began.Add(settling).Sub(f.now)
	if f.view == nil || left <= 0 || left > settling || len(next.PodIPs) > 0 || len(f.pod.Status.PodIPs) == 0 || terminal(next.Phase) {
		return 0
	}
	shadow.SetAddresses(next, f.pod.Status.PodIPs)
	return left
}

// networks wakes, a little later, the pods of a peering whose views are others.
func (w wakers) networks(pace time.Duration) handler.EventHandler {
	wake := func(ctx context.Context, n client.Object, q queue) {
		peering, ok := strings.CutPrefix(n.GetNamespace(), v1alpha1.PeeringNamespacePrefix)
		if !ok || n.GetName() != v1alpha1.NetworkProvider {
			return
		}
		for _, request := range w.ofPeer(ctx, peering) {
			q.AddAfter(request, pace)
		}
	}
	return handler.TypedFuncs[client.Object, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if len(viewsOf(e.Object)) > 0 {
				wake(ctx, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if !equality.Semantic.DeepEqual(viewsOf(e.ObjectOld), viewsOf(e.ObjectNew)) {
				wake(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, e.Object, q) },
	}
}

func viewsOf(obj client.Object) []v1alpha1.NetworkView {
	n, ok := obj.(*v1alpha1.NetworkConfig)
	if !ok {
		return nil
	}
	return n.Status.Views
}
