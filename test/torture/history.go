package torture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// before is how long before the first step of an object faults may still matter to it.
const before = time.Minute

// Done is a step that was done, or tried.
type Done struct {
	// Step has as its time when it was really begun; Took is how long until it was done.
	Step Step
	Took time.Duration
	// Note says what became of it, if anything is to be said.
	Note string
	// Undone says that it did nothing: Note has why.
	Undone bool
}

// String is a line that Parse reads, with the rest as a comment.
func (d Done) String() string {
	line := fmt.Sprintf("%s  # took %s", d.Step, d.Took.Round(10*time.Millisecond))
	if d.Note != "" {
		line += ", " + strings.ReplaceAll(d.Note, "\n", " ")
	}
	return line
}

// History is what was done, in the order of beginning.
type History []Done

// String is a file that ParseAll reads.
func (h History) String() string {
	sorted := slices.Clone(h)
	slices.SortStableFunc(sorted, func(a, b Done) int { return int(a.Step.At - b.Step.At) })
	var text strings.Builder
	for _, d := range sorted {
		text.WriteString(d.String() + "\n")
	}
	return text.String()
}

// Project returns what concerns an object of a place: what was done to it and to its
// namespace, and the faults since shortly before its first step. Without an object, all
// that was done in the place. It is no proof that the rest did not matter.
func (h History) Project(place, app string) History {
	begin := time.Duration(-1)
	for _, d := range h {
		if concerns(d.Step, place, app) && d.Step.Name() != "" && (begin < 0 || d.Step.At < begin) {
			begin = d.Step.At
		}
	}
	var kept History
	for _, d := range h {
		switch {
		case d.Step.Fault() && d.Step.Verb != Lose && d.Step.At+d.Step.For >= begin-before, concerns(d.Step, place, app):
			kept = append(kept, d)
		}
	}
	return kept
}

// late is how long before the end of a storm a fault may come too late to be done.
const late = 30 * time.Second

// Idle says which faults of a plan never worked in a storm of that length: not one of a
// kind was done. Strikes of each component are a kind, as each is found in its own way.
func (h History) Idle(plan []Step, length time.Duration) []string {
	planned, worked, why := map[string]int{}, map[string]bool{}, map[string]string{}
	for _, s := range plan {
		if s.Fault() && s.At+late < length {
			planned[s.kind()]++
		}
	}
	for _, d := range h {
		kind := d.Step.kind()
		worked[kind] = worked[kind] || !d.Undone
		if d.Undone {
			why[kind] = d.Note
		}
	}
	var found []string
	for kind, n := range planned {
		if !worked[kind] {
			found = append(found, fmt.Sprintf("%s: %d planned, none done; the last one: %s", kind, n, cmp.Or(why[kind], "never tried")))
		}
	}
	slices.Sort(found)
	return found
}

// concerns: a step is about the object, or about the whole of its namespace.
func concerns(s Step, place, app string) bool {
	if s.Fault() && s.Verb != Lose || s.Place() != place {
		return false
	}
	return app == "" || s.Name() == "" || s.Name() == app
}
