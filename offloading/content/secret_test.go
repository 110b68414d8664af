package content

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func secretText(kind, key string, value []byte) string {
	return fmt.Sprintf(`{"content":{"type":%q,"data":{%q:%q}}}`, kind, key, base64.StdEncoding.EncodeToString(value))
}

func TestSecret(t *testing.T) {
	full := []byte(strings.Repeat("x", MaxContent))
	testDecode(t, "Secret", Rules{}, []decoding{
		{"Opaque", secretText("Opaque", "a", []byte("s3cret")), ""},
		{"an image pull secret", secretText("kubernetes.io/dockerconfigjson", ".dockerconfigjson", []byte("{}")), ""},
		{"a certificate", `{"content":{"type":"kubernetes.io/tls","data":{"tls.crt":"eA==","tls.key":"eA=="}}}`, ""},
		{"a type of an application", secretText("helm.sh/release.v1", "release", nil), ""},
		{"no data", `{"content":{"type":"Opaque"}}`, ""},
		{"as large as can be", secretText("Opaque", "a", full), ""},
		{"a byte more", secretText("Opaque", "ab", append(full, 0)), "1048577 bytes, at most 1048576"},
		{"a token mints credentials", secretText("kubernetes.io/service-account-token", "token", nil), "do not travel"},
		{"a bootstrap token lets nodes join", secretText("bootstrap.kubernetes.io/token", "token-id", nil), "do not travel"},
		{"a type that is yet to come", secretText("node.k8s.io/key", "a", nil), "do not travel"},
		{"a type of ours", secretText("pelago.dev/credential", "a", nil), "do not travel"},
		{"a long type", secretText("kubernetes.io/"+strings.Repeat("x", 10_000), "a", nil), "do not travel"},
		{"no type", secretText("", "a", nil), "no type"},
		{"a path as key", secretText("Opaque", "../a", nil), "data has a key"},
		{"no key", secretText("Opaque", "", nil), "data has a key"},
		{"immutable", `{"content":{"type":"Opaque","immutable":true}}`, "nothing else"},
		{"plain text beside", `{"content":{"type":"Opaque","stringData":{"a":"s3cret"}}}`, "nothing else"},
		{"not base64", `{"content":{"type":"Opaque","data":{"a":"s3cret!"}}}`, "nothing else"},
		{"a key twice", `{"content":{"type":"Opaque","data":{"s3cret":"","s3cret":""}}}`, "nothing else"},
		{"numbers", `{"content":{"type":1}}`, "nothing else"},
	})
	c := secretContent{Type: "Opaque", Data: map[string][]byte{"a": []byte("s3cret")}}
	if out := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(out, "115") || strings.Contains(out, "s3cret") {
		t.Errorf("the content prints itself: %s", out)
	}
}

func TestEncodeSecret(t *testing.T) {
	s := &corev1.Secret{Type: "Opaque", Data: map[string][]byte{"a": []byte(strings.Repeat("<", MaxContent))},
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "y", Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "s3cret"}}}
	text, wrong := Kinds["Secret"].Encode(s)
	if wrong != "" || len(text) > MaxWhole || strings.Contains(text, "s3cret") {
		t.Errorf("the largest does not fit: %s, %d", wrong, len(text))
	}
	s.Annotations["note"] = strings.Repeat("x", maxAnnotations-10)
	if _, wrong = Kinds["Secret"].Encode(s); wrong != "" {
		t.Errorf("annotations, which stay home, take room: %q", wrong)
	}
	s.Data["b"] = []byte("x")
	if _, wrong = Kinds["Secret"].Encode(s); !strings.Contains(wrong, "1048577 bytes, at most 1048576") {
		t.Errorf("too large: %q", wrong)
	}
	s.Type = corev1.SecretTypeServiceAccountToken
	if _, wrong = Kinds["Secret"].Encode(s); !strings.Contains(wrong, "service-account-token") {
		t.Errorf("a token: %q", wrong)
	}
}

func TestMergeSecret(t *testing.T) {
	k := Kinds["Secret"]
	want, _ := k.Decode(secretText("Opaque", "a", []byte("x")), Rules{})
	for _, c := range []struct {
		reason           string
		edit             func(*corev1.Secret)
		changed, replace bool
	}{
		{"nothing", func(*corev1.Secret) {}, false, false},
		{"other data", func(s *corev1.Secret) { s.Data["a"] = []byte("y") }, true, false},
		{"a key more", func(s *corev1.Secret) { s.Data["b"] = nil }, true, false},
		{"another type", func(s *corev1.Secret) { s.Type = "x" }, true, true},
		{"immutable by hand", func(s *corev1.Secret) { s.Immutable = new(true) }, true, true},
		{"not immutable by hand", func(s *corev1.Secret) { s.Immutable = new(false) }, true, false},
	} {
		have := want.DeepCopyObject().(*corev1.Secret)
		c.edit(have)
		before := have.DeepCopy()
		next, changed, replace := k.Merge(have, want)
		if changed != c.changed || replace != c.replace || !same(next, want) {
			t.Errorf("%s: changed %v, replace %v, %v", c.reason, changed, replace, next)
		}
		if !same(before, have) {
			t.Errorf("%s: what is there was touched", c.reason)
		}
	}
}
