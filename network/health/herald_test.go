package health

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var comparable = cmp.Options{cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()}

// podOf is one of version and UID n, whose address ends with that too.
func podOf(n byte) Pod {
	return Pod{Version: uint64(n), UID: [16]byte{15: n}, Address: netip.AddrFrom4([4]byte{10, 42, 0, n})}
}

func recentOf(after, upTo uint64, pods ...byte) Recent {
	r := Recent{After: after, UpTo: upTo}
	for _, n := range pods {
		r.Pods = append(r.Pods, podOf(n))
	}
	return r
}

func TestHerald(t *testing.T) {
	six := Pod{UID: [16]byte{1, 15: 2}, Address: netip.MustParseAddr("fd00::9")}
	r := Recent{After: 5, UpTo: 0x0102030405060708, Pods: []Pod{{UID: podOf(7).UID, Address: podOf(7).Address}, six}}
	want := []byte("pelg\x01\x04\x00\x00\x01\x02\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x01\x02\x03\x04\x05\x06\x07\x08" +
		"\x00\x00\x00\x00\x00\x00\x00\x05" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x0a\x2a\x00\x07" +
		"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09")
	id := session{1, 2, 3, 15: 16}
	if got := herald(id, r); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x: peers of this version understand nothing else", got, want)
	}
	to, got, err := heed(want)
	if d := cmp.Diff(r, got, comparable); err != nil || to != id || d != "" {
		t.Errorf("for %v, %v (-want +got):\n%s", to, err, d)
	}
	for _, c := range []struct {
		reason string
		b      []byte
		want   error
	}{
		{"part of the head", want[:headSize-1], errSize},
		{"part of a pod", want[:len(want)-1], errSize},
		{"more pods than fit", append(bytes.Clone(want[:headSize]), make([]byte, (maxHeralded+1)*entrySize)...), errSize},
		{"another program's", append([]byte("P"), want[1:]...), errMagic},
		{"a number", append([]byte("pelg\x01\x03"), want[6:]...), errKind},
		{"later than up to where", append(append(bytes.Clone(want[:size-8]), 0, 0, 0, 0, 0, 0, 0, 4), want[size:headSize]...), errOrder},
	} {
		if _, _, err := heed(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.reason, err, c.want)
		}
	}
	if _, err := decode(want[:size]); !errors.Is(err, errKind) {
		t.Errorf("the head alone is understood: %v", err)
	}
}

