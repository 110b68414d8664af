package agent

import (
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/plan"
)

// In a large cluster most nodes are gateway of nothing, nor will they be. They cost its API server, and each
// other, little: their Leases are renewed seldom, and they follow nothing by namespace.

// standing is what a node is to the peerings of its cluster. The greater, the sooner it is missed.
type standing int

const (
	// isUntold is that nothing is known of it yet.
	isUntold standing = iota
	// isAlone is that there is no peering, isIdle that others are gateways and come next.
	isAlone
	isIdle
	// isNext is that it comes next when a gateway is gone, and isGateway that it should be one.
	isNext
	isGateway
)

// nextMost is how many nodes after a peering's gateway are ready to be it. If all these are gone
// at once the one that follows has to begin to read.
const nextMost = 3

// standing is what this node is, by who is alive. It counts itself.
func (f facts) standing() standing {
	if f.is != isUntold {
		return f.is
	}
	pairs, openings := f.pairs(), f.openings(f.namespace)
	if len(pairs)+len(openings) == 0 {
		return isAlone
	}
	may := map[string]bool{f.self: true}
	var real []*corev1.Node
	for i := range f.nodes {
		n := &f.nodes[i]
		if _, is := virtual(n); is {
			continue
		}
		real = append(real, n)
		if f.alive[n.Name] && len(addressesOf(n)) > 0 {
			may[n.Name] = true
		}
	}
	byAddress, is := plan.ByAddress(real), isIdle
	look := func(key string, p *pair) {
		switch before := plan.Before(key, f.self, may, p.told(byAddress), nextMost+1); {
		case before == 0:
			is = isGateway
		case before <= nextMost:
			is = max(is, isNext)
		}
	}
	for namespace, p := range pairs {
		look(v1alpha1.NetworkKey(namespace), p)
	}
	for name, p := range openings {
		look(name, p)
	}
	return is
}

// told are the nodes at which the peer was told to call, in that order.
func (p *pair) told(byAddress map[netip.Addr]string) []string {
	return plan.Told(p.own.Spec.Endpoints[:min(len(p.own.Spec.Endpoints), maxEndpoints)], byAddress)
}

// lives takes whether the agent of another node is alive.
func (c *cluster) lives(node string, alive bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if alive {
		c.alive[node] = true
	} else {
		delete(c.alive, node)
	}
}

// living are the other nodes whose agents are, and whether tunnels end here.
func (c *cluster) living() (alive map[string]bool, serves bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.alive), c.serves
}

// serve takes whether tunnels end here, and reports whether more is to be followed for that: a plan leaves nodes
// out that cannot be part of it, who count where it is decided who comes next.
func (c *cluster) serve(is bool) (more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	more = is && !c.serves && c.is < isNext
	c.serves = is
	return more
}

func (c *cluster) stands(is standing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.is = is
}

// standing is what this node was when all was read last.
func (c *cluster) standing() standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.is
}
