// Package policy makes rules for gateways of NetworkPolicies: of a namespace's policies, of
// namespaces and of pods, those in which directions each pod is isolated, and what is allowed
// to it nevertheless. It is pure: it reads nothing, writes nothing, and what it cannot make
// it says. What it leaves out is never more allowed than it was.
package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Pod is what policies see of a pod that has a network of its own and has not ended.
type Pod struct {
	// Namespace of the pod, and its UID.
	Namespace, UID string
	// Labels of the pod.
	Labels map[string]string
	// Addresses as home numbers them; none while it has none.
	Addresses []netip.Addr
	// Ports are those of its containers that have names.
	Ports []Port
}

// Port is a port of a container by its name.
type Port struct {
	// Name of the port.
	Name string
	// Protocol of the port.
	Protocol corev1.Protocol
	// Number of the port.
	Number int32
}

// World is what rules are made of: one namespace's policies, and who they are about.
type World struct {
	// Namespace whose policies these are.
	Namespace string
	// Policies of the namespace, in any order.
	Policies []networkingv1.NetworkPolicy
	// Namespaces are the labels of all namespaces.
	Namespaces map[string]map[string]string
	// Guarded are the pods of the namespace that run where the gateways are that the rules
	// are for, with addresses or without.
	Guarded []Pod
	// Others are the pods of any namespace that may be at the other end of the tunnel.
	Others []Pod
	// ByUID has guarded pods told by their UID and not by addresses.
	ByUID bool
	// Far are pods of the namespace at the other end that these gateways guard as well, by their
	// addresses: who runs them may not. Near are those of any namespace at this end that may be
	// peers of these.
	Far, Near []Pod
	// Mapped is what is mapped in the namespace.
	Mapped []Mapped
}

// Mapped is an address outside of the pod network, Real, that pods elsewhere call by External, which is
// of home's external range.
type Mapped struct{ Real, External netip.Addr }

// Compiled are the rules of one namespace for the gateways of one side.
type Compiled struct {
	// Guarded are the directions in which unknown pods of the namespace are isolated.
	Guarded []v1alpha1.NetworkDirection
	// GuardedThere is the same for those at the other end.
	GuardedThere []v1alpha1.NetworkDirection
	// Rules that are allowed.
	Rules []v1alpha1.NetworkRule
	// Pods that are guarded, and then those that are peers; one that is both is there twice.
	Pods []Member
	// Problems are what could not be made, for people, each once.
	Problems []string
}

// Member is a pod of Compiled, with the UID that says in which shard it is.
type Member struct {
	// Key is the UID of the pod, which says in which shard it is.
	Key string
	// Pod as it is written.
	Pod v1alpha1.NetworkRulesPod
	// Peer says that it is told of as a peer.
	Peer bool
}

// Compile makes the rules. They are the same for the same world in any order, and empty if there
// is no policy.
func Compile(w World) Compiled {
	c := compiler{world: w}
	policies := slices.Clone(w.Policies)
	slices.SortFunc(policies, func(a, b networkingv1.NetworkPolicy) int { return cmp.Compare(a.Name, b.Name) })
	for i := range policies {
		c.policy(&policies[i])
	}
	if len(c.guarded) == 0 {
		return Compiled{Problems: c.problems}
	}
	slices.Sort(c.guarded)
	out := Compiled{Guarded: c.guarded}
	if !w.ByUID {
		out.GuardedThere = c.guarded
	}
	for _, r := range c.rules {
		out.Rules = append(out.Rules, r.NetworkRule)
	}
	out.Pods = c.members()
	out.Problems = c.problems
	return out
}

// rule is a rule with whom it is about.
type rule struct {
	v1alpha1.NetworkRule
	selects func(*Pod) bool
	// peer says of a pod at one of its addresses whether it is a peer, not by blocks of the rule.
	peer func(*Pod, netip.Addr) bool
	// names of ports, with perPod.
	names []string
	// prefixes are as many as its blocks are.
	prefixes int
	// far says that it selects a pod at the other end.
	far bool
}

// isolation is in which direction a policy isolates whom.
type isolation struct {
	direction v1alpha1.NetworkDirection
	selects   func(*Pod) bool
}

type compiler struct {
	world      World
	guarded    []v1alpha1.NetworkDirection
	isolations []isolation
	rules      []rule
	problems   []string
	size       int // of the rules
	prefixes   int // that their blocks are
	full       bool
}

func (c *compiler) wrong(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.problems, text) {
		c.problems = append(c.problems, text)
	}
}

// policy adds what one policy isolates and allows.
func (c *compiler) policy(p *networkingv1.NetworkPolicy) {
	selects := func(*Pod) bool { return true }
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		c.wrong("NetworkPolicy %s: spec.podSelector cannot be read, and the policy isolates all pods: %v", p.Name, err)
	} else {
		selects = func(pod *Pod) bool { return selector.Matches(labels.Set(pod.Labels)) }
	}
	ingress, egress := directions(&p.Spec)
	if ingress {
		c.isolate(v1alpha1.NetworkIngress, selects)
		for i := range p.Spec.Ingress {
			e := &p.Spec.Ingress[i]
			c.entry(p.Name, fmt.Sprintf("spec.ingress[%d]", i), v1alpha1.NetworkIngress, selects, e.From, e.Ports)
		}
	}
	if egress {
		c.isolate(v1alpha1.NetworkEgress, selects)
		for i := range p.Spec.Egress {
			e := &p.Spec.Egress[i]
			c.entry(p.Name, fmt.Sprintf("spec.egress[%d]", i), v1alpha1.NetworkEgress, selects, e.To, e.Ports)
		}
	}
}

