package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestReadLines holds what is left of lines, and of what is told.
func TestReadLines(t *testing.T) {
	const milan, oslo = 0, 1 // the consumer and the provider
	for _, c := range []struct {
		reason string
		change func(*Input)
		// want is what is left, by peering, and told is all that is.
		want map[string]*dataplane.Line
		told []string
	}{
		{"both are right", func(*Input) {}, map[string]*dataplane.Line{
			"milan": {Views: addrs("10.43.0.9"), Callers: addrs("10.42.1.7", "10.42.2.7"), Ports: []uint16{443, 8443}},
			"oslo":  answering(),
		}, nil},
		{"an address is needed", func(in *Input) { in.Peerings[milan].Line = calling("") }, nil, []string{"milan: its line has no address"}},
		{"one that is one", func(in *Input) { in.Peerings[milan].Line.Views = make([]netip.Addr, 1) }, nil, []string{"milan: its line's address (none) is none"}},
		{"of IPv6", func(in *Input) { in.Peerings[milan].Line = calling("fd43::9") }, map[string]*dataplane.Line{"milan": calling("fd43::9")}, nil},
		{"of both", func(in *Input) { in.Peerings[milan].Line.Views = addrs("fd43::9", "10.43.0.9") }, map[string]*dataplane.Line{
			"milan": {Views: addrs("10.43.0.9", "fd43::9"), Callers: addrs("10.42.1.7", "10.42.2.7"), Ports: []uint16{443, 8443}},
		}, nil},
		{"once of a family", func(in *Input) { in.Peerings[milan].Line.Views = addrs("10.43.0.10", "10.43.0.9") }, map[string]*dataplane.Line{"milan": calling("10.43.0.9")},
			[]string{"milan: its line's address 10.43.0.10 is the second one of IPv4"}},
		{"what cannot be of one family is left of the other", func(in *Input) { in.Peerings[milan].Line.Views = addrs("10.44.0.9", "fd43::9") }, map[string]*dataplane.Line{"milan": calling("fd43::9")},
			[]string{"milan: its line's address 10.44.0.9 is not one of the external range"}},
		{"of the external range", func(in *Input) { in.Peerings[milan].Line = calling("10.44.0.9") }, nil, []string{"milan: its line's address 10.44.0.9 is not one of the external range"}},
		{"not the one that stands for nodes", func(in *Input) { in.Peerings[milan].Line = calling("10.43.0.1") }, nil, []string{"milan: its line's address 10.43.0.1 is not one of the external range"}},
		{"not one of pods here", func(in *Input) { in.Pods = append(in.Pods, prefixes("10.43.0.8/29")...) }, nil, []string{"milan: its line's address 10.43.0.9 is one of a pod"}},
		{"not one of a view", func(in *Input) { in.Peerings[oslo].Views = views("10.43.0.0/24", "10.43.0.0/24") }, nil, []string{"milan: its line's address 10.43.0.9 is one of a pod"}},
		{"not that of a door, of any peering", func(in *Input) {
			in.Peerings[oslo].Doors = []dataplane.Door{door("10.43.0.9:80", "192.0.2.9:80")}
		}, nil, []string{"milan: its line's address 10.43.0.9 is that of a door"}},
		{"but that of a door which is none", func(in *Input) {
			in.Peerings[oslo].Doors = []dataplane.Door{door("10.43.0.9:80", "127.0.0.1:80")}
		}, map[string]*dataplane.Line{"milan": calling("10.43.0.9")}, []string{"oslo: its door from 10.43.0.9:80"}},
		{"an older peering's line goes before", func(in *Input) {
			in.Peerings[oslo].Role, in.Peerings[oslo].Line = Consumer, calling("10.43.0.9")
			in.Peerings[milan].Since = time.Unix(1, 0)
		}, map[string]*dataplane.Line{"oslo": calling("10.43.0.9")}, []string{"milan: its line's address 10.43.0.9 is that of the line of peering oslo"}},
		{"a newer one's does not", func(in *Input) {
			in.Peerings[oslo].Role, in.Peerings[oslo].Line = Consumer, calling("10.43.0.9")
			in.Peerings[oslo].Since = time.Unix(1, 0)
		}, map[string]*dataplane.Line{"milan": calling("10.43.0.9"), "oslo": nil}, []string{"oslo: its line's address 10.43.0.9 is that of the line of peering milan"}},
		{"no peer is where a line is", func(in *Input) { in.Peerings[oslo].Endpoints = []string{"10.43.0.9:7100"} }, map[string]*dataplane.Line{"milan": calling("10.43.0.9")},
			[]string{"oslo: its peer's endpoint 10.43.0.9:7100 is an address of a view"}},
		{"a caller is somebody", func(in *Input) {
			in.Peerings[milan].Line.Callers = append(addrs("127.0.0.1", "10.42.1.7", "10.42.2.7", "10.42.1.7"), netip.Addr{})
		}, map[string]*dataplane.Line{"milan": calling("10.43.0.9")}, []string{"milan: its line's caller (none) is none", "milan: its line's caller 127.0.0.1 is none"}},
		{"nobody calls", func(in *Input) { in.Peerings[milan].Line.Callers = nil }, map[string]*dataplane.Line{"milan": {Views: addrs("10.43.0.9"), Ports: []uint16{443, 8443}}}, nil},
		{"a port is one", func(in *Input) { in.Peerings[milan].Line.Ports = []uint16{443, 0, 8443, 443, 0} }, map[string]*dataplane.Line{"milan": calling("10.43.0.9")}, []string{"milan: its line has port 0"}},
		{"a consumer has no doors", func(in *Input) { in.Peerings[milan].Line.Doors = answering().Doors }, map[string]*dataplane.Line{"milan": calling("10.43.0.9")}, []string{"milan: its line is of a consumer"}},
		{"a provider does not call", func(in *Input) {
			in.Peerings[oslo].Line = calling("10.43.0.10")
			in.Peerings[oslo].Line.Doors = answering().Doors
		}, map[string]*dataplane.Line{"oslo": answering()}, []string{"oslo: its line is of a provider"}},
		{"a provider with nothing has no line", func(in *Input) { in.Peerings[oslo].Line = &dataplane.Line{} }, map[string]*dataplane.Line{"oslo": nil}, nil},
		{"a door leads somewhere", func(in *Input) {
			in.Peerings[oslo].Line = answering(lineDoor(1, "127.0.0.1:443"), lineDoor(2, "192.0.2.1:0"), lineDoor(3, "[fe80::1]:443"), lineDoor(0, "192.0.2.1:443"), dataplane.LineDoor{Port: 4})
		}, map[string]*dataplane.Line{"oslo": answering()}, []string{
			"oslo: its line's door from port 0 to 192.0.2.1:443", "oslo: its line's door from port 1 to 127.0.0.1:443", "oslo: its line's door from port 2 to 192.0.2.1:0",
			"oslo: its line's door from port 3 to [fe80::1]:443", "oslo: its line's door from port 4 to invalid AddrPort",
		}},
		{"a port leads to one place of each family", func(in *Input) {
			in.Peerings[oslo].Line = answering(lineDoor(443, "[2001:db8::1]:6443"))
		}, map[string]*dataplane.Line{"oslo": answering(lineDoor(443, "[2001:db8::1]:6443"))}, nil},
		{"a port leads to one place", func(in *Input) {
			in.Peerings[oslo].Line = answering(lineDoor(9, "192.0.2.1:443"), lineDoor(443, "192.0.2.1:6443"), lineDoor(9, "192.0.2.2:443"))
		}, map[string]*dataplane.Line{"oslo": answering()}, []string{"oslo: its line's door from port 9 to 192.0.2.1:443 is one of 2", "oslo: its line's door from port 9 to 192.0.2.2:443 is one of 2"}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			in := rome(3)
			in.External = append(in.External, prefixes("fd43::/120")...)
			in.Peerings[milan].Line, in.Peerings[oslo].Line = calling("10.43.0.9"), answering()
			c.change(&in)
			if _, said := c.want["milan"]; !said {
				if c.want == nil {
					c.want = map[string]*dataplane.Line{"milan": nil}
				} else if !slices.ContainsFunc(c.told, func(s string) bool { return strings.HasPrefix(s, "milan") }) {
					c.want["milan"] = calling("10.43.0.9")
				}
			}
			for _, node := range in.Nodes {
				in.Node = node.Name
				p := Compute(in)
				if err := p.Config.Check(); err != nil {
					t.Error(err)
				}
				var told []string
				for _, problem := range p.Problems {
					told = append(told, strings.TrimPrefix(problem.String(), "peering "))
				}
				for _, g := range p.Config.Gateways {
					if i := slices.IndexFunc(in.Peerings, func(p Peering) bool { return p.Key == g.Peering }); !g.Since.Equal(in.Peerings[i].Since) {
						t.Errorf("%s began at %s, and its gateway says %s", g.Peering, in.Peerings[i].Since, g.Since)
					}
				}
				if !slices.EqualFunc(told, c.told, strings.HasPrefix) {
					t.Errorf("told %q, want %q", told, c.told)
				}
				routes := map[dataplane.Route]bool{}
				for _, r := range p.Config.Routes {
					if r.Prefix.IsSingleIP() {
						r.MTU = 0
						routes[r] = true
					}
				}
				for key, line := range c.want {
					testLineOf(t, p, key, line)
					if line == nil {
						continue
					}
					for _, view := range line.Views {
						want := dataplane.Route{Prefix: netip.PrefixFrom(view, view.BitLen()), Node: p.Gateways[key]}
						if want.Node == node.Name {
							want.Node, want.Gateway = "", key
						}
						if !routes[want] {
							t.Errorf("%s: no route to the line of %s in %v", node.Name, key, routes)
						}
						delete(routes, want)
					}
				}
				if len(routes) > 0 {
					t.Errorf("%s: routes too many: %v", node.Name, routes)
				}
			}
		})
	}
}

