package dns

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	wire "github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// stage is a cluster of two nodes: the Server is on the first one, the cluster's DNS a pod
// on the second one. Pod of the first node is rome's, Other of it nobody's.
type stage struct {
	*netnstest.Cluster
	t        *testing.T
	server   *Server
	metrics  *Metrics
	registry *prometheus.Registry
	upstream *clusterDNS

	mu   sync.Mutex
	seen map[netip.Addr]Client // who is a client
	from map[netip.Addr]int    // who asked
	at   netip.Addr            // where it is asked
}

func newStage(t *testing.T, handle func(string, *wire.Msg) *wire.Msg) *stage {
	t.Helper()
	s := &stage{Cluster: netnstest.NewCluster(t, "milan"), t: t, registry: prometheus.NewRegistry(), from: map[netip.Addr]int{}, at: Address()}
	s.seen = map[netip.Addr]Client{netnstest.PodAddr(42, 0, 5, true): rome}
	s.upstream = serveDNS(t, s.Nodes[1].Pod.File, netip.AddrPortFrom(netnstest.PodAddr(42, 1, 5, true), 53).String(), handle)
	var err error
	if s.metrics, err = NewMetrics(s.registry); err != nil {
		t.Fatal(err)
	}
	s.server = s.newServer()
	return s
}

func (s *stage) newServer() *Server {
	s.t.Helper()
	server, err := New(Options{Host: s.Nodes[0].File, Upstream: []string{strings.TrimSuffix(s.upstream.at, ":53")}, Clients: s.client, Log: logr.Discard(), Metrics: s.metrics})
	if err != nil {
		s.t.Fatal(err)
	}
	server.anew = 20 * time.Millisecond
	return server
}

func (s *stage) client(a netip.Addr) (Client, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from[a]++
	c, ok := s.seen[a]
	return c, ok
}

// run runs a Server until the test stops it, or ends.
func (s *stage) run(server *Server) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

// conn is a socket of a place to the Server.
func (s *stage) conn(from *netnstest.Place, network string) (c net.Conn, err error) {
	err = netns.In(from.File, func() (err error) {
		c, err = net.DialTimeout(network, netip.AddrPortFrom(s.at, 53).String(), netnstest.Patience)
		return err
	})
	return c, err
}

// ask asks as a pod does.
func (s *stage) ask(from *netnstest.Place, network string, question *wire.Msg, patience time.Duration) (*wire.Msg, error) {
	c, err := s.conn(from, network)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	answer, _, err := (&wire.Client{Net: network, Timeout: patience}).ExchangeWithConn(question, &wire.Conn{Conn: c, UDPSize: maxDatagram})
	return answer, err
}

// answers waits until the Server does.
func (s *stage) answers() {
	s.t.Helper()
	netnstest.Await(s.t, "an answer", netnstest.Patience, func() bool {
		_, err := s.ask(s.Nodes[0].Pod, "udp", ask("svc.cluster.local.", wire.TypeA), netnstest.Silence)
		return err == nil
	})
}

// counted is a counter of questions.
func (s *stage) counted(what result) int {
	s.t.Helper()
	return s.metric("pelago_dns_questions_total", resultNames[what])
}

// metric is the value of one, with that label if any.
func (s *stage) metric(name string, label ...string) int {
	s.t.Helper()
	all, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (len(label) == 0 || m.GetLabel()[0].GetValue() == label[0]) {
				return int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			}
		}
	}
	s.t.Fatalf("there is no %s %v", name, label)
	return 0
}

// has says whether the first node has an address of its own.
func (s *stage) has(address netip.Addr) bool {
	s.t.Helper()
	all, err := s.Nodes[0].Kernel.AddrList(s.Nodes[0].Link(device), netlink.FAMILY_ALL)
	s.Nodes[0].Must(err)
	for _, a := range all {
		if a.IP.Equal(address.AsSlice()) {
			return true
		}
	}
	return false
}

