package bench

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/tunnel"
)

const (
	tunnelMTU = 1420
	podMTU    = tunnelMTU - 50 // through a VXLAN as well
)

// internet joins the first node of each of two clusters, or all of them, by a router.
type internet struct {
	*netnstest.Place
	count int
}

func newInternet(t *testing.T) *internet {
	t.Helper()
	r := &internet{Place: netnstest.NewPlace(t, "internet")}
	r.Sysctl("ipv4/ip_forward", "1")
	return r
}

// join gives a node an address and a route to all others, and returns the address.
func (r *internet) join(n *netnstest.Node) netip.Addr {
	r.count++
	device := fmt.Sprintf("n%d", r.count)
	n.Join("eth1", r.Place, device, 1500)
	n.Address("eth1", fmt.Sprintf("198.51.100.%d/30", 4*r.count+1))
	r.Address(device, fmt.Sprintf("198.51.100.%d/30", 4*r.count+2))
	n.Route("198.51.100.0/24", fmt.Sprintf("198.51.100.%d", 4*r.count+2), "eth1")
	return netip.MustParseAddr(fmt.Sprintf("198.51.100.%d", 4*r.count+1))
}

// handSide is a cluster whose network was made by hand, on the first of its nodes.
type handSide struct {
	*netnstest.Cluster
	out     netip.Addr
	gateway *netnstest.Place
	secrets []tunnel.Secret // of its tunnels, both ends of which are numbered alike
}

