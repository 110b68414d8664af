package consumer

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/offloading/shadow"
)

// Views says by which addresses this cluster sees pods of providers. It may be asked at
// any time, by many at once.
type Views interface {
	// View is the address by which this cluster sees a pod that has a real one at the
	// provider of a peering; false if it does not see it, or that is not known yet.
	View(peering string, real netip.Addr) (here netip.Addr, ok bool)
	// Known says whether any views are known: if not, that one is missing means nothing.
	Known() bool
	// ViewSource tells of the peerings of which View says something else.
	ViewSource(mapper func(peering string) []reconcile.Request) source.Source
}

const (
	// settling is how long after the start what was so before stays while it is not known how
	// it is.
	settling = time.Minute
	// viewAgain is when a pod is looked at again whose address is kept until views are known.
	// The network may be off by then, which nobody tells.
	viewAgain = 5 * time.Second
)

// view is how pods of a peering are seen, nil if there is no network.
func (r *reconciler) view(peering string) shadow.View {
	if r.views == nil {
		return nil
	}
	return func(real netip.Addr) (netip.Addr, bool) { return r.views.View(peering, real) }
}

// settled keeps the addresses that a pod has until views are known, and says when to look
// again; 0 if they are, or the pod keeps nothing.
func settled(f facts, next *corev1.PodStatus) time.Duration {
	if f.view == nil || f.viewed || len(next.PodIPs) > 0 || len(f.pod.Status.PodIPs) == 0 || terminal(next.Phase) {
		return 0
	}
	shadow.SetAddresses(next, f.pod.Status.PodIPs)
	return viewAgain
}
