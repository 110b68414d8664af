package config

import "strings"

// nearest returns the known name that a misspelt one most likely meant, or "".
func nearest(name string, known []string) string {
	const longest, farthest = 40, 2
	if len(name) > longest {
		return ""
	}
	best, at := "", farthest+1
	for _, k := range known {
		if strings.EqualFold(k, name) || strings.EqualFold(k, name+"s") {
			return k
		}
		// A name as short as the distance is like everything.
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < at && d < len(k)-1 {
			best, at = k, d
		}
	}
	return best
}

// oneOf is the remedy for a name that is not among the known ones.
func oneOf(name string, known []string) string {
	if n := nearest(name, known); n != "" {
		return "did you mean " + n + "?"
	}
	return "use one of " + strings.Join(known, ", ")
}

// distance counts the single-byte edits (insert, delete, replace) between two
// names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
