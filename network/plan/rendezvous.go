package plan

import (
	"crypto/sha256"
	"encoding/binary"
)

// gatewayOf returns the node that is a peering's gateway, "" if there is none to choose
// from: the one whose hash together with the peering is the highest. A node that goes
// moves only what it was gateway of, and one that comes takes only what it gets.
func gatewayOf(peering string, nodes []string) (gateway string) {
	var most uint64
	buffer := append(make([]byte, 0, 256), peering...)
	buffer = append(buffer, 0)
	for _, n := range nodes {
		sum := sha256.Sum256(append(buffer, n...))
		weight := binary.BigEndian.Uint64(sum[:])
		if gateway == "" || weight > most || weight == most && n < gateway {
			gateway, most = n, weight
		}
	}
	return gateway
}
