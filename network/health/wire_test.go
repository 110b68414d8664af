package health

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"
)

func TestWire(t *testing.T) {
	m := message{question, session{1, 2, 3, 15: 16}, 0x0102030405060708}
	want := []byte("pelg\x01\x01\x00\x00\x01\x02\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x01\x02\x03\x04\x05\x06\x07\x08")
	if got := m.encode(); !bytes.Equal(got[:], want) {
		t.Errorf("% x, want % x: peers of this version understand nothing else", got, want)
	}
	if got, err := decode(want); err != nil || got != m {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range []struct {
		reason string
		at     int
		to     byte
		want   error
	}{
		{"another program's", 0, 'P', errMagic},
		{"another version's", 4, 2, errVersion},
		{"no kind", 5, 0, errKind},
		{"another kind", 5, 4, errKind},
		{"what is reserved is zero", 6, 1, errMagic},
		{"all of it", 7, 1, errMagic},
	} {
		b := bytes.Clone(want)
		b[c.at] = c.to
		if _, err := decode(b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.reason, err, c.want)
		}
	}
	want[5] = 3
	if got, err := decode(want); err != nil || got != (message{told, m.session, m.seq}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, n := range []int{0, 4, size - 1, size + 1} {
		if _, err := decode(make([]byte, n)); !errors.Is(err, errSize) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// FuzzDecode holds that what is understood has one encoding, and that an answer is as
// large as its question and is none that would be answered, as nothing is that is told.
func FuzzDecode(f *testing.F) {
	q := message{question, session{1}, 1}.encode()
	a := message{answer, session{0xff}, 1 << 63}.encode()
	f.Add(q[:])
	f.Add(a[:])
	n := message{told, session{1, 15: 9}, 12345}.encode()
	f.Add(n[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		r := NewResponder(ResponderOptions{})
		out, what := r.answer(time.Now(), b, netip.MustParseAddrPort("10.0.0.1:1"))
		if err != nil {
			if m != (message{}) || what != malformed {
				t.Fatalf("%v, and yet %v, %s", err, m, resultNames[what])
			}
			return
		}
		if again := m.encode(); !bytes.Equal(again[:], b) {
			t.Fatalf("% x is read as % x", b, again)
		}
		if (m.kind == question) != (what == answered) {
			t.Fatalf("%v: %s", m, resultNames[what])
		}
		if what != answered {
			return
		}
		if back, err := decode(out[:]); err != nil || back.kind != answer || back.session != m.session || back.seq != m.seq || len(out) > len(b) {
			t.Fatalf("%v is answered by % x, %v", m, out, err)
		}
		if _, what := r.answer(time.Now(), out[:], netip.MustParseAddrPort("10.0.0.1:1")); what != malformed {
			t.Fatal("an answer is answered")
		}
	})
}

// FuzzState tells a State anything and holds what is always true.
func FuzzState(f *testing.F) {
	f.Add([]byte("\x00\x32\x40\x01\x00\x32\x80\x40\x00\x64\xc0\xff"))
	f.Add(bytes.Repeat([]byte{0, 50, 64, 0}, 200))
	f.Add(append(bytes.Repeat([]byte{0, 50}, 50), bytes.Repeat([]byte{0, 50, 64, 0}, 20)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s State
		now := time.Unix(1e9, 0)
		var seq uint64
		unheard := 0
		before := s.At(now)
		for ; len(b) >= 2; b = b[2:] {
			by := time.Duration(b[1]) * 10 * ms
			heard := false
			switch b[0] >> 6 {
			case 0:
				now = now.Add(by)
				seq++
				s.Sent(now, seq)
				unheard++
			case 1: // of late
				_, heard = s.Heard(now, seq-uint64(b[1]%8))
			case 2: // anything
				_, heard = s.Heard(now, uint64(b[1])<<(b[0]&63))
			case 3:
				now = now.Add(by * time.Duration(int8(b[0]<<2)))
			}
			r := s.At(now)
			if heard {
				unheard = 0
			}
			switch {
			case r.Loss < 0 || r.Loss > 1 || r.Latency.P50 < 0 || r.Latency.Last < 0 || r.Latency.Jitter < 0:
				t.Fatalf("impossible: %+v", r)
			case r.Alive && !r.Known, r.Alive && r.Heard.IsZero(), before.Known && !r.Known:
				t.Fatalf("out of nothing: %+v, then %+v", before, r)
			case r.Alive && !before.Alive && !heard:
				t.Fatalf("alive without an answer: %+v, then %+v", before, r)
			case !r.Alive && before.Alive && unheard < deadAfter:
				t.Fatalf("dead after %d probes without an answer: %+v, then %+v", unheard, before, r)
			}
			if wait, ok := s.Next(now); ok && wait < 0 {
				t.Fatalf("the next change is in %v", wait)
			}
			before = r
		}
	})
}
