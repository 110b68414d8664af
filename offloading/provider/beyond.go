package provider

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A pod that runs here for a tenant may have gone onward, to a provider of this cluster's: it is
// bound to a virtual node then. Whether it runs, and whether it has ended, is found out by those
// who carry this cluster's own pods there; here that is told on, without a word of where it is.

// beyond is where a pod went onward.
type beyond struct {
	node, peering string
	// space is its namespace there, "" if that is not known.
	space string
	// views are those of that provider's ranges.
	views []v1alpha1.NetworkView
}

// addresses are, of those by which this cluster sees the pod, the ones that its tenant is told: not those that it
// really has there, which the tenant is no more told the ranges of. Known is whether there are views of them all.
func (b *beyond) addresses(of []corev1.PodIP) (told []corev1.PodIP, known bool) {
	known = true
	for _, ip := range of {
		a, err := netip.ParseAddr(ip.IP)
		i := slices.IndexFunc(b.views, func(v v1alpha1.NetworkView) bool {
			p, err := netip.ParsePrefix(v.View)
			return err == nil && p.Contains(a)
		})
		if known = known && err == nil && i >= 0; i >= 0 && b.views[i].View != b.views[i].Real {
			told = append(told, ip)
		}
	}
	return told, known
}

// hidden are names that tell of it, which the tenant is not told.
func (b *beyond) hidden() []string {
	if b == nil {
		return nil
	}
	return slices.DeleteFunc([]string{b.node, b.peering, b.space}, func(name string) bool { return name == "" })
}

// isHidden says whether a word is one of names that are not told, or that of a tenant namespace.
func isHidden(hidden []string, word string) bool {
	return slices.Contains(hidden, word) || len(hidden) > 0 && strings.HasPrefix(word, v1alpha1.TenantNamespacePrefix)
}

// mayBeBeyond says whether a pod may be at a provider of this cluster's, whatever its node was: it
// was let through to virtual nodes when it was made.
func mayBeBeyond(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == v1alpha1.TaintVirtualNode })
}

// whither says where a pod went onward, nil if its node is one of this cluster's. Of a node that is
// gone nobody knows whose it was: then no more is told of the pod than of one that did.
func whither(ctx context.Context, c client.Reader, pod *corev1.Pod) (*beyond, error) {
	if pod.Spec.NodeName == "" {
		return nil, nil
	}
	node := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); apierrors.IsNotFound(err) {
		if mayBeBeyond(pod) {
			return &beyond{node: pod.Spec.NodeName}, nil
		}
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the node %s: %w", pod.Spec.NodeName, err)
	}
	if node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode {
		return nil, nil
	}
	b := &beyond{node: node.Name, peering: node.Labels[v1alpha1.LabelPeering]}
	m := &v1alpha1.NamespaceMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(b.peering), Name: v1alpha1.NamespaceMapName}, m)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the namespace map of the peering: %w", err)
	}
	b.space = m.Status.Namespaces[pod.Namespace].Name
	n := &v1alpha1.NetworkConfig{}
	err = c.Get(ctx, client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(b.peering), Name: v1alpha1.NetworkProvider}, n)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading what the peering's provider publishes: %w", err)
	}
	b.views = n.Status.Views
	return b, nil
}

// viewsPause is when an address of which no view is known yet is looked at again.
const viewsPause = 10 * time.Second

const (
	// reasonNotReached is told of a pod that went onward and is not reached from here.
	reasonNotReached = "NotReached"
	// untold stands for words about the pod as a whole: they are this cluster's about the other
	// one, or that one's.
	untold = "the provider's owner knows more"
)

// notReached are reasons for which a pod that went onward is not ready, by this cluster's word, and
// what is told of them: to the tenant they would mean its own peering.
var notReached = map[string]string{
	v1alpha1.ReasonPeerUnreachable: "the provider does not hear where the pod runs, so whether its containers are ready is not known",
	v1alpha1.ReasonTunnelDown:      "the provider does not reach the pod through its network",
	v1alpha1.ReasonGatewaysBehind:  "not all gateways on the way to the pod know its address yet",
}

// plainReasons are those of kubelets, whose messages name containers of the pod and nothing else.
var plainReasons = []string{"ContainersNotReady", "ContainersNotInitialized", "PodCompleted", "PodFailed"}

var reasonWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,63}$`)

// afar is what is told of the status of a pod that went onward. Its containers are ready if the pod
// is, as it is this cluster that says whether its gateways, and those there, know it.
func afar(status *corev1.PodStatus) *corev1.PodStatus {
	s := status.DeepCopy()
	s.Reason, s.Message = saying(s.Reason, s.Message)
	whole := readiness(s)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.Type == corev1.ContainersReady && c.Status == corev1.ConditionTrue && whole != nil && whole.Status != corev1.ConditionTrue {
			c.Status, c.Reason, c.Message = whole.Status, whole.Reason, whole.Message
		}
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.Reason, c.Message = saying(c.Reason, c.Message)
	}
	return s
}

// readiness is a copy of the condition Ready, nil if there is none.
func readiness(s *corev1.PodStatus) *corev1.PodCondition {
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady {
			return &c
		}
	}
	return nil
}

// saying is what is told of a reason and a message about the pod as a whole.
func saying(reason, message string) (string, string) {
	if told := notReached[reason]; told != "" {
		return reasonNotReached, told
	}
	if !reasonWord.MatchString(reason) {
		reason = ""
	}
	if message != "" && !slices.Contains(plainReasons, reason) {
		message = untold
	}
	return reason, message
}

// refusals are the reasons for which a pod is refused, here or where it went onward, but for those that are
// only waited for.
var refusals = []string{
	v1alpha1.ReasonRefused, v1alpha1.ReasonNotAdmitted, v1alpha1.ReasonLimitExceeded, v1alpha1.ReasonUnschedulable,
	v1alpha1.ReasonCordoned, v1alpha1.ReasonDrained,
}

// refusedSince is since when a pod that went onward and never began is refused there.
func refusedSince(pod *corev1.Pod) (time.Time, bool) {
	if pod.Status.Phase != corev1.PodPending || len(pod.Status.ContainerStatuses) > 0 || len(pod.Status.InitContainerStatuses) > 0 ||
		!slices.Contains(refusals, pod.Status.Reason) {
		return time.Time{}, false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionFalse && c.Reason == pod.Status.Reason {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// taken gives up on a pod that went onward and is refused there, in time, as on one that no node
// here has room for: nobody here would make another one that could go elsewhere, and its tenant
// can. Only one that is always restarted: it does no harm if that began meanwhile.
func taken(f facts, p *plan) bool {
	since, refused := refusedSince(f.pod)
	if !refused || !always(&f.pod.Spec) {
		return true
	}
	if left := f.since(since).Add(f.patience).Sub(f.now); left > 0 {
		p.in(min(left, f.patience))
		return true
	}
	p.tell(f, &f.pod.Status)
	p.refuse(f, v1alpha1.ReasonUnschedulable, "no node of the provider had room within "+f.patience.String())
	p.first = true
	p.remove = append(p.remove, removal{pod: f.pod, pinned: true})
	return false
}

// passedOn is the reason and the text of an event; of what a provider of this cluster's warns of,
// those that it gave, without its name.
func passedOn(e *corev1.Event) (reason, text string) {
	if e.Reason != v1alpha1.ReasonProviderWarning || e.ReportingController != component {
		return e.Reason, e.Message
	}
	_, rest, _ := strings.Cut(e.Message, ": ")
	reason, text, _ = strings.Cut(rest, ": ")
	return reason, text
}
