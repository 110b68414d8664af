package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// runs matches what a step's command says of the tests it runs, and of their package.
var runs = regexp.MustCompile(`-run '?([^' ]+)'? (?:.* )?\./([\w/]+)$`)

// TestNames holds that the tests and subtests which steps name are there: go test takes the name of
// none for none to run, or for a test without its subtests, and is content.
func TestNames(t *testing.T) {
	steps := append(slices.Clone(steps), step{name: "ownSteps", command: []string{"-run", ownSteps, "./test"}})
	named := 0
	for _, s := range steps {
		match := runs.FindStringSubmatch(strings.Join(s.command, " "))
		if match == nil {
			continue
		}
		source := testSource(t, filepath.Join("../..", s.dir, match[2]))
		for level, pattern := range strings.Split(match[1], "/") {
			names, err := spelled(pattern)
			if err != nil {
				t.Errorf("step %s: %v", s.name, err)
			}
			for _, name := range names {
				want := "func " + name + "("
				if level > 0 {
					want = `"` + name + `"`
				}
				if !strings.Contains(source, want) {
					t.Errorf("step %s runs %s of ./%s, where no %s stands", s.name, name, match[2], want)
				}
				named++
			}
		}
	}
	if named < len(strings.Split(ownSteps, "|")) {
		t.Errorf("%d names were looked for", named)
	}
}

// TestToolVersions holds that a tool which was made of another version is not taken for the one that
// a step makes, and that whoever runs it has that one.
func TestToolVersions(t *testing.T) {
	made := regexp.MustCompile(`\[ -x (out/tools/\S+) \] \|\| .*go install \S+(@v[0-9.]+)`)
	count := 0
	for _, s := range steps {
		match := made.FindStringSubmatch(strings.Join(s.command, " "))
		if match == nil {
			continue
		}
		count++
		if !strings.Contains(match[1], match[2]) {
			t.Errorf("step %s takes %s for one of version %s", s.name, match[1], match[2])
		}
		if !slices.ContainsFunc(steps, func(user step) bool {
			return slices.Contains(user.needs, s.name) && strings.Contains(strings.Join(append(user.env, user.command...), " "), match[1])
		}) {
			t.Errorf("no step that needs %s runs %s", s.name, match[1])
		}
	}
	if count != 2 {
		t.Errorf("%d steps make tools, want Helm's and kube-router's", count)
	}
}

func TestSpelled(t *testing.T) {
	cases := []struct {
		pattern string
		want    []string
	}{
		{"^TestStart$", []string{"TestStart"}},
		{"^(Line|Both|Unpeer)$", []string{"Both", "Line", "Unpeer"}},
		{"^Test(Network(Memory|Plan)?|Tunnels)$", []string{"TestNetwork", "TestNetworkMemory", "TestNetworkPlan", "TestTunnels"}},
		{"^Test(Node|Network|N)$", []string{"TestN", "TestNetwork", "TestNode"}},
		{"TestStart$", nil}, {"^TestStart", nil}, {"^Test.*$", nil}, {"^(TestA|TestB$", nil},
	}
	for _, c := range cases {
		names, err := spelled(c.pattern)
		if diff := cmp.Diff(c.want, names); diff != "" || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %v (-want +got):\n%s", c.pattern, err, diff)
		}
	}
}

// spelled returns all that a whole pattern matches, sorted; one that matches what it does not spell
// out is an error.
func spelled(pattern string) ([]string, error) {
	whole, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	names, finite := spell(whole)
	if !finite || !strings.HasPrefix(pattern, "^") || !strings.HasSuffix(pattern, "$") {
		return nil, fmt.Errorf("%s is no list of whole names", pattern)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// spell returns what an expression of letters, choices and options matches.
func spell(e *syntax.Regexp) (texts []string, finite bool) {
	switch e.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText:
		return []string{""}, true
	case syntax.OpLiteral:
		return []string{string(e.Rune)}, true
	case syntax.OpCharClass:
		for i := 0; i < len(e.Rune); i += 2 {
			for r := e.Rune[i]; r <= e.Rune[i+1]; r++ {
				texts = append(texts, string(r))
			}
		}
		return texts, len(texts) < 100
	case syntax.OpCapture:
		return spell(e.Sub[0])
	case syntax.OpQuest:
		texts, finite = spell(e.Sub[0])
		return append(texts, ""), finite
	case syntax.OpAlternate:
		for _, one := range e.Sub {
			more, ends := spell(one)
			if !ends {
				return nil, false
			}
			texts = append(texts, more...)
		}
		return texts, true
	case syntax.OpConcat:
		texts = []string{""}
		for _, one := range e.Sub {
			more, ends := spell(one)
			if !ends {
				return nil, false
			}
			var longer []string
			for _, begin := range texts {
				for _, end := range more {
					longer = append(longer, begin+end)
				}
			}
			texts = longer
		}
		return texts, true
	}
	return nil, false
}

// testSource is all that stands in the test files of a folder.
func testSource(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
