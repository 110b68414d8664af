package health

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func ask(seq uint64) []byte {
	b := message{question, session{7}, seq}.encode()
	return b[:]
}

func TestAnswer(t *testing.T) {
	from := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	said := message{answer, session{7}, 5}.encode()
	other := ask(5)
	other[4]++
	for _, c := range []struct {
		reason string
		b      []byte
		from   netip.AddrPort
		want   result
	}{
		{"a question is answered", ask(5), from("10.0.0.1:9"), answered},
		{"an IPv4 address in IPv6 is one", ask(5), from("[::ffff:10.0.0.1]:9"), answered},
		{"a link-local one has a zone", ask(5), from("[fe80::1%7]:9"), answered},
		{"somebody else's is not", ask(5), from("10.0.0.2:9"), stranger},
		{"an answer is no question, else two would answer each other for ever", said[:], from("10.0.0.1:9"), malformed},
		{"part of one", ask(5)[:size-1], from("10.0.0.1:9"), malformed},
		{"more than one", append(ask(5), 0), from("10.0.0.1:9"), malformed},
		{"another version", other, from("10.0.0.1:9"), malformed},
		{"nothing", nil, from("10.0.0.1:9"), malformed},
	} {
		r := NewResponder(ResponderOptions{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fe80::1/128")}})
		out, got := r.answer(time.Now(), c.b, c.from)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.reason, resultNames[got], resultNames[c.want])
		}
		if got == answered && cmp.Diff(said, out) != "" {
			t.Errorf("%s: answer % x", c.reason, out)
		}
	}
}

// TestAnswerLimits asks in several ways more than is answered.
func TestAnswerLimits(t *testing.T) {
	r, now := NewResponder(ResponderOptions{}), time.Now()
	good := netip.MustParseAddrPort("10.0.0.1:9")
	count := func(from netip.AddrPort, questions int) (answers int) {
		for range questions {
			if _, what := r.answer(now, ask(1), from); what == answered {
				answers++
			}
		}
		return answers
	}
	if got := count(good, 1000); got != burst {
		t.Errorf("%d answers to a thousand questions, want %d", got, burst)
	}
	if got := count(netip.AddrPortFrom(good.Addr(), 10), 1); got != 0 {
		t.Error("another port gets an answer more")
	}
	if got := count(netip.MustParseAddrPort("10.0.0.2:9"), 1); got != 1 {
		t.Error("another address pays for it")
	}
	for range 10 {
		now = now.Add(time.Second)
		if got := count(good, 1000); got != perSecond {
			t.Errorf("%d answers in a second, want %d", got, perSecond)
		}
	}

	flood := 0
	for i := range 10_000 {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 0x0b000000+uint32(i))
		flood += count(netip.AddrPortFrom(netip.AddrFrom4(a), 9), 1)
		if i%100 == 0 { // as a Prober does
			if now = now.Add(Interval); count(good, 1) != 1 {
				t.Fatal("who asks steadily is not answered while many others ask")
			}
		}
	}
	if len(r.limits) > sources || flood == 0 || flood > 101*sources {
		t.Errorf("%d addresses are kept, %d of ten thousand were answered in 50 s", len(r.limits), flood)
	}
	if now = now.Add(time.Minute); count(netip.MustParseAddrPort("10.9.9.9:9"), 1) != 1 {
		t.Error("the quiet ones do not make room")
	}
}

func TestNothingIsAllocated(t *testing.T) {
	r, from, now := NewResponder(ResponderOptions{}), milanAt, time.Now()
	b := ask(1)
	if got := testing.AllocsPerRun(1000, func() {
		now = now.Add(Interval)
		if _, what := r.answer(now, b, from); what != answered {
			t.Fatal("it is not answered")
		}
	}); got != 0 {
		t.Errorf("%v allocations for a question", got)
	}
	if got := testing.AllocsPerRun(1000, func() { _, _ = decode(b[:size-1]) }); got != 0 {
		t.Errorf("%v allocations for what is no probe", got)
	}
	var s State
	var seq uint64
	if got := testing.AllocsPerRun(1000, func() {
		now = now.Add(Interval)
		seq++
		s.Sent(now, seq)
		s.Heard(now, seq)
		s.Heard(now, seq+1)
	}); got != 0 {
		t.Errorf("%v allocations for a probe", got)
	}
}
