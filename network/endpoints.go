package network

import (
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

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
// of the nodes that may be gateway, in the order in which they are. Those whose agents are away come last:
// when one is back it may be gateway before peers are told, and who is told by the tunnel alone never would be.
func endpoints(settings home.Network, key string, candidates, away []string, nodes map[string]*corev1.Node, port int32) []string {
	var all []string
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
	if len(all) > 0 {
		return all[:min(len(all), maxEndpoints)]
	}
	if len(candidates) == 0 {
		return nil
	}
	next := plan.Order(key, away)
	for _, name := range slices.Concat(plan.Order(key, candidates), next[:min(len(next), maxAway)]) {
		node := nodes[name]
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

// allotPaths gives ports to peerings, and to direct paths what these leave.
func allotPaths(first int32, have, paths []int32) (given, left []int32) {
	all := allot(first, slices.Concat(have, paths))
	if slices.Contains(all[:len(have)], 0) { // they are scarce, and paths have some
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
