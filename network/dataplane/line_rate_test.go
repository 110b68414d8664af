package dataplane

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// full is how many packets a gateway has dropped since its door had enough.
func (n *worldNode) full(t *testing.T, peering string) uint64 {
	t.Helper()
	list, err := n.kernel.Drops(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		if d.Peering == peering && d.Reason == DropFull {
			return d.Packets
		}
	}
	t.Fatalf("the gateway of %s counts nothing", peering)
	return 0
}

// testLineRate has one of two tenants open connections faster than it may.
func testLineRate(t *testing.T, w *world, oslo *cluster, views [2]netip.Addr) {
	const flood = 40
	change := w.milan.change
	defer func() { w.milan.change = change; w.set(w.milan) }()
	rome, at, node := w.rome.nodes[0].Pod, netip.AddrPortFrom(views[0], 7000), w.milan.nodes[0]
	for i, closed := range []bool{false, true} {
		burst := 6 + i // another one counts anew
		var shut []netip.Addr
		t.Run(fmt.Sprintf("closed: %t", closed), func(t *testing.T) {
			w.milan.change = func(c *Config) {
				change(c)
				for i := range c.Gateways {
					g := &c.Gateways[i]
					g.Limited, g.Closed, g.ShutHere = closed, closed, shut
					for j := range g.Line.Doors {
						g.Line.Doors[j].PerSecond, g.Line.Doors[j].Burst = 1, uint32(burst)
					}
				}
			}
			w.set(w.milan)
			before := [2]uint64{node.full(t, "other"), node.full(t, "oslo")}
			began := time.Now()
			var open []net.Conn
			for range burst {
				c, _, err := reach(rome, at, patience)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				open = append(open, c)
			}
			if now := node.full(t, "other"); now != before[0] {
				t.Errorf("%d were dropped of as many as may begin at once", now-before[0])
			}
			shut = addrs("10.42.9.9") // of which other rules follow
			w.set(w.milan)
			var all sync.WaitGroup
			var more atomic.Int64
			for range flood {
				all.Go(func() {
					if c, _, err := reach(rome, at, silence); err == nil {
						more.Add(1)
						_ = c.Close()
					}
				})
			}
			all.Wait()
			if most := int64(time.Since(began)/time.Second) + 1; more.Load() > most {
				t.Errorf("beyond %d at once %d more have begun, and may be %d", burst, more.Load(), most)
			}
			if now := node.full(t, "other"); now == before[0] {
				t.Error("nothing is counted")
			}
			// Those that are there go on, and nobody else has less for it.
			for _, c := range open {
				exchange(t, c, make([]byte, 1<<18))
			}
			for range burst {
				c, _, err := reach(oslo.nodes[1].Pod, netip.AddrPortFrom(views[1], 7000), patience)
				if err != nil {
					t.Fatalf("the other tenant: %v", err)
				}
				_ = c.Close()
			}
			if now := node.full(t, "oslo"); now != before[1] {
				t.Errorf("%d of the other tenant were dropped", now-before[1])
			}
			dropped := node.full(t, "other")
			c, _, err := reach(rome, netip.AddrPortFrom(views[0], 7001), patience)
			if err != nil {
				t.Fatalf("another door of the same line: %v", err)
			}
			_ = c.Close()
			if now := node.full(t, "other"); now != dropped {
				t.Errorf("%d to another door were dropped", now-dropped)
			}
			netnstest.Await(t, "another one may begin", patience, func() bool {
				c, _, err := reach(rome, at, silence)
				if err == nil {
					_ = c.Close()
				}
				return err == nil
			})
		})
	}
}
