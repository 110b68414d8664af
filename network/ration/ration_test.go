package ration

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// worker works whenever it is asked to, and counts why.
type worker struct {
	rations Rations
	now     time.Time
	due     map[string]time.Time
	worked  map[string]int
}

// change asks for work because of a change.
func (w *worker) change(name string) {
	if wait, ask := w.rations.ask(name, w.now); ask {
		w.due[name] = w.now.Add(wait)
	}
}

// step does what is due, and lets time pass.
func (w *worker) step(d time.Duration) {
	begun := false
	for name, due := range w.due {
		if !due.After(w.now) {
			begun = true
			w.worked[name]++
			delete(w.due, name)
		}
	}
	if begun {
		w.rations.Begin(w.now)
	}
	w.now = w.now.Add(d)
}

func newWorker() *worker {
	return &worker{now: noon, due: map[string]time.Time{}, worked: map[string]int{}}
}

// TestFlood: who changes all the time causes a burst and then one a second; each change is
// known within a second; and others are served at once.
func TestFlood(t *testing.T) {
	w := newWorker()
	const step, seconds = 10 * time.Millisecond, 30
	for i := range seconds * 100 {
		w.change("hostile")
		if due := w.due["hostile"]; due.Sub(w.now) > Every {
			t.Fatalf("in step %d work is due after %s", i, due.Sub(w.now))
		}
		if i%500 == 0 {
			before := w.worked["quiet"]
			w.change("quiet")
			w.step(0)
			if w.worked["quiet"] != before+1 {
				t.Errorf("in step %d a quiet one waits", i)
			}
		}
		w.step(step)
	}
	if got := w.worked["hostile"]; got < seconds || got > Burst+seconds {
		t.Errorf("%d changes in %d s cause work %d times", seconds*100, seconds, got)
	}
	// When it is over all is as in the beginning, and nothing is remembered.
	w.now = w.now.Add(Burst * Every)
	w.step(0)
	w.change("quiet")
	w.step(0)
	if _, left := w.rations.of["hostile"]; left {
		t.Error("who has been quiet is remembered")
	}
	before := w.worked["hostile"]
	for range 2 * Burst {
		w.change("hostile")
		w.step(0)
	}
	if got := w.worked["hostile"] - before; got != Burst {
		t.Errorf("a burst of %d", got)
	}
}

// TestWorkOfOthers: work that others cause gives nobody a larger ration, nor takes what is due.
func TestWorkOfOthers(t *testing.T) {
	w := newWorker()
	asked := 0
	const step, seconds = 10 * time.Millisecond, 10
	for range seconds * 100 {
		if wait, ask := w.rations.ask("hostile", w.now); ask {
			asked++
			if wait > Every {
				t.Fatalf("work is due after %s", wait)
			}
		}
		w.rations.Begin(w.now)
		w.now = w.now.Add(step)
	}
	if asked < seconds || asked > Burst+seconds+1 {
		t.Errorf("asked %d times in %d s", asked, seconds)
	}
}

// TestTogether: changes before work has begun cause it once.
func TestTogether(t *testing.T) {
	var r Rations
	for i := range 100 {
		if wait, ask := r.ask("a", noon); ask != (i == 0) || wait != 0 {
			t.Fatalf("change %d: %s, %t", i, wait, ask)
		}
	}
	r.Begin(noon)
	if _, ask := r.ask("a", noon); !ask {
		t.Error("a change after work began is not asked for")
	}
	r.Begin(noon.Add(-time.Hour)) // the clock went back
	if _, ask := r.ask("a", noon.Add(-time.Hour)); !ask {
		t.Error("after the clock went back nothing is asked for")
	}
}
