package plan

import (
	"fmt"
	"net/netip"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// large is a cluster whose pods are anywhere in its range, so that each is an element, of
// which all may be reached by one of its peers.
func large(nodes, peers, pods int) Input {
	in := Input{Node: "node-0", Pods: prefixes("10.0.0.0/16", "fd42::/48"), External: prefixes("10.1.0.0/24")}
	for i := range nodes {
		in.Nodes = append(in.Nodes, Node{Name: fmt.Sprintf("node-%d", i), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)})}, Alive: true, MTU: 1500})
	}
	for i := range peers {
		view := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i + 2), 0, 0}), 16)
		in.Peerings = append(in.Peerings, Peering{
			Key: fmt.Sprintf("peer-%d", i), Role: Consumer, Limited: true, Views: []ipam.View{{Real: in.Pods[0], View: view}},
			Peer: tunnel.PublicKey{1}, ListenPort: uint16(51000 + i), Endpoints: []string{"198.51.100.7:51820", "milan.example:51820"},
		})
	}
	for i := range pods {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		n := &in.Nodes[i%nodes]
		n.Pods = append(n.Pods, a)
		p := &in.Peerings[(i/nodes)%peers]
		p.Here, p.There = append(p.Here, a), append(p.There, a)
	}
	return in
}

func keyOf(in Input, r dataplane.Route) string {
	for _, p := range in.Peerings {
		if p.Views[0].View == r.Prefix {
			return p.Key
		}
	}
	return ""
}
