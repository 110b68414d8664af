package dns

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/pelago-dev/pelago/network/netns"
)

// clusterDNS is a real server of the library, over UDP and TCP at one port.
type clusterDNS struct {
	at    string
	asked atomic.Int32
}

// serveDNS starts one in a namespace, which answers with what handle makes.
func serveDNS(t *testing.T, ns *os.File, at string, handle func(network string, question *wire.Msg) *wire.Msg) *clusterDNS {
	t.Helper()
	s := &clusterDNS{}
	var udp net.PacketConn
	var tcp net.Listener
	if err := netns.In(ns, func() (err error) {
		if tcp, err = net.Listen("tcp", at); err != nil {
			return err
		}
		udp, err = net.ListenPacket("udp", tcp.Addr().String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.at = tcp.Addr().String()
	handler := wire.HandlerFunc(func(w wire.ResponseWriter, question *wire.Msg) {
		s.asked.Add(1)
		if answer := handle(w.LocalAddr().Network(), question); answer != nil {
			_ = w.WriteMsg(answer)
		}
	})
	for _, server := range []*wire.Server{{PacketConn: udp, Handler: handler}, {Listener: tcp, Handler: handler}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		ended := make(chan error, 1)
		go func() { ended <- server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			_ = server.Shutdown()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	return s
}

func newTestUpstream(t *testing.T, servers ...string) *upstream {
	t.Helper()
	u, err := newUpstream(nil, servers, Address())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestExchange(t *testing.T) {
	zone := append(many(300), "www.example.org. 60 IN A 192.0.2.1")
	good := serveDNS(t, nil, "127.0.0.1:0", func(network string, question *wire.Msg) *wire.Msg {
		m := answerBy(t, zone, question)
		if network == "udp" {
			m.Truncate(wire.MinMsgSize)
		}
		return m
	})
	broken := serveDNS(t, nil, "127.0.0.1:0", func(_ string, question *wire.Msg) *wire.Msg {
		m := &wire.Msg{}
		return m.SetRcode(question, wire.RcodeServerFailure)
	})
	var deaf atomic.Bool // to the first of two
	lossy := serveDNS(t, nil, "127.0.0.1:0", func(_ string, question *wire.Msg) *wire.Msg {
		if deaf.CompareAndSwap(true, false) {
			return nil
		}
		return answerBy(t, zone, question)
	})
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for _, c := range []struct {
		reason  string
		servers []string
		deaf    bool
		name    string
		answers int
		code    int
		fails   bool
		least   time.Duration
	}{
		{reason: "an answer", servers: []string{good.at, broken.at}, name: "www.example.org.", answers: 1},
		{reason: "a long one, by TCP", servers: []string{good.at}, name: "many.shop-rome.svc.cluster.local.", answers: 300},
		{reason: "the second server, if the first is out of order", servers: []string{broken.at, good.at}, name: "www.example.org.", answers: 1},
		{reason: "the second, if nobody is at the first", servers: []string{closed.LocalAddr().String(), good.at}, name: "www.example.org.", answers: 1},
		{reason: "what the last one says, if all are out of order", servers: []string{broken.at, closed.LocalAddr().String()}, name: "www.example.org.", code: wire.RcodeServerFailure},
		{reason: "nobody", servers: []string{closed.LocalAddr().String()}, name: "www.example.org.", fails: true},
		{reason: "a single server is asked again", servers: []string{lossy.at}, deaf: true, name: "www.example.org.", answers: 1, least: patience},
	} {
		deaf.Store(c.deaf)
		ctx, cancel := context.WithTimeout(context.Background(), allPatience)
		begun := time.Now()
		m, err := newTestUpstream(t, c.servers...).exchange(ctx, ask(c.name, wire.TypeA))
		cancel()
		switch {
		case c.fails != (err != nil):
			t.Errorf("%s: %v", c.reason, err)
		case err == nil && (len(m.Answer) != c.answers || m.Rcode != c.code):
			t.Errorf("%s: %s", c.reason, m)
		case time.Since(begun) < c.least:
			t.Errorf("%s: it waited %s", c.reason, time.Since(begun))
		}
	}
}

// TestExchangeEnds holds that servers that say nothing are waited for no longer than the context. A busy machine may
// be late once or twice.
func TestExchangeEnds(t *testing.T) {
	ends := func() time.Duration {
		ctx, cancel := context.WithCancel(context.Background())
		silent := serveDNS(t, nil, "127.0.0.1:0", func(string, *wire.Msg) *wire.Msg {
			cancel()
			return nil
		})
		begun := time.Now()
		m, err := newTestUpstream(t, silent.at).exchange(ctx, ask("a.", wire.TypeA))
		took := time.Since(begun)
		if asked := silent.asked.Load(); err == nil || took < patience && asked != 1 {
			t.Errorf("%v, asked %d times", m, asked)
		}
		return took
	}
	const most = 3
	for try := 1; ends() >= patience; try++ {
		if try == most {
			t.Fatalf("it did not end with the context, %d times", most)
		}
	}
}

// TestLies holds that only the answer counts, not what somebody sends before it.
func TestLies(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	go func() {
		b := make([]byte, 512)
		n, from, err := conn.ReadFrom(b)
		if err != nil {
			return
		}
		question := &wire.Msg{}
		_ = question.Unpack(b[:n])
		for _, change := range []func(*wire.Msg){
			func(m *wire.Msg) { m.Id++ },
			func(m *wire.Msg) { m.Response = false },
			func(m *wire.Msg) { m.Question[0].Name = "evil.example.org." },
			func(m *wire.Msg) { m.Question[0].Qtype = wire.TypeAAAA },
			func(m *wire.Msg) { m.Question = nil },
			nil,
		} {
			m := (&wire.Msg{}).SetReply(question)
			if m.Answer = records(t, []string{"www.example.org. 60 IN A 203.0.113.66"}); change == nil {
				m.Answer = records(t, []string{"www.example.org. 60 IN A 192.0.2.1"})
			} else {
				change(m)
			}
			packet, _ := m.Pack()
			_, _ = conn.WriteTo(packet, from)
			_, _ = conn.WriteTo([]byte("nonsense"), from)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), allPatience)
	defer cancel()
	m, err := newTestUpstream(t, conn.LocalAddr().String()).exchange(ctx, ask("www.example.org.", wire.TypeA))
	if err != nil || len(m.Answer) != 1 || !strings.Contains(m.Answer[0].String(), "192.0.2.1") {
		t.Errorf("%v: %v", err, m)
	}
}

func TestNewUpstream(t *testing.T) {
	u := newTestUpstream(t, "10.96.0.10", Address().String(), "[fd96::a]:5353", "10.96.0.10", "10.96.0.11", "10.96.0.12")
	want := []netip.AddrPort{netip.MustParseAddrPort("10.96.0.10:53"), netip.MustParseAddrPort("[fd96::a]:5353"), netip.MustParseAddrPort("10.96.0.11:53")}
	if len(u.servers) != len(want) || u.servers[0] != want[0] || u.servers[1] != want[1] || u.servers[2] != want[2] {
		t.Errorf("it asks %v", u.servers)
	}
	for _, texts := range [][]string{nil, {Address().String()}, {"dns.example.org"}} {
		if _, err := newUpstream(nil, texts, Address()); err == nil {
			t.Errorf("%q will do", texts)
		}
	}
}

func TestReadResolver(t *testing.T) {
	servers, domain, err := ReadResolver(strings.NewReader(`# a pod's
nameserver 10.96.0.10
nameserver fd96::a
search pelago-network.svc.Milan.example svc.Milan.example. Milan.example office.example
options ndots:5
nameserver
`))
	if err != nil || strings.Join(servers, " ") != "10.96.0.10 fd96::a" || domain != "Milan.example" {
		t.Errorf("%v, %q, %v", servers, domain, err)
	}
	if _, domain, _ := ReadResolver(strings.NewReader("search office.example\n")); domain != "" {
		t.Errorf("the domain is %q", domain)
	}
	if _, _, err := ReadResolver(strings.NewReader(strings.Repeat("x", 1<<17))); err == nil {
		t.Error("a line without end will do")
	}
	head, last := "nameserver 10.96.0.10\n", "nameserver 10.96.0.11"
	long := head + strings.Repeat("#\n", (maxResolver-len(head)-len(last))/2) + last // a part of it ends in another address
	if servers, _, err := ReadResolver(strings.NewReader(long + "2\n")); err == nil || !strings.Contains(err.Error(), "at most 65536 bytes") {
		t.Errorf("of a file that is too long the servers are %v: %v", servers, err)
	}
	if servers, _, err := ReadResolver(strings.NewReader(long)); err != nil || len(servers) != 2 {
		t.Errorf("of one that is as long as it may be the servers are %v: %v", servers, err)
	}
}