// TestServer is about pods that ask, whom the node sees with their own addresses.
func TestServer(t *testing.T) {
	zone := append(many(300), "db.shop-rome.svc.cluster.local. 5 IN A 10.96.0.7", "www.example.org. 60 IN A 192.0.2.1")
	s := newStage(t, func(network string, question *wire.Msg) *wire.Msg {
		m := answerBy(t, zone, question)
		if network == "udp" {
			m.Truncate(wire.MinMsgSize)
		}
		return m
	})
	node := s.Nodes[0]
	stop := s.run(s.server)
	s.answers()
	for _, network := range []string{"udp", "tcp"} {
		for name, want := range map[string]string{"db.shop.svc.cluster.local.": "10.96.0.7", "www.example.org.": "192.0.2.1"} {
			m, err := s.ask(node.Pod, network, ask(name, wire.TypeA), netnstest.Patience)
			if err != nil || len(m.Answer) != 1 || !strings.HasSuffix(m.Answer[0].String(), want) {
				t.Errorf("%s over %s: %v, %v", name, network, m, err)
			}
		}
		if m, err := s.ask(node.Other, network, ask("www.example.org.", wire.TypeA), netnstest.Patience); err != nil || m.Rcode != wire.RcodeRefused {
			t.Errorf("a stranger over %s: %v, %v", network, m, err)
		}
	}
	m, err := s.ask(node.Pod, "udp", ask("many.shop.svc.cluster.local.", wire.TypeA), netnstest.Patience)
	if err != nil || !m.Truncated {
		t.Errorf("a long answer: %v, %v", m, err)
	}
	m, err = s.ask(node.Pod, "tcp", ask("many.shop.svc.cluster.local.", wire.TypeA), netnstest.Patience)
	if err != nil || m.Truncated || len(m.Answer) != 300 {
		t.Errorf("a long answer over TCP: %v, %v", m, err)
	}
	// Another node knows the way, and is a stranger.
	s.Nodes[1].Route(netip.PrefixFrom(Address(), 32).String(), netnstest.NodeAddr(0, true).String(), "eth0")
	if m, err := s.ask(s.Nodes[1].Place, "udp", ask("www.example.org.", wire.TypeA), netnstest.Patience); err != nil || m.Rcode != wire.RcodeRefused {
		t.Errorf("another node: %v, %v", m, err)
	}
	s.mu.Lock()
	for _, a := range []netip.Addr{netnstest.PodAddr(42, 0, 5, true), netnstest.PodAddr(42, 0, 6, true), netnstest.NodeAddr(1, true)} {
		if s.from[a] == 0 {
			t.Errorf("nobody was seen as %s: %v", a, s.from)
		}
	}
	if len(s.from) != 3 {
		t.Errorf("seen were %v", s.from)
	}
	s.mu.Unlock()
	if got := s.counted(stranger); got != 3 {
		t.Errorf("%d strangers", got)
	}
	if !s.has(Address()) || s.metric("pelago_dns_up") != 1 {
		t.Error("the node does not have the address, or does not say that it answers")
	}

	// No other address has a listener.
	for _, at := range []string{"127.0.0.1:53", "10.42.1.1:53"} {
		node.In(func() error {
			if c, err := net.DialTimeout("tcp", at, netnstest.Silence); err == nil {
				t.Errorf("it listens at %s", at)
				return c.Close()
			}
			return nil
		})
	}

	stop()
	if !s.has(Address()) || s.metric("pelago_dns_up") != 0 {
		t.Error("the address went with the server, or it says that it answers")
	}
	if _, err := s.conn(node.Pod, "tcp"); err == nil {
		t.Error("it listens after its end")
	}
	for range 2 { // the second time it is not there
		if err := Remove(node.File); err != nil {
			t.Error(err)
		}
	}
	if s.has(Address()) {
		t.Error("the address is still there")
	}
}

// TestServerAgain is about what others do to a Server's address and port.
func TestServerAgain(t *testing.T) {
	s := newStage(t, func(_ string, question *wire.Msg) *wire.Msg { return answerBy(t, nil, question) })
	stop := s.run(s.server)
	s.answers()
	if err := Remove(s.Nodes[0].File); err != nil {
		t.Fatal(err)
	}
	s.answers()
	// A successor waits for its turn.
	next := s.newServer()
	s.run(next)
	stop()
	s.answers()
}

