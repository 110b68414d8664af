package offer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/api/wire"
)

// inUse is ample with two pods of the consumer, for two requests.
func inUse() Resources {
	r := ample()
	r.Used = map[string]v1alpha1.ResourceList{"a": list(cpu, "1", memory, "10", pods, "1"), "b": list(cpu, "500m", memory, "10", pods, "1")}
	return r
}

func TestAllow(t *testing.T) {
	began := time.Now()
	later := began.Add(time.Hour)
	broken := errors.New("it is broken")
	everything := amounts{cpu: 0, memory: 0, pods: 0, "example.com/gpu": 0}
	for _, c := range []struct {
		reason   string
		granted  granted
		now      time.Time
		free     amounts // nil: nothing is known
		said     string  // of the condition
		withheld string
		again    time.Duration
		problem  bool
	}{
		{
			reason:  "a total less what is used, and not more than is free",
			granted: granted{total: amounts{cpu: 4000, memory: 1000, pods: 12, "example.com/gpu": 0}, at: later}, now: later,
			free: amounts{cpu: 2500, memory: 50, pods: 10, "example.com/gpu": 0}, said: "True/Bounded", again: readEvery,
		},
		{
			reason:  "pods need not be named, what else is not named is not offered",
			granted: granted{total: amounts{cpu: 4000, memory: 40}, at: later}, now: later,
			free: amounts{cpu: 2500, memory: 20, pods: 100, "example.com/gpu": 0}, said: "True/Ready", again: readEvery,
		},
		{
			reason:  "less than is used takes nothing away and offers nothing",
			granted: granted{total: amounts{cpu: 1000, memory: 1, pods: 1}, at: later}, now: later,
			free: everything, said: "True/Ready", withheld: v1alpha1.ReasonFiltered, again: readEvery,
		},
		{
			reason:  "an empty answer is one",
			granted: granted{total: amounts{}, at: later}, now: later,
			free: amounts{cpu: 0, memory: 0, pods: 100, "example.com/gpu": 0}, said: "True/Ready", withheld: v1alpha1.ReasonFiltered, again: readEvery,
		},
		{
			reason:  "resources that are not there are said, and not offered",
			granted: granted{total: amounts{cpu: 4000, memory: 40, "example.com/moon": 1}, at: later}, now: later,
			free: amounts{cpu: 2500, memory: 20, pods: 100, "example.com/gpu": 0}, said: "True/Bounded", again: readEvery,
		},
		{
			reason:  "the last good answer holds, less what is used now",
			granted: granted{total: amounts{cpu: 4000, memory: 40}, at: later, wrong: broken}, now: later.Add(holdLimit - time.Second),
			free: amounts{cpu: 2500, memory: 20, pods: 100, "example.com/gpu": 0}, said: "False/LastAnswer", again: time.Second, problem: true,
		},
		{
			reason:  "not for longer than stated",
			granted: granted{total: amounts{cpu: 4000, memory: 40}, at: later, wrong: broken}, now: later.Add(holdLimit),
			free: everything, said: "False/OnlyUsed", again: readAgain, problem: true,
		},
		{
			reason:  "without any answer nothing is offered beyond what is used",
			granted: granted{wrong: broken}, now: began.Add(startLimit),
			free: everything, said: "False/OnlyUsed", again: readAgain, problem: true,
		},
		{reason: "but at first it may be starting", granted: granted{wrong: broken}, now: began.Add(startLimit - 1)},
		{
			reason:  "one that has answered is not starting any more",
			granted: granted{total: amounts{cpu: 4000, memory: 40}, at: began.Add(-time.Hour), wrong: broken}, now: began,
			free: everything, said: "False/OnlyUsed", again: readAgain, problem: true,
		},
	} {
		got, err := c.granted.allow(inUse(), c.now, began)
		if c.free == nil {
			if !errors.Is(err, errUnknown) || len(got.Free) > 0 {
				t.Errorf("%s: %v, %v", c.reason, got.Free, err)
			}
			continue
		}
		if diff := cmp.Diff(c.free, amountsOf(got.Free)); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", c.reason, err, diff)
		}
		if diff := cmp.Diff(inUse().Used, got.Used); diff != "" {
			t.Errorf("%s: what is used changed\n%s", c.reason, diff)
		}
		if said := string(got.External.Status) + "/" + got.External.Reason; said != c.said || got.Withheld != c.withheld || got.Again != c.again || (got.Problem != "") != c.problem {
			t.Errorf("%s: %s, withheld %q, again in %s, problem %q", c.reason, said, got.Withheld, got.Again, got.Problem)
		}
		if strings.Contains(got.Problem, "broken") || c.problem && !strings.Contains(got.External.Message, "broken") {
			t.Errorf("%s: the owner hears %q, the consumer %q", c.reason, got.External.Message, got.Problem)
		}
		for _, l := range largestOf(got) {
			if l[cpu] > c.free[cpu] || l[memory] > c.free[memory] {
				t.Errorf("%s: the largest pod is %v", c.reason, l)
			}
		}
	}
}

