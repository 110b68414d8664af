package fleet

import (
	"strings"
	"testing"
)

// TestRelist holds that objects that have changed may be kept in place of what they were, as far as
// there is memory for both meanwhile.
func TestRelist(t *testing.T) {
	const pods = 1000
	for reason, c := range map[string]struct {
		most, others float64 // of what the pods weigh
		beyond       bool
		more, kept   int
	}{
		"most of the budget":               {1.3, 0, true, 200, pods + 200},
		"where nothing may be left out":    {1.3, 0, false, 200, pods + 200},
		"more than its part, none is free": {1.2, 0.3, true, 0, pods},
		"more than there is":               {1.3, 0, true, 500, pods * 13 / 10},
		"too much at once":                 {1.1, 0.9, true, 0, pods * 3 / 10},
	} {
		t.Run(reason, func(t *testing.T) {
			b := &budget{most: 1 << 30}
			s, m := crowdedAt(t, b.join(), pods)
			m.bounds.Beyond = c.beyond
			if err := s.list(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			heavy := b.kept
			b.most = int(float64(heavy) * c.most)
			b.join().keep(object("x"), int(float64(heavy)*c.others), false)
			for round := range 2 {
				pages := crowdOf(pods + c.more)
				for i := range pages {
					pages[i] = strings.ReplaceAll(pages[i], `"resourceVersion":"`, `"resourceVersion":"`+strings.Repeat("9", round+1))
				}
				s.stream.Transport = pages
				m.forget()
				err := s.list(t.Context(), m)
				left := m.leftOut() != nil
				if n := len(m.all()); err != nil || n < c.kept*19/20 || n > c.kept*21/20 || left != (n < pods+c.more) {
					t.Errorf("%d are kept of %d, %v is left out, %v", n, pods+c.more, m.leftOut(), err)
				}
				if want := m.kept + int(float64(heavy)*c.others); b.kept < want-9 || b.kept > want+9 {
					t.Errorf("%d bytes count, want %d", b.kept, want)
				}
				if c.others > 0 {
					break
				}
			}
		})
	}
}
