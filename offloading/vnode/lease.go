package vnode

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// renewEvery is how often a Lease is renewed, and leaseSeconds how long it holds.
	renewEvery   = 10 * time.Second
	leaseSeconds = int32(40)
	// renewLimit bounds one renewal, so that a slow one does not keep back others.
	renewLimit = 5 * time.Second
)

// leases renews the Lease of every virtual node, whether its provider answers or not: it
// says that this program is alive, and the node's condition says how the provider is.
type leases struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
}

// Reconcile renews one Lease and comes again.
func (l *leases) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, renewLimit)
	defer cancel()
	node := &corev1.Node{}
	if err := l.client.Get(ctx, key.NamespacedName, node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !isVirtual(node) {
		return ctrl.Result{}, nil
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node.Name}}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"holderIdentity": node.Name, "leaseDurationSeconds": leaseSeconds, "renewTime": metav1.NewMicroTime(l.clock.Now()),
	}})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("writing a patch: %w", err)
	}
	err = l.client.Patch(ctx, lease, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		err = l.make(ctx, node)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("renewing the lease of a virtual node: %w", err)
	}
	return ctrl.Result{RequeueAfter: renewEvery}, nil
}

// make makes the Lease of a node that is really there; it goes with the node.
func (l *leases) make(ctx context.Context, node *corev1.Node) error {
	if err := l.live.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
		return client.IgnoreNotFound(err)
	}
	now, seconds := metav1.NewMicroTime(l.clock.Now()), leaseSeconds
	return l.client.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: node.Name, Labels: ownLabels(),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	})
}
