package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// How a kubelet does it, so that controllers see the same.
const (
	leaseDuration = 40 * time.Second
	renewInterval = 10 * time.Second
)

// requestTimeout bounds a request. It is long: what an overloaded API server has
// begun is cheaper to wait for than to ask for again.
const requestTimeout = 30 * time.Second

// Capacity is what every hollow node has.
func Capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
}

// node keeps one Node registered and alive.
type node struct {
	name    string
	options Options
	client  kubernetes.Interface
	log     *slog.Logger

	uid     types.UID // of the Node object, empty until it is registered
	renewed time.Time // when the lease was last renewed
}

// beat registers the node and renews its lease until ctx ends. The first
// renewal comes after offset, so that many nodes do not beat at once.
func (n *node) beat(ctx context.Context, offset time.Duration) {
	for wait := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		first := n.renewed.IsZero()
		err := n.live(ctx, time.Now())
		switch {
		case err != nil && ctx.Err() == nil:
			n.log.Warn("a heartbeat failed", "error", err)
			wait = min(max(2*wait, time.Second), renewInterval)
		case first:
			wait = offset + time.Second
		default:
			wait = renewInterval
		}
	}
}

// live is one heartbeat: an unknown node is registered, a lease renewed. Whose
// lease has run out was given up by the controllers, and says that it is ready.
func (n *node) live(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if n.uid == "" || now.Sub(n.renewed) > leaseDuration {
		if err := n.register(ctx, now); err != nil {
			return fmt.Errorf("registering the node: %w", err)
		}
	}
	if err := n.renew(ctx, now); err != nil {
		return fmt.Errorf("renewing the lease: %w", err)
	}
	n.renewed = now
	return nil
}

// register makes the Node, or writes the status of the one that is there.
func (n *node) register(ctx context.Context, now time.Time) error {
	nodes := n.client.CoreV1().Nodes()
	wanted := n.options.node(n.name, now)
	if n.uid == "" {
		made, err := nodes.Create(ctx, wanted, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			n.uid = made.UID
			return err
		}
	}
	text, err := json.Marshal(map[string]any{"status": wanted.Status})
	if err != nil {
		return err
	}
	there, err := nodes.Patch(ctx, n.name, types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status")
	n.uid = there.UID // empty if it is gone, to be made anew
	return err
}

// renew renews the lease, or makes it. A lease that is gone went with its Node, so
// the next heartbeat looks for that.
func (n *node) renew(ctx context.Context, now time.Time) error {
	leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	wanted := newLease(n.name, n.uid, now)
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": wanted.Spec.RenewTime}})
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, n.name, types.MergePatchType, text, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	if !n.renewed.IsZero() {
		n.uid, n.renewed = "", time.Time{}
		return err
	}
	_, err = leases.Create(ctx, wanted, metav1.CreateOptions{})
	return err
}

// node is the Node object of a hollow node.
func (o Options) node(name string, now time.Time) *corev1.Node {
	labels := maps.Clone(o.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", Taint: "true",
	})
	out := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: o.taints()},
		Status: corev1.NodeStatus{
			Capacity: Capacity(), Allocatable: Capacity(),
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: o.Version, OperatingSystem: "linux", Architecture: "amd64",
				OSImage: "hollow", ContainerRuntimeVersion: "hollow://1",
			},
			// No internal address: nothing answers for the node, least of all at its node ports.
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
		},
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		condition := corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: "Hollow", Message: "the node is hollow: it has no load",
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
		}
		if kind == corev1.NodeReady {
			condition.Status, condition.Message = corev1.ConditionTrue, "the node is hollow: its pods run in name only"
		}
		out.Status.Conditions = append(out.Status.Conditions, condition)
	}
	return out
}

// newLease is the heartbeat of a node; it goes when the Node goes.
func newLease(name string, uid types.UID, now time.Time) *coordinationv1.Lease {
	seconds, renewed := int32(leaseDuration/time.Second), metav1.NewMicroTime(now)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
}
