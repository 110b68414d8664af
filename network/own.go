package network

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/network/dns"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
)

const (
	// wide4 and wide6 are the lengths that a range of pods found on nodes is widened to: a
	// cluster gets more nodes, and each new range would move views at all peers. Usual
	// pod networks are of that size.
	wide4, wide6 = 16, 56
	// external4 and external6 are the lengths of ranges of external addresses.
	external4, external6 = 24, 120
	// maxConnected is how many networks of nodes count, the widest ones.
	maxConnected = 4096
)

// kept is where every node answers for names in IPv6, and what stands for the ends of tunnels: in IPv4
// these are link-local, which are nobody's range in any case.
var kept = netip.PrefixFrom(dns.Address6(), 48).Masked()

// grounds is what this cluster's own ranges follow from.
type grounds struct {
	settings  home.Network
	clusterID string
	nodes     []*corev1.Node // real ones
	services  []networkingv1.ServiceCIDR
	connected []netip.Prefix // networks that nodes say they are in
	servers   []netip.Addr   // of the API server here
	reached   []netip.Addr   // API servers of peers
	mapped    []netip.Prefix // what is mapped now
	// before are the external addresses published so far, the oldest peering's first, and
	// views those of peers.
	before, views []netip.Prefix
	// published are the ranges of pods published so far.
	published []netip.Prefix
}

// property is what this cluster has, and what is wrong with that.
type property struct {
	ipam.Own
	// hosts are the addresses of nodes and of the API server, one by one.
	hosts []netip.Prefix
	// problem says, with the reason, why not all of it is published.
	reason, problem string
}

// own decides which ranges are this cluster's.
func own(g grounds) property {
	p := property{Own: ipam.Own{
		Services: prefixes(g.settings.Services), Reserved: prefixes(g.settings.Reserved),
		Pools: prefixes(g.settings.Pools), AsIs: prefixes(g.settings.AsIs),
		Mappable: prefixes(g.settings.Mappable), Mapped: g.mapped,
	}}
	if len(p.Pools) == 0 {
		p.Pools = ipam.DefaultPools(g.clusterID)
	}
	if len(p.Services) == 0 {
		for _, s := range g.services {
			p.Services = append(p.Services, prefixes(s.Spec.CIDRs)...)
		}
		p.Services = sorted(p.Services)
	}
	for _, n := range g.nodes {
		for _, a := range plan.AddressesOf(n, plan.Stranger) {
			p.Nodes = append(p.Nodes, near(a)) // with its router and neighbours
		}
	}
	for _, n := range g.nodes {
		for _, of := range n.Status.Addresses {
			if a, err := netip.ParseAddr(of.Address); err == nil && a.Zone() == "" {
				p.hosts = append(p.hosts, single(a.Unmap()))
			}
		}
	}
	for _, a := range g.servers {
		p.Nodes, p.hosts = append(p.Nodes, single(a)), append(p.hosts, single(a))
	}
	p.Nodes, p.hosts = append(p.Nodes, kept), append(p.hosts, kept)
	p.hosts = sorted(p.hosts)
	p.Nodes = sorted(p.Nodes)
	for _, a := range g.reached {
		p.Reached = append(p.Reached, single(a))
	}
	p.Reached = sorted(p.Reached)
	p.findPods(g)
	// What nodes say of routes changes neither the ranges of pods, in which CNIs have many, nor
	// external addresses that are published: these are nowhere but in gateways.
	connected := ipam.Networks(g.connected, maxConnected)
	p.findExternal(g, connected)
	p.Nodes = sorted(slices.Concat(p.Nodes, connected))
	return p
}

// findPods takes the ranges of the pods from the settings, or finds them on the nodes: of
// each family the smallest prefix that holds all of theirs, widened as far as nothing else
// that is ours lies there. One that is published and is as right stays what it is: nodes come and go,
// and each new range moves views at all peers.
func (p *property) findPods(g grounds) {
	if p.Pods = prefixes(g.settings.Pods); len(p.Pods) > 0 {
		return
	}
	var found []netip.Prefix
	for _, n := range g.nodes {
		found = append(found, podRanges(n)...)
	}
	for _, four := range []bool{true, false} {
		all, ok := around(found, four)
		if !ok {
			continue
		}
		apart := slices.Concat(p.Services, p.Nodes, beside(p.Reserved, all), prefixes(g.settings.External))
		i := slices.IndexFunc(g.published, func(was netip.Prefix) bool {
			return was.Bits() <= all.Bits() && was.Contains(all.Addr()) && !slices.ContainsFunc(apart, was.Overlaps)
		})
		if i >= 0 {
			p.Pods = append(p.Pods, g.published[i])
			continue
		}
		wide := wide6
		if four {
			wide = wide4
		}
		p.Pods = append(p.Pods, widened(all, wide, apart))
	}
	if len(p.Pods) == 0 {
		p.Pods = g.published // what was so is better than nothing: nodes come back
		p.reason, p.problem = v1alpha1.ReasonRangesUnknown,
			"no node says which addresses its pods have (spec.podCIDRs): set network.pods in ConfigMap "+v1alpha1.ConfigName+" to the ranges of the pods here"
	}
}

