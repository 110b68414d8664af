package policy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// attempt is a connection: of which guarded pod, in which direction, with whom, to what.
type attempt struct {
	pod       *Pod
	direction v1alpha1.NetworkDirection
	far       netip.Addr
	protocol  corev1.Protocol
	port      int32
}

// reference says what the documentation of NetworkPolicy says of an attempt: slowly, and one
// sentence of it after the other. It shares nothing with the compiler.
func reference(w World, a attempt) bool {
	isolated := false
	for _, p := range w.Policies {
		if !matches(p.Spec.PodSelector, a.pod.Labels) || !about(p.Spec, a.direction) {
			continue
		}
		isolated = true
		if a.direction == v1alpha1.NetworkIngress {
			for _, e := range p.Spec.Ingress {
				if fromOrTo(w, e.From, a) && toPort(w, e.Ports, a) {
					return true
				}
			}
			continue
		}
		for _, e := range p.Spec.Egress {
			if fromOrTo(w, e.To, a) && toPort(w, e.Ports, a) {
				return true
			}
		}
	}
	return !isolated
}

func about(s networkingv1.NetworkPolicySpec, d v1alpha1.NetworkDirection) bool {
	if s.PolicyTypes == nil {
		return d == v1alpha1.NetworkIngress || s.Egress != nil
	}
	for _, t := range s.PolicyTypes {
		if string(t) == string(d) {
			return true
		}
	}
	return false
}

func matches(s metav1.LabelSelector, of map[string]string) bool {
	for key, value := range s.MatchLabels {
		if has, ok := of[key]; !ok || has != value {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		value, has := of[e.Key]
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			if !has || !slices.Contains(e.Values, value) {
				return false
			}
		case metav1.LabelSelectorOpNotIn:
			if has && slices.Contains(e.Values, value) {
				return false
			}
		case metav1.LabelSelectorOpExists:
			if !has {
				return false
			}
		case metav1.LabelSelectorOpDoesNotExist:
			if has {
				return false
			}
		}
	}
	return true
}

// at is the pod that has an address, nil if none has.
func at(w World, a netip.Addr) *Pod {
	for i := range w.Others {
		for _, has := range w.Others[i].Addresses {
			if has == a {
				return &w.Others[i]
			}
		}
	}
	return nil
}

func fromOrTo(w World, peers []networkingv1.NetworkPolicyPeer, a attempt) bool {
	if len(peers) == 0 {
		return true
	}
	pod := at(w, a.far)
	for _, p := range peers {
		if p.IPBlock != nil {
			if inBlock(w, p.IPBlock, a) {
				return true
			}
			continue
		}
		if pod == nil {
			continue
		}
		if p.NamespaceSelector == nil && pod.Namespace != w.Namespace {
			continue
		}
		if p.NamespaceSelector != nil {
			of, exists := w.Namespaces[pod.Namespace]
			if !exists || !matches(*p.NamespaceSelector, of) {
				continue
			}
		}
		if p.PodSelector == nil || matches(*p.PodSelector, pod.Labels) {
			return true
		}
	}
	return false
}

// inBlock says whether an ipBlock is of the far address: what is mapped is in it by either of its
// addresses, and not if either is excepted.
func inBlock(w World, b *networkingv1.IPBlock, a attempt) bool {
	names := []netip.Addr{a.far}
	for _, m := range w.Mapped {
		if a.direction == v1alpha1.NetworkEgress && (m.Real == a.far || m.External == a.far) {
			names = []netip.Addr{m.Real, m.External}
		}
	}
	in := false
	for _, name := range names {
		in = in || netip.MustParsePrefix(b.CIDR).Contains(name)
	}
	for _, e := range b.Except {
		for _, name := range names {
			in = in && !netip.MustParsePrefix(e).Contains(name)
		}
	}
	return in
}

func toPort(w World, ports []networkingv1.NetworkPolicyPort, a attempt) bool {
	if len(ports) == 0 {
		return true
	}
	server := a.pod
	if a.direction == v1alpha1.NetworkEgress {
		server = at(w, a.far)
	}
	for _, p := range ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if protocol != a.protocol || protocol == corev1.ProtocolSCTP {
			continue
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			if server == nil {
				continue
			}
			for _, named := range server.Ports {
				if named.Name == p.Port.StrVal && named.Protocol == a.protocol && named.Number == a.port {
					return true
				}
			}
		case p.EndPort != nil:
			if p.Port.IntVal <= a.port && a.port <= *p.EndPort {
				return true
			}
		case p.Port.IntVal == a.port:
			return true
		}
	}
	return false
}

// gateway says what gateways make of shards for an attempt, by the words of the kind's page.
func gateway(shards []v1alpha1.NetworkRulesSpec, byUID bool, a attempt) bool {
	if len(shards) == 0 {
		return true
	}
	var own, peer []v1alpha1.NetworkRulesPod
	for _, s := range shards {
		for _, p := range s.Pods {
			if p.Selected != nil || p.Isolated != nil || p.UID != "" || p.PeerOf == nil {
				if byUID && p.UID == a.pod.UID || !byUID && slices.Contains(p.Addresses, a.pod.Addresses[0].String()) {
					own = append(own, p)
				}
			}
			if slices.Contains(p.Addresses, a.far.String()) {
				peer = append(peer, p)
			}
		}
	}
	if len(own) == 0 {
		return !slices.Contains(shards[0].Guarded, a.direction)
	}
	if !slices.Contains(own[0].Isolated, a.direction) {
		return true
	}
	for i, r := range shards[0].Rules {
		allowed := r.Direction == a.direction && slices.Contains(own[0].Selected, int32(i)) && (r.Protocol == "" || r.Protocol == string(a.protocol))
		is := r.AnyPeer
		for _, p := range peer {
			is = is || slices.Contains(p.PeerOf, int32(i))
		}
		for _, b := range r.Blocks {
			first, last := netip.MustParseAddr(b.First), netip.MustParseAddr(b.Last)
			is = is || first.BitLen() == a.far.BitLen() && first.Compare(a.far) <= 0 && a.far.Compare(last) <= 0
		}
		open := len(r.Ports) == 0 && !r.PerPod
		for _, p := range r.Ports {
			open = open || p.First <= a.port && a.port <= p.Last
		}
		if r.PerPod {
			servers := own
			if r.Direction == v1alpha1.NetworkEgress {
				servers = peer
			}
			for _, s := range servers {
				for _, p := range s.Ports {
					open = open || p.Rule == int32(i) && slices.Contains(p.Ports, a.port)
				}
			}
		}
		if allowed && is && open {
			return true
		}
	}
	return false
}
