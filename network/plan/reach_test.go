package plan

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// width is what one side lets be reached.
type width int

const (
	none width = iota
	offloadedOnly
	full
)

func (w width) String() string { return [...]string{"none", "offloaded-only", "full"}[w] }

// way is a connection between the clusters, and what of both sides it needs.
type way struct {
	name string
	from *netnstest.Place
	to   func(v4 bool) netip.Addr
	// needs is the least that both sides have to say; more than full is never.
	needs  width
	only4  bool
	reason string
}

const never = full + 1

// reached is rome, whose pod on milan's second node runs there for it, calls one pod of rome's by
// a Service, and rome's API server by its door.
type reached struct {
	*world
	api  netip.Addr
	ways []way
}

func newReached(t *testing.T) *reached {
	t.Helper()
	w := &reached{world: newWorld(t), api: netip.MustParseAddr("10.43.0.2")}
	rome, milan := w.rome, w.milan
	rome.Nodes[0].Listen()
	pod := func(s *side, node int) func(bool) netip.Addr {
		return func(v4 bool) netip.Addr { return s.seen(t, netnstest.PodAddr(42, node, 5, v4)) }
	}
	door := func(bool) netip.Addr { return milan.seen(t, w.api) }
	home, away := rome.Nodes, milan.Nodes
	w.ways = []way{
		{"from home to an offloaded pod", home[1].Pod, pod(rome, 1), offloadedOnly, false, "it was offloaded"},
		{"from a node of home to an offloaded pod", home[0].Place, pod(rome, 1), offloadedOnly, false, "nodes may as before"},
		{"from an offloaded pod to one behind a Service", away[1].Pod, pod(milan, 0), offloadedOnly, false, "the Service travelled"},
		{"from an offloaded pod to one behind none", away[1].Pod, pod(milan, 1), full, false, "it is a pod of home's, and in no set"},
		{"from home to a pod of the provider's own", home[0].Pod, pod(rome, 0), full, false, "it is in no set"},
		{"from a pod of the provider's own to home", away[0].Pod, pod(milan, 0), full, false, "it is in no set"},
		{"from a node of the provider to home", away[0].Place, pod(milan, 0), never, false, "nodes of a provider never may"},
		{"from an offloaded pod to home's API", away[1].Pod, door, none, true, "its door is open whatever else is"},
		{"from a pod of the provider's own to home's API", away[0].Pod, door, never, true, "it has no tokens"},
	}
	return w
}

// say has both sides say something, as their agents would.
func (w *reached) say(t *testing.T, home, provider width) {
	t.Helper()
	var served, offloaded []netip.Addr
	for _, v4 := range netnstest.Families {
		served, offloaded = append(served, netnstest.PodAddr(42, 0, 5, v4)), append(offloaded, netnstest.PodAddr(42, 1, 5, v4))
	}
	door := netip.AddrPortFrom(w.api, netnstest.Port)
	to := netip.AddrPortFrom(netnstest.NodeAddr(0, true), netnstest.Port)
	rome, milan := &w.rome.in.Peerings[0], &w.milan.in.Peerings[0]
	rome.Limited, rome.Closed, rome.Here, rome.There = home != full, home == none, served, offloaded
	rome.Doors = []dataplane.Door{{At: door, To: to, From: offloaded[:1]}}
	milan.Limited, milan.Closed, milan.Here, milan.There = provider != full, provider == none, offloaded, append(served, w.api)
	if provider == none {
		milan.Calls = []netip.AddrPort{door}
	} else {
		milan.Calls = nil
	}
	w.rome.apply(t)
	w.milan.apply(t)
}

// open is a connection that was there.
type open struct {
	way  way
	name string
	conn net.Conn
}

// each does something with all ways at once, of both families.
func (w *reached) each(do func(of way, name string, to netip.Addr)) {
	var group sync.WaitGroup
	for _, of := range w.ways {
		for _, v4 := range netnstest.Families {
			if v4 || !of.only4 {
				group.Go(func() { do(of, fmt.Sprintf("%s, of IPv4 %t", of.name, v4), of.to(v4)) })
			}
		}
	}
	group.Wait()
}

// speaks says something, and reports whether that comes back.
func speaks(c net.Conn, patience time.Duration) error {
	const word = "are you there?"
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, len(word)))
	return err
}

