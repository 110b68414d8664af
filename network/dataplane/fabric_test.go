package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netnstest"
)

const fabricPort, fabricNetwork = 4790, 7 // of config

// servicePort and nodePort are where rules of the test's lead from to the VXLAN, as a Service may.
const servicePort, nodePort = 53, 30053

// wrapped is a packet as another node would send it to one.
func wrapped(node string, p netnstest.Packet) []byte {
	kind := uint16(unix.ETH_P_IPV6)
	if p.From.Is4() {
		kind = unix.ETH_P_IP
	}
	b := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, fabricNetwork<<8)
	b = slices.Concat(b, mustHardware(hardware(node)), mustHardware("02:00:00:00:00:07"))
	return append(binary.BigEndian.AppendUint16(b, kind), p.Bytes()...)
}

// TestFabric has pods say to nodes what only nodes say to each other, in the underlay of each family: packets of
// anybody, for a pod and for a peer.
func TestFabric(t *testing.T) {
	for _, v4 := range families {
		t.Run(fmt.Sprintf("IPv4 %t", v4), func(t *testing.T) {
			t.Parallel()
			testFabric(t, v4)
		})
	}
}

func testFabric(t *testing.T, v4 bool) {
	w := newWorld(t)
	w.rome.change = func(c *Config) {
		c.Node.MTU = 1410
		for i, n := range w.rome.nodes {
			at := netnstest.NodeAddr(i, v4)
			if c.Node.Name == n.Name {
				c.Node.Underlay = at
			} else {
				c.Others[0].Underlay = at
			}
		}
	}
	w.start()
	for _, n := range w.rome.nodes {
		for _, device := range []string{"all", "cni0"} { // the kernel lets pods forge
			n.Sysctl("ipv4/conf/"+device+"/rp_filter", "0")
		}
		services := chain{priority: -100}
		for i := range w.rome.nodes {
			services.add(destinationIs(netip.AddrPortFrom(serviceAt(i, v4), servicePort), true), dnatTo(netip.AddrPortFrom(netnstest.NodeAddr(i, v4), fabricPort)))
			if w.rome.nodes[i] == n {
				services.add(destinationIs(netip.AddrPortFrom(netnstest.NodeAddr(i, v4), nodePort), true), dnatTo(netip.AddrPortFrom(netnstest.NodeAddr(i, v4), fabricPort)))
			}
		}
		n.rules("services", services, *nftables.ChainHookPrerouting, nftables.ChainTypeNAT)
	}
	gateway := hear(w.gateway(w.rome))
	id := uint16(10000)
	for from := range w.rome.nodes {
		for to := range w.rome.nodes {
			for _, c := range fabricCalls(from, to, v4) {
				for _, inner4 := range families {
					id++
					t.Run(fmt.Sprintf("%s, node %d to node %d, inner IPv4 %t", c.name, from+1, to+1, inner4), func(t *testing.T) {
						w.intrudes(t, c, from, to, id, inner4, gateway)
					})
				}
			}
		}
	}
	testPods(t, w)
	if dropped := w.strange(t); dropped != uint64(2*(id-10000)) {
		t.Errorf("%d were dropped, of which %d are pods'", dropped, 2*(id-10000))
	}
	for i, n := range w.rome.nodes { // none is left, and then there is one again
		alone, way := w.rome.config(i), w.rome.config(i)
		alone.Others = nil
		alone.Routes = slices.DeleteFunc(slices.Clone(alone.Routes), func(r Route) bool { return r.Node != "" })
		for _, config := range []Config{alone, way} {
			n.set(t, config)
		}
	}
	testPods(t, w)
	testIdempotent(t, w)
}

// fabricCall is a way in which a pod calls a node's VXLAN.
type fabricCall struct {
	name string
	from netip.Addr
	to   netip.AddrPort
}

