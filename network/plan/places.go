package plan

import (
	"maps"
	"net/netip"
	"slices"
)

// Places are what of the world is this cluster's, or reached through its tunnels: where no peer is called.
// Nothing in it is ever changed.
type Places struct {
	// views are all that leads into tunnels, in order.
	views    []claim
	external []netip.Prefix
	// pods are the ranges of pods, in order, and apart those in which no node has an address.
	pods, apart []claim
	// nodes are the addresses of nodes.
	nodes map[netip.Addr]bool
}

// placesOf needs what was read of an input before.
func (b *build) placesOf(in Input, views []claim) *Places {
	p := &Places{views: slices.Clone(views), external: b.externalRanges, nodes: map[netip.Addr]bool{}}
	for _, a := range in.AtNodes {
		p.nodes[a] = true
	}
	ranges := slices.Clone(b.pods)
	for _, n := range in.Nodes {
		ranges = append(ranges, n.Ranges...)
	}
	for _, r := range Union(ranges) {
		p.pods = append(p.pods, claim{prefix: r})
	}
	shared := map[netip.Prefix]bool{}
	for _, n := range in.Nodes {
		for _, a := range n.Addresses {
			p.nodes[a] = true
			if i := holding(p.pods, a); i >= 0 {
				shared[p.pods[i].prefix] = true
			}
		}
	}
	p.apart = slices.DeleteFunc(slices.Clone(p.pods), func(c claim) bool { return shared[c.prefix] })
	return p
}

// Refuse says why no peer is called at an address, "" if one may be, whether it is written so or what a name
// leads to. A peer that this cluster's owner has chosen may share a network with nodes here, of whose range pods
// have addresses as well, or a node with this cluster. Of a path another cluster says where the other end is,
// and nothing of this cluster is called for that.
func (p *Places) Refuse(a netip.Addr, path bool) string {
	a = a.Unmap()
	if why := unusable(a); why != "" {
		return why
	}
	pods := p.apart
	if path {
		pods = p.pods
	}
	switch {
	case held(p.views, a):
		return "is an address of a view, and would be sought in a tunnel: reserve it"
	case path && p.nodes[a]:
		return "is the address of a node here"
	case contains(p.external, a):
		return "is an external address of this cluster"
	case held(pods, a):
		return "is the address of a pod here"
	}
	return ""
}

// Equal says whether others refuse the same.
func (p *Places) Equal(o *Places) bool {
	if p == nil || o == nil {
		return p == o
	}
	same := func(a, b claim) bool { return a.prefix == b.prefix }
	return maps.Equal(p.nodes, o.nodes) && slices.EqualFunc(p.views, o.views, same) && slices.Equal(p.external, o.external) &&
		slices.EqualFunc(p.pods, o.pods, same) && slices.EqualFunc(p.apart, o.apart, same)
}
