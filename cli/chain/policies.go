package chain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// opening is ports of a protocol that something lets pass; all protocols if it has none.
type opening struct {
	protocol    corev1.Protocol
	first, last int32
}

// wide is the opening of who says nothing about ports.
var wide = opening{first: 1, last: 65535}

// policed says whether the NetworkPolicies of both pods let a way pass: at the end that calls what it
// may begin, at the other one what it may accept. Which port is called is not known, so one is enough.
func policed(f ConnectionFacts, from, to string, w way) Step {
	s := Step{Fact: "NetworkPolicies let it pass" + w.suffix, State: Done}
	lets, by, notes := []opening{wide}, []string{}, []string{}
	for _, e := range []end{
		{pod: f.From, other: f.To, at: w.from, peer: w.to, cluster: from, beyond: to, direction: v1alpha1.NetworkEgress},
		{pod: f.To, other: f.From, at: w.to, peer: w.from, cluster: to, beyond: from, direction: v1alpha1.NetworkIngress},
	} {
		policies, allowed := e.policies(f)
		if len(policies) > 0 {
			guard := e.guard(f)
			switch {
			case guard != "" && len(allowed) == 0:
				return e.forbidden(s, policies, guard)
			case guard == "" && len(allowed) == 0:
				who := "but nobody at " + e.cluster + " enforces it"
				if e.cluster == e.beyond {
					who = "if the network plugin of " + e.cluster + " enforces it"
				}
				notes = append(notes, fmt.Sprintf("NetworkPolicy %s would not let %s %s, %s", strings.Join(policies, ", "), e.pod.Name, e.verb(), who))
			case guard != "":
				lets, by = common(lets, allowed), append(by, policies...)
			}
		}
		if ruled, name, known := e.ruled(f); known {
			if lets = common(lets, ruled); len(ruled) == 0 {
				s.State = Waiting
				s.Evidence = fmt.Sprintf("the gateways here do not let %s %s: NetworkRules %s in namespace %s do not have it", e.pod.Name, e.verb(), name, v1alpha1.PeeringNamespace(e.beyond))
				s.Remedy = fmt.Sprintf("they follow policies within a moment; if it stays so, see the events PolicyNotEnforced: kubectl -n %s describe namespaceoffloading", e.pod.Namespace)
				return s
			}
		}
	}
	slices.Sort(by)
	by = slices.Compact(by)
	switch {
	case len(lets) == 0:
		s.State, s.Evidence = Broken, fmt.Sprintf("no port is let pass at both ends, by NetworkPolicy %s", strings.Join(by, ", "))
		s.Remedy = "let the same ports pass in egress of the one and in ingress of the other"
	case len(by) == 0 && len(notes) > 0:
		s.State = Aside
	case len(by) == 0:
		s.Evidence = "none selects either pod"
	case slices.Contains(lets, wide):
		s.Evidence = "by NetworkPolicy " + strings.Join(by, ", ")
	default:
		s.Evidence = words(lets) + " only, by NetworkPolicy " + strings.Join(by, ", ")
	}
	s.Evidence = strings.Join(append(slices.DeleteFunc([]string{s.Evidence}, func(t string) bool { return t == "" }), notes...), "; ")
	return s
}

// end is one end of a way: a pod, at an address, in a cluster ("" is this one), and what is beyond.
type end struct {
	pod, other      *corev1.Pod
	at, peer        netip.Addr
	cluster, beyond string
	direction       v1alpha1.NetworkDirection
}

func (e end) verb() string {
	if e.direction == v1alpha1.NetworkEgress {
		return "begin it"
	}
	return "accept it"
}

// server is the pod that is called, in which names of ports mean something.
func (e end) server() *corev1.Pod {
	if e.direction == v1alpha1.NetworkEgress {
		return e.other
	}
	return e.pod
}

// guard is who holds policies at this end, "" if nobody does.
func (e end) guard(f ConnectionFacts) string {
	const plugin = "this cluster's network plugin, if it enforces NetworkPolicies"
	switch {
	case e.cluster == e.beyond && e.cluster != "":
		return ""
	case e.cluster != "" && f.Links[e.cluster].Policies:
		return "the gateways of " + e.cluster
	case e.cluster != "" && slices.Contains(f.Mapped[e.pod.Namespace], e.cluster):
		return "the gateways here" // which hold what the provider does not
	case e.cluster != "":
		return ""
	case e.beyond != "" && slices.Contains(f.Mapped[e.pod.Namespace], e.beyond):
		return "the gateways here"
	}
	return plugin
}