// saying is a program that says as it is told, in this process.
type saying struct {
	answer  map[string]string
	hangs   string // for this consumer, or "all"
	err     error
	calls   int
	last    *wire.ReadResourcesRequest
	removed []string
}

func (s *saying) ReadResources(ctx context.Context, r *wire.ReadResourcesRequest) (*wire.ReadResourcesResponse, error) {
	s.calls, s.last = s.calls+1, r
	if s.hangs == "all" || s.hangs != "" && s.hangs == r.GetCluster().GetId() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &wire.ReadResourcesResponse{Resources: s.answer}, s.err
}
func (s *saying) Notify(func(string)) {}
func (s *saying) Remove(id string)    { s.removed = append(s.removed, id) }

func TestExternalAsks(t *testing.T) {
	now := testingclock.NewFakeClock(time.Now())
	failures := 0
	program := &saying{answer: map[string]string{"cpu": "2", "memory": "30"}}
	e := newExternal(&fakeReader{answer: inUse()}, program, now, func(string) { failures++ })
	rome := Consumer{ClusterID: "id-1", Tenant: "rome", Labels: map[string]string{"plan": "small"}}
	reads := func(who Consumer, want int64, reason string) {
		t.Helper()
		r, err := e.Read(t.Context(), who)
		if err != nil || amountsOf(r.Free)[cpu] != want || r.External.Reason != reason {
			t.Errorf("%v: %v, %+v, want %d and %s", err, r.Free, r.External, want, reason)
		}
	}
	reads(rome, 500, v1alpha1.ReasonReady)
	if diff := cmp.Diff(map[string]string{cpu: "1500m", memory: "20", pods: "2"}, program.last.GetUsed()); diff != "" {
		t.Errorf("used (-want +got)\n%s", diff)
	}
	if c := program.last.GetCluster(); c.GetId() != "id-1" || c.GetTenant() != "rome" || c.GetLabels()["plan"] != "small" || program.last.GetFree()[cpu] != "8" {
		t.Errorf("asked %v", program.last)
	}
	now.Step(startLimit)
	program.err = errors.New("no")
	reads(rome, 500, v1alpha1.ReasonLastAnswer)
	reads(Consumer{ClusterID: "id-2"}, 0, v1alpha1.ReasonOnlyUsed)
	program.err, program.answer = nil, map[string]string{"cpu": "-1"}
	reads(rome, 500, v1alpha1.ReasonLastAnswer)
	calls := program.calls
	program.hangs = "all"
	for range 5 {
		reads(rome, 500, v1alpha1.ReasonLastAnswer)
	}
	if program.calls != calls+1 || failures != 8 {
		t.Errorf("a slow program was asked %d times, want once; %d failures, want 8", program.calls-calls, failures)
	}
	now.Step(readAgain)
	program.hangs, program.answer = "", map[string]string{"cpu": "3", "memory": "30"}
	reads(rome, 1500, v1alpha1.ReasonReady)
	e.Remove("id-1")
	program.err = errors.New("no")
	reads(rome, 0, v1alpha1.ReasonOnlyUsed)
	if len(program.removed) != 1 {
		t.Errorf("removed %v", program.removed)
	}
}

