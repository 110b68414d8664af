package verify

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/config"
)

// span is when a check ran, on the clock of a synctest bubble.
type span struct{ begin, end time.Duration }

// timed runs a list whose checks last as long as their limit says and returns
// when each ran. Those named in broken fail.
func timed(t *testing.T, list []check, broken ...string) (map[string]span, []Result) {
	t.Helper()
	spans := map[string]span{}
	var results []Result
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		start := time.Now()
		results = runner{parallel: 2, one: func(_ context.Context, c check) Result {
			begin := time.Since(start)
			<-time.After(c.limit) // on the bubble's clock
			mu.Lock()
			defer mu.Unlock()
			spans[c.name] = span{begin, time.Since(start)}
			r := Result{Name: c.name}
			if slices.Contains(broken, c.name) {
				r.Err = errors.New("broken")
			}
			return r
		}}.run(t.Context(), list)
	})
	return spans, results
}

var stages = []check{
	{name: "ground", stage: ground, limit: 1},
	{name: "back", stage: background, limit: 10},
	{name: "a", stage: independent, limit: 3},
	{name: "b", stage: independent, limit: 4},
	{name: "c", stage: independent, limit: 2},
	{name: "fault 1", stage: disruptive, limit: 5},
	{name: "fault 2", stage: disruptive, limit: 5},
	{name: "end", stage: final, limit: 1},
}

func TestRunnerFollowsTheStages(t *testing.T) {
	got, results := timed(t, stages)
	want := map[string]span{
		"ground": {0, 1}, "back": {1, 11}, "a": {1, 4}, "b": {1, 5}, "c": {4, 6}, // two at a time beside the background
		"fault 1": {11, 16}, "fault 2": {16, 21}, "end": {21, 22}, // each alone
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(span{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i, r := range results {
		if r.Name != stages[i].name {
			t.Errorf("result %d is of %s, want the order of the list", i, r.Name)
		}
	}
}

func TestRunnerStopsWithoutGround(t *testing.T) {
	got, results := timed(t, stages, "ground")
	if d := cmp.Diff(map[string]span{"ground": {0, 1}, "end": {1, 2}}, got, cmp.AllowUnexported(span{})); d != "" {
		t.Errorf("only the first and the clean-up are worth a try (-want +got):\n%s", d)
	}
	for _, r := range results[1 : len(results)-1] {
		if !errors.Is(r.Err, errNotTried) {
			t.Errorf("%s: %v, want it to have failed untried", r.Name, r.Err)
		}
	}
}

func TestRunnerGoesOnAfterAFailure(t *testing.T) {
	got, _ := timed(t, stages, "a", "back", "fault 1")
	if len(got) != len(stages) {
		t.Errorf("%d of %d checks were made", len(got), len(stages))
	}
}

func TestRunnerReportsOneAtATime(t *testing.T) {
	var inside, most, calls int
	runner{
		parallel: 3,
		one:      func(_ context.Context, c check) Result { return Result{Name: c.name} },
		report:   func(Result) { inside++; most = max(most, inside); calls++; inside-- }, // -race sees two at once
	}.run(t.Context(), stages)
	if calls != len(stages) || most != 1 {
		t.Errorf("%d reports, %d at once", calls, most)
	}
}

func TestListIsSound(t *testing.T) {
	list := checks()
	names, slugs := map[string]bool{}, map[string]bool{}
	for i, c := range list {
		if names[c.name] || slugs[c.slug] {
			t.Errorf("%s: its name or slug is taken", c.name)
		}
		names[c.name], slugs[c.slug] = true, true
		if i > 0 && c.stage < list[i-1].stage {
			t.Errorf("%s: comes after a later stage", c.name)
		}
		if c.limit <= 0 || c.run == nil {
			t.Errorf("%s: has no limit or nothing to run", c.name)
		}
		for other := range slugs {
			if other != c.slug && strings.HasPrefix(c.slug, other+"-") {
				t.Errorf("%s: its events cannot be told from those of %s", c.slug, other)
			}
		}
	}
	if list[0].stage != ground || list[len(list)-1].stage != final {
		t.Error("the list must begin with the ground and end with the clean-up")
	}
}

func TestMissing(t *testing.T) {
	node := func(context.Context, string) error { return nil }
	api := func(context.Context) error { return nil }
	full := Target{Nodes: []string{"a", "b"}, Addons: map[string]bool{config.AddonDNS: true}, StopNode: node, StartNode: node, PauseAPI: api, ResumeAPI: api}
	for _, c := range []struct {
		reason string
		needs  need
		target Target
		want   string
	}{
		{"nothing needed of nothing", need{}, Target{}, ""},
		{"an add-on that is there", need{addon: config.AddonDNS}, full, ""},
		{"an add-on that is not", need{addon: config.AddonMetrics}, full, "the cluster has no metrics-server"},
		{"enough nodes and the hold on them", need{nodes: 2, stop: true}, full, ""},
		{"too few nodes", need{nodes: 3}, full, "the cluster has fewer than 3 nodes"},
		{"no hold on nodes", need{stop: true}, Target{StopNode: node}, "its nodes cannot be stopped from here"},
		{"no hold on the API server", need{pause: true}, Target{PauseAPI: api}, "its API server cannot be paused from here"},
	} {
		if got := c.needs.missing(c.target); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

func TestUntil(t *testing.T) {
	for _, c := range []struct {
		reason  string
		tries   int // that object, before one that does not
		want    string
		elapsed time.Duration
	}{
		{"no objection returns at once", 0, "", 0},
		{"objections are tried again", 3, "", 900 * time.Millisecond},
		{"the deadline tells the last objection", 1000, "waiting for tea: context deadline exceeded; last: cold", 3100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3100*time.Millisecond)
			defer cancel()
			start, tries := time.Now(), 0
			err := until(ctx, "tea", func(context.Context) error {
				if tries++; tries > c.tries {
					return nil
				}
				return errors.New("cold")
			})
			if got := text(err); got != c.want {
				t.Errorf("%s: %q, want %q", c.reason, got, c.want)
			}
			if d := time.Since(start); d != c.elapsed {
				t.Errorf("%s: took %s, want %s", c.reason, d, c.elapsed)
			}
		})
	}
}

func TestUntilGivesEachTryItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		err := until(t.Context(), "tea", func(ctx context.Context) error {
			if tries++; tries == 1 {
				<-ctx.Done() // a request into a dead connection
				return ctx.Err()
			}
			return nil
		})
		if err != nil || tries != 2 {
			t.Errorf("%d tries, %v: one that hangs must not take the time of all", tries, err)
		}
	})
}

func TestUntilRemembersWhatWasWrongBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tries := 0
		err := until(ctx, "tea", func(ctx context.Context) error {
			if tries++; tries == 1 {
				return errors.New("cold")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if want := "waiting for tea: context deadline exceeded; last: cold"; text(err) != want {
			t.Errorf("%q, want %q", text(err), want)
		}
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
