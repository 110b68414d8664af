package offer

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/api/meta"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/api/wire"
	"github.com/pelago-dev/pelago/peering/reader"
)

// owner is a resource reader on a socket, as an owner might run it.
type owner struct {
	wire.UnimplementedResourceReaderServer
	t      *testing.T
	path   string
	answer atomic.Pointer[map[string]string]
	hang   atomic.Bool
	asked  atomic.Int64
	server *grpc.Server
}

func (o *owner) ReadResources(ctx context.Context, _ *wire.ReadResourcesRequest) (*wire.ReadResourcesResponse, error) {
	o.asked.Add(1)
	if o.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &wire.ReadResourcesResponse{Resources: *o.answer.Load()}, nil
}

// says changes the answer.
func (o *owner) says(pairs ...string) {
	answer := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		answer[pairs[i]] = pairs[i+1]
	}
	o.answer.Store(&answer)
}

// starts and crashes are what its process does.
func (o *owner) starts() {
	o.t.Helper()
	listener, err := net.Listen("unix", o.path)
	if err != nil {
		o.t.Fatal(err)
	}
	o.server = grpc.NewServer()
	wire.RegisterResourceReaderServer(o.server, o)
	go func() { _ = o.server.Serve(listener) }()
}

func (o *owner) crashes() { o.server.Stop() }

