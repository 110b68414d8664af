package torture

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPlanFollowsFromSeed holds that a seed is one plan, of which a longer storm has more.
func TestPlanFollowsFromSeed(t *testing.T) {
	short, long := Plan(7, 3*time.Minute), Plan(7, 10*time.Minute)
	if diff := cmp.Diff(short, Plan(7, 3*time.Minute)); diff != "" {
		t.Errorf("the same seed makes another plan:\n%s", diff)
	}
	if diff := cmp.Diff(short, long[:len(short)]); diff != "" {
		t.Errorf("a longer plan begins otherwise:\n%s", diff)
	}
	if cmp.Diff(short, Plan(8, 3*time.Minute)) == "" {
		t.Error("another seed makes the same plan")
	}
}

// TestPlanHasEverything holds that an hour has every verb, and the default three minutes
// have most of them.
func TestPlanHasEverything(t *testing.T) {
	count := func(steps []Step) map[Verb]int {
		seen := map[Verb]int{}
		for _, s := range steps {
			seen[s.Verb]++
		}
		return seen
	}
	hour, minutes := count(Plan(7, time.Hour)), count(Plan(7, 3*time.Minute))
	for verb := range shapes {
		if hour[verb] < 5 {
			t.Errorf("an hour has %d times %s", hour[verb], verb)
		}
	}
	t.Logf("three minutes of seed 7: %v", minutes)
	struck := map[string]bool{}
	for _, s := range Plan(7, 3*time.Minute-late) {
		if s.Verb == Strike {
			struck[s.Name()] = true
		}
	}
	if len(struck) < len(Components) {
		t.Errorf("three minutes of seed 7 strike only %v", struck)
	}
	if len(minutes) < len(shapes)-1 {
		t.Errorf("three minutes of seed 7 have only %v", minutes)
	}
}

// TestPlanParts holds that whatever the seed, an hour has an outage that lasts longer than
// home waits before it replaces pods, with time left to see what comes of it; short storms have none.
func TestPlanParts(t *testing.T) {
	for seed := range uint64(100) {
		var parted []Step
		for _, s := range Plan(seed, time.Hour) {
			if s.Verb == Cut && s.For > 6*time.Minute {
				parted = append(parted, s)
			}
		}
		if len(parted) == 0 || parted[0].At+parted[0].For > 50*time.Minute || parted[0].At < partFrom || parted[0].For > 8*time.Minute {
			t.Errorf("seed %d has the outages %v", seed, parted)
		}
	}
}

// TestPlanMakesSense holds, for many seeds, that steps are possible after those before,
// and that nothing is asked for that is documented to break a rule.
func TestPlanMakesSense(t *testing.T) {
	for seed := range uint64(50) {
		m := NewModel()
		var unoffloaded []time.Duration
		var longEnd, outageEnd, nodeEnd time.Duration
		for _, s := range Plan(seed, 30*time.Minute) {
			place, wrong := m.Places[s.Place()], ""
			switch s.Verb {
			case Deploy, Stateful, Job:
				if place.Apps[s.Name()] != nil {
					wrong = "it is there"
				}
			case Scale, Roll, Mark, Delete, Lose:
				if !m.Has(s) {
					wrong = "it is not there"
				}
			case Offload:
				if place.Offloaded {
					wrong = "it is offloaded"
				}
			case Unoffload:
				if !place.Offloaded || s.At < longEnd {
					wrong = fmt.Sprintf("offloaded is %t, and a long outage ends at %s", place.Offloaded, longEnd)
				}
				unoffloaded = append(unoffloaded, s.At)
			case Stop:
				if s.At < nodeEnd {
					wrong = "both nodes would be off"
				}
				nodeEnd = s.At + s.For
			}
			if s.Verb == Cut || s.Verb == Pause && s.Target == Provider {
				if outageEnd != 0 && s.At < outageEnd+rest {
					wrong = "the last outage was just now"
				}
				outageEnd = s.At + s.For
				if s.Long() {
					longEnd = outageEnd
					for _, at := range unoffloaded {
						if s.At < at+Leaving {
							wrong = "a namespace is coming home"
						}
					}
				}
			}
			if wrong != "" {
				t.Fatalf("seed %d: %s: %s", seed, s, wrong)
			}
			m.Apply(s)
		}
	}
}

