package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/network/dataplane"
)

// member is a node that can be part of the plan.
type member struct {
	Node
	underlay netip.Addr
	// addresses, ranges and pods are those that are its own, pods the ones outside of ranges.
	addresses []netip.Addr
	ranges    []netip.Prefix
	pods      []netip.Addr
}

func (b *build) wrong(object, format string, args ...any) {
	b.problems = append(b.problems, Problem{object, fmt.Sprintf(format, args...)})
}

// readNodes finds the nodes that can be part of the plan, what they own, and which of
// them may be gateways.
func (b *build) readNodes(in Input) {
	named := map[string]int{}
	for _, n := range in.Nodes {
		named[n.Name]++
	}
	for _, n := range in.Nodes {
		switch {
		case n.Name == "":
			b.wrong("nodes", "one has no name")
			continue
		case named[n.Name] > 1:
			b.wrong(nodeObject(n.Name), "%d nodes have this name", named[n.Name])
			continue
		}
		m := &member{Node: n}
		for _, a := range n.Addresses {
			if why := unusable(a); why != "" {
				b.wrong(nodeObject(n.Name), "its address %s %s", a, why)
			} else if !slices.Contains(m.addresses, a) {
				m.addresses = append(m.addresses, a)
			}
		}
		b.nodes = append(b.nodes, m)
	}
	slices.SortFunc(b.nodes, func(a, b *member) int { return cmp.Compare(a.Name, b.Name) })
	b.own()
	b.findUnderlay()
	for _, m := range b.nodes {
		if m.Alive {
			b.candidates = append(b.candidates, m.Name)
		}
		if m.Name == in.Node {
			b.self = m
		}
	}
	if b.self == nil {
		b.wrong(nodeObject(in.Node), "it is not among the nodes that can be reached, and so has no part in the network")
	}
}

// findUnderlay chooses the family of the VXLAN, that which more nodes have, and leaves out
// nodes that do not have it.
func (b *build) findUnderlay() {
	with := map[bool]int{}
	for _, m := range b.nodes {
		for _, v4 := range []bool{true, false} {
			if firstOf(m.addresses, v4).IsValid() {
				with[v4]++
			}
		}
	}
	b.underlay4 = with[true] >= with[false]
	b.nodes = slices.DeleteFunc(b.nodes, func(m *member) bool {
		m.underlay = firstOf(m.addresses, b.underlay4)
		if !m.underlay.IsValid() {
			b.wrong(nodeObject(m.Name), "it has no address of IPv%s that is its own, by which other nodes could reach it", familyName(b.underlay4))
		}
		return !m.underlay.IsValid()
	})
}

// own finds whose the addresses and prefixes are. What several claim is nobody's, so that
// all nodes leave its packets to the CNI. But a node's own address goes before that of a
// pod elsewhere, and a node whose agent is alive before one that may have been replaced.
func (b *build) own() {
	var claims []claim
	for i, m := range b.nodes {
		for _, p := range m.Ranges {
			switch {
			case !sound(p):
				b.wrong(nodeObject(m.Name), "its pods' range %s is no prefix, or has host bits", p)
			case p.IsSingleIP():
				m.pods = append(m.pods, p.Addr())
			default:
				claims = append(claims, claim{p, i})
			}
		}
	}
	kept, clashes := disjoint(claims)
	for _, c := range kept {
		m := b.nodes[c.holder]
		m.ranges = append(m.ranges, c.prefix)
	}
	for _, c := range clashes {
		for _, way := range []clash{c, {c.with, c.of}} {
			b.wrong(nodeObject(b.nodes[way.of.holder].Name), "its pods' range %s overlaps %s of node %s", way.of.prefix, way.with.prefix, b.nodes[way.with.holder].Name)
		}
	}
	total := 0
	for _, m := range b.nodes {
		m.pods = append(m.pods, m.Pods...)
		total += len(m.addresses) + len(m.pods)
	}
	owners := make(map[netip.Addr]owner, total)
	for _, alive := range []bool{true, false} {
		for _, m := range b.nodes {
			if m.Alive == alive {
				b.take(owners, m, m.addresses, false)
			}
		}
	}
	for _, alive := range []bool{true, false} {
		for _, m := range b.nodes {
			if m.Alive == alive {
				b.take(owners, m, m.pods, true)
			}
		}
	}
	for _, m := range b.nodes {
		m.addresses = slices.DeleteFunc(m.addresses, func(a netip.Addr) bool { return !owners[a].is(m, false) })
		m.pods = slices.DeleteFunc(m.pods, func(a netip.Addr) bool {
			mine := owners[a].is(m, true)
			if mine {
				owners[a] = owner{} // once
			}
			return !mine || contains(m.ranges, a)
		})
	}
}

