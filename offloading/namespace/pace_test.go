package namespace

import (
	"testing"
	"time"
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
