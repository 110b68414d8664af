// Package address decides which address every machine of every sandbox has. It
// is pure and complete: nothing else chooses a node address.
package address

import (
	"encoding/binary"
	"net/netip"
)

// Limits that follow from the plan: 16 sandboxes of 32 networks in a /15.
const (
	Sandboxes = 16
	Clusters  = 30
	Nodes     = 180

	networks = 32
	transit  = 31
)

// Space4 and Space6 hold every node address of every sandbox. 198.18.0.0/15 is
// set aside for testing networks (RFC 2544), so no network in use has it; the
// other is a unique local prefix (RFC 4193).
var (
	Space4 = netip.MustParsePrefix("198.18.0.0/15")
	Space6 = netip.MustParsePrefix("fd5a:70e1:a90::/48")
)

// Pair is an address of each family with the length of its network.
type Pair struct {
	V4 netip.Prefix `json:"v4"`
	V6 netip.Prefix `json:"v6"`
}

// Prefixes returns both families.
func (p Pair) Prefixes() []netip.Prefix { return []netip.Prefix{p.V4, p.V6} }

// Addresses returns the bare addresses of both families.
func (p Pair) Addresses() []netip.Addr { return []netip.Addr{p.V4.Addr(), p.V6.Addr()} }

// Hosts returns the addresses as networks of one.
func (p Pair) Hosts() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(p.V4.Addr(), 32), netip.PrefixFrom(p.V6.Addr(), 128)}
}

// Network is the network of one cluster, or the transit network of a sandbox.
type Network struct{ sandbox, index int }

// Cluster returns the network of cluster k (0 to 29) of a sandbox (0 to 15).
func Cluster(sandbox, k int) Network { return Network{sandbox, k} }

// Transit returns the network that joins the host, the routers and the NAT
// boxes of a sandbox.
func Transit(sandbox int) Network { return Network{sandbox, transit} }

// Sandbox returns the network that holds all networks of a sandbox.
func Sandbox(sandbox int) Pair {
	n := Network{sandbox, 0}
	return Pair{V4: netip.PrefixFrom(n.at4(0), 19), V6: netip.PrefixFrom(n.at6(0), 59)}
}

// Prefix returns the whole network.
func (n Network) Prefix() Pair {
	return Pair{V4: netip.PrefixFrom(n.at4(0), 24), V6: netip.PrefixFrom(n.at6(0), 64)}
}

// Router is the way out of the network.
func (n Network) Router() Pair { return n.host(1) }

// Control is the address of the control plane.
func (n Network) Control() Pair { return n.host(2) }

// Node is the address of node i, counted from 1.
func (n Network) Node(i int) Pair { return n.host(10 + i) }

// NAT is the public address, in a transit network, of the NAT box of cluster k.
func (n Network) NAT(k int) Pair { return n.host(100 + k) }

// Host is the host's own address in a transit network.
func (n Network) Host() Pair { return n.host(254) }

// LoadBalancers returns the first and last address for load balancers, per
// family.
func (n Network) LoadBalancers() [2][2]netip.Addr {
	return [2][2]netip.Addr{{n.at4(200), n.at4(250)}, {n.at6(200), n.at6(250)}}
}

func (n Network) host(last int) Pair {
	return Pair{V4: netip.PrefixFrom(n.at4(last), 24), V6: netip.PrefixFrom(n.at6(last), 64)}
}

func (n Network) at4(last int) netip.Addr {
	base := Space4.Addr().As4()
	value := binary.BigEndian.Uint32(base[:]) + uint32((n.sandbox*networks+n.index)<<8+last)
	var out [4]byte
	binary.BigEndian.PutUint32(out[:], value)
	return netip.AddrFrom4(out)
}

func (n Network) at6(last int) netip.Addr {
	out := Space6.Addr().As16()
	binary.BigEndian.PutUint16(out[6:], uint16(n.sandbox*networks+n.index))
	binary.BigEndian.PutUint16(out[14:], uint16(last))
	return netip.AddrFrom16(out)
}
