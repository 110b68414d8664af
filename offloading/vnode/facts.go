package vnode

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/status"
)

// connectingFor is how long a connection may be new before it counts as lost: that another
// replica leads now is no interruption.
const connectingFor = 10 * time.Second

// facts are what becomes of a virtual node depends on.
type facts struct {
	now     time.Time
	began   time.Time // of this program's leading
	request *v1alpha1.ResourceRequest
	peering *v1alpha1.Peering       // nil if there is none for the namespace
	offer   *v1alpha1.ResourceOffer // the copy here; nil if there is none
	node    *corev1.Node            // nil if there is none
	state   *fleet.State            // nil if there is no connection

	address, version, kubernetes string // for nodeInfo
	port                         int32
}

// name of the virtual node.
func (f facts) name() string {
	return v1alpha1.VirtualNodeName(f.peeringName(), f.request.Name)
}

func (f facts) peeringName() string {
	return f.request.Namespace[len(v1alpha1.PeeringNamespacePrefix):]
}

// ours says whether the node there is that of the request: by the machine it stands for,
// or by its labels where the peering is gone.
func (f facts) ours() bool {
	switch {
	case f.node == nil:
		return false
	case f.peering != nil:
		return f.node.Spec.ProviderID == providerID(f.peering.Spec.ClusterID, f.request.Name) && f.node.Name == f.name()
	}
	return belongs(f.node, f.peeringName(), f.request.Name)
}

// belongs says whether a node was made for a request.
func belongs(node *corev1.Node, peering, request string) bool {
	return node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode &&
		node.Labels[v1alpha1.LabelPeering] == peering && node.Labels[v1alpha1.LabelRequest] == request
}

// forced says whether the other side has been given up on.
func (f facts) forced() bool {
	return f.peering != nil && f.peering.Annotations[v1alpha1.AnnotationForce] == "true" && !f.peering.DeletionTimestamp.IsZero()
}

// course is what happens to a virtual node.
type course int

const (
	rest   course = iota // there is none, and none is to be
	keepUp               // it is made or kept true
	end                  // it is drained and removed
)

// outcome is a course and what is said of it.
type outcome struct {
	course  course
	reason  string
	message string
}

// decide says what happens to the virtual node. One that is being drained is removed
// before there can be another one.
func decide(f facts) outcome {
	ending := outcome{course: end, reason: v1alpha1.ReasonTerminating}
	accepted := meta.FindStatusCondition(f.request.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case !f.request.DeletionTimestamp.IsZero():
		ending.message = "the request is being deleted"
	case f.peering == nil:
		ending.message = "there is no peering for this namespace"
	case !f.peering.DeletionTimestamp.IsZero(), f.peering.Spec.Consume == nil:
		ending.message = "the peering is being removed"
	case accepted == nil && f.offer == nil && !f.ours():
		return outcome{course: rest, reason: v1alpha1.ReasonWaiting, message: "waiting for an accepted offer"}
	case f.offer == nil || accepted != nil && (accepted.Reason == v1alpha1.ReasonDeclined || accepted.Reason == v1alpha1.ReasonUndecided):
		ending.reason, ending.message = v1alpha1.ReasonWithdrawn, "the provider has taken its offer back"
		if accepted != nil && accepted.Status != metav1.ConditionTrue {
			ending.reason, ending.message = accepted.Reason, accepted.Message
		}
	case !status.IsTrue(f.request.Status.Conditions, v1alpha1.ConditionAccepted) && !f.ours():
		return outcome{course: rest, reason: v1alpha1.ReasonWaiting, message: "waiting for an accepted offer"}
	case f.ours() && draining(f.node):
		ending.message = "the node is being drained; another one follows if the offer is accepted"
	default:
		return outcome{course: keepUp}
	}
	return ending
}

// readiness says whether the node is Ready, and why not; nil leaves it as it was.
func readiness(f facts) *corev1.NodeCondition {
	c := func(yes bool, reason, message string) *corev1.NodeCondition {
		s := corev1.ConditionFalse
		if yes {
			s = corev1.ConditionTrue
		}
		return &corev1.NodeCondition{Type: corev1.NodeReady, Status: s, Reason: reason, Message: message}
	}
	connecting := c(false, v1alpha1.ReasonWaiting, "connecting to the provider")
	if last := nodeReady(f.node); last != nil {
		connecting = nil
	}
	if accepted := meta.FindStatusCondition(f.request.Status.Conditions, v1alpha1.ConditionAccepted); accepted == nil || accepted.Status != metav1.ConditionTrue {
		reason := v1alpha1.ReasonWaiting
		if accepted != nil {
			reason = accepted.Reason
		}
		return c(false, reason, "the offer is not accepted now")
	}
	switch {
	case f.state == nil && f.now.Sub(f.began) < connectingFor:
		return connecting
	case f.state == nil:
		return c(false, v1alpha1.ReasonPeerUnreachable, "there is no connection to the provider")
	case f.state.Reason == v1alpha1.ReasonForbidden:
		return c(false, v1alpha1.ReasonForbidden, "the provider refuses this cluster's identity")
	case f.state.Reason == v1alpha1.ReasonTooMany:
		return c(false, v1alpha1.ReasonTooMany, "the provider shows more than this cluster takes")
	case f.state.Reachable:
		return c(true, v1alpha1.ReasonReady, "the provider answers")
	case f.state.Reason == v1alpha1.ReasonPending && f.now.Sub(f.state.Since) < connectingFor:
		return connecting
	}
	return c(false, v1alpha1.ReasonPeerUnreachable, "the provider does not answer since "+f.state.Since.UTC().Format(time.RFC3339))
}

// nodeReady is the condition Ready of a node, nil if there is none.
func nodeReady(node *corev1.Node) *corev1.NodeCondition {
	if node == nil {
		return nil
	}
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