func TestStepsAreRead(t *testing.T) {
	var text strings.Builder
	steps := Plan(3, 20*time.Minute)
	for _, s := range steps {
		text.WriteString(Done{Step: s, Took: time.Second, Note: "two\nlines # of note"}.String() + "\n\n")
	}
	read, err := ParseAll(text.String())
	if diff := cmp.Diff(steps, read); err != nil || diff != "" {
		t.Errorf("what was written is read as another plan: %v\n%s", err, diff)
	}
	for _, c := range []struct{ reason, line, want string }{
		{"too short", "1s cut", "too few"}, {"unknown", "1s jump keep/web", "no such verb"}, {"no number", "1s scale keep/web", "number is missing"},
		{"not a number", "1s scale keep/web many", "invalid syntax"}, {"no duration", "1s cut rome-milan", "how long"},
		{"not a duration", "1s cut rome-milan 3", "missing unit"}, {"no time", "soon cut rome-milan 3s", "invalid duration"}, {"more", "1s delete keep/web 3", "too many"},
	} {
		if _, err := Parse(c.line); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q gives %v, want %s", c.reason, c.line, err, c.want)
		}
	}
}

func TestProject(t *testing.T) {
	steps, err := ParseAll(`
0s offload keep
1s offload roam
2s cut rome-milan 3s
5s deploy roam/web 1
90s deploy keep/web 2
91s pause rome 2s
92s scale keep/api 3
93s lose roam/web
94s lose keep/web
95s rotate keep 4
96s scale keep/web 1`)
	if err != nil {
		t.Fatal(err)
	}
	var all History
	for _, s := range steps {
		all = append(all, Done{Step: s})
	}
	for _, c := range []struct {
		reason, app string
		want        []time.Duration
	}{
		{"what concerns the object, and faults since shortly before it", "web", []time.Duration{0, 90, 91, 94, 95, 96}},
		{"all of the place", "", []time.Duration{0, 90, 91, 92, 94, 95, 96}},
	} {
		var got []time.Duration
		for _, d := range all.Project("keep", c.app) {
			got = append(got, d.Step.At/time.Second)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", c.reason, diff)
		}
	}
}

// TestIdle holds that faults of which none worked are told, with why.
func TestIdle(t *testing.T) {
	plan, err := ParseAll(`
0s deploy keep/web 2
1s strike rome/pelago-manager
2s strike milan/pelago-agent
3s strike rome/pelago-agent
4s cut rome-milan 3s
5s lose keep/web
6s lose keep/web
59s pause rome 2s`)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reason string
		undone map[int]string // step → why
		want   string
	}{
		{"all was done", nil, ""},
		{"one of two was done", map[int]string{5: "there is none"}, ""},
		{"none of two was", map[int]string{5: "gone", 6: "there is none"}, "lose: 2 planned, none done; the last one: there is none"},
		{"a component that cannot be struck is no excuse for another", map[int]string{2: "no pod", 3: "no pod"}, "strike pelago-agent: 2 planned, none done; the last one: no pod"},
		{"nothing was tried", map[int]string{4: ""}, "cut: 1 planned, none done; the last one: never tried"},
		{"the storm was over", map[int]string{7: ""}, ""},
	} {
		var h History
		for i, s := range plan {
			if why, undone := c.undone[i]; !undone || why != "" {
				h = append(h, Done{Step: s, Note: why, Undone: undone})
			}
		}
		if got := strings.Join(h.Idle(plan, time.Minute), "\n"); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

// TestShrink holds that what did not matter goes, that what is left makes sense, and that
// there are no more tries than allowed.
func TestShrink(t *testing.T) {
	steps := Plan(7, 3*time.Minute)
	var scale, cut Step
	for _, s := range steps {
		if s.Verb == Cut && cut.Verb == "" {
			cut = s
		}
		if s.Verb == Scale && scale.Verb == "" && s.Place() != Stay {
			scale = s
		}
	}
	for _, c := range []struct {
		reason      string
		tries, most int
	}{{"as long as it takes", 1000, 3}, {"a few tries", 8, 60}, {"none", 0, len(steps)}} {
		tries := 0
		least := Shrink(steps, c.tries, func(fewer []Step) bool {
			tries++
			m := NewModel()
			for _, s := range fewer {
				if slices.Contains([]Verb{Scale, Roll, Mark, Delete, Lose}, s.Verb) && !m.Has(s) {
					t.Errorf("%s: %s, and it is not there", c.reason, s)
				}
				m.Apply(s)
			}
			return slices.Contains(fewer, cut) && slices.Contains(fewer, scale)
		})
		if len(least) > c.most || tries > c.tries || !slices.Contains(least, cut) || !slices.Contains(least, scale) {
			t.Errorf("%s: of %d steps are left %d after %d tries: %v", c.reason, len(steps), len(least), tries, least)
		}
	}
}
