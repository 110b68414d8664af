package torture

import "slices"

// Shrink drops steps as long as what is left still fails, ever smaller parts of them, and
// asks at most so many times. What is left is smaller, and minimal only if it did not run
// out of tries.
func Shrink(steps []Step, tries int, fails func([]Step) bool) []Step {
	for parts := 2; len(steps) > 1; {
		size, smaller := (len(steps)+parts-1)/parts, false
		for from := 0; from < len(steps) && !smaller; from += size {
			rest := sensible(slices.Delete(slices.Clone(steps), from, min(from+size, len(steps))))
			if len(rest) == 0 {
				continue
			}
			if tries--; tries < 0 {
				return steps
			}
			if fails(rest) {
				steps, smaller = rest, true
			}
		}
		switch {
		case smaller:
			parts = max(parts-1, 2)
		case size == 1:
			return steps
		default:
			parts *= 2
		}
	}
	return steps
}

// sensible leaves out what is done to objects that are not there.
func sensible(steps []Step) []Step {
	m := NewModel()
	return slices.DeleteFunc(steps, func(s Step) bool {
		switch s.Verb {
		case Scale, Roll, Mark, Delete, Lose:
			if !m.Has(s) {
				return true
			}
		}
		m.Apply(s)
		return false
	})
}
