package v1alpha1

import (
	"strings"
	"testing"
)

func TestOriginOf(t *testing.T) {
	const word = "0123456789abcdef"
	for _, c := range []struct {
		reason           string
		labels           map[string]string
		namespace, whose string
		wrong            bool
	}{
		{reason: "none", labels: map[string]string{LabelTenant: "rome", LabelHomeNamespace: "shop"}},
		{reason: "no labels at all"},
		{reason: "both", labels: map[string]string{LabelOriginNamespace: "shop", LabelOriginOwner: word}, namespace: "shop", whose: word},
		{reason: "as long as may be", labels: map[string]string{LabelOriginNamespace: strings.Repeat("a", 63), LabelOriginOwner: word}, namespace: strings.Repeat("a", 63), whose: word},
		{reason: "no owner", labels: map[string]string{LabelOriginNamespace: "shop"}, wrong: true},
		{reason: "no namespace", labels: map[string]string{LabelOriginOwner: word}, wrong: true},
		{reason: "both empty", labels: map[string]string{LabelOriginNamespace: "", LabelOriginOwner: ""}, wrong: true},
		{reason: "an empty namespace", labels: map[string]string{LabelOriginNamespace: "", LabelOriginOwner: word}, wrong: true},
		{reason: "an empty owner", labels: map[string]string{LabelOriginNamespace: "shop", LabelOriginOwner: ""}, wrong: true},
		{reason: "an owner by name", labels: map[string]string{LabelOriginNamespace: "shop", LabelOriginOwner: "milan"}, wrong: true},
		{reason: "capitals", labels: map[string]string{LabelOriginNamespace: "shop", LabelOriginOwner: strings.ToUpper(word)}, wrong: true},
		{reason: "a longer word", labels: map[string]string{LabelOriginNamespace: "shop", LabelOriginOwner: word + "0"}, wrong: true},
		{reason: "a second line", labels: map[string]string{LabelOriginNamespace: "shop", LabelOriginOwner: word + "\n"}, wrong: true},
		{reason: "two labels of a name", labels: map[string]string{LabelOriginNamespace: "shop.svc", LabelOriginOwner: word}, wrong: true},
		{reason: "what a label's value may be, and no namespace is", labels: map[string]string{LabelOriginNamespace: "Shop_1", LabelOriginOwner: word}, wrong: true},
		{reason: "too long", labels: map[string]string{LabelOriginNamespace: strings.Repeat("a", 64), LabelOriginOwner: word}, wrong: true},
	} {
		namespace, whose, ok := OriginOf(c.labels)
		if namespace != c.namespace || whose != c.whose || ok == c.wrong {
			t.Errorf("%s: %q of %q, %v", c.reason, namespace, whose, ok)
		}
	}
}
