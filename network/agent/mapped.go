package agent

import (
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/plan"
)

const (
	// maxMapped is how many connections each port of a mapping has at a time from one peer, so
	// that none of them uses up what is mapped, or the ports of the gateway's node.
	maxMapped = 1024
	// maxMappedPorts is how many ports of a mapping count; the kind has the same bound.
	maxMappedPorts = 16
)

// mappedDoors are those of what is mapped in namespaces that a provider has part in, for the pods
// of the same namespace that run there, unless the namespace or all of the peering says none.
func (k *known) mappedDoors(object string, f facts, p *pair, nodes []string, real func(netip.Addr) (netip.Addr, bool)) (doors []dataplane.Door) {
	if p.own.Spec.Reachability.OrDefault() == v1alpha1.ReachNone {
		return nil
	}
	namespaces, spaces := map[string]bool{}, f.spaces()
	for i := range f.maps {
		if f.maps[i].Namespace == p.namespace {
			for namespace := range f.maps[i].Spec.Namespaces {
				namespaces[namespace] = spaces[namespace] != v1alpha1.ReachNone
			}
		}
	}
	var all []*v1alpha1.IPMapping
	for i := range f.mappings {
		if m := &f.mappings[i]; namespaces[m.Namespace] && mapped(m) {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, v1alpha1.CompareIPMappings)
	if len(all) > v1alpha1.MaxIPMappings {
		k.wrong(object, "%d mappings are for it, and only %d of them count", len(all), v1alpha1.MaxIPMappings)
		all = all[:v1alpha1.MaxIPMappings]
	}
	from, taken := map[string][]netip.Addr{}, map[netip.Addr]bool{}
	for _, m := range all {
		at, err := netip.ParseAddr(m.Status.Address)
		to, err2 := netip.ParseAddr(m.Spec.Address)
		if err != nil || err2 != nil || taken[at] {
			k.wrong(object, "the mapping %s/%s has no address of its own yet", m.Namespace, m.Name)
			continue
		}
		if to = to.Unmap(); k.ours(to) {
			k.wrong(object, "the mapping %s/%s leads to a pod or node of this cluster", m.Namespace, m.Name)
			continue
		}
		taken[at] = true
		if _, known := from[m.Namespace]; !known {
			from[m.Namespace] = k.reached(object, awayAt(f, nodes, func(namespace string) bool { return namespace == m.Namespace }), real)
		}
		for _, port := range m.Spec.Ports[:min(len(m.Spec.Ports), maxMappedPorts)] {
			number := uint16(max(0, min(port.Port, 65535)))
			doors = append(doors, dataplane.Door{
				At: netip.AddrPortFrom(at, number), To: netip.AddrPortFrom(to, number), UDP: port.Protocol == v1alpha1.IPMappingUDP,
				Most: maxMapped, From: from[m.Namespace],
			})
		}
	}
	return doors
}

// ours says whether an address is a pod's or a node's here, which no mapping leads to, whoever has
// said that it may.
func (k *known) ours(a netip.Addr) bool {
	return prefixIn(k.input.Pods, a) || prefixIn(k.input.External, a) ||
		slices.ContainsFunc(k.input.Nodes, func(n plan.Node) bool { return slices.Contains(n.Addresses, a) || prefixIn(n.Ranges, a) })
}

// mapped says whether a mapping was found to be right as it is now, and has an address.
func mapped(m *v1alpha1.IPMapping) bool {
	return m.Right() && m.DeletionTimestamp == nil && m.Status.Address != ""
}
