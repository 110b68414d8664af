package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	wire "github.com/miekg/dns"
)

// world is a cluster's DNS without a network: it answers by zone, and keeps what it was asked.
type world struct {
	t     testing.TB
	zone  []string
	err   error
	asked []*wire.Msg
}

func (w *world) exchange(_ context.Context, question *wire.Msg) (*wire.Msg, error) {
	w.asked = append(w.asked, question)
	if w.err != nil {
		return nil, w.err
	}
	return answerBy(w.t, w.zone, question), nil
}

// answerBy makes the answer to a question out of records, as the DNS of a cluster does.
func answerBy(t testing.TB, zone []string, question *wire.Msg) *wire.Msg {
	m := &wire.Msg{}
	m.SetReply(question)
	there := false
	for _, rr := range records(t, zone) {
		if strings.EqualFold(rr.Header().Name, m.Question[0].Name) {
			if there = true; rr.Header().Rrtype == m.Question[0].Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
	}
	if _, ours := below(m.Question[0].Name, "cluster.local."); ours && len(m.Answer) == 0 {
		m.Ns = records(t, []string{hereSOA})
	}
	if !there {
		m.Rcode = wire.RcodeNameError
	}
	return m
}

// ask makes a question.
func ask(name string, kind uint16, change ...func(*wire.Msg)) *wire.Msg {
	m := &wire.Msg{}
	m.SetQuestion(name, kind)
	m.Id = 4711
	for _, f := range change {
		f(m)
	}
	return m
}

func edns(size uint16, do bool) func(*wire.Msg) { return func(m *wire.Msg) { m.SetEdns0(size, do) } }

func packed(t testing.TB, m *wire.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unpacked(t testing.TB, b []byte) *wire.Msg {
	t.Helper()
	m := &wire.Msg{}
	if err := m.Unpack(b); err != nil {
		t.Fatalf("the answer %x: %v", b, err)
	}
	return m
}

func known() (Client, bool) { return rome, true }

// many is a name with so many addresses.
func many(n int) (zone []string) {
	for i := range n {
		zone = append(zone, fmt.Sprintf("many.shop-rome.svc.cluster.local. 5 IN A 10.42.%d.%d", i/250, i%250))
	}
	return zone
}

func TestRespond(t *testing.T) {
	zone := append(many(300), "db.shop-rome.svc.cluster.local. 5 IN A 10.96.0.7", "www.example.org. 60 IN A 192.0.2.1")
	for _, c := range []struct {
		reason   string
		question *wire.Msg
		packet   func([]byte) []byte
		stream   bool
		strange  bool
		err      error
		what     result
		code     int
		answers  int
		asked    string
		check    func(*wire.Msg) bool
	}{
		{reason: "home's name", question: ask("Db.shop.svc.cluster.local.", wire.TypeA), what: renamed, answers: 1, asked: "Db.shop-rome.svc.cluster.local.",
			check: func(m *wire.Msg) bool {
				return m.Question[0].Name == "Db.shop.svc.cluster.local." && m.IsEdns0() == nil
			}},
		{reason: "a name of the world", question: ask("WWW.example.org.", wire.TypeA, edns(4096, true)), what: forwarded, answers: 1, asked: "WWW.example.org.",
			check: func(m *wire.Msg) bool { return m.IsEdns0() != nil && m.IsEdns0().Do() && m.IsEdns0().Version() == 0 }},
		{reason: "no such namespace", question: ask("db.bank.svc.cluster.local.", wire.TypeA), what: unknown, code: wire.RcodeNameError,
			check: func(m *wire.Msg) bool { return cmp.Equal(lines(m.Ns), []string{homeSOA}) && m.Authoritative }},
		{reason: "a namespace is no Service", question: ask("shop.svc.cluster.local.", wire.TypeA), what: unknown,
			check: func(m *wire.Msg) bool { return cmp.Equal(lines(m.Ns), []string{homeSOA}) }},
		{reason: "a stranger", question: ask("www.example.org.", wire.TypeA), strange: true, what: stranger, code: wire.RcodeRefused},
		{reason: "ANY", question: ask("www.example.org.", wire.TypeANY), what: refused, code: wire.RcodeRefused},
		{reason: "a transfer over TCP", question: ask("cluster.local.", wire.TypeAXFR), stream: true, what: refused, code: wire.RcodeRefused},
		{reason: "chaos", question: ask("version.bind.", wire.TypeTXT, func(m *wire.Msg) { m.Question[0].Qclass = wire.ClassCHAOS }), what: refused, code: wire.RcodeRefused},
		{reason: "two questions", question: ask("a.", wire.TypeA, func(m *wire.Msg) { m.Question = append(m.Question, m.Question[0]) }), what: malformed, code: wire.RcodeFormatError},
		{reason: "none", question: ask("a.", wire.TypeA, func(m *wire.Msg) { m.Question = nil }), what: malformed, code: wire.RcodeFormatError},
		{reason: "a question that holds an answer", question: ask("a.", wire.TypeA, func(m *wire.Msg) { m.Answer = records(t, zone[:1]) }), what: malformed, code: wire.RcodeFormatError},
		{reason: "half a question", question: ask("a.", wire.TypeA), packet: func(b []byte) []byte { return b[:14] }, what: malformed, code: wire.RcodeFormatError},
		{reason: "an update", question: ask("a.", wire.TypeA, func(m *wire.Msg) { m.Opcode = wire.OpcodeUpdate }), what: malformed, code: wire.RcodeNotImplemented},
		{reason: "a later EDNS", question: ask("www.example.org.", wire.TypeA, edns(4096, false), func(m *wire.Msg) { m.IsEdns0().SetVersion(1) }), what: malformed, code: wire.RcodeBadVers},
		{reason: "nobody answers", question: ask("db.shop.svc.cluster.local.", wire.TypeA), err: errors.New("late"), what: failed, code: wire.RcodeServerFailure, asked: "db.shop-rome.svc.cluster.local."},
		{reason: "too much for a datagram", question: ask("many.shop.svc.cluster.local.", wire.TypeA), what: renamed, answers: 29, asked: "many.shop-rome.svc.cluster.local.",
			check: func(m *wire.Msg) bool { return m.Truncated }},
		{reason: "too much for a larger one", question: ask("many.shop.svc.cluster.local.", wire.TypeA, edns(65535, false)), what: renamed, answers: 73, asked: "many.shop-rome.svc.cluster.local.",
			check: func(m *wire.Msg) bool { return m.Truncated }},
		{reason: "not too much for TCP", question: ask("many.shop.svc.cluster.local.", wire.TypeA), stream: true, what: renamed, answers: 300, asked: "many.shop-rome.svc.cluster.local.",
			check: func(m *wire.Msg) bool { return !m.Truncated }},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := &world{t: t, zone: zone, err: c.err}
			r := responder{exchange: w.exchange, clients: func() (Client, bool) { return rome, !c.strange }}
			packet := packed(t, c.question)
			if c.packet != nil {
				packet = c.packet(packet)
			}
			b, what := r.respond(context.Background(), packet, !c.stream)
			if what != c.what {
				t.Errorf("it is %s, want %s", resultNames[what], resultNames[c.what])
			}
			m := unpacked(t, b)
			if m.Rcode != c.code || len(m.Answer) != c.answers || m.Id != 4711 || !m.Response || !m.RecursionDesired || !m.RecursionAvailable {
				t.Errorf("%d answers instead of %d, or another code than %d: %s", len(m.Answer), c.answers, c.code, m)
			}
			if !c.stream && len(b) > maxDatagram {
				t.Errorf("a datagram of %d bytes", len(b))
			}
			if c.check != nil && !c.check(m) {
				t.Errorf("that is not it: %s", m)
			}
			asked := ""
			if len(w.asked) > 0 {
				asked = w.asked[0].Question[0].Name
			}
			if asked != c.asked {
				t.Errorf("the cluster's DNS is asked for %q, want %q", asked, c.asked)
			}
		})
	}
}