// TestReachability has both sides say all that they may, from connections that are there when all
// may pass: what the narrower lets pass goes on and begins, and all else ends and does not.
func TestReachability(t *testing.T) {
	t.Parallel()
	w := newReached(t)
	w.say(t, full, full)
	w.alive(t)
	for home := none; home <= full; home++ {
		for provider := none; provider <= full; provider++ {
			t.Run(fmt.Sprintf("home says %s and the provider %s", home, provider), func(t *testing.T) {
				w.say(t, full, full)
				var mu sync.Mutex
				var there []open
				w.each(func(of way, name string, to netip.Addr) {
					if of.needs == never {
						return
					}
					c, _, err := of.from.Dial(to, netnstest.Patience)
					if err != nil {
						t.Errorf("%s, when both say full: %v", name, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					there = append(there, open{of, name, c})
				})
				w.say(t, home, provider)
				narrower := min(home, provider)
				var group sync.WaitGroup
				for _, o := range there {
					group.Go(func() {
						defer func() { _ = o.conn.Close() }()
						if o.way.needs <= narrower {
							if err := speaks(o.conn, netnstest.Patience); err != nil {
								t.Errorf("%s: a connection that was there ended: %v (%s)", o.name, err, o.way.reason)
							}
						} else if err := speaks(o.conn, netnstest.Silence); err == nil {
							t.Errorf("%s: a connection that was there goes on", o.name)
						}
					})
				}
				group.Wait()
				w.each(func(of way, name string, to netip.Addr) {
					patience := netnstest.Patience
					if of.needs > narrower {
						patience = netnstest.Silence
					}
					c, _, err := of.from.Dial(to, patience)
					if err == nil {
						_ = c.Close()
					}
					if (err == nil) != (of.needs <= narrower) {
						t.Errorf("%s: %v (%s)", name, err, of.reason)
					}
				})
				w.alive(t) // probes pass whatever is said
			})
		}
	}
}

// TestShut shuts a pod of each side, at rome, while all else is open or limited: what it has of
// connections ends, what others have goes on, and its way to the door stays.
func TestShut(t *testing.T) {
	t.Parallel()
	w := newReached(t)
	w.say(t, full, full)
	w.alive(t)
	for _, said := range []width{full, offloadedOnly} {
		t.Run(said.String(), func(t *testing.T) {
			w.say(t, said, full)
			dial := func(of way, patience time.Duration) (net.Conn, error) {
				c, _, err := of.from.Dial(of.to(true), patience)
				return c, err
			}
			toAway, fromAway, api := w.ways[0], w.ways[2], w.ways[7]
			var conns []net.Conn
			for _, of := range []way{toAway, fromAway, api} {
				c, err := dial(of, netnstest.Patience)
				if err != nil {
					t.Fatalf("%s: %v", of.name, err)
				}
				defer func() { _ = c.Close() }()
				conns = append(conns, c)
			}
			rome := &w.rome.in.Peerings[0]
			rome.ShutHere = []netip.Addr{netnstest.PodAddr(42, 1, 5, true)} // the one on rome's second node
			w.rome.apply(t)
			for i, ends := range []bool{true, false, false} {
				patience := netnstest.Patience
				if ends {
					patience = netnstest.Silence
				}
				if err := speaks(conns[i], patience); (err != nil) != ends {
					t.Errorf("with a pod of home's shut: connection %d: %v", i, err)
				}
			}
			if c, err := dial(toAway, netnstest.Silence); err == nil {
				_ = c.Close()
				t.Error("a pod that is shut reaches a peer")
			}
			rome.ShutHere, rome.ShutThere = nil, rome.ShutHere // of the same address, at milan
			w.rome.apply(t)
			for i, ends := range []bool{true, false} {
				patience := netnstest.Patience
				if ends {
					patience = netnstest.Silence
				}
				if err := speaks(conns[1+i], patience); (err != nil) != ends {
					t.Errorf("with an offloaded pod shut: connection %d: %v", 1+i, err)
				}
			}
			for i, of := range []way{toAway, fromAway} {
				if c, err := dial(of, netnstest.Silence); err == nil {
					_ = c.Close()
					t.Errorf("an offloaded pod that is shut has a connection (%d)", i)
				}
			}
			if c, err := dial(api, netnstest.Patience); err != nil {
				t.Errorf("an offloaded pod that is shut does not reach the door: %v", err)
			} else {
				_ = c.Close()
			}
			rome.ShutThere = nil
			w.rome.apply(t)
			if c, err := dial(toAway, netnstest.Patience); err != nil {
				t.Errorf("when nothing is shut any more: %v", err)
			} else {
				_ = c.Close()
			}
		})
	}
}
