package offer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// fakeReader answers as it is told.
type fakeReader struct {
	mu       sync.Mutex
	answer   Resources
	err      error
	panics   bool
	hang     chan struct{} // if set, Read waits for it whatever its context says
	calls    int
	notified []func(string)
	removed  []string
}

func (f *fakeReader) Read(context.Context, Consumer) (Resources, error) {
	f.mu.Lock()
	f.calls++
	answer, err, panics, hang := f.answer, f.err, f.panics, f.hang
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if panics {
		panic("on purpose")
	}
	return answer, err
}

func (f *fakeReader) Notify(changed func(string)) { f.notified = append(f.notified, changed) }
func (f *fakeReader) Remove(id string)            { f.removed = append(f.removed, id) }

func (f *fakeReader) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func TestGuard(t *testing.T) {
	nonsense := func(change func(*Resources)) Resources { r := ample(); change(&r); return r }
	many := v1alpha1.ResourceList{}
	for i := range maxResources + 1 {
		many[string(rune('a'+i%26))+string(rune('a'+i/26))+"/x"] = list("x", "1")["x"]
	}
	for _, c := range []struct {
		reason string
		reader *fakeReader
		want   error
	}{
		{"it fails", &fakeReader{err: errors.New("no")}, nil},
		{"it panics", &fakeReader{panics: true}, errPanicked},
		{"below zero", &fakeReader{answer: nonsense(func(r *Resources) { r.Free = list(cpu, "-1") })}, errNonsense},
		{"absurd", &fakeReader{answer: nonsense(func(r *Resources) { r.Free = list(cpu, "9e18") })}, errNonsense},
		{"absurd shape", &fakeReader{answer: nonsense(func(r *Resources) { r.Shapes[0].Largest[0] = list(memory, "-5") })}, errNonsense},
		{"too much", &fakeReader{answer: nonsense(func(r *Resources) { r.Free = many })}, errNonsense},
	} {
		failures := 0
		reader := &fakeReader{answer: ample()}
		g := newGuard("test", reader, testingclock.NewFakeClock(time.Now()), func(string) { failures++ })
		bad := c.reader

		fresh := newGuard("test", bad, testingclock.NewFakeClock(time.Now()), func(string) {})
		if r, err := fresh.Read(context.Background(), Consumer{ClusterID: "x"}); !errors.Is(err, errUnknown) || len(r.Free) > 0 || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s, at first: %v, %v, want nothing known", c.reason, r.Free, err)
		}
		if r, err := g.Read(context.Background(), Consumer{ClusterID: "x"}); err != nil || r.Problem != "" {
			t.Fatalf("%s: good answer: %q, %v", c.reason, r.Problem, err)
		}
		reader.set(func() { reader.answer, reader.err, reader.panics = bad.answer, bad.err, bad.panics })
		r, err := g.Read(context.Background(), Consumer{ClusterID: "x"})
		if err != nil || r.Problem == "" || r.Again != retryUnknown || amountsOf(r.Free)[cpu] != 8000 || failures != 1 {
			t.Errorf("%s, later: %v, problem %q, again in %s, %d failures, %v, want the last good answer", c.reason, r.Free, r.Problem, r.Again, failures, err)
		}
		if _, err := g.Read(context.Background(), Consumer{ClusterID: "y"}); !errors.Is(err, errUnknown) {
			t.Errorf("%s: another consumer: %v, want nothing known", c.reason, err)
		}
		g.Remove("x")
		if _, err := g.Read(context.Background(), Consumer{ClusterID: "x"}); !errors.Is(err, errUnknown) || len(reader.removed) != 1 {
			t.Errorf("%s: after removal: %v, want nothing known", c.reason, err)
		}
	}
}

// TestGuardAtOnce: requests of one consumer that are read at the same moment all get an answer
// of now: none that was begun before they asked, and none of long ago.
func TestGuardAtOnce(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	reader := &fakeReader{answer: ample()}
	g := newGuard("test", reader, clock, func(string) { t.Error("a failure is counted") })
	read := func() chan Resources {
		answer := make(chan Resources, 1)
		go func() {
			r, err := g.Read(context.Background(), Consumer{ClusterID: "x"})
			if err != nil || r.Problem != "" || r.Again != 0 {
				t.Errorf("%v, problem %q, again in %s", err, r.Problem, r.Again)
			}
			answer <- r
		}()
		return answer
	}
	<-read()
	hang := make(chan struct{})
	reader.set(func() { reader.hang = hang })
	first := read()
	eventually(t, "the reader is asked", func() bool { return clock.Waiters() == 1 })
	reader.set(func() { reader.answer.Free = list(cpu, "3") })
	second, third := read(), read()
	eventually(t, "two more wait", func() bool { return clock.Waiters() == 3 })
	close(hang)
	<-first
	for _, answer := range []chan Resources{second, third} {
		if got := amountsOf((<-answer).Free)[cpu]; got != 3000 {
			t.Errorf("%d is free for who asked later, want 3000", got)
		}
	}
	if reader.calls > 4 {
		t.Errorf("%d calls", reader.calls)
	}
}

// A reader that hangs costs its limit once, then nothing until it is back.
func TestGuardSlow(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	reader := &fakeReader{answer: ample(), hang: make(chan struct{})}
	g := newGuard("test", reader, clock, func(string) {})
	first := make(chan error, 1)
	go func() { _, err := g.Read(context.Background(), Consumer{}); first <- err }()
	eventually(t, "the reader is asked", func() bool { return clock.HasWaiters() })
	clock.Step(readLimit)
	if err := <-first; !errors.Is(err, errSlow) {
		t.Errorf("a slow reader: %v, want %v", err, errSlow)
	}
	for range 10 {
		if _, err := g.Read(context.Background(), Consumer{}); !errors.Is(err, errSlow) {
			t.Errorf("while it hangs: %v, want %v", err, errSlow)
		}
	}
	reader.mu.Lock()
	calls := reader.calls
	reader.mu.Unlock()
	if calls != 1 {
		t.Errorf("%d calls of a reader that hangs, want 1", calls)
	}
	close(reader.hang)
	eventually(t, "the reader is back", func() bool {
		r, err := g.Read(context.Background(), Consumer{})
		return err == nil && r.Problem == ""
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline.C:
			t.Fatalf("not so within a minute: %s", what)
		case <-tick.C:
		}
	}
}