func (e end) forbidden(s Step, policies []string, guard string) Step {
	direction := strings.ToLower(string(e.direction))
	s.State = Broken
	s.Evidence = fmt.Sprintf("NetworkPolicy %s in namespace %s does not let %s %s; what enforces it: %s", strings.Join(policies, ", "), e.pod.Namespace, e.pod.Name, e.verb(), guard)
	s.Remedy = fmt.Sprintf("if that is not wanted, let pod %s of namespace %s pass in spec.%s: kubectl -n %s edit networkpolicy %s", e.other.Name, e.other.Namespace, direction, e.pod.Namespace, policies[0])
	return s
}

// policies are the names of those that select the pod for the direction, none if it is not
// isolated, and what they allow together.
func (e end) policies(f ConnectionFacts) (names []string, allowed []opening) {
	if e.pod.Spec.HostNetwork { // which policies do not select
		return nil, nil
	}
	for i := range f.Policies {
		p := &f.Policies[i]
		if p.Namespace != e.pod.Namespace || !selects(&p.Spec.PodSelector, e.pod.Labels) || !about(&p.Spec, e.direction) {
			continue
		}
		names = append(names, p.Name)
		if e.direction == v1alpha1.NetworkEgress {
			for _, r := range p.Spec.Egress {
				allowed = append(allowed, e.entry(f, p.Namespace, r.To, r.Ports)...)
			}
			continue
		}
		for _, r := range p.Spec.Ingress {
			allowed = append(allowed, e.entry(f, p.Namespace, r.From, r.Ports)...)
		}
	}
	slices.Sort(names)
	return names, allowed
}

// about says whether a policy is about a direction: as it says or, if it says none, about ingress
// always and about egress if it has rules for it.
func about(s *networkingv1.NetworkPolicySpec, d v1alpha1.NetworkDirection) bool {
	if len(s.PolicyTypes) == 0 {
		return d == v1alpha1.NetworkIngress || len(s.Egress) > 0
	}
	return slices.Contains(s.PolicyTypes, networkingv1.PolicyType(d))
}

// selects says whether a selector means what has such labels. What cannot be read isolates all.
func selects(s *metav1.LabelSelector, has map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err != nil || selector.Matches(labels.Set(has))
}

// entry is what an entry of a policy allows with the other end.
func (e end) entry(f ConnectionFacts, namespace string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) (all []opening) {
	if len(peers) > 0 && !slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool { return e.isPeer(f, namespace, p) }) {
		return nil
	}
	if len(ports) == 0 {
		return []opening{wide}
	}
	for _, p := range ports {
		o := opening{protocol: corev1.ProtocolTCP, first: wide.first, last: wide.last}
		if p.Protocol != nil {
			o.protocol = *p.Protocol
		}
		if o.protocol != corev1.ProtocolTCP && o.protocol != corev1.ProtocolUDP && e.cluster != e.beyond {
			continue // not carried between clusters
		}
		switch {
		case p.Port == nil:
			all = append(all, o)
		case p.Port.Type == intstr.String:
			for _, number := range named(e.server(), p.Port.StrVal, o.protocol) {
				all = append(all, opening{o.protocol, number, number})
			}
		default:
			o.first, o.last = p.Port.IntVal, p.Port.IntVal
			if p.EndPort != nil {
				o.last = *p.EndPort
			}
			all = append(all, o)
		}
	}
	return all
}

func (e end) isPeer(f ConnectionFacts, namespace string, p networkingv1.NetworkPolicyPeer) bool {
	if p.IPBlock != nil {
		// By which address a pod with its node's network comes is not known here.
		return e.other.Spec.HostNetwork || inBlock(p.IPBlock, e.peer)
	}
	switch {
	case e.other.Spec.HostNetwork || p.PodSelector == nil && p.NamespaceSelector == nil:
		return false
	case p.PodSelector != nil && !selects(p.PodSelector, e.other.Labels):
		return false
	case p.NamespaceSelector == nil:
		return e.other.Namespace == namespace
	}
	return selects(p.NamespaceSelector, f.Spaces[e.other.Namespace])
}

func inBlock(b *networkingv1.IPBlock, a netip.Addr) bool {
	in := func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(a)
	}
	return in(b.CIDR) && !slices.ContainsFunc(b.Except, in)
}

