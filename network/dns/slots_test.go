package dns

import (
	"net/netip"
	"testing"
)

func TestSlots(t *testing.T) {
	s := newSlots(4, 2, 7)
	tenant := func(name string) asker { return asker{tenant: name, at: netip.MustParseAddr("10.42.1.9")} }
	stranger := func(at string) asker { return asker{at: netip.MustParseAddr(at)} }
	a, b, c := tenant("a"), tenant("b"), tenant("c")
	one, two, three := stranger("10.42.1.1"), stranger("10.42.1.2"), stranger("10.42.1.3")
	for i, c := range []struct {
		who  asker
		want bool
	}{
		{one, true}, {one, true}, {one, false}, {two, true}, {two, true}, {three, false}, // their share together
		{a, true}, {a, true}, {b, true}, {b, false}, {c, false},
	} {
		if got := s.take(c.who); got != c.want {
			t.Errorf("%d: %v gets a slot: %v", i, c.who, got)
		}
	}
	s.give(two)
	if s.take(one) || !s.take(three) || s.take(two) {
		t.Error("what an address gave back is not free, or more")
	}
	s.give(a)
	if !s.take(c) || s.take(a) {
		t.Error("what was given back is not free, or more")
	}
	for _, who := range []asker{a, b, c, one, one, two, three} {
		s.give(who)
	}
	if s.total != 0 || len(s.of) != 0 || len(s.from) != 0 {
		t.Errorf("it remembers %d, of %v and %v", s.total, s.of, s.from)
	}
}