// TestRespondToNothing holds that an answer is not answered, nor what is too short.
func TestRespondToNothing(t *testing.T) {
	r := responder{clients: known, exchange: (&world{t: t}).exchange}
	answer := packed(t, ask("www.example.org.", wire.TypeA, func(m *wire.Msg) { m.Response = true }))
	for _, packet := range [][]byte{nil, make([]byte, headerSize-1), answer} {
		if b, what := r.respond(context.Background(), packet, true); b != nil || what != malformed {
			t.Errorf("%x is answered with %x", packet, b)
		}
	}
}

// TestAskedAnew holds that of a client's packet nothing gets to the cluster's DNS but the question.
func TestAskedAnew(t *testing.T) {
	for name, wantDo := range map[string]bool{"www.example.org.": true, "db.shop.svc.cluster.local.": false} {
		w := &world{t: t}
		question := ask(name, wire.TypeA, edns(512, true), func(m *wire.Msg) {
			m.IsEdns0().Option = append(m.IsEdns0().Option, &wire.EDNS0_SUBNET{Code: wire.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: netip.MustParseAddr("203.0.113.1").AsSlice()})
			m.Extra = append(m.Extra, record(t, "x. 1 IN TXT y"))
			m.CheckingDisabled, m.AuthenticatedData, m.Zero = true, true, true
		})
		responder{clients: known, exchange: w.exchange}.respond(context.Background(), packed(t, question), true)
		if len(w.asked) != 1 {
			t.Fatalf("%s: asked %d times", name, len(w.asked))
		}
		got := w.asked[0]
		opt := got.IsEdns0()
		if opt == nil || len(opt.Option) != 0 || opt.Do() != wantDo || opt.UDPSize() != maxDatagram || len(got.Extra) != 1 {
			t.Errorf("%s: with it goes %v", name, got.Extra)
		}
		if !got.CheckingDisabled || !got.RecursionDesired || got.AuthenticatedData || got.Zero || got.Id == 4711 && wire.Id() == 4711 {
			t.Errorf("%s: the header is %v", name, got.MsgHdr)
		}
	}
}

// TestNewcomer holds that a pod which asks before Kubernetes knows its address is answered when it does, and that who stays
// unknown is told so.
func TestNewcomer(t *testing.T) {
	question := packed(t, ask("db.shop.svc.cluster.local.", wire.TypeA))
	for _, c := range []struct {
		reason  string
		unknown int // looks
		want    result
	}{{"known", 0, renamed}, {"known a moment later", 3, renamed}, {"never known", 1 << 30, stranger}} {
		looks := 0
		r := responder{newcomer: 20 * newcomerLook, exchange: (&world{t: t, zone: []string{"db.shop-rome.svc.cluster.local. 5 IN A 10.42.0.9"}}).exchange, clients: func() (Client, bool) {
			looks++
			return rome, looks > c.unknown
		}}
		if b, what := r.respond(t.Context(), question, true); b == nil || what != c.want {
			t.Errorf("%s: %v", c.reason, what)
		}
	}
}

// TestNewcomerAtTheEnd holds that who is unknown still when the server ends is told nothing, so that it asks the next one.
func TestNewcomerAtTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := responder{newcomer: time.Hour, clients: func() (Client, bool) { return rome, false }}
	if b, _ := r.respond(ctx, packed(t, ask("db.shop.svc.cluster.local.", wire.TypeA)), true); b != nil {
		t.Error("it is answered")
	}
}
