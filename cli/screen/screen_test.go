package screen

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestTable(t *testing.T) {
	long := strings.Repeat("x", 60)
	cases := []struct {
		reason string
		paint  Paint
		rows   [][]Cell
		want   string
	}{
		{"columns are as wide as what is in them", false, [][]Cell{Row("milan", "True"), Row("a", "")}, "NAME   READY\nmilan  True\na\n"},
		{"colours do not count as width", true, [][]Cell{{{Text: "milan", Colour: Green}, {Text: "True"}}}, "NAME   READY\n\x1b[32mmilan\x1b[0m  True\n"},
		{"the first column is cut when nothing else can be", false, [][]Cell{Row(strings.Repeat("n", 90), "yes")},
			"NAME" + strings.Repeat(" ", 71) + "READY\n" + strings.Repeat("n", 72) + "…  yes\n"},
		{"the widest column is cut before the first", false, [][]Cell{Row("a-name-of-forty-characters-is-not-cut-so", long)},
			"NAME                                      READY\na-name-of-forty-characters-is-not-cut-so  " + strings.Repeat("x", 37) + "…\n"},
	}
	for _, c := range cases {
		var out bytes.Buffer
		if err := Table(&out, c.paint, Width, []string{"NAME", "READY"}, c.rows); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, out.String()); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
		for line := range strings.Lines(out.String()) {
			if !bool(c.paint) && utf8.RuneCountInString(strings.TrimSpace(line)) > Width {
				t.Errorf("%s: the line %q is too wide", c.reason, line)
			}
		}
	}
}

func TestDocument(t *testing.T) {
	cases := []struct {
		reason, format, want string
	}{
		{"json is for programs", "json", "{\n  \"url\": \"https://a?b&c\"\n}\n"},
		{"yaml is for kubectl", "yaml", "url: https://a?b&c\n"},
		{"others are refused with what is known", "toml", ""},
	}
	for _, c := range cases {
		var out bytes.Buffer
		err := Document(&out, c.format, map[string]string{"url": "https://a?b&c"})
		if out.String() != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v; want %q", c.reason, out.String(), err, c.want)
		}
	}
	var out bytes.Buffer
	if err := Documents(&out, "yaml", []string{"a", "b"}); err != nil || out.String() != "a\n---\nb\n" {
		t.Errorf("a stream of documents: %q, %v", out.String(), err)
	}
}

func TestWrap(t *testing.T) {
	cases := []struct{ reason, text, want string }{
		{"short text is left alone", "a b", "a b"},
		{"lines break between words", "aaaa bbbb cccc", "aaaa bbbb\n  cccc"},
		{"a word that is too long stands alone", "aaaaaaaaaaaaaa b", "aaaaaaaaaaaaaa\n  b"},
		{"nothing", "", ""},
	}
	for _, c := range cases {
		if got := Wrap(c.text, "  ", 10); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

func TestTerminal(t *testing.T) {
	none := func(string) string { return "" }
	if Terminal(&bytes.Buffer{}, none) {
		t.Error("a buffer is taken for a terminal")
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if Terminal(file, none) {
		t.Error("/dev/null is taken for a terminal")
	}
}

func TestProgressOnPaper(t *testing.T) {
	var out bytes.Buffer
	p := Start(&out, false, clock.RealClock{})
	p.Step("waiting for %s", "milan")
	p.Step("waiting for milan")
	p.Note("a note")
	p.Step("ready")
	p.Stop()
	p.Stop()
	if want := "waiting for milan\na note\nready\n"; out.String() != want {
		t.Errorf("progress is %q, want %q", out.String(), want)
	}
}

func TestProgressOnATerminal(t *testing.T) {
	out := &locked{}
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	p := Start(out, true, c)
	p.Step("waiting for milan")
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(out.String(), "⠙ waiting for milan") {
		if time.Now().After(deadline) {
			t.Fatalf("the spinner does not turn: %q", out.String())
		}
		c.Step(frameEvery)
	}
	p.Stop()
	if !strings.HasSuffix(out.String(), "\r\x1b[K") {
		t.Errorf("the line is left behind: %q", out.String())
	}
}

type locked struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
