package kubetest

import (
	"fmt"
	"slices"
	"testing"
)

// watcher notes what a test says instead of failing.
type watcher struct {
	testing.TB
	failed int
	logged string
}

func (w *watcher) Helper()                           {}
func (w *watcher) Errorf(string, ...any)             { w.failed++ }
func (w *watcher) Logf(format string, values ...any) { w.logged = fmt.Sprintf(format, values...) }

func TestCrashPoints(t *testing.T) {
	cases := []struct {
		reason        string
		all           string
		writes, lives int // lives: the point from which it does not die
		want          []int
		fails         bool
		log           string
	}{
		{"every third", "", 7, 7, []int{0, 3, 6, 9}, false, "died at 3 of 7 writes"},
		{"all", "1", 5, 5, []int{0, 1, 2, 3, 4, 5}, false, "died at 5 of 5 writes"},
		{"the end is a point of the sample", "0", 6, 6, []int{0, 3, 6}, false, "died at 2 of 6 writes"},
		{"less than a third", "", 10, 3, []int{0, 3}, true, "died at 1 of 10 writes"},
		{"not all of all", "1", 10, 9, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, true, "died at 9 of 10 writes"},
		{"nobody writes", "", 0, 0, []int{0}, true, "died at 0 of 0 writes"},
	}
	for _, c := range cases {
		t.Setenv(envAll, c.all)
		var got []int
		w := &watcher{TB: t}
		CrashPoints(w, func(after int) (int, bool) {
			got = append(got, after)
			return c.writes, after < c.lives
		})
		if !slices.Equal(got, c.want) || w.failed > 0 != c.fails || w.logged != c.log {
			t.Errorf("%s: died after %v, %d failures, said %q; want %v, %t, %q", c.reason, got, w.failed, w.logged, c.want, c.fails, c.log)
		}
	}
	w := &watcher{TB: t}
	CrashPoints(w, func(after int) (int, bool) { return after, true })
	if w.failed != 1 {
		t.Error("writes without end pass")
	}
}
