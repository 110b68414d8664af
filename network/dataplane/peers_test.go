package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestTwoPeers peers rome with a third cluster of the same addresses, whose gateway is on
// rome's other node, and lets the two peers reach each other through rome.
func TestTwoPeers(t *testing.T) {
	t.Parallel()
	// How rome sees oslo, how oslo sees rome and, through rome, milan, and how milan sees
	// oslo.
	const osloAtRome, romeAtOslo, milanAtOslo, osloAtMilan = 91, 92, 93, 94
	w := newWorld(t)
	oslo := &cluster{name: "oslo", view: romeAtOslo, external: 96}
	w.add(oslo)
	both := func(view, real int) (views []View) {
		for _, v4 := range families {
			views = append(views, View{View: viewRange(view, v4), Real: viewRange(real, v4)})
		}
		return views
	}
	// through adds a view behind the peering that a cluster has.
	through := func(c *cluster, view, real int) {
		c.change = func(config *Config) {
			for _, v := range both(view, real) {
				r := config.Routes[0]
				r.Prefix = v.View
				config.Routes = append(config.Routes, r)
			}
			for i := range config.Gateways {
				config.Gateways[i].Views = append(config.Gateways[i].Views, both(view, real)...)
			}
		}
	}
	through(w.milan, osloAtMilan, osloAtRome)
	through(oslo, milanAtOslo, w.rome.view)
	w.rome.change = func(config *Config) {
		first := config.Node.Name == w.rome.nodes[0].Name
		for i := range config.Gateways {
			config.Gateways[i].Transit = slices.Concat(config.Gateways[i].Transit, viewsOnly(both(osloAtRome, 42)))
			config.Gateways[i].Here, config.Gateways[i].There = podsAt(osloAtRome), podsAt(42)
		}
		for _, v := range both(osloAtRome, 42) {
			r := Route{Prefix: v.View, Gateway: "oslo"}
			if first {
				r.Node, r.Gateway = w.rome.nodes[1].Name, ""
			}
			config.Routes = append(config.Routes, r)
		}
		if !first {
			config.Gateways = append(config.Gateways, Gateway{
				Peering: "oslo", Tunnel: tunnelName, MTU: tunnelMTU, Views: both(osloAtRome, 42),
				Transit: viewsOnly(both(w.rome.view, 42)), Here: podsAt(w.rome.view), There: podsAt(42),
			})
		}
	}
	w.start()
	w.set(oslo)
	file, err := w.rome.nodes[1].held.Open("oslo")
	if err != nil {
		t.Fatal(err)
	}
	tunnel(netnstest.OpenPlace(t, "gateway of rome to oslo", file), w.gateway(oslo), tunnelMTU)
	w.set(w.rome)
	w.set(oslo)
	testPods(t, w)
	for i := range oslo.nodes {
		for to := range oslo.nodes {
			for _, v4 := range families {
				for _, way := range []struct {
					from     *cluster
					to, seen int
				}{
					{w.rome, osloAtRome, romeAtOslo},
					{oslo, romeAtOslo, osloAtRome},
					{oslo, milanAtOslo, osloAtMilan},
					{w.milan, osloAtMilan, milanAtOslo},
				} {
					t.Run(fmt.Sprintf("%s to 10.%d", way.from.nodes[i].Name, way.to), func(t *testing.T) {
						w.seen(t, way.from.nodes[i].Pod, podAt(way.to, to+1, 5, v4), podAt(way.seen, i+1, 5, v4).String())
					})
				}
			}
		}
	}
}

// podsAt are the pods of a cluster that others may reach through this one, as it sees them.
func podsAt(n int) (addrs []netip.Addr) {
	for _, v4 := range families {
		addrs = append(addrs, podAt(n, 1, 5, v4), podAt(n, 2, 5, v4))
	}
	return addrs
}

func viewsOnly(views []View) (out []netip.Prefix) {
	for _, v := range views {
		out = append(out, v.View)
	}
	return out
}