// named are the numbers that the name of a port has in a pod.
func named(p *corev1.Pod, name string, protocol corev1.Protocol) (all []int32) {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			for _, port := range c.Ports {
				if port.Name == name && cmp.Or(port.Protocol, corev1.ProtocolTCP) == protocol {
					all = append(all, port.ContainerPort)
				}
			}
		}
	}
	return all
}

// ruled is what the rules of this cluster's own gateways allow at this end, and the name of their
// first object; not known where these gateways guard no pod, or have no rules of its namespace.
func (e end) ruled(f ConnectionFacts) (allowed []opening, name string, known bool) {
	if e.cluster != "" || e.beyond == "" || e.pod.Spec.HostNetwork {
		return nil, "", false
	}
	var rules []v1alpha1.NetworkRule
	var guarded []v1alpha1.NetworkDirection
	guards, peers := map[string]*v1alpha1.NetworkRulesPod{}, map[string]*v1alpha1.NetworkRulesPod{} // a pod may be both, and is there twice
	for i := range f.Rules {
		n := &f.Rules[i]
		if n.Namespace != v1alpha1.PeeringNamespace(e.beyond) || n.Spec.Namespace != e.pod.Namespace {
			continue
		}
		if n.Spec.Shard == 0 {
			name, known, rules, guarded = n.Name, true, n.Spec.Rules, n.Spec.Guarded
		}
		for j := range n.Spec.Pods {
			for _, a := range n.Spec.Pods[j].Addresses {
				if pod := &n.Spec.Pods[j]; len(pod.PeerOf) > 0 {
					peers[a] = pod
				} else {
					guards[a] = pod
				}
			}
		}
	}
	own, other := guards[e.at.String()], cmp.Or(peers[e.peer.String()], guards[e.peer.String()])
	server := other
	if e.direction == v1alpha1.NetworkIngress {
		server = own
	}
	switch {
	case !known:
		return nil, "", false
	case own == nil && slices.Contains(guarded, e.direction):
		return nil, name, true
	case own == nil || !slices.Contains(own.Isolated, e.direction):
		return []opening{wide}, name, true
	}
	for _, at := range own.Selected {
		if at < 0 || int(at) >= len(rules) || rules[at].Direction != e.direction {
			continue
		}
		r := &rules[at]
		if !r.AnyPeer && !e.other.Spec.HostNetwork && !e.inRanges(r.Blocks) && (other == nil || !slices.Contains(other.PeerOf, at)) {
			continue
		}
		protocol := corev1.Protocol(r.Protocol)
		for _, p := range r.Ports {
			allowed = append(allowed, opening{protocol, p.First, p.Last})
		}
		if server != nil && r.PerPod {
			for _, p := range server.Ports {
				for _, number := range p.Ports {
					if p.Rule == at {
						allowed = append(allowed, opening{protocol, number, number})
					}
				}
			}
		}
		if len(r.Ports) == 0 && !r.PerPod {
			allowed = append(allowed, opening{protocol, wide.first, wide.last})
		}
	}
	return allowed, name, true
}

func (e end) inRanges(ranges []v1alpha1.NetworkAddressRange) bool {
	return slices.ContainsFunc(ranges, func(r v1alpha1.NetworkAddressRange) bool {
		first, err := netip.ParseAddr(r.First)
		last, wrong := netip.ParseAddr(r.Last)
		return err == nil && wrong == nil && first.BitLen() == e.peer.BitLen() && !e.peer.Less(first) && !last.Less(e.peer)
	})
}

// common is what both let pass.
func common(a, b []opening) (all []opening) {
	for _, x := range a {
		for _, y := range b {
			o := opening{cmp.Or(x.protocol, y.protocol), max(x.first, y.first), min(x.last, y.last)}
			if o.first <= o.last && (x.protocol == "" || y.protocol == "" || x.protocol == y.protocol) && !slices.Contains(all, o) {
				all = append(all, o)
			}
		}
	}
	return all
}

// words writes openings, the first ones if they are many.
func words(all []opening) string {
	const most = 6
	var parts []string
	for _, o := range all[:min(len(all), most)] {
		text := fmt.Sprintf("%s %d to %d", o.protocol, o.first, o.last)
		switch {
		case o.first == o.last:
			text = fmt.Sprintf("%s %d", o.protocol, o.first)
		case o.first == wide.first && o.last == wide.last:
			text = "all of " + string(o.protocol)
		}
		parts = append(parts, strings.TrimSpace(text))
	}
	if len(all) > most {
		parts = append(parts, "others")
	}
	return strings.Join(parts, ", ")
}
