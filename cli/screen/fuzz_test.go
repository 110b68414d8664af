package screen

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzClean: a terminal obeys nothing of what a peer says, wherever it stands.
func FuzzClean(f *testing.F) {
	f.Add(hostile, 40)
	f.Add("Málaga – 東京\tok\n", 1)
	f.Add("a\u2028b\xff\x9b1m", 0)
	f.Fuzz(func(t *testing.T, text string, width int) {
		var table bytes.Buffer
		if err := Table(&table, false, Width, []string{"VERSION"}, [][]Cell{Row(text)}); err != nil {
			t.Fatal(err)
		}
		if strings.Count(table.String(), "\n") != 2 {
			t.Fatalf("a cell takes more than a line: %q", table.String())
		}
		cleaned := Clean(text)
		if Clean(cleaned) != cleaned {
			t.Fatalf("%q can be cleaned again", cleaned)
		}
		for _, shown := range []string{cleaned, line(text), table.String(), Wrap(text, "  ", 20+abs(width%100))} {
			if !utf8.ValidString(shown) {
				t.Fatalf("%q is no text", shown)
			}
			for _, r := range shown {
				if r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
					t.Fatalf("%U is shown of %q", r, text)
				}
			}
		}
		if one := line(text); strings.ContainsAny(one, "\n\t\u2028\u2029") {
			t.Fatalf("%q is not one line", one)
		}
	})
}

func abs(n int) int { return max(n, -n) }
