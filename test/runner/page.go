package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// record is what the last run of a step came to, as the page of results has it.
type record struct {
	step, commit, when, took, passed, failed, skipped string
	notes                                             []string // what it measured, and what failed or was skipped
}

// recordOf is the record of a step that has just ended.
func recordOf(o outcome, commit string, when time.Time) record {
	r := record{step: o.step.name, commit: commit, when: when.UTC().Format("2006-01-02 15:04"), took: short(o.took),
		passed: fmt.Sprint(o.counts.passed), failed: fmt.Sprint(len(o.counts.failed)), skipped: fmt.Sprint(len(o.counts.skipped)),
		notes: slices.Clone(o.shown)}
	if o.err != nil {
		r.notes = append(r.notes, "the step: "+oneLine(o.err.Error()))
	}
	for _, name := range o.counts.failed {
		r.notes = append(r.notes, "failed: "+oneLine(name))
	}
	for _, name := range names(o.counts.again) {
		r.notes = append(r.notes, "failed once, passed when tried again alone: "+oneLine(name))
	}
	for _, name := range o.counts.skipped {
		r.notes = append(r.notes, "skipped: "+oneLine(name))
	}
	return r
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

const pageHead = "| step | proves | commit | when, UTC | time | passed | failed | skipped |\n|---|---|---|---|---|---|---|---|\n"

// page is the page of results of a list: of each step its last run, and which were never run.
func page(list string, chosen []step, known map[string]record, m machine) string {
	var rows, notes strings.Builder
	var never []string
	passed := 0
	for _, s := range chosen {
		r, ok := known[s.name]
		if !ok {
			never = append(never, s.name)
			continue
		}
		if r.failed == "0" && r.passed != "0" { // skipped tests prove nothing
			passed++
		}
		fmt.Fprintf(&rows, "| %s |\n", strings.Join([]string{r.step, s.proves, r.commit, r.when, r.took, r.passed, r.failed, r.skipped}, " | "))
		writeNames(&notes, r.step, r.notes)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Results of make %s\n\nEach step has its last run, which need not be of the same commit. The runner writes this page.\n", list)
	fmt.Fprintf(&b, "Machine of the last one: %d cores, %.0f GiB memory, Linux %s, %s, %s.\n\n", m.cores, m.memoryGiB, m.kernel, m.system, m.goVersion)
	fmt.Fprintf(&b, "**Of %d steps %d passed, %d failed, %d were never run**", len(chosen), passed, len(chosen)-passed-len(never), len(never))
	if len(never) > 0 {
		b.WriteString(": " + strings.Join(never, ", "))
	}
	return b.String() + "\n\n" + pageHead + rows.String() + notes.String()
}

// readPage takes the records out of a page. What is not as this program writes it is left out.
func readPage(text string) map[string]record {
	known := map[string]record{}
	var section string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		if note, ok := strings.CutPrefix(line, "- "); ok {
			if r, ok := known[section]; ok {
				r.notes = append(r.notes, note)
				known[section] = r
			}
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 8 || cells[0] == "step" {
			continue
		}
		known[cells[0]] = record{step: cells[0], commit: cells[2], when: cells[3], took: cells[4], passed: cells[5], failed: cells[6], skipped: cells[7]}
	}
	return known
}

// keep writes what a step came to into the page at path, which keeps what it says of others.
func keep(path, list string, o outcome, m machine, commit string, when time.Time) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	known := readPage(string(text))
	known[o.step.name] = recordOf(o, commit, when)
	return os.WriteFile(path, []byte(page(list, choose(steps, list, nil), known, m)), 0o644)
}

func writeNames(b *strings.Builder, title string, names []string) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, name := range names {
		fmt.Fprintf(b, "- %s\n", name)
	}
}
