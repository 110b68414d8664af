package dns

import "testing"

func TestSlots(t *testing.T) {
	s := newSlots(2, 3)
	for i, c := range []struct {
		tenant string
		want   bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"b", false}, {"c", false}} {
		if got := s.take(c.tenant); got != c.want {
			t.Errorf("%d: %s gets a slot: %v", i, c.tenant, got)
		}
	}
	s.give("a")
	if !s.take("c") || s.take("a") {
		t.Error("what was given back is not free, or more")
	}
	for _, tenant := range []string{"a", "b", "c"} {
		s.give(tenant)
	}
	if s.total != 0 || len(s.of) != 0 {
		t.Errorf("it remembers %d, of %v", s.total, s.of)
	}
}
