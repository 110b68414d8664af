package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// ear hears all packets of a place.
type ear struct {
	p  *place
	fd int
}

func hear(p *place) *ear {
	p.T.Helper()
	e := &ear{p: p}
	p.In(func() (err error) {
		all := int(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)))
		e.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all)
		return err
	})
	p.T.Cleanup(func() { _ = unix.Close(e.fd) })
	return e
}

// segment is one of TCP that was heard.
type segment struct {
	from, to netip.AddrPort
	flags    byte
	seq, ack uint32
	data     int
}

func (s segment) String() string {
	return fmt.Sprintf("%s to %s, flags %#x, seq %d, ack %d, %d bytes", s.from, s.to, s.flags, s.seq, s.ack, s.data)
}

// heard is what was since the last time.
func (e *ear) heard() (all []segment) {
	e.p.T.Helper()
	for b := make([]byte, 1<<16); ; {
		n, _, err := unix.Recvfrom(e.fd, b, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			return all
		}
		e.p.Must(err)
		if s, ok := segmentOf(b[:n]); ok {
			all = append(all, s)
		}
	}
}

func segmentOf(b []byte) (s segment, ok bool) {
	if len(b) < 40 {
		return s, false
	}
	v4 := b[0]>>4 == 4
	header, size, addresses, protocol := 40, 16, 8, b[6]
	if v4 {
		header, size, addresses, protocol = int(b[0]&0xf)*4, 4, 12, b[9]
	}
	if protocol != unix.IPPROTO_TCP || len(b) < header+20 {
		return s, false
	}
	from, _ := netip.AddrFromSlice(b[addresses : addresses+size])
	to, _ := netip.AddrFromSlice(b[addresses+size : addresses+2*size])
	tcp := b[header:]
	return segment{
		from: netip.AddrPortFrom(from, binary.BigEndian.Uint16(tcp)), to: netip.AddrPortFrom(to, binary.BigEndian.Uint16(tcp[2:])),
		flags: tcp[tcpFlagsAt], seq: binary.BigEndian.Uint32(tcp[4:]), ack: binary.BigEndian.Uint32(tcp[8:]), data: len(tcp) - int(tcp[12]>>4)*4,
	}, true
}

// inject sends a segment as it is.
func inject(p *place, s segment, data []byte) {
	p.T.Helper()
	say(p, s.packet(data))
}

func (s segment) packet(data []byte) netnstest.Packet {
	return netnstest.Packet{From: s.from.Addr(), To: s.to.Addr()}.TCP(s.from.Port(), s.to.Port(), s.flags, s.seq, s.ack, data)
}

// say sends a packet as it is.
func say(p *place, packet netnstest.Packet) {
	p.T.Helper()
	p.In(func() error {
		family, to := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: packet.To.As16()})
		if packet.To.Is4() {
			family, to = unix.AF_INET, &unix.SockaddrInet4{Addr: packet.To.As4()}
		}
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return unix.Sendto(fd, packet.Bytes(), 0, to)
	})
}

// rules adds a table of the test's with one chain to a node.
func (n *worldNode) rules(name string, c chain, at nftables.ChainHook, kind nftables.ChainType) {
	n.T.Helper()
	n.Must(n.Nftables(func(conn *nftables.Conn) {
		t := conn.AddTable(&nftables.Table{Name: name, Family: nftables.TableFamilyINet})
		priority := nftables.ChainPriority(c.priority)
		k := conn.AddChain(&nftables.Chain{Name: "rules", Table: t, Type: kind, Hooknum: &at, Priority: &priority})
		for _, r := range c.rules {
			conn.AddRule(&nftables.Rule{Table: t, Chain: k, Exprs: r.exprs})
		}
	}))
}

// serve stands for servers by an address of a Service, as kube-proxy does on each node.
func (n *worldNode) serve(servers map[netip.Addr]netip.Addr) {
	n.T.Helper()
	c := chain{priority: -100}
	for service, server := range servers {
		c.add(destinationIs(netip.AddrPortFrom(service, netnstest.Port), false), dnatTo(netip.AddrPortFrom(server, netnstest.Port)))
	}
	n.rules("services", c, *nftables.ChainHookPrerouting, nftables.ChainTypeNAT)
}

// TestStray has segments far out of the window of a connection that goes through a Service come to the node of
// its client, where nobody translates them.
func TestStray(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	services := map[bool]netip.Addr{true: netip.MustParseAddr("10.96.0.10"), false: netip.MustParseAddr("fd96::10")}
	servers := map[netip.Addr]netip.Addr{}
	for _, v4 := range families {
		servers[services[v4]] = podAt(w.rome.view, 2, 5, v4)
	}
	for i, n := range w.rome.nodes {
		n.Sysctl("netfilter/nf_conntrack_tcp_be_liberal", "0")
		n.serve(servers)
		for _, v4 := range families {
			t.Run(fmt.Sprintf("node %d, IPv4 %t", i+1, v4), func(t *testing.T) {
				w.strays(t, n, w.gateway(w.rome), n.Pod, services[v4])
			})
		}
	}
}