// newOwned is a world whose provider has a resource reader of its own, which is absent.
func newOwned(t *testing.T) (*world, *owner) {
	t.Helper()
	w := newWorld(t)
	o := &owner{t: t, path: filepath.Join(t.TempDir(), "s")}
	o.says()
	t.Cleanup(func() {
		if o.server != nil {
			o.server.Stop()
		}
	})
	c, err := reader.New(reader.Options{Address: "unix://" + o.path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	w.provider.reader = newExternal(w.provider.reader, c, w.clock, w.provider.metrics.failed)
	return w, o
}

// said is the condition of the external reader, like "False/OnlyUsed".
func (w *world) said() (string, string) {
	w.t.Helper()
	tenant := &v1alpha1.Tenant{}
	if err := w.client.Get(ctx, client.ObjectKey{Name: w.name}, tenant); err != nil {
		w.t.Fatal(err)
	}
	c := meta.FindStatusCondition(tenant.Status.Conditions, v1alpha1.ConditionReaderAnswering)
	if c == nil {
		return "absent", ""
	}
	return string(c.Status) + "/" + c.Reason, c.Message
}

// becomes lets a while pass, and the provider work, until the condition and the offered
// thousandths of CPUs are as wanted.
func (w *world) becomes(reason, want string, milli int64) {
	w.t.Helper()
	var said string
	var got int64
	eventually(w.t, reason, func() bool {
		w.clock.Step(readAgain)
		w.provide("default")
		said, _ = w.said()
		if o := w.offer(w.there("default")); o != nil {
			got = amountsOf(o.Spec.Resources)[cpu]
		}
		return said == want && got == milli
	})
}

// heard are the reasons of the events about the tenant.
func (w *world) heard(reason string) int {
	n := 0
	for len(w.recorded.Events) > 0 {
		if strings.Contains(<-w.recorded.Events, reason) {
			n++
		}
	}
	return n
}

// A resource reader that is absent, starts, crashes, comes back, hangs, lies, and heals.
func TestOwnersReader(t *testing.T) {
	w, o := newOwned(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	w.settle("default")
	w.expect("absent at first", w.there("default"), offered, "False/Waiting")
	w.clock.Step(startLimit)
	w.settle("default")
	w.expect("absent for long", w.there("default"), offered, "False/NothingFree")
	if said, message := w.said(); said != "False/OnlyUsed" || !strings.Contains(message, "cannot be reached") {
		t.Errorf("absent: %s, %q", said, message)
	}
	if c := meta.FindStatusCondition(w.request(w.there("default")).Status.Conditions, offered); !strings.Contains(c.Message, "resource reader") {
		t.Errorf("the consumer is told %q", c.Message)
	}
	o.says(cpu, "3", memory, "40")
	o.starts()
	w.becomes("it has started", "True/Ready", 3000)
	w.settle("default")
	w.expect("it has started", w.here("default"), isTaken, yesTaken, ready, "True/Ready")

	fails := func(how string, begin func(), wants string) {
		t.Helper()
		begin()
		// On a busy machine its second may be over before it is known how it fails.
		eventually(t, how+", with what it said last and words of "+wants, func() bool {
			w.clock.Step(readAgain)
			w.provide("default")
			said, message := w.said()
			got := amountsOf(w.offer(w.there("default")).Spec.Resources)[cpu]
			return got == 3000 && said == "False/LastAnswer" && strings.Contains(message, wants)
		})
	}
	forLong := func(how string) {
		t.Helper()
		w.clock.Step(holdLimit)
		w.provide("default")
		w.consume("default")
		if got := amountsOf(w.offer(w.there("default")).Spec.Resources); got[cpu] != 0 || got[memory] != 0 {
			t.Errorf("%s for long: %v offered", how, got)
		}
		if said, _ := w.said(); said != "False/OnlyUsed" {
			t.Errorf("%s for long: %s", how, said)
		}
		w.expect(how, w.here("default"), isTaken, yesTaken, ready, "False/NothingFree")
		if n := w.heard("resource reader fails"); n < 2 {
			t.Errorf("%s: %d events, want one for each change", how, n)
		}
	}
	fails("crashed", o.crashes, "cannot be reached")
	forLong("crashed")
	o.starts()
	w.becomes("it is back", "True/Ready", 3000)
	fails("hanging", func() { o.hang.Store(true) }, "does not answer within a second")
	forLong("hanging")
	o.hang.Store(false)
	w.becomes("it is awake", "True/Ready", 3000)
	for _, lie := range [][]string{{cpu, "-1"}, {cpu, "many"}, {cpu, "9e18"}, {"a b", "1"}, {memory, strings.Repeat("9", wire.MaxAnswerBytes)}} {
		fails("lying of "+lie[0], func() { o.says(lie...) }, "")
		o.says(cpu, "3", memory, "40")
		w.becomes("it is honest again", "True/Ready", 3000)
	}
	o.says(cpu, "1000000", memory, "1Pi", "example.com/moon", "1")
	w.becomes("it grants more than there is", "True/Bounded", 8000)
	if _, message := w.said(); !strings.HasSuffix(message, "cpu, example.com/moon, memory") {
		t.Errorf("more than there is: %q", message)
	}
}

// TestOwnersReaderHangsForAll holds that many who ask a program at once, which answers none
// of them, are no answer to each other: nobody asks it for a while then.
func TestOwnersReaderHangsForAll(t *testing.T) {
	o := &owner{t: t, path: filepath.Join(t.TempDir(), "s")}
	o.says(cpu, "2", memory, "30")
	o.starts()
	t.Cleanup(func() { o.server.Stop() })
	c, err := reader.New(reader.Options{Address: "unix://" + o.path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	now := testingclock.NewFakeClock(time.Now())
	e := newExternal(&fakeReader{answer: inUse()}, c, now, func(string) {})
	reads := func(i int) (reason string) {
		r, err := e.Read(t.Context(), Consumer{ClusterID: fmt.Sprint("id-", i)})
		if err != nil || r.External == nil {
			return fmt.Sprint(err)
		}
		return r.External.Reason
	}
	const crowd = 2 * maxSilent
	for i := range crowd {
		if got := reads(i); got != v1alpha1.ReasonReady {
			t.Fatal(got)
		}
	}
	o.hang.Store(true)
	for wave := range 2 { // those of the second are asked in no rest of their own
		var all sync.WaitGroup
		for i := range crowd {
			all.Go(func() {
				if got := reads(i); got != v1alpha1.ReasonLastAnswer {
					t.Errorf("it hangs, wave %d: %s", wave, got)
				}
			})
		}
		all.Wait()
		asked := o.asked.Load()
		for i := range 100 {
			reads(crowd + i)
		}
		if n := o.asked.Load() - asked; n > 0 {
			t.Errorf("a program that answers nobody is asked %d times more", n)
		}
		now.Step(readAgain)
	}
	o.hang.Store(false)
	if got := reads(0); got != v1alpha1.ReasonReady {
		t.Errorf("it has healed: %s", got)
	}
}

// What is there and works is written once; without a reader of its own nothing is said.
func TestOwnersReaderIsQuiet(t *testing.T) {
	w, o := newOwned(t)
	o.says(cpu, "3", memory, "40")
	o.starts()
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	w.settle("default")
	w.becomes("it works", "True/Ready", 3000)
	w.settle("default")
	before, writes := w.versions(), w.writes
	w.clock.Step(readEvery)
	if res := w.provide("default"); res.RequeueAfter <= 0 || res.RequeueAfter > readEvery {
		t.Errorf("asked again in %s, want %s", res.RequeueAfter, readEvery)
	}
	if w.writes != writes || len(before) == 0 {
		t.Errorf("%d writes where nothing changed", w.writes-writes)
	}
	w.provider.reader = w.provider.reader.(*external).inner
	w.clock.Step(time.Minute)
	w.settle("default")
	if said, _ := w.said(); said != "absent" {
		t.Errorf("after the reader was taken away: %s", said)
	}
	if got := amountsOf(w.offer(w.there("default")).Spec.Resources)[cpu]; got != 8000 {
		t.Errorf("after the reader was taken away: %d offered", got)
	}
}
