// Package internet is the network between the clusters of a sandbox. It runs in
// one network namespace in which every cluster has an interface (its port) and
// turns a Config into kernel state there: which packets may pass between which
// ports, where they go, and which pairs of clusters are cut off or far apart.
//
// Links without delay, loss or rate stay in the kernel. The others pass through
// a TUN device and a relay in user space, as not every kernel has netem.
//
// The package holds no memory of flows: a packet passes or not by its own
// addresses and ports, so nothing lingers after a link was cut and healed. It
// never makes ports, never gives them addresses, and never touches the table,
// routes or rules of others in its namespace.
package internet

import (
	"net/netip"
	"slices"
	"time"
)

// Config is everything the network between clusters should be.
type Config struct {
	// Host is the way in for the computer that the sandbox runs on.
	Host Host `json:"host"`
	// Ports are the clusters. A WAN device is named after the positions of its
	// two ports, so add new ones at the end.
	Ports []Port `json:"ports,omitempty"`
	// Links are the pairs of clusters that differ from a plain, unlimited wire.
	Links []Link `json:"links,omitempty"`
}

// Host is the host's way in: it may reach everything behind every port, and
// gets the answers. The zero value means that there is none.
type Host struct {
	Interface string         `json:"interface,omitempty"`
	Prefixes  []netip.Prefix `json:"prefixes,omitempty"`
}

// Port is one cluster as the others see it.
type Port struct {
	Cluster string `json:"cluster"`
	// Interface exists in this namespace already; at most 15 characters. If it
	// is a bridge, net.bridge.bridge-nf-call-iptables and -ip6tables must be 0
	// here, else what goes on within the cluster is filtered too. Put the Config
	// into force again after an interface was made anew.
	Interface string `json:"interface"`
	// Prefixes are what the cluster may send from and be addressed by: its node
	// networks or, behind NAT, the public addresses of its NAT box.
	Prefixes []netip.Prefix `json:"prefixes"`
	// Private are node networks behind NAT. Only the host may reach them.
	Private []netip.Prefix `json:"private,omitempty"`
	// Gateway is the next hop to Private, one address per family.
	Gateway []netip.Addr `json:"gateway,omitempty"`
}

// Link is the wire between two clusters. Every figure holds in each direction.
type Link struct {
	// A and B are the names of the clusters, A before B in the alphabet.
	A string `json:"a"`
	B string `json:"b"`
	// Cut lets nothing through, whatever else is set.
	Cut bool `json:"cut,omitempty"`
	// Delay is one way, in nanoseconds in JSON; at most MaxDelay.
	Delay time.Duration `json:"delay,omitempty"`
	// Loss is the share of packets lost, 0 to 1.
	Loss float64 `json:"loss,omitempty"`
	// Rate is in bit/s counted over IP packets, MinRate to MaxRate; 0 is unlimited.
	Rate int64 `json:"rate,omitempty"`
}

// Limits of a link.
const (
	MaxDelay = 10 * time.Second
	MinRate  = 8_000
	MaxRate  = 100_000_000_000
)

// Stats are counters since Serve began.
type Stats struct {
	// Flows holds both directions of every pair of clusters, sorted by name.
	Flows []Flow `json:"flows"`
}

// Flow is what went from one cluster to another.
type Flow struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Packets and Bytes (of IP packets) were delivered.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// Drops are packets not delivered: link cut, addresses that may not pass,
	// loss, or a full queue.
	Drops uint64 `json:"drops"`
}

// shape is what a relay does to packets in one direction.
type shape struct {
	delay time.Duration
	loss  float64
	rate  int64
}

func (l Link) shape() shape  { return shape{delay: l.Delay, loss: l.Loss, rate: l.Rate} }
func (l Link) relayed() bool { return l.shape() != shape{} }

// link returns the link between two clusters in either order; a pair that is
// not listed is a plain wire.
func (c Config) link(a, b string) Link {
	if a > b {
		a, b = b, a
	}
	i := slices.IndexFunc(c.Links, func(l Link) bool { return l.A == a && l.B == b })
	if i < 0 {
		return Link{A: a, B: b}
	}
	return c.Links[i]
}

// pair is two ports, by their positions in Config.Ports.
type pair struct{ from, to int }

// pairs returns every ordered pair of different ports, sorted by name.
func (c Config) pairs() []pair {
	order := make([]int, len(c.Ports))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		if c.Ports[i].Cluster < c.Ports[j].Cluster {
			return -1
		}
		return 1
	})
	var out []pair
	for _, i := range order {
		for _, j := range order {
			if i != j {
				out = append(out, pair{i, j})
			}
		}
	}
	return out
}
