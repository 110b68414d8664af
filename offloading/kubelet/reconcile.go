package kubelet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// reconcileLimit bounds one reconcile.
const reconcileLimit = 30 * time.Second

// reconciler keeps the port of each virtual node open, and its certificate fresh.
type reconciler struct {
	client       client.Reader
	fleet        Fleet
	kubelets     *Kubelets
	certificates *certificates
}

// Reconcile looks after one virtual node.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileLimit)
	defer cancel()
	node := &corev1.Node{}
	err := r.client.Get(ctx, req.NamespacedName, node)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("reading the node: %w", err)
	}
	if err != nil || !isVirtual(node) {
		r.kubelets.close(req.Name)
		return ctrl.Result{}, r.certificates.forget(ctx, req.Name)
	}
	s, err := r.kubelets.open(node)
	if err != nil {
		return ctrl.Result{}, err
	}
	if _, ok := r.fleet.Peer(node.Labels[v1alpha1.LabelPeering]); !ok {
		s.cut()
	}
	again, err := r.certificates.advance(ctx, node, s.setCertificate)
	return ctrl.Result{RequeueAfter: again}, err
}

// unlabelled passes nodes that cease to be virtual.
func unlabelled() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return isVirtual(e.ObjectOld) },
	}
}
