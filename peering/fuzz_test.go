package peering

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzPrintable: a stranger's sentence is one short line that a terminal shows as it is.
func FuzzPrintable(f *testing.F) {
	f.Add("plain")
	f.Add("a\x1b[2J\u009b1m\u202e\u2066\r\nb")
	f.Add("\u200f\u061c\u200e")
	f.Add(strings.Repeat("ä", 1000) + "\xff")
	f.Fuzz(func(t *testing.T, text string) {
		got := printable(text)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > 301 {
			t.Fatalf("%d characters of %q", utf8.RuneCountInString(got), text)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
				t.Fatalf("%U is shown", r)
			}
		}
	})
}