// FuzzHeed holds that what is understood has one encoding, and is no question.
func FuzzHeed(f *testing.F) {
	f.Add(herald(session{1}, recentOf(1, 9, 3, 9)))
	f.Add(herald(session{}, Recent{}))
	f.Add(herald(session{2}, Recent{UpTo: 1 << 63, Pods: []Pod{{Address: netip.MustParseAddr("fd00::1")}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, what := NewResponder(ResponderOptions{}).answer(time.Now(), b, netip.MustParseAddrPort("10.0.0.1:1")); what == answered && len(b) != size {
			t.Fatal("it is answered")
		}
		to, r, err := heed(b)
		if err != nil {
			return
		}
		if again := herald(to, r); !bytes.Equal(again, b) {
			t.Fatalf("% x is read as % x", b, again)
		}
		if r.After > r.UpTo || len(r.Pods) > maxHeralded {
			t.Fatalf("%+v", r)
		}
	})
}

// TestParts is in which datagrams what is recent goes: each goes on where the one before ended, and no
// pod is in two.
func TestParts(t *testing.T) {
	var many []byte
	for n := range byte(50) {
		many = append(many, n+1)
	}
	both := recentOf(0, 60, many[:23]...)
	both.Pods = append(both.Pods, Pod{24, [16]byte{24}, netip.MustParseAddr("10.0.0.1")}, Pod{24, [16]byte{24}, netip.MustParseAddr("fd00::1")})
	for _, c := range []struct {
		reason string
		r      Recent
		since  uint64
		want   [][3]uint64 // after, up to, how many
	}{
		{"nothing but that it goes on", recentOf(3, 9), 0, [][3]uint64{{3, 9, 0}}},
		{"it ends there", recentOf(3, 9, 7), 9, nil},
		{"of some nothing is told", recentOf(30, 30), 9, [][3]uint64{{30, 30, 0}}},
		{"one datagram", recentOf(0, 9, 4, 7), 0, [][3]uint64{{0, 9, 2}}},
		{"what is new", recentOf(0, 9, 4, 7), 4, [][3]uint64{{4, 9, 1}}},
		{"nothing is new", recentOf(0, 9, 4, 7), 7, [][3]uint64{{7, 9, 0}}},
		{"what is in between is not known", recentOf(5, 9, 7), 2, [][3]uint64{{5, 9, 1}}},
		{"many", recentOf(0, 60, many...), 0, [][3]uint64{{0, 24, 24}, {24, 48, 24}, {48, 60, 2}}},
		{"both addresses of a pod", both, 0, [][3]uint64{{0, 23, 23}, {23, 60, 2}}},
	} {
		var got [][3]uint64
		for _, p := range c.r.parts(c.since) {
			got = append(got, [3]uint64{p.After, p.UpTo, uint64(len(p.Pods))})
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

// heard is what a Prober was told of pods.
type heard struct {
	mu  sync.Mutex
	all []Recent
}

func (h *heard) take(r Recent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, r)
}

func (h *heard) read() (all []Recent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, h.all = h.all, nil
	return all
}

// unversioned is something recent as it is without what does not travel.
func unversioned(all ...Recent) (same []Recent) {
	for _, r := range all {
		pods := r.Pods
		r.Pods = nil
		for _, p := range pods {
			r.Pods = append(r.Pods, Pod{UID: p.UID, Address: p.Address})
		}
		same = append(same, r)
	}
	return same
}

// TestHeralded holds that who asks is told of pods with its first answers, of new ones at once and with two
// answers more, and of nothing where nothing changes.
func TestHeralded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rome, milan := newLink(10 * ms)
		r := NewResponder(ResponderOptions{Conn: milan, From: []netip.Prefix{netip.PrefixFrom(romeAt.Addr(), 128)}})
		r.Tell(7, Recent{})
		run(t, r.Run)
		var n notes
		var h heard
		run(t, NewProber(ProberOptions{Conn: rome, Peer: milanAt, Told: n.told, Heralded: h.take}).Run)
		want := func(what string, least, most int, want ...Recent) {
			t.Helper()
			all := h.read()
			if len(all) < least || len(all) > most {
				t.Errorf("%s: told %d times, want %d to %d: %v", what, len(all), least, most, all)
				return
			}
			rest := all
			for _, w := range unversioned(want...) {
				i := slices.IndexFunc(rest, func(r Recent) bool { return cmp.Equal(w, r, comparable) })
				if i < 0 {
					t.Errorf("%s: told %v, and not, in its turn, %v", what, all, w)
					return
				}
				rest = rest[i+1:]
			}
		}
		l.probes(t, minute)
		want("there are none", heraldedAgain, heraldedAgain, recentOf(0, 7), recentOf(0, 7))
		l.probes(t, minute)
		want("it stays so", 0, 0)

		for _, step := range []struct {
			number uint64
			pods   []byte
		}{{9, []byte{8, 9}}, {12, []byte{8, 9, 12}}, {13, []byte{8, 9, 12}}} { // at last another pod changed, of no use
			h.mu.Lock()
			before, at := len(h.all), time.Now()
			h.mu.Unlock()
			r.Tell(step.number, recentOf(0, 0, step.pods...))
			until(t, "it is told", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.all) > before })
			if took := time.Since(at); took > 11*ms {
				t.Errorf("it took %s", took)
			}
			r.Tell(step.number, recentOf(0, 0, step.pods...)) // the same
		}
		l.probes(t, minute)
		want("two, a third, and another that is none", 3+heraldedAgain, 4+heraldedAgain, // an answer may come in between
			recentOf(7, 9, 8, 9), recentOf(9, 12, 12), recentOf(12, 13), recentOf(7, 13, 8, 9, 12))

		l.cut()
		r.Tell(20, recentOf(8, 0, 9, 12, 20))
		l.probes(t, 1)
		l.heal()
		l.probes(t, minute)
		want("the first was lost", 1, heraldedAgain, recentOf(13, 20, 20))

		r.Tell(30, recentOf(30, 0))
		l.probes(t, minute)
		want("of some nothing is told", 1+heraldedAgain, 1+heraldedAgain, recentOf(30, 30), recentOf(30, 30))

		r.Tell(5, recentOf(0, 0, 3, 4))
		l.probes(t, minute)
		want("versions began anew", 1+heraldedAgain, 1+heraldedAgain, recentOf(0, 5, 3, 4))

		r.meet(asker{romeAt, session{9}})
		r.Tell(6, recentOf(0, 0, 3, 4, 6))
		if synctest.Wait(); len(h.read()) != 0 {
			t.Error("another session's is taken")
		}
	})
}

// TestHeraldedIsNotFooled has others tell than who is asked.
func TestHeraldedIsNotFooled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rome, _ := newLink(0)
		var h heard
		p := NewProber(ProberOptions{Conn: rome, Peer: milanAt, Heralded: h.take})
		l.set(func(_ netip.AddrPort, b []byte) int {
			m, err := decode(b)
			if err != nil {
				t.Error(err)
			}
			rome.deliver(romeAt, herald(m.session, recentOf(0, 1, 1)))
			rome.deliver(netip.AddrPortFrom(milanAt.Addr(), 1), herald(m.session, recentOf(0, 2, 2)))
			rome.deliver(milanAt, herald(session{1}, recentOf(0, 3, 3)))
			rome.deliver(milanAt, append(herald(m.session, recentOf(0, 4, 4)), 0))
			rome.deliver(milanAt, herald(m.session, recentOf(0, 5, 5)))
			return 0
		})
		run(t, p.Run)
		l.probes(t, minute/6)
		all := h.read()
		for _, r := range all {
			if r.UpTo != 5 {
				t.Errorf("believed %+v", r)
			}
		}
		if len(all) == 0 {
			t.Error("nothing is believed")
		}
		if p.Report().Alive {
			t.Error("what is told counts as an answer")
		}
	})
}
