package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"

	"github.com/pelago-dev/pelago/network/netns"
)

const (
	port       = 8080
	tunnelName = "tunnel"
	tunnelMTU  = 1420
	patience   = 10 * time.Second
	// silence is how long nothing has to come through before it counts as dropped.
	silence = 300 * time.Millisecond
)

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
	*place
	pod, other *place
	held       *netns.Held
	kernel     *Kernel
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
	for i := range c.nodes {
		c.nodes[i] = newNode(w.t, c, i+1)
	}
	join(c.nodes[0].place, "eth0", c.nodes[1].place, "eth0", 1500)
	for i, n := range c.nodes {
		n.address("eth0", fmt.Sprintf("192.168.0.%d/24", i+1), fmt.Sprintf("fd19::%d/64", i+1))
		n.sysctl("ipv4/conf/eth0/rp_filter", "1")
	}
	for i, n := range c.nodes {
		other := 2 - i
		n.route(fmt.Sprintf("10.42.%d.0/24", other), fmt.Sprintf("192.168.0.%d", other), "eth0")
		n.route(fmt.Sprintf("fd42:0:0:%d::/64", other), fmt.Sprintf("fd19::%d", other), "eth0")
		n.sysctl("ipv6/conf/default/disable_ipv6", "1") // as some nodes have it for what comes later
	}
}

// newNode makes a node with a bridge, a pod and another one, of which the second is never
// allowed anything.
func newNode(t *testing.T, c *cluster, number int) *worldNode {
	t.Helper()
	name := fmt.Sprintf("%s-%d", c.name, number)
	n := &worldNode{place: newPlace(t, name), held: &netns.Held{}}
	for key, value := range map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
		"ipv4/conf/all/rp_filter": "1", "ipv4/conf/default/rp_filter": "1",
	} {
		n.sysctl(key, value)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "cni0"
	n.must(n.place.kernel.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	n.address("cni0", fmt.Sprintf("10.42.%d.1/24", number), fmt.Sprintf("fd42:0:0:%d::1/64", number))
	n.must(n.place.kernel.LinkSetUp(n.link("cni0")))
	n.pod = n.addPod(number, 5)
	n.other = n.addPod(number, 6)
	n.must(n.nftables(masquerade))
	kernel, err := New(Options{Host: n.file, Namespaces: n.held})
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

func (n *worldNode) addPod(number, last int) *place {
	n.t.Helper()
	device := fmt.Sprintf("pod%d", last)
	pod := newPlace(n.t, fmt.Sprintf("%s of %s", device, n.name))
	join(n.place, device, pod, "eth0", 1500)
	n.must(n.place.kernel.LinkSetMaster(n.link(device), n.link("cni0")))
	pod.address("eth0", fmt.Sprintf("10.42.%d.%d/24", number, last), fmt.Sprintf("fd42:0:0:%d::%d/64", number, last))
	pod.route("0.0.0.0/0", fmt.Sprintf("10.42.%d.1", number), "eth0")
	pod.route("::/0", fmt.Sprintf("fd42:0:0:%d::1", number), "eth0")
	pod.listen(fmt.Sprintf(":%d", port))
	return pod
}

// masquerade is what CNIs do: to what leaves the pods' range, and some to what enters it.
func masquerade(c *nftables.Conn) {
	t := c.AddTable(&nftables.Table{Name: "cni", Family: nftables.TableFamilyINet})
	post := c.AddChain(&nftables.Chain{
		Name: "post", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for _, v4 := range families {
		pods := podRange(v4)
		for _, from := range []bool{true, false} {
			var exprs []expr.Any
			exprs = append(exprs, isFamily(v4)...)
			exprs = append(exprs, matches(v4, true, from, pods)...)
			exprs = append(exprs, matches(v4, false, !from, pods)...)
			c.AddRule(&nftables.Rule{Table: t, Chain: post, Exprs: append(exprs, &expr.Masq{})})
		}
	}
}

func matches(v4, source, equal bool, p netip.Prefix) []expr.Any {
	_, payload := load(v4, source)
	bits := p.Addr().BitLen() / 8
	op := expr.CmpOpNeq
	if equal {
		op = expr.CmpOpEq
	}
	return []expr.Any{
		payload,
		&expr.Bitwise{
			SourceRegister: register, DestRegister: register, Len: uint32(bits),
			Mask: net.CIDRMask(p.Bits(), bits*8), Xor: make([]byte, bits),
		},
		&expr.Cmp{Op: op, Register: register, Data: p.Addr().AsSlice()},
	}
}

func podRange(v4 bool) netip.Prefix { return viewRange(42, v4) }

// viewRange is 10.N.0.0/16 or fdN::/48.
func viewRange(n int, v4 bool) netip.Prefix {
	if v4 {
		return netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", n))
	}
	return netip.MustParsePrefix(fmt.Sprintf("fd%d::/48", n))
}

// podAt is the pod of a node by its real address or a view of it.
func podAt(n, node, last int, v4 bool) netip.Addr {
	if v4 {
		return netip.MustParseAddr(fmt.Sprintf("10.%d.%d.%d", n, node, last))
	}
	return netip.MustParseAddr(fmt.Sprintf("fd%d:0:0:%d::%d", n, node, last))
}

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
			Name: c.nodes[node].name, Underlay: at(node, 32, "192.168.0.%d").Addr(),
			Addresses: []netip.Addr{at(node, 32, "192.168.0.%d").Addr(), at(node, 128, "fd19::%d").Addr()},
			VNI:       7, Port: 4790, MTU: 1430,
		},
		Others: []Other{{
			Name: c.nodes[o].name, Underlay: at(o, 32, "192.168.0.%d").Addr(),
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
				r.Node = c.nodes[o].name
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
			w.t.Fatalf("setting %s: %v", c.nodes[i].name, err)
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
	return openPlace(w.t, "gateway of "+c.name, file)
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

// await polls until a condition holds.
func await(t *testing.T, what string, limit time.Duration, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for !holds() {
		select {
		case <-end:
			t.Fatalf("not within %s: %s", limit, what)
		case <-tick.C:
		}
	}
}

// ping sends an echo request of a size and waits for its answer.
func (p *place) ping(from, to netip.Addr, size int, patience time.Duration) error {
	network, request := "ip4:icmp", byte(8)
	if to.Is6() {
		network, request = "ip6:ipv6-icmp", 128
	}
	var c net.PacketConn
	if err := netns.In(p.file, func() (err error) {
		c, err = net.ListenPacket(network, from.String())
		return err
	}); err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	message := append([]byte{request, 0, 0, 0, 7, 7, 0, 1}, bytes.Repeat([]byte{0x5a}, size)...)
	if to.Is4() {
		binary.BigEndian.PutUint16(message[2:], checksum(message))
	}
	end := time.Now().Add(patience)
	answer := make([]byte, size+100)
	var err error
	for time.Now().Before(end) { // again, since the first of IPv6 may only find the MTU
		if _, err = c.WriteTo(message, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			continue
		}
		_ = c.SetReadDeadline(time.Now().Add(silence))
		for {
			n, at, readErr := c.ReadFrom(answer)
			if err = readErr; err != nil {
				break
			}
			if n == len(message) && answer[0] == request-8*b2i(to.Is4())+b2i(to.Is6()) && at.String() == to.String() {
				return nil
			}
		}
	}
	return fmt.Errorf("no answer of %s: %w", to, err)
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