// directions are those that a policy is about: as it says or, if it says none, ingress always
// and egress if there are rules for it.
func directions(s *networkingv1.NetworkPolicySpec) (ingress, egress bool) {
	if len(s.PolicyTypes) == 0 {
		return true, len(s.Egress) > 0
	}
	return slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeIngress), slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeEgress)
}

func (c *compiler) isolate(d v1alpha1.NetworkDirection, selects func(*Pod) bool) {
	c.isolations = append(c.isolations, isolation{d, selects})
	if !slices.Contains(c.guarded, d) {
		c.guarded = append(c.guarded, d)
	}
}

// entry adds the rules of one entry of a policy: one for each way that its ports are said, and
// more if they or the blocks are many.
func (c *compiler) entry(policy, field string, d v1alpha1.NetworkDirection, selects func(*Pod) bool, from []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
	p := c.peers(policy, field, d, from)
	for _, s := range c.services(policy, field, ports) {
		r := rule{NetworkRule: v1alpha1.NetworkRule{Policy: policy, Direction: d, Protocol: s.protocol, Ports: s.ports, PerPod: len(s.names) > 0}, selects: selects, names: s.names}
		if r.PerPod && d == v1alpha1.NetworkEgress {
			// A name means something in a pod only: whatever says so, peers are the pods that have it.
			r.peer = func(pod *Pod, at netip.Addr) bool { return p.any || p.pod(pod) || contains(p.blocks, at) }
			c.add(field, r)
			continue
		}
		r.AnyPeer, r.peer = p.any, func(pod *Pod, _ netip.Addr) bool { return !p.any && p.pod(pod) }
		if p.any || len(p.blocks) == 0 {
			c.add(field, r)
			continue
		}
		for blocks := range slices.Chunk(p.blocks, v1alpha1.MaxNetworkBlocks) {
			r.Blocks, r.prefixes = written(blocks), prefixesOf(blocks)
			c.add(field, r)
			r.peer = func(*Pod, netip.Addr) bool { return false } // one rule of theirs is enough
		}
	}
}

// add adds a rule of a field of its policy. From the first one on that is too much all are left out.
func (c *compiler) add(field string, r rule) {
	c.size, c.prefixes = c.size+r.Size(), c.prefixes+r.prefixes
	switch {
	case c.full:
	case len(c.rules) >= v1alpha1.MaxNetworkRules || c.size > v1alpha1.MaxNetworkRulesSize || c.prefixes > v1alpha1.MaxNetworkPrefixes:
		c.full = true
		c.wrong("namespace %s has more than %d rules of NetworkPolicies, or many with many blocks: those from %s of NetworkPolicy %s on allow nothing between clusters; write fewer entries, or ports as ranges",
			c.world.Namespace, v1alpha1.MaxNetworkRules, field, r.Policy)
	default:
		c.rules = append(c.rules, r)
	}
}

// peers are whom an entry allows.
type peers struct {
	any    bool
	blocks []interval
	pod    func(*Pod) bool
}

func (c *compiler) peers(policy, field string, d v1alpha1.NetworkDirection, from []networkingv1.NetworkPolicyPeer) peers {
	p := peers{any: len(from) == 0}
	var pods []func(*Pod) bool
	for i := range from {
		f := &from[i]
		if f.IPBlock != nil {
			blocks, err := block(f.IPBlock)
			if err != nil {
				c.wrong("NetworkPolicy %s: %s: ipBlock of peer %d cannot be read and allows nothing: %v", policy, field, i, err)
				continue
			}
			if d == v1alpha1.NetworkEgress {
				blocks = c.mapped(f.IPBlock, blocks)
			}
			p.blocks = append(p.blocks, blocks...)
			continue
		}
		is, err := c.selected(f)
		if err != nil {
			c.wrong("NetworkPolicy %s: %s: selector of peer %d cannot be read and allows nothing: %v", policy, field, i, err)
			continue
		}
		pods = append(pods, is)
	}
	p.blocks = union(p.blocks)
	p.pod = func(pod *Pod) bool {
		return slices.ContainsFunc(pods, func(is func(*Pod) bool) bool { return is(pod) })
	}
	return p
}

// selected are the pods that selectors of one peer mean: of pods, of namespaces, or of pods in
// namespaces.
func (c *compiler) selected(f *networkingv1.NetworkPolicyPeer) (func(*Pod) bool, error) {
	if f.PodSelector == nil && f.NamespaceSelector == nil {
		return func(*Pod) bool { return false }, nil
	}
	pods := labels.Everything()
	if f.PodSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(f.PodSelector)
		if err != nil {
			return nil, err
		}
		pods = s
	}
	if f.NamespaceSelector == nil {
		return func(p *Pod) bool { return p.Namespace == c.world.Namespace && pods.Matches(labels.Set(p.Labels)) }, nil
	}
	s, err := metav1.LabelSelectorAsSelector(f.NamespaceSelector)
	if err != nil {
		return nil, err
	}
	in := map[string]bool{}
	for name, of := range c.world.Namespaces {
		in[name] = s.Matches(labels.Set(of))
	}
	return func(p *Pod) bool { return in[p.Namespace] && pods.Matches(labels.Set(p.Labels)) }, nil
}