// TestOneTenantLeavesRoom is about a tenant whose questions take long.
func TestOneTenantLeavesRoom(t *testing.T) {
	done := make(chan struct{})
	var mu sync.Mutex
	slow := map[uint16]bool{} // by number: what is asked again, as nobody has answered, has the same
	s := newStage(t, func(_ string, question *wire.Msg) *wire.Msg {
		if question.Question[0].Name == "slow.example.org." {
			mu.Lock()
			slow[question.Id] = true
			mu.Unlock()
			<-done
		}
		return answerBy(t, []string{"www.example.org. 60 IN A 192.0.2.1"}, question)
	})
	answer := sync.OnceFunc(func() { close(done) })
	t.Cleanup(answer) // before the cluster's DNS waits for its end
	s.seen[netnstest.PodAddr(42, 0, 6, true)] = Client{Tenant: "naples"}
	stop := s.run(s.server)
	s.answers()
	const more = 50
	c, err := s.conn(s.Nodes[0].Pod, "udp")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	packet := packed(t, ask("slow.example.org.", wire.TypeA))
	for range questionsEach + more {
		if _, err := c.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	netnstest.Await(t, "some are too many", netnstest.Patience, func() bool { return s.counted(limited) == more })
	if m, err := s.ask(s.Nodes[0].Other, "udp", ask("www.example.org.", wire.TypeA), netnstest.Patience); err != nil || len(m.Answer) != 1 {
		t.Errorf("another tenant: %v, %v", m, err)
	}
	mu.Lock()
	if len(slow) > questionsEach {
		t.Errorf("the cluster's DNS was asked %d questions", len(slow))
	}
	mu.Unlock()
	answer()
	s.answers()
	stop()
	if len(s.server.questions.of) != 0 {
		t.Errorf("slots that were not given back: %v", s.server.questions.of)
	}
}

// TestConnections is about clients that keep connections, and what they may send by one.
func TestConnections(t *testing.T) {
	s := newStage(t, func(_ string, question *wire.Msg) *wire.Msg {
		return answerBy(t, []string{"www.example.org. 60 IN A 192.0.2.1"}, question)
	})
	s.seen[netnstest.PodAddr(42, 0, 6, true)] = Client{Tenant: "naples"}
	stop := s.run(s.server)
	s.answers()
	var kept []net.Conn
	for range connectionsEach + 5 {
		c, err := s.conn(s.Nodes[0].Pod, "tcp")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		kept = append(kept, c)
	}
	netnstest.Await(t, "some are too many", netnstest.Patience, func() bool { return s.counted(limited) == 5 })
	if m, err := s.ask(s.Nodes[0].Other, "tcp", ask("www.example.org.", wire.TypeA), netnstest.Patience); err != nil || len(m.Answer) != 1 {
		t.Errorf("another tenant: %v, %v", m, err)
	}
	// Several questions at once, in pieces, have their answers in order.
	var all []byte
	for i := range uint16(3) {
		q := ask("www.example.org.", wire.TypeA)
		q.Id = i
		all = append(all, framed(packed(t, q))...)
	}
	c := kept[0]
	for _, b := range [][]byte{all[:1], all[1:20], all[20:]} {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(netnstest.Patience))
	for i := range uint16(3) {
		b, err := unframed(c, wire.MaxMsgSize)
		if err != nil {
			t.Fatal(err)
		}
		if m := unpacked(t, b); m.Id != i || len(m.Answer) != 1 {
			t.Errorf("answer %d is %s", i, m)
		}
	}
	for reason, b := range map[string][]byte{
		"nothing": {0, 0}, "too little": {0, 5, 1, 2, 3, 4, 5}, "too much": binary.BigEndian.AppendUint16(nil, maxQuestion+1),
		"an answer": framed(packed(t, ask("a.", wire.TypeA, func(m *wire.Msg) { m.Response = true }))),
	} {
		c := kept[len(kept)-5-1]
		kept = append(kept[:len(kept)-5-1], kept[len(kept)-5:]...)
		_, _ = c.Write(b)
		_ = c.SetReadDeadline(time.Now().Add(netnstest.Patience))
		if rest, err := io.ReadAll(c); len(rest) != 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s is answered with %x, %v", reason, rest, err)
		}
	}
	begun := time.Now()
	stop()
	if took := time.Since(begun); took > idle/2 {
		t.Errorf("it took %s to end with connections", took)
	}
	_ = c.SetReadDeadline(time.Now().Add(netnstest.Patience))
	if b, _ := io.ReadAll(c); len(bytes.TrimSpace(b)) != 0 {
		t.Errorf("after the end comes %x", b)
	}
}