// newHandSide makes a cluster's nodes and as many keys as it has tunnels.
func newHandSide(t *testing.T, world *internet, name string, number, tunnels int) *handSide {
	t.Helper()
	s := &handSide{Cluster: netnstest.NewClusterOf(t, name, number), secrets: make([]tunnel.Secret, tunnels)}
	s.out = world.join(s.Nodes[0])
	for k := range s.secrets {
		var err error
		if s.secrets[k], err = tunnel.NewSecret(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// byHand makes what our ways are compared with: node to node, a tunnel between nodes, and
// paths from pod to pod through a namespace with a tunnel.
func byHand(t *testing.T) []*line {
	t.Helper()
	world := newInternet(t)
	var sides [2]*handSide
	for i, number := range []int{42, 43} {
		sides[i] = newHandSide(t, world, fmt.Sprintf("hand%d", i+1), number, 2)
		sides[i].gateway = netnstest.NewPlace(t, "gateway of "+sides[i].Name)
	}
	for i, s := range sides {
		peer := sides[1-i]
		s.bareApart(t, peer, s.Nodes[0].Place, "bare", 7001, 0)
		s.Nodes[0].Address("bare", fmt.Sprintf("10.99.0.%d/24", i+1))
		s.bareApart(t, peer, s.gateway, "path", 7002, 1)
		s.path(peer)
	}
	to := sides[1]
	node, on, off := newServer(t, to.Nodes[0].Place), newServer(t, to.Nodes[0].Pod), newServer(t, to.Nodes[1].Pod)
	from := sides[0].Nodes
	return []*line{
		{name: "node to node", from: from[0].Place, server: node, at: to.out.String()},
		{name: "bare tunnel", from: from[0].Place, server: node, at: "10.99.0.2"},
		{name: "by hand, on the gateway", from: from[0].Pod, server: on, at: netnstest.PodAddr(43, 0, 5, true).String()},
		{name: "by hand, off the gateway", from: from[1].Pod, server: off, at: netnstest.PodAddr(43, 1, 5, true).String()},
	}
}

// bareTunnel is a tunnel as the library's own program has it.
type bareTunnel struct {
	Name          string
	Port          int
	Private, Peer [32]byte
	Endpoint      string
}

// open makes its device in one network namespace and its socket in another.
func (b bareTunnel) open(at, host *os.File) (d *device.Device, err error) {
	var native tun.Device
	if err := netns.In(at, func() (err error) {
		native, err = tun.CreateTUN(b.Name, tunnelMTU)
		return err
	}); err != nil {
		return nil, err
	}
	err = netns.In(host, func() error {
		d = device.NewDevice(native, conn.NewStdNetBind(), device.NewLogger(device.LogLevelSilent, ""))
		if err := d.IpcSet(fmt.Sprintf("private_key=%x\nlisten_port=%d\npublic_key=%x\nendpoint=%s\nallowed_ip=0.0.0.0/0\n",
			b.Private, b.Port, b.Peer, b.Endpoint)); err != nil {
			return err
		}
		return d.Up()
	})
	return d, err
}

// playBare holds a tunnel: its socket in the namespace of the first file, its device in that of the second.
func playBare() {
	_, err := partOf[bareTunnel]().open(os.NewFile(4, "at"), os.NewFile(3, "host"))
	must(err)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println("here")
	}
}

func (s *handSide) tunnelTo(peer *handSide, name string, port, key int) bareTunnel {
	return bareTunnel{Name: name, Port: port, Private: s.secrets[key].Reveal(), Peer: [32]byte(peer.secrets[key].Public()), Endpoint: fmt.Sprintf("%s:%d", peer.out, port)}
}

// bare makes a tunnel to the peer in this process: its device at a place, its socket on the first node.
func (s *handSide) bare(t *testing.T, peer *handSide, at *netnstest.Place, name string, port, key int) {
	t.Helper()
	d, err := s.tunnelTo(peer, name, port, key).open(at.File, s.Nodes[0].File)
	at.Must(err)
	t.Cleanup(d.Close)
	at.Up(name, true) // now that it has its socket: it would open that where the device is
}

// bareApart is bare in a process of its own.
func (s *handSide) bareApart(t *testing.T, peer *handSide, at *netnstest.Place, name string, port, key int) {
	t.Helper()
	play(t, "bare", s.tunnelTo(peer, name, port, key), -1, s.Nodes[0].File, at.File).do("are you there?")
	at.Up(name, true)
}

// path leads pods' packets for the peer through a namespace with the tunnel, and those of the
// second node there by a VXLAN.
func (s *handSide) path(peer *handSide) {
	n, g := s.Nodes, s.gateway
	n[0].Join("inside", g, "host", tunnelMTU)
	n[0].Address("inside", "169.254.9.1/30")
	g.Address("host", "169.254.9.2/30")
	for key, value := range map[string]string{"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/host/rp_filter": "0", "ipv4/conf/path/rp_filter": "0"} {
		g.Sysctl(key, value)
	}
	g.Route(netnstest.Range(s.Number, true).String(), "169.254.9.1", "host")
	_, far, _ := net.ParseCIDR(netnstest.Range(peer.Number, true).String())
	g.Must(g.Kernel.RouteAdd(&netlink.Route{Dst: far, LinkIndex: g.Link("path").Attrs().Index}))
	n[0].Route(far.String(), "169.254.9.2", "inside")
	for i, node := range n {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = "between", 1450
		node.Must(node.Kernel.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: 9, Port: 7009,
			SrcAddr: netnstest.NodeAddr(i, true).AsSlice(), Group: netnstest.NodeAddr(1-i, true).AsSlice(), Learning: true}))
		node.Up("between", true)
		node.Address("between", fmt.Sprintf("169.254.8.%d/30", i+1))
		for _, device := range []string{"all", "between"} {
			node.Sysctl("ipv4/conf/"+device+"/rp_filter", "2")
		}
		node.Must(node.Nftables(func(c *nftables.Conn) { c.DelTable(&nftables.Table{Name: "cni", Family: nftables.TableFamilyINet}) }))
		for _, pod := range []*netnstest.Place{node.Pod, node.Other} {
			pod.Must(pod.Kernel.LinkSetMTU(pod.Link("eth0"), podMTU))
		}
	}
	n[1].Route(far.String(), "169.254.8.1", "between")
	_, second, _ := net.ParseCIDR(fmt.Sprintf("10.%d.2.0/24", s.Number))
	n[0].Must(n[0].Kernel.RouteReplace(&netlink.Route{Dst: second, Gw: net.ParseIP("169.254.8.2"), LinkIndex: n[0].Link("between").Attrs().Index}))
}
