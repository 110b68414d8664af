package dataplane

import (
	"context"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestRepair breaks by hand what Set has made, one thing after the other. Whoever watches
// is told, and the next Set makes it whole.
func TestRepair(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	rome, gateway := w.rome.nodes[0], w.gateway(w.rome)
	ctx, cancel := context.WithCancel(t.Context())
	again, err := rome.kernel.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rome.kernel.Watch(ctx); err == nil {
		t.Error("two may watch")
	}
	pelago := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	cases := []struct {
		name string
		hurt func() error
	}{
		{"a route to a view", func() error { return dropRoute(rome.Place, viewTable, true) }},
		{"a route of IPv6", func() error { return dropRoute(rome.Place, viewTable, false) }},
		{"a route to elsewhere instead", func() error {
			return rome.Place.Kernel.RouteReplace(&netlink.Route{
				Dst: network(viewRange(w.rome.view, true)), Table: viewTable, LinkIndex: rome.Link("cni0").Attrs().Index, Scope: netlink.SCOPE_LINK,
			})
		}},
		{"the way to a node", func() error {
			return dropRoute(rome.Place, numbers([]string{"rome-2"}, nil)["rome-2"].table(), true)
		}},
		{"all rules", func() error { return dropRules(rome.Place) }},
		{"the rule of the gateway", func() error { return dropRules(gateway) }},
		{"the neighbour", func() error { return dropNeighbours(rome.Place, vxlanName, unix.AF_INET) }},
		{"the forwarding entry", func() error { return dropNeighbours(rome.Place, vxlanName, unix.AF_BRIDGE) }},
		{"the neighbour of the gateway", func() error { return dropNeighbours(gateway, insideName, unix.AF_INET) }},
		{"the default route of the gateway", func() error { return dropRoute(gateway, tunnelTable, true) }},
		{"the VXLAN", func() error { return rome.Place.Kernel.LinkDel(rome.Link(vxlanName)) }},
		{"the VXLAN down", func() error { return rome.Place.Kernel.LinkSetDown(rome.Link(vxlanName)) }},
		{"its hardware address", func() error {
			return rome.Place.Kernel.LinkSetHardwareAddr(rome.Link(vxlanName), mustHardware("02:00:00:00:00:09"))
		}},
		{"the address of the VXLAN", func() error {
			return rome.Place.Kernel.AddrDel(rome.Link(vxlanName), &netlink.Addr{IPNet: network(single(hostEnd(true)))})
		}},
		{"the host's end of the gateway", func() error { return rome.Place.Kernel.LinkDel(rome.Link(Device("other"))) }},
		{"the gateway's end down", func() error { return gateway.Kernel.LinkSetDown(gateway.Link(insideName)) }},
		{"the gateway's end's hardware address", func() error {
			return gateway.Kernel.LinkSetHardwareAddr(gateway.Link(insideName), mustHardware("02:00:00:00:00:09"))
		}},
		{"the table", func() error { return rome.Nftables(func(c *nftables.Conn) { c.DelTable(pelago) }) }},
		{"the table of the gateway", func() error { return gateway.Nftables(func(c *nftables.Conn) { c.DelTable(pelago) }) }},
		{"the rules of the gateway", func() error { return gateway.Nftables(func(c *nftables.Conn) { c.FlushTable(pelago) }) }},
		{"a rule of somebody else in our chain", func() error {
			return gateway.Nftables(func(c *nftables.Conn) {
				c.InsertRule(&nftables.Rule{
					Table: pelago, Chain: &nftables.Chain{Name: "policy", Table: pelago}, Exprs: countedDrop(DropDenied).exprs,
				})
			})
		}},
		{"rules that say what ours do and do nothing", func() error { return empty(gateway, w.rome.config(0)) }},
		{"a chain of somebody else that drops all", func() error {
			return rome.Nftables(func(c *nftables.Conn) {
				drop := nftables.ChainPolicyDrop
				c.AddChain(&nftables.Chain{
					Name: "bad", Table: pelago, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
					Priority: nftables.ChainPriorityFilter, Policy: &drop,
				})
			})
		}},
		{"elements of sets", func() error {
			return gateway.Nftables(func(c *nftables.Conn) {
				c.FlushSet(&nftables.Set{Name: "peer4", Table: pelago})
				c.FlushSet(&nftables.Set{Name: "pods4", Table: pelago})
			})
		}},
		{"the namespace", func() error { return rome.held.Remove("other") }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w.settle(t, again)
			if err := c.hurt(); err != nil {
				t.Fatal(err)
			}
			if c.name == "the namespace" { // its sockets here hold it: only a look shows it
				again = nil
			}
			w.restore(t, again)
			if c.name == "the namespace" {
				tunnel(w.gateway(w.rome), w.remade(t), tunnelMTU)
				w.set(w.rome)
				w.set(w.milan)
			}
			if c, _, err := w.rome.nodes[1].Pod.Dial(podAt(w.rome.view, 1, 5, true), patience); err != nil {
				t.Error(err)
			} else {
				_ = c.Close()
			}
			testPods(t, w)
			testIdempotent(t, w)
		})
	}
	cancel()
	netnstest.Await(t, "another one may watch", patience, func() bool {
		_, err := rome.kernel.Watch(t.Context())
		return err == nil
	})
}