func TestNewRefuses(t *testing.T) {
	clients := func(netip.Addr) (Client, bool) { return Client{}, false }
	for reason, o := range map[string]Options{
		"no upstream":      {Clients: clients},
		"nobody who knows": {Upstream: []string{"10.96.0.10"}},
		"a name":           {Upstream: []string{"dns.example.org"}, Clients: clients},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s will do", reason)
		}
	}
	if s, err := New(Options{Upstream: []string{"10.96.0.10"}, Clients: clients}); err != nil || !slices.Equal(s.options.Addresses, []netip.Addr{netip.MustParseAddr("169.254.77.53")}) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestAddresses holds at which addresses a node answers: pods of a cluster whose DNS has an
// address of IPv6 may have no other.
func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		reason   string
		upstream []string
		want     string
	}{
		{"IPv4", []string{"10.96.0.10"}, "[169.254.77.53]"},
		{"with a port, and as IPv6", []string{"10.96.0.10:53", "::ffff:10.96.0.11"}, "[169.254.77.53]"},
		{"IPv6", []string{"fd43::a"}, "[169.254.77.53 fd46:c73d:1b8d::53]"},
		{"both, with a port", []string{"10.96.0.10", "[fd43::a]:5353"}, "[169.254.77.53 fd46:c73d:1b8d::53]"},
		{"what is none", []string{"dns.example.org"}, "[169.254.77.53]"},
	} {
		if got := fmt.Sprint(Addresses(c.upstream)); got != c.want {
			t.Errorf("%s: %s, want %s", c.reason, got, c.want)
		}
	}
	if sum := sha256.Sum256([]byte("pelago.dev")); !slices.Equal(Address6().AsSlice()[1:6], sum[:5]) {
		t.Errorf("%s is not of %x", Address6(), sum[:5])
	}
}

// TestServerIPv6 holds that a pod without IPv4 is answered at the address of IPv6, by UDP and TCP,
// that others are refused there as well, that nothing prefers that address, and that it goes
// with the other one, or is not missed where a node has no IPv6.
func TestServerIPv6(t *testing.T) {
	s := newStage(t, func(_ string, question *wire.Msg) *wire.Msg {
		return answerBy(t, []string{"db.shop-rome.svc.cluster.local. 5 IN A 10.43.7.7"}, question)
	})
	s.at = Address6()
	s.seen = map[netip.Addr]Client{netnstest.PodAddr(42, 0, 5, false): rome}
	s.server.options.Addresses = Addresses([]string{"fd43::a"})
	stop := s.run(s.server)
	s.answers()
	node := s.Nodes[0]
	for _, network := range []string{"udp", "tcp"} {
		for _, c := range []struct {
			who  string
			from *netnstest.Place
			want int
		}{{"a tenant's pod", node.Pod, wire.RcodeSuccess}, {"another pod", node.Other, wire.RcodeRefused}, {"the node", node.Place, wire.RcodeRefused}} {
			m, err := s.ask(c.from, network, ask("db.shop.svc.cluster.local.", wire.TypeA), netnstest.Patience)
			if err != nil || m.Rcode != c.want || (len(m.Answer) == 1) != (c.want == wire.RcodeSuccess) {
				t.Errorf("%s by %s: %v, %v", c.who, network, m, err)
			}
		}
	}
	netnstest.Change(t, node.File, func(kernel *netlink.Handle) error {
		lo, err := kernel.LinkByName(device)
		if err != nil {
			return err
		}
		all, err := kernel.AddrList(lo, netlink.FAMILY_V6)
		for _, a := range all {
			if a.IP.Equal(Address6().AsSlice()) && a.Flags&unix.IFA_F_DEPRECATED == 0 {
				t.Error("what the node sends may come from its address for names")
			}
		}
		return err
	})
	stop()
	if err := Remove(node.File); err != nil || s.has(Address()) || s.has(Address6()) {
		t.Errorf("addresses are left: %v", err)
	}
	node.Sysctl("ipv6/conf/lo/disable_ipv6", "1")
	if err := Remove(node.File); err != nil {
		t.Error(err)
	}
}
