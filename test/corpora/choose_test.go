package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// of makes an input of a size that covers places, each a letter.
func of(name string, size int, covers string) input {
	i := input{name: name, data: make([]byte, size), covers: places{}}
	for _, place := range strings.Split(covers, "") {
		i.covers[place] = true
	}
	return i
}

func namesOf(inputs []input) []string {
	var names []string
	for _, i := range inputs {
		names = append(names, i.name)
	}
	return names
}

func TestChoose(t *testing.T) {
	cases := []struct {
		reason string
		known  places
		tried  []input
		room   int
		want   []string
	}{
		{"nothing was found", nil, nil, mostInputs, nil},
		{"what covers most goes first, then what adds to it", nil, []input{of("a", 1, "x"), of("b", 9, "xyz"), of("c", 1, "w")}, 2, []string{"b", "c"}},
		{"the smallest of those that cover the same", nil, []input{of("large", 9, "xy"), of("small", 3, "xy")}, 1, []string{"small"}},
		{"what seeds cover counts for nothing", places{"x": true, "y": true}, []input{of("a", 1, "xy"), of("b", 5, "z")}, 1, []string{"b"}},
		{"a few if none covers more, in their order", places{"x": true}, []input{of("a", 1, "x"), of("b", 9, "x"), of("c", 2, "x"), of("d", 3, "x"), of("e", 3, "x")}, mostInputs, []string{"a", "b", "c", "d"}},
		{"no more than there is room for", nil, []input{of("a", 1, "x"), of("b", 1, "y"), of("c", 1, "z")}, 2, []string{"a", "b"}},
		{"no room at all", nil, []input{of("a", 1, "x")}, 0, nil},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, namesOf(choose(c.known, c.tried, c.room))); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.reason, diff)
		}
	}
}

func TestCandidates(t *testing.T) {
	got := candidates([]input{of("b", 7, ""), of("a", 7, ""), of("c", 1, ""), of("huge", mostBytes+1, ""), of("d", 4, ""), of("e", 100, "")})
	if diff := cmp.Diff([]string{"c", "d", "e", "a", "b"}, namesOf(got)); diff != "" {
		t.Errorf("one of each size, the smallest first, and no huge one: (-want +got)\n%s", diff)
	}
	if got := candidates(slices.Repeat([]input{of("a", 1, "")}, 2*mostTried)); len(got) != mostTried {
		t.Errorf("%d are tried, want %d", len(got), mostTried)
	}
}

func TestReadProfile(t *testing.T) {
	got, err := readProfile(strings.NewReader("mode: set\np/a.go:1.2,3.4 2 1\np/a.go:5.6,7.8 1 0\n"))
	if diff := cmp.Diff(places{"p/a.go:1.2,3.4": true}, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got)\n%s", err, diff)
	}
	if _, err := readProfile(strings.NewReader("PASS\n")); err == nil {
		t.Error("no profile was read as one")
	}
}

func TestFindTargets(t *testing.T) {
	files := fstest.MapFS{
		"b/c/x_test.go":              {Data: []byte("func FuzzTwo(f *testing.F) {}\nfunc FuzzOne(f *testing.F) {}\n")},
		"b/c/y_test.go":              {Data: []byte("func TestFuzz(t *testing.T) {}\n")},
		"a/x_test.go":                {Data: []byte("func FuzzThree(f *testing.F) {}\n")},
		"a/x.go":                     {Data: []byte("func FuzzNoTest() {}\n")},
		"a/testdata/x_test.go":       {Data: []byte("func FuzzData(f *testing.F) {}\n")},
		"sandbox/config/x_test.go":   {Data: []byte("func FuzzOwn(f *testing.F) {}\n")},
		"out/worktree/other_test.go": {Data: []byte("func FuzzOut(f *testing.F) {}\n")},
	}
	a, b := target{"a", []string{"FuzzThree"}}, target{"b/c", []string{"FuzzOne", "FuzzTwo"}}
	for _, c := range []struct {
		only []string
		want []target
	}{
		{nil, []target{a, b}},
		{[]string{"./b/c"}, []target{b}},
		{[]string{"./b"}, nil},
		{[]string{"b/c", "a/"}, []target{b, a}},
	} {
		got, err := findTargets(files, c.only)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(target{})); diff != "" || err != nil {
			t.Errorf("%v: error %v (-want +got)\n%s", c.only, err, diff)
		}
	}
}

// TestKeep has inputs of a real fuzz test tried: those stay that run where its seed and
// what is kept do not.
func TestKeep(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	line := func(word string) string { return "go test fuzz v1\nstring(\"" + word + "\")\n" }
	write("go.mod", "module example.org/m\n\ngo 1.26\n")
	write("p/p.go", `package p

func Read(s string) int {
	switch s {
	case "kept":
		return 1
	case "new":
		return 2
	case "seed":
		return 3
	}
	return 0
}
`)
	// Not at the beginning of a line, where it would be one of this package's.
	write("p/p_test.go", `package p

import "testing"

 func FuzzRead(f *testing.F) {
	f.Add("seed")
	f.Fuzz(func(t *testing.T, s string) {
		if Read(s) < 0 || s == "crash" {
			t.Error(s)
		}
	})
}
`)
	write("p/testdata/fuzz/FuzzRead/1111", line("kept"))
	write("found/FuzzRead/2222", line("new"))
	write("found/FuzzRead/3333", line("seed"))
	write("found/FuzzRead/1111", line("kept"))
	k := keeper{target: target{"p", []string{"FuzzRead"}}, module: "example.org/m", found: "found"}
	if err := k.keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept := func() []string {
		t.Helper()
		inputs, err := readInputs(k.home("FuzzRead"))
		if err != nil {
			t.Fatal(err)
		}
		return namesOf(inputs)
	}
	// The one that adds nothing is there for its size.
	if diff := cmp.Diff([]string{"1111", "2222", "3333"}, kept()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	write("found/FuzzRead/4444", line("crash"))
	if err := k.keep(t.Context()); err == nil || !strings.Contains(err.Error(), "FuzzRead/4444") {
		t.Errorf("an input that the test fails with: error %v, want it named", err)
	}
	if diff := cmp.Diff([]string{"1111", "2222", "3333"}, kept()); diff != "" {
		t.Errorf("after that: (-want +got)\n%s", diff)
	}
	// Fuzzing begins with what was found, and so fails at once: of its time it takes what a busy machine needs to begin.
	k.time = time.Minute
	if err := k.keep(t.Context()); err == nil || !strings.Contains(err.Error(), "fuzzing with FuzzRead") {
		t.Errorf("fuzzing that fails: error %v, want it told", err)
	}
	if got := kept(); len(got) != 4 {
		t.Errorf("after that %v are kept, want what it failed with as well", got)
	}
}
