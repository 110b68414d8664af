package verify

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Print writes a result as a line, with what explains a failure indented below.
func Print(w io.Writer, r Result) {
	switch {
	case r.Skipped != "":
		_, _ = fmt.Fprintf(w, "skip  %6s  %s (%s)\n", "", r.Name, r.Skipped)
	case r.Err != nil:
		_, _ = fmt.Fprintf(w, "FAIL  %6s  %s\n", seconds(r.Duration), r.Name)
		for line := range strings.Lines(r.Err.Error()) {
			_, _ = fmt.Fprintf(w, "                %s\n", strings.TrimRight(line, "\n"))
		}
	default:
		_, _ = fmt.Fprintf(w, "pass  %6s  %s\n", seconds(r.Duration), r.Name)
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// PrintTotal writes the last line.
func PrintTotal(w io.Writer, results []Result) {
	passed, failed, skipped := Count(results)
	_, _ = fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
}

// Count says how many checks passed, failed and were skipped.
func Count(results []Result) (passed, failed, skipped int) {
	for _, r := range results {
		switch {
		case r.Skipped != "":
			skipped++
		case r.Err != nil:
			failed++
		default:
			passed++
		}
	}
	return passed, failed, skipped
}
