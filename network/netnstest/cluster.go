package netnstest

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
)

// Port is where pods listen.
const Port = 8080

// Cluster is two nodes that reach each other by the devices eth0. All clusters have the same
// addresses, but for those of pods if their numbers differ.
type Cluster struct {
	Name   string
	Number int
	Nodes  [2]*Node
}

// Node is a node with a bridge and two pods.
type Node struct {
	*Place
	Pod, Other *Place
}

// NewCluster makes the nodes of a cluster whose pods are in Range of 42. It needs root.
func NewCluster(t *testing.T, name string) *Cluster {
	t.Helper()
	return NewClusterOf(t, name, 42)
}

// NewClusterOf is NewCluster with pods in the Range of a number.
func NewClusterOf(t *testing.T, name string, number int) *Cluster {
	t.Helper()
	c := &Cluster{Name: name, Number: number}
	for i := range c.Nodes {
		c.Nodes[i] = newNode(t, c, i)
	}
	c.Nodes[0].Join("eth0", c.Nodes[1].Place, "eth0", 1500)
	for i, n := range c.Nodes {
		n.Address("eth0", NodeAddr(i, true).String()+"/24", NodeAddr(i, false).String()+"/64")
		n.Sysctl("ipv4/conf/eth0/rp_filter", "1")
		n.Sysctl("ipv6/conf/eth0/keep_addr_on_down", "1")
	}
	for i, n := range c.Nodes {
		c.Connect(i)
		n.Sysctl("ipv6/conf/default/disable_ipv6", "1") // as some nodes have it for what comes later
	}
	return c
}

// Connect gives a node its routes to the other one's pods, which it loses with eth0.
func (c *Cluster) Connect(i int) {
	for _, v4 := range Families {
		c.Nodes[i].Route(NodeRangeOf(c.Number, 1-i, v4).String(), NodeAddr(1-i, v4).String(), "eth0")
	}
}

func newNode(t *testing.T, c *Cluster, i int) *Node {
	t.Helper()
	n := &Node{Place: NewPlace(t, fmt.Sprintf("%s-%d", c.Name, i+1))}
	for key, value := range map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
		"ipv4/conf/all/rp_filter": "1", "ipv4/conf/default/rp_filter": "1",
	} {
		n.Sysctl(key, value)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "cni0"
	n.Must(n.Kernel.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	for _, v4 := range Families {
		n.Address("cni0", fmt.Sprintf("%s/%d", PodAddr(c.Number, i, 1, v4), NodeRange(i, v4).Bits()))
	}
	n.Up("cni0", true)
	n.Pod = n.addPod(c.Number, i, 5)
	n.Other = n.addPod(c.Number, i, 6)
	n.Must(n.Nftables(func(conn *nftables.Conn) { masquerade(conn, c.Number) }))
	return n
}

func (n *Node) addPod(number, i, last int) *Place {
	n.T.Helper()
	device := fmt.Sprintf("pod%d", last)
	pod := NewPlace(n.T, fmt.Sprintf("%s of %s", device, n.Name))
	n.Join(device, pod, "eth0", 1500)
	n.Must(n.Kernel.LinkSetMaster(n.Link(device), n.Link("cni0")))
	for _, v4 := range Families {
		pod.Address("eth0", fmt.Sprintf("%s/%d", PodAddr(number, i, last, v4), NodeRange(i, v4).Bits()))
	}
	pod.Route("0.0.0.0/0", PodAddr(number, i, 1, true).String(), "eth0")
	pod.Route("::/0", PodAddr(number, i, 1, false).String(), "eth0")
	pod.Listen()
	return pod
}

// Families are IPv4 and IPv6.
var Families = []bool{true, false}

// Range is 10.N.0.0/16 or fdN::/48. That of pods has 42.
func Range(n int, v4 bool) netip.Prefix {
	if v4 {
		return netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", n))
	}
	return netip.MustParsePrefix(fmt.Sprintf("fd%d::/48", n))
}

// NodeRange is what the pods of a node of NewCluster keep to.
func NodeRange(i int, v4 bool) netip.Prefix { return NodeRangeOf(42, i, v4) }

// NodeRangeOf is the same of NewClusterOf.
func NodeRangeOf(number, i int, v4 bool) netip.Prefix {
	p := netip.PrefixFrom(PodAddr(number, i, 0, v4), 64)
	if v4 {
		p = netip.PrefixFrom(p.Addr(), 24)
	}
	return p.Masked()
}

// NodeAddr is the address of a node.
func NodeAddr(i int, v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd19::%d", i+1))
}

// PodAddr is the pod of a node by its real address, for which n is 42, or a view of it.
func PodAddr(n, i, last int, v4 bool) netip.Addr {
	if v4 {
		return netip.MustParseAddr(fmt.Sprintf("10.%d.%d.%d", n, i+1, last))
	}
	return netip.MustParseAddr(fmt.Sprintf("fd%d:0:0:%d::%d", n, i+1, last))
}

// masquerade is what CNIs do: to what leaves the pods' range, and some to what enters it.
func masquerade(c *nftables.Conn, number int) {
	t := c.AddTable(&nftables.Table{Name: "cni", Family: nftables.TableFamilyINet})
	post := c.AddChain(&nftables.Chain{
		Name: "post", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for _, v4 := range Families {
		for _, from := range []bool{true, false} {
			exprs := []expr.Any{
				&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol(v4)}},
			}
			exprs = append(exprs, matches(Range(number, v4), true, from)...)
			exprs = append(exprs, matches(Range(number, v4), false, !from)...)
			c.AddRule(&nftables.Rule{Table: t, Chain: post, Exprs: append(exprs, &expr.Masq{})})
		}
	}
}

func protocol(v4 bool) byte {
	if v4 {
		return byte(nftables.TableFamilyIPv4)
	}
	return byte(nftables.TableFamilyIPv6)
}

// matches holds for packets whose source, or destination, is in a prefix, or not.
func matches(p netip.Prefix, source, in bool) []expr.Any {
	size := uint32(p.Addr().BitLen() / 8)
	offset := uint32(8) // of the source in IPv6
	if size == 4 {
		offset = 12
	}
	if !source {
		offset += size
	}
	op := expr.CmpOpNeq
	if in {
		op = expr.CmpOpEq
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: size,
			Mask: net.CIDRMask(p.Bits(), int(size)*8), Xor: make([]byte, size),
		},
		&expr.Cmp{Op: op, Register: 1, Data: p.Addr().AsSlice()},
	}
}