// TestExternalHangsForOne holds that nobody else waits for a consumer for whom a program
// hangs, and that a program which hangs for all is asked no more than a few times on end.
func TestExternalHangsForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &saying{answer: map[string]string{"cpu": "2", "memory": "30"}, hangs: "id-0"}
		now := testingclock.NewFakeClock(time.Now())
		e := newExternal(&fakeReader{answer: inUse()}, program, now, func(string) {})
		reason := func(i int) string {
			t.Helper()
			r, err := e.Read(t.Context(), Consumer{ClusterID: fmt.Sprint("id-", i)})
			if errors.Is(err, errUnknown) {
				return ""
			}
			if err != nil {
				t.Fatal(err)
			}
			return r.External.Reason
		}
		for range 2 * maxSilent { // longer than all would rest, if this one counted more than once
			reason(0)
			if got := reason(1); got != v1alpha1.ReasonReady {
				t.Fatalf("one waits for another: %q", got)
			}
			now.Step(readAgain)
		}
		for i := range maxSilent { // nor does it if it is the only one that asks
			if i > 0 {
				now.Step(readAgain)
			}
			reason(0)
		}
		if got := reason(1); got != v1alpha1.ReasonReady {
			t.Fatalf("one waits for another that asks again and again: %q", got)
		}
		calls := program.calls
		program.hangs = "all"
		for i := range 100 {
			reason(i)
		}
		if asked := program.calls - calls; asked != maxSilent && asked != maxSilent+1 { // id-0 may rest still
			t.Errorf("a program that hangs was asked %d times on end", asked)
		}
		now.Step(readAgain)
		calls = program.calls
		for i := range 100 {
			reason(i)
		}
		if asked := program.calls - calls; asked != 1 {
			t.Errorf("then %d times, want once", asked)
		}
		program.hangs = ""
		now.Step(readAgain)
		for i := range 100 {
			if got := reason(i); got != v1alpha1.ReasonReady {
				t.Errorf("it has healed, and number %d hears %q", i, got)
			}
		}
		if len(e.rests) > 0 || len(e.silent) > 0 {
			t.Errorf("%d and %d are remembered for nothing", len(e.rests), len(e.silent))
		}
	})
}

// Whatever a program answers, what is offered is not below zero, not above what is
// free, and the amounts can be stored.
func FuzzExternal(f *testing.F) {
	for _, seed := range [][2]string{{"4", "8Gi"}, {"-1", "1"}, {"9e18", "1E"}, {"", "x"}} {
		f.Add(seed[0], seed[1], "example.com/gpu", true)
	}
	f.Fuzz(func(t *testing.T, a, b, name string, failing bool) {
		program := &saying{answer: map[string]string{cpu: a, memory: b, name: b}}
		now := testingclock.NewFakeClock(time.Now())
		e := newExternal(&fakeReader{answer: inUse()}, program, now, func(string) {})
		for range 2 {
			r, err := e.Read(context.Background(), Consumer{ClusterID: "x"})
			if err != nil && !errors.Is(err, errUnknown) {
				t.Fatal(err)
			}
			bound := amountsOf(ample().Free)
			for name, v := range amountsOf(r.Free) {
				if most, there := bound[name]; v < 0 || !there || v > most {
					t.Errorf("%d of %s offered, of %v", v, name, bound)
				}
			}
			if err == nil && (sane(r) != nil || r.External.Status == metav1.ConditionFalse && r.Problem == "") {
				t.Errorf("%v: %+v", sane(r), r.External)
			}
			if now.Step(time.Minute); failing {
				program.err = errors.New("no")
			}
		}
	})
}
