package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const wantPage = `# Results of make check

Each step has its last run, which need not be of the same commit. The runner writes this page.
Machine of the last one: 2 cores, 24 GiB memory, Linux 6.18, Debian, go1.26.

**Of 3 steps 1 passed, 1 failed, 1 were never run**: lint

| step | proves | commit | when, UTC | time | passed | failed | skipped |
|---|---|---|---|---|---|---|---|
| format | form | abc | 1970-01-01 00:00 | 1m30s | 7 | 1 | 1 |
| vet | sense | def | 1970-01-01 01:00 | 10s | 1 | 0 | 0 |

## format

- failed: a TestSlow
- skipped: a TestRoot

## vet

- limit: up 50s of 60s
`

// TestPage holds that a page keeps of each step its last run, whatever else runs later.
func TestPage(t *testing.T) {
	chosen := []step{{name: "format", proves: "form"}, {name: "vet", proves: "sense"}, {name: "lint", proves: "taste"}}
	m := machine{2, 23.5, "6.18", "Debian", "go1.26"}
	known := map[string]record{}
	add := func(o outcome, commit string, when int64) {
		known[o.step.name] = recordOf(o, commit, time.Unix(when, 0))
		known = readPage(page("check", chosen, known, m))
	}
	add(outcome{step: chosen[1], took: time.Second, counts: counts{failed: []string{"vet"}}, shown: []string{"limit: up 70s of 60s"}}, "abc", 0)
	add(outcome{step: chosen[0], took: 90 * time.Second, counts: counts{passed: 7, failed: []string{"a TestSlow"}, skipped: []string{"a TestRoot"}}}, "abc", 0)
	add(outcome{step: chosen[1], took: 10 * time.Second, counts: counts{passed: 1}, shown: []string{"limit: up 50s of 60s"}}, "def", 3600)
	if diff := cmp.Diff(wantPage, page("check", chosen, known, m)); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
}

// TestPageOfSkips holds that a step of which every test was skipped has not passed.
func TestPageOfSkips(t *testing.T) {
	s := step{name: "unit", proves: "logic"}
	r := recordOf(outcome{step: s, counts: counts{skipped: []string{"a TestRoot"}}}, "abc", time.Unix(0, 0))
	if text := page("test", []step{s}, map[string]record{s.name: r}, machine{}); !strings.Contains(text, "Of 1 steps 0 passed, 1 failed,") {
		t.Errorf("the page says\n%s", text)
	}
}

// TestKeep holds that results are in the file after each step, and that of a page by hand nothing is taken.
func TestKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("# Mine\n\n- a | b\n| format | x |\n## format\n- mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"format", "vet"} {
		o := outcome{step: step{name: name}, took: time.Second, counts: counts{passed: 2}}
		if err := keep(path, listCheck, o, machine{}, "abc", time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	known := readPage(string(text))
	if len(known) != 2 || known["format"].passed != "2" || known["vet"].commit != "abc" || len(known["format"].notes) != 0 {
		t.Errorf("the page has %+v", known)
	}
	if err := keep(filepath.Join(path, "below"), listCheck, outcome{}, machine{}, "", time.Unix(0, 0)); err == nil {
		t.Error("it cannot be written, and nothing is said")
	}
}
