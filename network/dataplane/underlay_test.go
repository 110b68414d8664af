package dataplane

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestUnderlayChanges moves rome's VXLAN from IPv4 to IPv6 and to another network while
// connections are open.
func TestUnderlayChanges(t *testing.T) {
	w := newWorld(t)
	w.start()
	c, _, err := w.rome.nodes[1].Pod.Dial(podAt(w.rome.view, 2, 5, true), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	w.rome.change = func(c *Config) {
		for i, n := range w.rome.nodes {
			at := netip.MustParseAddr(fmt.Sprintf("fd19::%d", i+1))
			if c.Node.Name == n.Name {
				c.Node.Underlay = at
			} else {
				c.Others[0].Underlay = at
			}
		}
		c.Node.VNI, c.Node.Port, c.Node.MTU = 8, 4791, 1424
	}
	w.set(w.rome)
	testPods(t, w)
	testIdempotent(t, w)
	testLargePing(t, w)
	exchange(t, c, []byte("still there"))
}
