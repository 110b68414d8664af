package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// maxMistakes bounds a report; a file with more is not read line by line anyway.
const maxMistakes = 100

// Mistake is one thing wrong with a sandbox, as its author needs it.
type Mistake struct {
	// File and Line say where; they are empty for a sandbox that was not read
	// from a file.
	File string
	Line int
	// Field is the path of the value, such as clusters[1].podRanges[0]; empty
	// when the text as a whole is wrong.
	Field string
	// Problem and Remedy say what is wrong and what to do about it.
	Problem, Remedy string

	// with is the other field of a contradiction, if there is one.
	with string
}

// Error renders "file:line: field: problem; remedy", without the parts that are
// not known.
func (m *Mistake) Error() string {
	s := m.Problem
	if m.Field != "" {
		s = m.Field + ": " + s
	}
	if m.Remedy != "" {
		s += "; " + m.Remedy
	}
	switch {
	case m.File == "":
		return s
	case m.Line == 0:
		return m.File + ": " + s
	}
	return fmt.Sprintf("%s:%d: %s", m.File, m.Line, s)
}

// join makes one error of all mistakes, in the order of the file.
func join(ms []*Mistake) error {
	slices.SortStableFunc(ms, func(a, b *Mistake) int { return cmp.Compare(a.Line, b.Line) })
	errs := make([]error, 0, min(len(ms), maxMistakes+1))
	for i, m := range ms {
		if i == maxMistakes {
			errs = append(errs, fmt.Errorf("and %d more; mend these first", len(ms)-i))
			break
		}
		errs = append(errs, m)
	}
	return errors.Join(errs...)
}

// quote shows a value of the file, shortened if it is long.
func quote(s string) string {
	const most = 60
	if r := []rune(s[:min(len(s), 4*most+4)]); len(r) > most {
		return fmt.Sprintf("%q", string(r[:most])+"…")
	}
	return fmt.Sprintf("%q", s)
}
