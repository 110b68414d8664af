package dataplane

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

const (
	tunnelName = "tunnel"
	tunnelMTU  = 1420
	patience   = netnstest.Patience
	silence    = netnstest.Silence
)

// place is a network namespace of a test.
type place = netnstest.Place

// world is two clusters that have chosen the same addresses, with two nodes each, a pod
// on each node, and a CNI that masquerades.
type world struct {
	t           *testing.T
	rome, milan *cluster
}

type cluster struct {
	name string
	// view is what stands in the second part of the addresses by which the peer's are
	// seen: 81 for 10.81.0.0/16 and fd81::/48, and external what does for those.
	view, external int
	nodes          [2]*worldNode
	gatewayAt      int
	change         func(*Config)
}

type worldNode struct {
	*netnstest.Node
	held   *netns.Held
	kernel *Kernel
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t:     t,
		rome:  &cluster{name: "rome", view: 81, external: 83},
		milan: &cluster{name: "milan", view: 82, external: 84},
	}
	w.add(w.rome)
	w.add(w.milan)
	return w
}

// add makes the nodes of a cluster.
func (w *world) add(c *cluster) {
	w.t.Helper()
	for i, n := range netnstest.NewCluster(w.t, c.name).Nodes {
		c.nodes[i] = newNode(w.t, n)
	}
}

func newNode(t *testing.T, node *netnstest.Node) *worldNode {
	t.Helper()
	n := &worldNode{Node: node, held: &netns.Held{}}
	kernel, err := New(Options{Host: n.File, Namespaces: n.held})
	if err != nil {
		t.Fatal(err)
	}
	n.kernel = kernel
	t.Cleanup(kernel.Close)
	t.Cleanup(func() {
		names, _ := n.held.List()
		for _, name := range names {
			_ = n.held.Remove(name)
		}
	})
	return n
}

func podRange(v4 bool) netip.Prefix { return viewRange(42, v4) }

// viewRange is 10.N.0.0/16 or fdN::/48.
func viewRange(n int, v4 bool) netip.Prefix { return netnstest.Range(n, v4) }

// podAt is the pod of a node, the first being 1, by its real address or a view of it.
func podAt(n, node, last int, v4 bool) netip.Addr { return netnstest.PodAddr(n, node-1, last, v4) }

// externalAt is the external address of both clusters, or a view of it.
func externalAt(n int, v4 bool) netip.Addr {
	if v4 {
		return netip.MustParseAddr(fmt.Sprintf("10.%d.0.1", n))
	}
	return netip.MustParseAddr(fmt.Sprintf("fd%d::1", n))
}

const realExternal = 43

// config is what the planner would say of a node.
func (c *cluster) config(node int) Config {
	peering := "other"
	at := func(i int, bits int, text string) netip.Prefix {
		return netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf(text, i+1)), bits)
	}
	o := 1 - node
	config := Config{
		Node: Node{
			Name: c.nodes[node].Name, Underlay: at(node, 32, "192.168.0.%d").Addr(),
			Addresses: []netip.Addr{at(node, 32, "192.168.0.%d").Addr(), at(node, 128, "fd19::%d").Addr()},
			VNI:       7, Port: 4790, MTU: 1430,
		},
		Others: []Other{{
			Name: c.nodes[o].Name, Underlay: at(o, 32, "192.168.0.%d").Addr(),
			Owns: []netip.Prefix{
				at(o, 24, "10.42.%d.0"), at(o, 64, "fd42:0:0:%d::"), at(o, 32, "192.168.0.%d"), at(o, 128, "fd19::%d"),
			},
		}},
		Pods: []netip.Prefix{podRange(true), podRange(false)},
	}
	gateway := Gateway{Peering: peering, Tunnel: tunnelName, MTU: tunnelMTU, Probe: 7001}
	for _, v4 := range families {
		gateway.External = append(gateway.External, externalAt(realExternal, v4))
		for view, real := range map[int]int{c.view: 42, c.external: realExternal} {
			gateway.Views = append(gateway.Views, View{View: viewRange(view, v4), Real: viewRange(real, v4)})
			r := Route{Prefix: viewRange(view, v4), MTU: tunnelMTU}
			if node == c.gatewayAt {
				r.Gateway = peering
			} else {
				r.Node = c.nodes[o].Name
			}
			config.Routes = append(config.Routes, r)
		}
	}
	if node == c.gatewayAt {
		config.Gateways = []Gateway{gateway}
	}
	if c.change != nil {
		c.change(&config)
	}
	return config
}

func (w *world) set(c *cluster, nodes ...int) {
	w.t.Helper()
	if len(nodes) == 0 {
		nodes = []int{0, 1}
	}
	for _, i := range nodes {
		if err := c.nodes[i].kernel.Set(w.t.Context(), c.config(i)); err != nil {
			w.t.Fatalf("setting %s: %v", c.nodes[i].Name, err)
		}
	}
}

// gateway is the namespace of a cluster's gateway.
func (w *world) gateway(c *cluster) *place {
	w.t.Helper()
	file, err := c.nodes[c.gatewayAt].held.Open("other")
	if err != nil {
		w.t.Fatal(err)
	}
	return netnstest.OpenPlace(w.t, "gateway of "+c.name, file)
}

// start sets all nodes and joins the gateways.
func (w *world) start() {
	w.t.Helper()
	w.set(w.rome)
	w.set(w.milan)
	tunnel(w.gateway(w.rome), w.gateway(w.milan), tunnelMTU)
	w.set(w.rome)
	w.set(w.milan)
}

// tunnel joins two gateways by what looks like a tunnel: a device that takes any
// destination. Both ends have one hardware address and ask for none.
func tunnel(a, b *place, mtu int) {
	a.T.Helper()
	same := mustHardware("02:00:00:00:00:01")
	a.Join(tunnelName, b, tunnelName, mtu)
	for _, p := range []*place{a, b} {
		l := p.Link(tunnelName)
		p.Must(p.Kernel.LinkSetARPOff(l))
		p.Must(p.Kernel.LinkSetHardwareAddr(l, same))
	}
}