// testLineOf holds that the gateway of a peering has a line.
func testLineOf(t *testing.T, p Plan, key string, want *dataplane.Line) {
	t.Helper()
	for _, g := range p.Config.Gateways {
		if g.Peering != key {
			continue
		}
		if want != nil { // in order
			sorted := *want
			sorted.Ports, sorted.Doors = slices.Sorted(slices.Values(want.Ports)), slices.Clone(want.Doors)
			slices.SortStableFunc(sorted.Doors, func(a, b dataplane.LineDoor) int { return int(a.Port) - int(b.Port) })
			want = &sorted
		}
		if d := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", g.Line)); d != "" {
			t.Errorf("%s (-want +got):\n%s", key, d)
		}
	}
}

// TestLine has a line through real tunnels, of each family: at first with nothing else, as before there
// is a peering, then beside pods, from a gateway that moves, and at last with nobody who calls.
func TestLine(t *testing.T) {
	t.Parallel()
	t.Run("IPv4", func(t *testing.T) { testLine(t, true, netip.MustParseAddr("10.43.0.9")) })
	t.Run("IPv6", func(t *testing.T) { testLine(t, false, netip.MustParseAddr("fd43::9")) })
}

func testLine(t *testing.T, v4 bool, view netip.Addr) {
	w := newWorld(t)
	rome, milan := &w.rome.in.Peerings[0], &w.milan.in.Peerings[0]
	for _, n := range w.milan.Nodes {
		n.Listen()
	}
	callers := []netip.Addr{netnstest.PodAddr(42, 0, 5, v4), netnstest.PodAddr(42, 1, 5, v4)}
	rome.Line = &dataplane.Line{Views: []netip.Addr{view}, Callers: callers, Ports: []uint16{netnstest.Port}}
	lead := func(to netip.Addr) {
		milan.Line = &dataplane.Line{Doors: []dataplane.LineDoor{{Port: netnstest.Port, To: netip.AddrPortFrom(to, netnstest.Port)}}}
	}
	calls := func(t *testing.T) {
		t.Helper()
		for i := range 2 {
			for _, to := range []netip.Addr{netnstest.NodeAddr(i, v4), netnstest.PodAddr(42, i, 5, v4)} {
				lead(to)
				w.milan.apply(t)
				for from, n := range w.rome.Nodes {
					c, _, err := n.Pod.Dial(view, netnstest.Patience)
					if err != nil {
						t.Errorf("from %s to %s: %v", n.Name, to, err)
						continue
					}
					if err := speaks(c, netnstest.Patience); err != nil {
						t.Errorf("from %s to %s: %v", n.Name, to, err)
					}
					_ = c.Close()
					w.denied(t, w.rome.Nodes[from].Other, view)
				}
			}
		}
	}
	romes, milans := rome.Views, milan.Views
	rome.Views, milan.Views, rome.Closed, milan.Closed = nil, nil, true, true
	lead(netnstest.NodeAddr(0, v4))
	w.rome.apply(t)
	w.milan.apply(t)
	w.alive(t)
	t.Run("with nothing else", calls)
	rome.Views, milan.Views, rome.Closed, milan.Closed = romes, milans, false, false
	w.rome.apply(t)
	w.milan.apply(t)
	t.Run("beside pods", func(t *testing.T) {
		calls(t)
		testPods(t, w)
	})
	t.Run("from another node", func(t *testing.T) {
		for _, s := range []*side{w.rome, w.milan} {
			g := s.gateway(t)
			s.in.Nodes[g].Alive = false
			s.apply(t)
			s.apply(t, g)
		}
		w.alive(t)
		calls(t)
	})
	t.Run("with nobody who calls", func(t *testing.T) {
		c, _, err := w.rome.Nodes[0].Pod.Dial(view, netnstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		rome.Line.Callers = callers[1:]
		w.rome.apply(t)
		if err := speaks(c, netnstest.Silence); err == nil {
			t.Error("the connection of who is no caller any more goes on")
		}
		w.denied(t, w.rome.Nodes[0].Pod, view)
		rome.Line = nil
		w.rome.apply(t)
		w.denied(t, w.rome.Nodes[1].Pod, view)
		testPods(t, w)
	})
}
