package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
)

// Order sorts the nodes that may be gateway of a peering by who is: the first one that lives.
func Order(peering string, nodes []string) []string {
	weights := make(map[string]uint64, len(nodes))
	for _, n := range nodes {
		weights[n] = weight(peering, n)
	}
	order := slices.Clone(nodes)
	slices.SortFunc(order, func(a, b string) int { return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b)) })
	return slices.Compact(order)
}

// weight is the hash of a node together with a peering.
func weight(peering, node string) uint64 {
	sum := sha256.Sum256(append(append(append(make([]byte, 0, 256), peering...), 0), node...))
	return binary.BigEndian.Uint64(sum[:])
}

// Gateway returns the node that is a peering's gateway, "" if there is none to choose
// from. It is the first of those at which the peer was told to call. Where none of them is left, or
// the peer calls elsewhere, it is the one whose hash together with the peering is the highest: a node that goes
// moves only what it was gateway of, and one that comes takes only what it gets.
func Gateway(peering string, nodes, told []string) (gateway string) {
	for _, n := range told {
		if slices.Contains(nodes, n) {
			return n
		}
	}
	var most uint64
	for _, n := range nodes {
		w := weight(peering, n)
		if gateway == "" || w > most || w == most && n < gateway {
			gateway, most = n, w
		}
	}
	return gateway
}

// Before is how many nodes, of those that may be a peering's gateway, would be before one of them, at
// most so many: 0 if it is gateway itself.
func Before(peering, node string, nodes map[string]bool, told []string, most int) (before int) {
	first := map[string]bool{}
	for _, n := range told {
		switch {
		case n == node || before >= most:
			return before
		case nodes[n] && !first[n]:
			first[n] = true
			before++
		}
	}
	own := weight(peering, node)
	for n := range nodes {
		if before >= most {
			return before
		}
		if !nodes[n] || n == node || first[n] {
			continue
		}
		if w := weight(peering, n); w > own || w == own && n < node {
			before++
		}
	}
	return before
}

// Told are the nodes that have the addresses of endpoints, in that order. Endpoints elsewhere, as
// those of load balancers, are of none.
func Told(endpoints []string, nodes map[netip.Addr]string) (told []string) {
	for _, e := range endpoints {
		host, _, err := net.SplitHostPort(e)
		if err != nil {
			continue
		}
		a, err := netip.ParseAddr(host)
		if err != nil {
			continue
		}
		if n, ok := nodes[a.Unmap()]; ok && !slices.Contains(told, n) {
			told = append(told, n)
		}
	}
	return told
}
