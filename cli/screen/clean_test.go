package screen

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/utils/clock"
)

// hostile is what a peer could say to write where it should not.
const hostile = "1.2\x1b[2J\x1b]0;t\a\u009b31m\x9b1m\u202ecba\u2066\u200f\r\x7f"

func TestClean(t *testing.T) {
	cases := []struct{ reason, text, want string }{
		{"plain text stays", "Málaga – 東京\tok\n", "Málaga – 東京\tok\n"},
		{"controls go, bytes that are no text are marked", hostile, "1.2[2J]0;t31m\ufffd1mcba"},
	}
	for _, c := range cases {
		if got := Clean(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
	if got := line("a\nb\tc\u2028d"); got != "a b c d" {
		t.Errorf("one line is %q", got)
	}
}

func TestNothingHostileIsShown(t *testing.T) {
	for reason, write := range map[string]func(*bytes.Buffer){
		"table": func(out *bytes.Buffer) {
			_ = Table(out, false, Width, []string{"VERSION"}, [][]Cell{Row("a\n" + hostile)})
		},
		"wrap": func(out *bytes.Buffer) { out.WriteString(Wrap(hostile, "  ", 40)) },
		"step": func(out *bytes.Buffer) { Start(out, false, clock.RealClock{}).Step("%s", hostile) },
		"note": func(out *bytes.Buffer) { Start(out, false, clock.RealClock{}).Note("%s", hostile) },
	} {
		var out bytes.Buffer
		write(&out)
		if bad := strings.IndexAny(out.String(), "\x1b\a\r\x7f\u009b\u202e\u2066\u200f"); bad >= 0 || !strings.Contains(out.String(), "1.2") {
			t.Errorf("%s writes %q", reason, out.String())
		}
		if reason == "table" && strings.Count(out.String(), "\n") != 2 {
			t.Errorf("a cell takes more than a line: %q", out.String())
		}
	}
}
