package vnode

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
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
	times  sync.Map // what was last written, a time.Time by the name of the node
}

// Reconcile renews one Lease and comes again.
func (l *leases) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, renewLimit)
	defer cancel()
	node := &corev1.Node{}
	if err := l.client.Get(ctx, key.NamespacedName, node); apierrors.IsNotFound(err) {
		l.times.Delete(key.Name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if !isVirtual(node) {
		return ctrl.Result{}, nil
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node.Name}}
	now, err := l.next(ctx, lease)
	if err != nil {
		return ctrl.Result{}, err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{
		"holderIdentity": node.Name, "leaseDurationSeconds": leaseSeconds, "renewTime": now,
	}})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("writing a patch: %w", err)
	}
	err = l.client.Patch(ctx, lease, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		err = l.make(ctx, node, now)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("renewing the lease of a virtual node: %w", err)
	}
	return ctrl.Result{RequeueAfter: renewEvery}, nil
}

// next is when a Lease is renewed: now, but later than ever before. Kubernetes takes a node for
// lost whose renewTime does not grow, however it reads: when this clock is set back, and when
// another replica's, who wrote it before, was ahead, by whatever that was, it grows by the least.
func (l *leases) next(ctx context.Context, lease *coordinationv1.Lease) (metav1.MicroTime, error) {
	now := l.clock.Now().Truncate(time.Microsecond) // by the clock on the wall alone, as it is written
	last, known := l.times.Load(lease.Name)
	if !known {
		there := &coordinationv1.Lease{}
		if err := l.live.Get(ctx, client.ObjectKeyFromObject(lease), there); client.IgnoreNotFound(err) != nil {
			return metav1.MicroTime{}, fmt.Errorf("reading the lease of a virtual node: %w", err)
		}
		last = ptr.Deref(there.Spec.RenewTime, metav1.MicroTime{}).Time
	}
	if least := last.(time.Time).Add(time.Microsecond); now.Before(least) {
		now = least
	}
	l.times.Store(lease.Name, now)
	return metav1.NewMicroTime(now), nil
}

// make makes the Lease of a node that is really there; it goes with the node.
func (l *leases) make(ctx context.Context, node *corev1.Node, now metav1.MicroTime) error {
	if err := l.live.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
		return client.IgnoreNotFound(err)
	}
	seconds := leaseSeconds
	return l.client.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: node.Name, Labels: ownLabels(),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	})
}