// empty writes the rules of a gateway anew, with their comments and without their effect.
func empty(gateway *place, c Config) error {
	f := &filter{at: gateway.File, name: gateway.Name}
	if err := f.open(); err != nil {
		return err
	}
	defer f.close()
	read, err := f.read()
	if err != nil {
		return err
	}
	wanted := gatewayState(c, c.Gateways[0], true).table
	for _, chain := range wanted.chains {
		for i := range chain.rules {
			chain.rules[i].exprs = accept().exprs
		}
	}
	return gateway.Nftables(func(conn *nftables.Conn) {
		b := &batch{conn: conn, table: &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}}
		b.rewrite(&knownTable{read: read}, wanted, true)
	})
}

// settle reads notices of what was done before.
func (w *world) settle(t *testing.T, again <-chan struct{}) {
	t.Helper()
	quiet := time.NewTimer(silence)
	for {
		select {
		case <-again:
			w.set(w.rome, 0)
			quiet.Reset(silence)
		case <-quiet.C:
			return
		}
	}
}

// restore sets rome's first node once it is told to.
func (w *world) restore(t *testing.T, again <-chan struct{}) {
	t.Helper()
	if again != nil {
		select {
		case <-again:
		case <-time.After(patience):
			t.Error("nobody has said anything")
		}
	}
	before := w.rome.nodes[0].kernel.writes.Load()
	w.set(w.rome, 0)
	if w.rome.nodes[0].kernel.writes.Load() == before {
		t.Error("nothing was written")
	}
}

// remade returns milan's gateway without its end of a tunnel that has lost the other.
func (w *world) remade(t *testing.T) *place {
	t.Helper()
	milan := w.gateway(w.milan)
	if milan.Has(tunnelName) {
		milan.Must(milan.Kernel.LinkDel(milan.Link(tunnelName)))
	}
	return milan
}

func dropRoute(p *place, table int, v4 bool) error {
	list, err := p.Kernel.RouteListFiltered(familyOf(v4), &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return err
	}
	return p.Kernel.RouteDel(&list[0])
}

func dropRules(p *place) error {
	for _, v4 := range families {
		list, err := p.Kernel.RuleList(familyOf(v4))
		if err != nil {
			return err
		}
		for _, r := range list {
			if r.Protocol != protocol {
				continue
			}
			r.Family = familyOf(v4)
			if err := p.Kernel.RuleDel(&r); err != nil {
				return err
			}
		}
	}
	return nil
}

func dropNeighbours(p *place, device string, family int) error {
	list, err := p.Kernel.NeighList(p.Link(device).Attrs().Index, family)
	if err != nil {
		return err
	}
	for _, n := range list {
		if family == unix.AF_BRIDGE {
			n.Family, n.Flags = family, netlink.NTF_SELF
		}
		if err := p.Kernel.NeighDel(&n); err != nil {
			return err
		}
	}
	return nil
}

// TestForeign looks that others' things stay although they look a little like ours.
func TestForeign(t *testing.T) {
	w := newWorld(t)
	n := w.rome.nodes[0]
	attrs := netlink.NewLinkAttrs()
	for _, name := range []string{"pelago-wg0", "pelago-br", "pelago-123"} {
		attrs.Name = name
		n.Must(n.Place.Kernel.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	}
	n.Must(n.Place.Kernel.RouteAdd(&netlink.Route{Dst: network(viewRange(99, true)), LinkIndex: n.Link("eth0").Attrs().Index}))
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Table = unix.AF_INET, viewPriority+5, 99
	n.Must(n.Place.Kernel.RuleAdd(rule))
	n.Must(n.Nftables(func(c *nftables.Conn) {
		c.AddTable(&nftables.Table{Name: "pelago-other", Family: nftables.TableFamilyINet})
	}))
	w.set(w.rome)
	n.Must(n.kernel.Set(t.Context(), Config{}))
	for _, name := range []string{"pelago-wg0", "pelago-br", "pelago-123", "cni0", "eth0"} {
		if !n.Has(name) {
			t.Errorf("%s is gone", name)
		}
	}
	if err := n.Place.Kernel.RouteDel(&netlink.Route{Dst: network(viewRange(99, true)), LinkIndex: n.Link("eth0").Attrs().Index}); err != nil {
		t.Errorf("the route is gone: %v", err)
	}
	if err := n.Place.Kernel.RuleDel(rule); err != nil {
		t.Errorf("the rule is gone: %v", err)
	}
	for _, table := range []string{"pelago-other", "cni"} {
		if err := n.Nftables(func(c *nftables.Conn) {
			c.DelTable(&nftables.Table{Name: table, Family: nftables.TableFamilyINet})
		}); err != nil {
			t.Errorf("the table %s is gone: %v", table, err)
		}
	}
}
