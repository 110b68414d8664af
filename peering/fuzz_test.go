package peering

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// FuzzToken: a new token that is taken can be a header, lives long enough and, after it,
// the next renewal asks for no longer life than this one did.
func FuzzToken(f *testing.F) {
	f.Add([]byte(`{"spec":{"expirationSeconds":3600},"status":{"token":"a.b.c","expirationTimestamp":"2027-01-15T09:00:00Z"}}`), int64(3600))
	f.Add([]byte(`{"spec":{"expirationSeconds":-9223372036854775808},"status":{"token":"a","expirationTimestamp":"9999-12-31T23:59:59Z"}}`), int64(600))
	f.Add([]byte(`{"spec":{"expirationSeconds":9223372036854775807},"status":{"token":"a\r\nHost: b","expirationTimestamp":"0001-01-01T00:00:00Z"}}`), int64(1<<40))
	now := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, text []byte, seconds int64) {
		given := &authenticationv1.TokenRequest{}
		if json.Unmarshal(text, given) != nil {
			return
		}
		asked := max(leastToken, time.Duration(seconds%(1<<30))*time.Second)
		from, end, ok := tokenTimes(given, asked, now)
		if !ok || checkToken(given.Status.Token) != nil {
			return
		}
		c := &credential{Token: given.Status.Token, NotBefore: from, NotAfter: end}
		if end.Sub(now) < minLife || end.Sub(from) < minLife || tokenLife(c) > asked.Round(time.Minute) {
			t.Fatalf("taken from %s to %s, asked for %s", from, end, asked)
		}
		if after := c.renewAfter(); !after.After(from) || !after.Before(end) {
			t.Fatalf("renewed at %s, valid from %s to %s", after, from, end)
		}
		header := http.Header{"Authorization": {"Bearer " + c.Token}}
		var wire strings.Builder
		if err := header.Write(&wire); err != nil || wire.String() != "Authorization: Bearer "+c.Token+"\r\n" {
			t.Fatalf("%q is sent, %v", wire.String(), err)
		}
	})
}

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