// strays has a client open a connection with milan's second pod, and holds that a node drops what comes of it that is
// far out of its window: the client does not hear it, and the server is not told.
func (w *world) strays(t *testing.T, n *worldNode, gateway, from *place, to netip.Addr) {
	t.Helper()
	milan := w.milan.nodes[1].Pod
	server, way, client := hear(milan), hear(gateway), hear(from)
	c, _, err := from.Dial(to, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	exchange(t, c, []byte("are you there?"))
	var last segment
	for _, s := range server.heard() {
		if s.from.Port() == netnstest.Port && s.data > 0 {
			last = s
		}
	}
	if last.data == 0 {
		t.Fatal("nothing of the server was heard")
	}
	way.heard()
	before := n.droppedOf(t, "", DropInvalid)
	for _, data := range [][]byte{nil, []byte("late")} {
		stray := last
		stray.flags, stray.seq = netnstest.ACK, last.seq+1<<30
		inject(milan, stray, data)
	}
	exchange(t, c, []byte("still there"))
	netnstest.Await(t, "two are dropped", patience, func() bool { return n.droppedOf(t, "", DropInvalid) == before+2 })
	strays := 0
	for _, s := range way.heard() {
		if s.flags&netnstest.RST != 0 {
			t.Errorf("a reset is on its way to the server: %s", s)
		}
		if s.seq == last.seq+1<<30 {
			strays++
		}
	}
	for _, s := range client.heard() {
		if s.seq == last.seq+1<<30 && from == n.Pod {
			t.Errorf("the client has: %s", s)
		}
	}
	if strays == 0 {
		t.Error("the gateway had none of them in its hands")
	}
}

// TestStrayResets lets a reset of nothing that a node knows leave from a pod there.
func TestStrayResets(t *testing.T) {
	w := newWorld(t)
	w.start()
	way := hear(w.gateway(w.rome))
	for i, n := range w.rome.nodes {
		for _, v4 := range families {
			before := n.droppedOf(t, "", DropInvalid)
			s := segment{from: netip.AddrPortFrom(podAt(42, i+1, 5, v4), 4000), to: netip.AddrPortFrom(podAt(w.rome.view, 2, 5, v4), 4001), flags: netnstest.RST, seq: 7}
			inject(n.Pod, s, nil)
			c, _, err := n.Pod.Dial(s.to.Addr(), patience) // by the same way, and after it
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
			netnstest.Await(t, n.Name+" drops it", patience, func() bool { return n.droppedOf(t, "", DropInvalid) == before+1 })
			for _, s := range way.heard() {
				if s.from.Port() == 4000 {
					t.Errorf("%s: passed: %s", n.Name, s)
				}
			}
		}
	}
}

// TestPassingOn has a gateway's node miss so much of a connection of another one's pod that what comes then is
// invalid there.
func TestPassingOn(t *testing.T) {
	w := newWorld(t)
	w.start()
	node, pod := w.rome.nodes[w.rome.gatewayAt], w.rome.nodes[1-w.rome.gatewayAt].Pod
	node.Sysctl("netfilter/nf_conntrack_tcp_be_liberal", "0")
	ours := devicePrefix + "*"
	untracked, seen := chain{priority: beforeTracking}, chain{}
	untracked.add(cameBy(ours), statement{exprs: []expr.Any{&expr.Notrack{}}})
	seen.add(cameBy(ours), leavesBy(ours), connection(invalid), statement{exprs: []expr.Any{&expr.Counter{}}})
	node.rules("seen", seen, *nftables.ChainHookForward, nftables.ChainTypeFilter)
	for _, v4 := range families {
		c, _, err := pod.Dial(podAt(w.rome.view, 2, 5, v4), patience)
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, c, []byte("are you there?"))
		node.rules("untracked", untracked, *nftables.ChainHookPrerouting, nftables.ChainTypeFilter)
		exchange(t, c, bytes.Repeat([]byte("0123456789abcdef"), 1<<18))
		node.Must(node.Nftables(func(conn *nftables.Conn) {
			conn.DelTable(&nftables.Table{Name: "untracked", Family: nftables.TableFamilyINet})
		}))
		before := node.counted(t, "seen")
		exchange(t, c, []byte("still there"))
		now := node.counted(t, "seen")
		if now == before {
			t.Errorf("IPv4 %t: nothing of it was invalid", v4)
		}
		server := hear(w.milan.nodes[1].Pod)
		node.Must(c.(*net.TCPConn).SetLinger(0))
		node.Must(c.Close())
		netnstest.Await(t, "the server has the client's reset", patience, func() bool {
			return slices.ContainsFunc(server.heard(), func(s segment) bool { return s.flags&netnstest.RST != 0 })
		})
		if node.counted(t, "seen") == now {
			t.Errorf("IPv4 %t: the reset was not invalid", v4)
		}
	}
	if dropped := node.droppedOf(t, "", DropInvalid); dropped != 0 {
		t.Errorf("%d were dropped", dropped)
	}
}

// counted is what the counter of a table of the test's has counted.
func (n *worldNode) counted(t *testing.T, table string) (packets uint64) {
	t.Helper()
	n.Must(n.Nftables(func(conn *nftables.Conn) {
		at := &nftables.Table{Name: table, Family: nftables.TableFamilyINet}
		rules, err := conn.GetRules(at, &nftables.Chain{Name: "rules", Table: at})
		n.Must(err)
		for _, r := range rules {
			for _, e := range r.Exprs {
				if c, ok := e.(*expr.Counter); ok {
					packets += c.Packets
				}
			}
		}
	}))
	return packets
}

// TestUnknown holds which nodes drop segments of no connection: those with a way to a peer, whether or not they
// have a gateway.
func TestUnknown(t *testing.T) {
	alone, without := full(), full()
	alone.Gateways = nil
	alone.Routes = []Route{{Prefix: prefixes("10.81.0.0/16")[0], Node: "rome-2"}}
	without.Routes = nil
	for name, c := range map[string]struct {
		config Config
		rules  int
	}{"gateways": {full(), 3}, "no gateway": {alone, 3}, "no way": {without, 0}, "nothing": {Config{}, 0}} {
		node, _, _ := strings.Cut(c.config.String(), "# gateway")
		if got := strings.Count(node, `counter name "invalid" drop`); got != c.rules {
			t.Errorf("%s: %d rules, want %d:\n%s", name, got, c.rules, node)
		}
	}
}
