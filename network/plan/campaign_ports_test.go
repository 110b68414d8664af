package plan

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// aNodePort is one of each node, at all of its addresses.
const aNodePort = 30080

// ports has a peer that reaches all pods call what nodes forward, by their bridges: to a pod, and to a server of a node.
// Who may, calls it all the while.
func (c *campaign) ports(t *testing.T, s *side) {
	c.peering().Limited = false
	s.apply(t)
	defer func() {
		c.peering().Limited = true
		s.apply(t)
	}()
	for name, server := range map[string]func(v4 bool) netip.Addr{
		"a pod":  func(v4 bool) netip.Addr { return own(1, 5, v4) },
		"a node": func(v4 bool) netip.Addr { return netnstest.NodeAddr(0, v4) }, // which listens
	} {
		for _, n := range s.Nodes {
			nodePort(n, server)
		}
		for _, v4 := range netnstest.Families {
			from := c.peering().There[slices.IndexFunc(c.peering().There, func(a netip.Addr) bool { return a.Is4() == v4 })]
			for node := range s.Nodes {
				c.next++
				id := c.next
				p := netnstest.Packet{From: from, To: own(node, 1, v4)}
				c.out <- p.TCP(uint16(firstPort+id), aNodePort, netnstest.SYN, 7, 0, markerOf(id)).Bytes()
				c.wall(t)
				if answer := c.answer(id); answer != "" {
					t.Errorf("%s behind a port of %s is answered by %q", name, p.To, answer)
				}
				for _, at := range []netip.Addr{own(node, 1, v4), netnstest.NodeAddr(node, v4)} {
					for _, who := range []*netnstest.Place{s.Nodes[node].Other, s.Nodes[1-node].Place} {
						called(t, who, netip.AddrPortFrom(at, aNodePort))
					}
				}
			}
		}
		for _, n := range s.Nodes {
			n.Must(n.Nftables(func(k *nftables.Conn) { k.DelTable(portsTable) }))
		}
	}
}

func called(t *testing.T, from *netnstest.Place, to netip.AddrPort) {
	t.Helper()
	if err := netns.In(from.File, func() error {
		k, err := net.DialTimeout("tcp", to.String(), netnstest.Patience)
		if err == nil {
			err = k.Close()
		}
		return err
	}); err != nil {
		t.Errorf("from %s: %v", from.Name, err)
	}
}

var portsTable = &nftables.Table{Name: "ports", Family: nftables.TableFamilyINet}

// nodePort leads from a port of all addresses of a node to a server, as kube-proxy does, and a plugin that has pods'
// ports at nodes.
func nodePort(n *netnstest.Node, server func(v4 bool) netip.Addr) {
	n.T.Helper()
	port := func(p uint16) []byte { return binaryutil.BigEndian.PutUint16(p) }
	n.Must(n.Nftables(func(k *nftables.Conn) {
		k.AddTable(portsTable)
		at := k.AddChain(&nftables.Chain{Name: "ports", Table: portsTable, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
		after := k.AddChain(&nftables.Chain{Name: "masquerade", Table: portsTable, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
		for _, v4 := range netnstest.Families {
			family := byte(unix.NFPROTO_IPV6)
			if v4 {
				family = unix.NFPROTO_IPV4
			}
			k.AddRule(&nftables.Rule{Table: portsTable, Chain: at, Exprs: []expr.Any{
				&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
				&expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: port(aNodePort)},
				&expr.Immediate{Register: 1, Data: server(v4).AsSlice()},
				&expr.Immediate{Register: 2, Data: port(netnstest.Port)},
				&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(family), RegAddrMin: 1, RegProtoMin: 2, Specified: true},
			}})
		}
		// Its callers are seen as the node.
		k.AddRule(&nftables.Rule{Table: portsTable, Chain: after, Exprs: []expr.Any{
			&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(1 << 5), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte("pelago-")},
			&expr.Masq{},
		}})
	}))
}
