package screen

import (
	"strings"
	"unicode"
)

// Clean takes out of text what a terminal would obey instead of showing it: control
// characters but for line ends and tabs, and what turns the direction of writing
// around. What a peer says of itself is not believed to be free of them.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, text)
}

// line is the same for what has to stay in one line.
func line(text string) string {
	return Clean(strings.Map(func(r rune) rune {
		switch r {
		case '\n', '\t', '\u0085', '\u2028', '\u2029':
			return ' '
		}
		return r
	}, text))
}