func serviceAt(node int, v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{10, 96, 0, byte(node + 1)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd96::%d", node+1))
}

// fabricCalls are all ways from a node's pod to a node.
func fabricCalls(from, to int, v4 bool) (all []fabricCall) {
	pod, foreign := podAt(42, from+1, 5, v4), netip.MustParseAddr("203.0.113.7")
	if !v4 {
		foreign = netip.MustParseAddr("2001:db8::7")
	}
	node, bridge := netnstest.NodeAddr(to, v4), podAt(42, to+1, 1, v4)
	add := func(name string, source, at netip.Addr, port uint16) {
		all = append(all, fabricCall{name, source, netip.AddrPortFrom(at, port)})
	}
	add("the node", pod, node, fabricPort)
	add("the bridge", pod, bridge, fabricPort)
	add("a Service", pod, serviceAt(to, v4), servicePort)
	add("a node port", pod, node, nodePort)
	add("the other family", podAt(42, from+1, 5, !v4), podAt(42, to+1, 1, !v4), fabricPort)
	add("the node, from nowhere", foreign, node, fabricPort)
	add("the bridge, from nowhere", foreign, bridge, fabricPort)
	other := netnstest.NodeAddr(1-to, v4)
	if v4 && from != to { // the kernel believes nobody who says that he is itself
		return all
	}
	add("the node, from the other one", other, node, fabricPort)
	add("a Service, from the other node", other, serviceAt(to, v4), servicePort)
	if from == to { // elsewhere it says nothing that a node says
		add("the bridge, from the other node", other, bridge, fabricPort)
	}
	return all
}

// strange is how many packets rome's nodes have dropped of who is no node.
func (w *world) strange(t *testing.T) (n uint64) {
	t.Helper()
	for _, node := range w.rome.nodes {
		n += node.droppedOf(t, "", DropStranger)
	}
	return n
}

// intrudes has a pod call a node's VXLAN, with a segment of a peer's pod for a pod there and one of that pod for the peer.
func (w *world) intrudes(t *testing.T, c fabricCall, from, to int, id uint16, v4 bool, gateway *ear) {
	t.Helper()
	pod := hear(w.rome.nodes[to].Other)
	mine, theirs := podAt(42, to+1, 6, v4), podAt(w.rome.view, 2, 5, v4)
	before := w.strange(t)
	for _, ends := range [][2]netip.Addr{{theirs, mine}, {mine, theirs}} {
		s := segment{from: netip.AddrPortFrom(ends[0], id), to: netip.AddrPortFrom(ends[1], id), flags: netnstest.SYN, seq: 7}
		data := wrapped(w.rome.nodes[to].Name, s.packet(nil))
		say(w.rome.nodes[from].Pod, netnstest.Packet{From: c.from, To: c.to.Addr()}.UDP(id, c.to.Port(), data))
	}
	var heard []string
	netnstest.Await(t, "both are dropped, or come out", patience, func() bool {
		for place, e := range map[string]*ear{"the pod": pod, "the gateway": gateway} {
			for _, s := range e.heard() {
				if s.from.Port() == id || s.to.Port() == id {
					heard = append(heard, place+": "+s.String())
				}
			}
		}
		return len(heard) > 0 || w.strange(t) == before+2
	})
	if len(heard) > 0 {
		t.Errorf("heard by %s", strings.Join(heard, "; "))
	}
}

// TestFabricWays has nodes whose routes are not what they mostly are: an address that no cable has, and another way
// back than there. What is in the fabric passes, and what one node says to a pod of the other one at the port.
func TestFabricWays(t *testing.T) {
	for _, lo := range []bool{true, false} {
		t.Run(fmt.Sprintf("of no cable: %t", lo), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first, second, at := w.rome.nodes[0], w.rome.nodes[1], netip.MustParseAddr("192.0.3.1")
			first.Join("eth1", second.Place, "eth1", 1500)
			device := "eth1"
			if lo {
				device = "lo"
			}
			first.Address(device, at.String()+"/32")
			for _, n := range []*worldNode{first, second} {
				n.Sysctl("ipv4/conf/eth0/rp_filter", "2")
				n.Sysctl("ipv4/conf/eth1/rp_filter", "2")
			}
			if lo {
				second.Route(at.String()+"/32", "192.168.0.1", "eth0")
			} else {
				second.Address("eth1", "192.168.0.2/32") // by which what leaves there is masqueraded
				second.leads(at, netip.Addr{})
				second.leads(podAt(42, 1, 5, true), at)
			}
			w.rome.change = func(c *Config) {
				if c.Node.Name == first.Name {
					c.Node.Underlay = at
				} else {
					c.Others[0].Underlay = at
				}
			}
			w.start()
			testPods(t, w)
			knocks(t, second.Place, netnstest.NodeAddr(1, true), podAt(42, 1, 5, true), fabricPort, 3, 1)
			testPods(t, w)
			if dropped := w.strange(t); dropped != 0 {
				t.Errorf("%d were dropped", dropped)
			}
		})
	}
}

// leads has a node reach an address by eth1, from its own of eth0.
func (n *worldNode) leads(to, via netip.Addr) {
	n.T.Helper()
	r := &netlink.Route{Dst: network(single(to)), LinkIndex: n.Link("eth1").Attrs().Index, Src: netnstest.NodeAddr(1, true).AsSlice()}
	if r.Scope = netlink.SCOPE_LINK; via.IsValid() {
		r.Scope, r.Gw = netlink.SCOPE_UNIVERSE, via.AsSlice()
	}
	n.Must(n.Place.Kernel.RouteAdd(r))
}
