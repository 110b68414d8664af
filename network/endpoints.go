package network

import (
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/network/plan"
)

const (
	// maxEndpoints bounds the endpoints of a peering.
	maxEndpoints = 8
	// maxAway is how many nodes whose agents are away are among them, as each that answers nobody has to be tried.
	maxAway = 2
	// ports is how many peerings have ports that follow the first one.
	ports = 1000
)

// taken are ports near the first one that belong to others: the VXLAN between nodes and those
// of usual CNIs.
var taken = map[int32]bool{plan.Port: true, 4789: true, 8472: true}

// endpoints are where peers find the gateway of a peering: what the owner says, or the addresses
// of the nodes that may be gateway, in the order in which they are, which agents here go by. Those whose agents
// are away come last: when one is back it may be gateway before peers are told, and who is told by the tunnel
// alone never would be.
func (f *facts) endpoints(p *pair, port int32) []string {
	if all := saidEndpoints(f.settings, port); len(all) > 0 || len(f.candidates) == 0 {
		return all
	}
	var all []string
	next := plan.Order(p.key, f.away)
	for _, name := range slices.Concat(inTurn(p.key, f.candidates, f.told(p), p.heard()), next[:min(len(next), maxAway)]) {
		node := f.nodes[name]
		if node == nil {
			continue
		}
		for _, a := range plan.AddressesOf(node, plan.Stranger) {
			if len(all) < maxEndpoints {
				all = append(all, net.JoinHostPort(a.String(), strconv.Itoa(int(port))))
			}
		}
	}
	return all
}

// saidEndpoints are those that the owner says, nil if he says none.
func saidEndpoints(settings home.Network, port int32) (all []string) {
	for _, text := range settings.Endpoints {
		host, own, err := home.ParseEndpoint(text)
		if err != nil {
			continue // the settings were checked
		}
		if own == 0 {
			own = uint16(port)
		}
		all = append(all, net.JoinHostPort(host, strconv.Itoa(int(own))))
	}
	return all[:min(len(all), maxEndpoints)]
}

// inTurn are the nodes that may be gateway, in the order in which they are. One that the peer was not told of
// comes after those that it was, until the peer says that it has heard: if it was gateway at once, who is told
// by the tunnel alone would not find it. Until then these stay in the order in which the peer was told of them.
func inTurn(key string, candidates, told []string, heard bool) []string {
	fresh := func(n string) bool { return !slices.Contains(told, n) }
	known := slices.DeleteFunc(slices.Clone(told), func(n string) bool { return !slices.Contains(candidates, n) })
	if heard {
		known = plan.Order(key, known)
	}
	return slices.Concat(known, plan.Order(key, slices.DeleteFunc(slices.Clone(candidates), func(n string) bool { return !fresh(n) })))
}

// told are the nodes at which the peer is told to call as things are, in that order.
func (f *facts) told(p *pair) []string {
	own := p.own()
	if own == nil {
		return nil
	}
	if f.places == nil {
		f.places = plan.ByAddress(slices.Collect(maps.Values(f.nodes)))
	}
	return plan.Told(own.Spec.Endpoints, f.places)
}

// heard says whether the peer has taken what this cluster says of itself as it is now.
func (p *pair) heard() bool {
	own := p.own()
	return own != nil && own.Status.ObservedGeneration == own.Generation
}

// allotPaths gives ports to peerings, of which the first ones must have some, and to direct paths what
// these leave.
func allotPaths(first int32, must int, have, paths []int32) (given, left []int32) {
	all := allot(first, slices.Concat(have, paths))
	if slices.Contains(all[:must], 0) { // they are scarce, and paths have some
		all = allot(first, slices.Concat(allot(first, have), paths))
	}
	return all[:len(have)], all[len(have):]
}

// allot gives each peering a port of its own, from first on: the one that it has, if that is
// right, else the lowest that is free. It gives 0, which is any, when there is none.
func allot(first int32, have []int32) []int32 {
	used := map[int32]bool{}
	out := make([]int32, len(have))
	for i, p := range have {
		if p >= first && p < first+ports && !taken[p] && !used[p] {
			out[i], used[p] = p, true
		}
	}
	next := first
	for i := range out {
		for out[i] == 0 && next < first+ports {
			if !used[next] && !taken[next] {
				out[i], used[next] = next, true
			}
			next++
		}
	}
	return out
}