// beside are those of prefixes that can be left out of a range of pods. What holds all pods, or lies among
// them, no range leaves out, however narrow it is.
func beside(all []netip.Prefix, pods netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), pods.Overlaps)
}

// podRanges are the prefixes that a node says its pods keep to.
func podRanges(n *corev1.Node) []netip.Prefix {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 && n.Spec.PodCIDR != "" {
		texts = []string{n.Spec.PodCIDR}
	}
	return prefixes(texts)
}

// around is the smallest prefix that holds all of one family.
func around(all []netip.Prefix, four bool) (netip.Prefix, bool) {
	var whole netip.Prefix
	for _, p := range all {
		switch {
		case p.Addr().Is4() != four:
		case !whole.IsValid():
			whole = p
		default:
			for bits := min(whole.Bits(), p.Bits()); ; bits-- {
				if next := netip.PrefixFrom(whole.Addr(), bits).Masked(); next.Contains(p.Addr()) {
					whole = next
					break
				}
			}
		}
	}
	return whole, whole.IsValid()
}

// widened is a prefix made as large as length, or as far as it overlaps nothing of others.
func widened(p netip.Prefix, length int, others []netip.Prefix) netip.Prefix {
	for bits := length; bits < p.Bits(); bits++ {
		wide := netip.PrefixFrom(p.Addr(), bits).Masked()
		if !slices.ContainsFunc(others, wide.Overlaps) {
			return wide
		}
	}
	return p
}

// findExternal takes the external addresses from the settings, or those that are published
// already if they are still right, or the highest that are free, also of what nodes are connected to.
func (p *property) findExternal(g grounds, connected []netip.Prefix) {
	if p.External = prefixes(g.settings.External); len(p.External) > 0 {
		return
	}
	own := p.Own // no view may overlap External, but these may be what they were
	for _, four := range []bool{true, false} {
		if !slices.ContainsFunc(p.Pods, func(r netip.Prefix) bool { return r.Addr().Is4() == four }) {
			continue
		}
		length := external6
		if four {
			length = external4
		}
		i := slices.IndexFunc(g.before, func(b netip.Prefix) bool {
			return b.Addr().Is4() == four && b.Bits() == length && own.Holds(b) == ""
		})
		if i >= 0 {
			p.External = append(p.External, g.before[i])
			continue
		}
		free, ok := own.Free(four, length, slices.Concat(g.views, connected))
		if ok {
			p.External = append(p.External, free)
		} else if p.problem == "" {
			p.reason, p.problem = v1alpha1.ReasonPoolExhausted,
				fmt.Sprintf("no pool has a /%d for the external addresses of this cluster: set network.external in ConfigMap %s, or add a pool", length, v1alpha1.ConfigName)
		}
	}
}

// addressOf is the address in a URL, if there is one and no name.
func addressOf(text string) (netip.Addr, bool) {
	u, err := url.Parse(text)
	if err != nil {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(u.Hostname())
	return a.Unmap(), err == nil && a.Zone() == ""
}

const (
	// near4 and near6 are the lengths of the networks around an address that are left to it, as
	// the true ones are not known.
	near4, near6 = 24, 64
)

// near is the network around an address.
func near(a netip.Addr) netip.Prefix {
	length := near6
	if a.Is4() {
		length = near4
	}
	return netip.PrefixFrom(a, length).Masked()
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// prefixes reads what was checked before. What is none is left out.
func prefixes(texts []string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil && !p.Addr().Is4In6() {
			all = append(all, p.Masked())
		}
	}
	return all
}

// sorted are prefixes in order, each once.
func sorted(all []netip.Prefix) []netip.Prefix {
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

func texts(all []netip.Prefix) []string {
	var out []string
	for _, p := range all {
		out = append(out, p.String())
	}
	return out
}
