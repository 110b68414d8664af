package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
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
// from: the one whose hash together with the peering is the highest. A node that goes
// moves only what it was gateway of, and one that comes takes only what it gets.
func Gateway(peering string, nodes []string) (gateway string) {
	var most uint64
	for _, n := range nodes {
		w := weight(peering, n)
		if gateway == "" || w > most || w == most && n < gateway {
			gateway, most = n, w
		}
	}
	return gateway
}
