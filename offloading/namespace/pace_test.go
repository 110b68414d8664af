package namespace

import (
	"fmt"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestPace(t *testing.T) {
	var p pace
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	write := func(reason string, want time.Duration) {
		t.Helper()
		wait := p.wait("milan", now)
		if wait != want {
			t.Errorf("%s: waits %s, want %s", reason, wait, want)
		}
		now = now.Add(wait)
		p.note("milan", now)
	}
	for range writeBurst {
		write("a few at once", 0)
	}
	for range 20 {
		write("then one after the other", writeEvery)
	}
	if wait := p.wait("oslo", now); wait != 0 {
		t.Errorf("another one waits %s", wait)
	}
	now = now.Add(2 * writeEvery)
	write("after a while", 0)
	write("after a while, the second", 0)
	write("and no third", writeEvery)
	now = now.Add(-time.Hour)
	write("the clock was set back", 0)
	now = now.Add(time.Hour)
	for range writeBurst {
		write("silence does not add up", 0)
	}
	write("to more than a burst", writeEvery)
	p.forget("milan")
	write("forgotten", 0)
}

// TestRation: what home asks for is answered without waiting, however much it asks for; a provider that changes its
// mind waits.
func TestRation(t *testing.T) {
	r, now := newRation(), time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	asked := map[string]v1alpha1.NamespaceMapping{"old": {}}
	r.asks("milan", asked)
	write := func() time.Duration {
		wait := r.wait("milan", now)
		now = now.Add(wait)
		r.note("milan", now)
		return wait
	}
	for i := range 200 {
		asked[fmt.Sprint(i)] = v1alpha1.NamespaceMapping{}
		r.asks("milan", asked)
		for range answersEarned {
			if wait := write(); wait != 0 {
				t.Fatalf("namespace %d is answered %s late", i, wait)
			}
		}
		now = now.Add(100 * time.Millisecond)
	}
	r.asks("milan", asked)
	for range answerBurst { // what is left of the burst
		write()
	}
	if wait := write(); wait != answerEvery {
		t.Errorf("one that changes its mind waits %s", wait)
	}
	asked["old"] = v1alpha1.NamespaceMapping{RemoteName: "new"}
	r.asks("milan", asked)
	for i := range answersEarned {
		if wait := write(); wait != 0 {
			t.Errorf("what home asks for in another way is answered %s late, write %d", wait, i)
		}
	}
	delete(asked, "old")
	if r.asks("milan", asked); write() != 0 {
		t.Error("what home does not ask for any more is answered late")
	}
	r.forget("milan")
	for i := range answerBurst {
		if r.asks("milan", asked); write() != 0 {
			t.Fatalf("forgotten, and write %d waits", i)
		}
	}
	if r.asks("milan", asked); write() != answerEvery {
		t.Error("who is met again earns by what was asked before")
	}
}