// owner is the node that has an address, of its own or for a pod.
type owner struct {
	*member
	pod       bool
	contested bool
}

func (o owner) is(m *member, pod bool) bool { return o.member == m && o.pod == pod && !o.contested }

// take gives addresses to a node that claims them, those that nobody has.
func (b *build) take(owners map[netip.Addr]owner, m *member, addrs []netip.Addr, pod bool) {
	for _, a := range addrs {
		if why := unusable(a); why != "" {
			b.wrong(nodeObject(m.Name), "its pod's address %s %s", a, why)
			continue
		}
		first, taken := owners[a]
		switch {
		case !taken:
			owners[a] = owner{m, pod, false}
		case first.member == m: // twice, or a pod in the node's own network
		default:
			b.wrong(nodeObject(m.Name), "its address %s is also one of node %s", a, first.Name)
			if first.Alive == m.Alive && first.pod == pod {
				b.wrong(nodeObject(first.Name), "its address %s is also one of node %s", a, m.Name)
				first.contested = true
				owners[a] = first
			}
		}
	}
}

// node is this node.
func (b *build) node() dataplane.Node {
	n := dataplane.Node{Name: b.self.Name, Underlay: b.self.underlay, VNI: VNI, Port: Port, MTU: b.vxlanMTU()}
	for _, v4 := range []bool{true, false} {
		if a := firstOf(b.self.addresses, v4); a.IsValid() {
			n.Addresses = append(n.Addresses, a)
		}
	}
	// Pods here in a range of another node.
	var ranges []claim
	for i, m := range b.nodes {
		for _, p := range m.ranges {
			ranges = append(ranges, claim{p, i})
		}
	}
	slices.SortFunc(ranges, claim.compare)
	for _, a := range b.self.pods {
		if held(ranges, a) {
			n.Owns = append(n.Owns, a)
		}
	}
	return n
}

// others are the other nodes, with what they own.
func (b *build) others() []dataplane.Other {
	others := make([]dataplane.Other, 0, len(b.nodes))
	for _, m := range b.nodes {
		if m == b.self {
			continue
		}
		o := dataplane.Other{Name: m.Name, Underlay: m.underlay}
		o.Owns = make([]netip.Prefix, 0, len(m.ranges)+len(m.addresses)+len(m.pods))
		o.Owns = append(o.Owns, m.ranges...)
		for _, list := range [][]netip.Addr{m.addresses, m.pods} {
			for _, a := range list {
				o.Owns = append(o.Owns, netip.PrefixFrom(a, a.BitLen()))
			}
		}
		others = append(others, o)
	}
	return others
}

// mtu is the largest packet between nodes: that of the node with the smallest, since a
// switch sends nobody word of what it drops.
func (b *build) mtu() int {
	least := 0
	for _, m := range b.nodes {
		if m.MTU > 0 && (least == 0 || m.MTU < least) {
			least = m.MTU
		}
	}
	if least == 0 {
		return mtuOutside
	}
	return least
}

func (b *build) vxlanMTU() int {
	if b.underlay4 {
		return max(mtuMin, b.mtu()-vxlanOver4)
	}
	return max(mtuMin, b.mtu()-vxlanOver6)
}

// tunnelMTU is that of all tunnels, and since it is never more than the VXLAN's also that
// of the way to a peer. A tunnel may go over IPv6 as soon as a node has that.
func (b *build) tunnelMTU() int {
	over := tunnelOver4
	for _, m := range b.nodes {
		if firstOf(m.addresses, false).IsValid() {
			over = tunnelOver6
		}
	}
	return max(mtuMin, min(b.mtu(), mtuOutside)-over)
}
