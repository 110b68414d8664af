package content

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestSplit: parts are the text, none is too long or too short for a ShadowObject, and none ends within a character.
func TestSplit(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
	}{
		{"{}", 1},
		{strings.Repeat("x", MaxText), 1},
		{strings.Repeat("x", MaxText+1), 2},
		{strings.Repeat("ä", MaxText), 3},
		{"x" + strings.Repeat("𝄞", MaxText), 5},
		{strings.Repeat("x", MaxWhole), v1alpha1.MaxShadowObjectParts},
		{strings.Repeat("𝄞", MaxWhole/4), v1alpha1.MaxShadowObjectParts},
		{strings.Repeat("\x80", MaxText+5), 2}, // no character begins anywhere, so a part may be empty; texts are valid
	} {
		parts := Split(c.text)
		if len(parts) != c.want || strings.Join(parts, "") != c.text {
			t.Errorf("%d bytes are %d parts, want %d, or are not the text", len(c.text), len(parts), c.want)
		}
		for i, part := range parts {
			if utf8.ValidString(c.text) && (len(part) < 2 || len(part) > MaxText || !utf8.ValidString(part)) {
				t.Errorf("part %d of %d bytes has %d", i, len(c.text), len(part))
			}
		}
	}
}

// TestLongTexts: what Kubernetes takes of a Secret or a ConfigMap travels, unless coding makes more than twice of it.
func TestLongTexts(t *testing.T) {
	full := strings.Repeat("x", MaxContent)
	for _, c := range []struct {
		name  string
		m     *corev1.ConfigMap
		wrong string
	}{
		{"as large as can be", &corev1.ConfigMap{Data: map[string]string{"a": full}}, ""},
		{"lines alone", &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("\n", MaxContent)}}, ""},
		{"binary", &corev1.ConfigMap{BinaryData: map[string][]byte{"a": []byte(full)}}, ""},
		{"a byte more", &corev1.ConfigMap{Data: map[string]string{"ab": full + "x"}}, "1048577 bytes, at most 1048576"},
		{"no letter that is written as one", &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("\x01", MaxContent/2)}}, "as JSON, at most"},
	} {
		text, wrong := Kinds["ConfigMap"].Encode(c.m)
		if (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %s, want %q", c.name, wrong, c.wrong)
		}
		if wrong != "" {
			continue
		}
		if len(Split(text)) > v1alpha1.MaxShadowObjectParts {
			t.Errorf("%s: %d parts", c.name, len(Split(text)))
		}
		if _, wrong := Kinds["ConfigMap"].Decode(strings.Join(Split(text), ""), Rules{}); wrong != "" {
			t.Errorf("%s: refused: %s", c.name, wrong)
		}
	}
}
