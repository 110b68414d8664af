package reflection

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// login is a configuration with a password in it.
func login(password string) []byte {
	return fmt.Appendf(nil, `{"auths":{"registry.example":{"username":"u","password":%q}}}`, password)
}

func pullSecret(namespace, name, password string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: objectMeta(namespace, name), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: login(password)}}
}

func text(kind, key string, value []byte) string {
	return fmt.Sprintf(`{"type":%q,"data":{%q:%q}}`, kind, key, base64.StdEncoding.EncodeToString(value))
}

const (
	jsonType = "kubernetes.io/dockerconfigjson"
	jsonKey  = ".dockerconfigjson"
	cfgType  = "kubernetes.io/dockercfg"
	cfgKey   = ".dockercfg"
)

func TestDecode(t *testing.T) {
	full := []byte(`{"a":"` + strings.Repeat("x", maxContent-8) + `"}`)
	for _, c := range []struct{ reason, text, wrong string }{
		{"what consumers write", text(jsonType, jsonKey, login("s3cret")), ""},
		{"the old format", text(cfgType, cfgKey, []byte(`{"r":{}}`)), ""},
		{"as large as can be", text(jsonType, jsonKey, full), ""},
		{"a byte more", text(jsonType, jsonKey, append(full, ' ')), "at most"},
		{"a text that is too long", text(jsonType, jsonKey, []byte(strings.Repeat(" ", 2*maxText))), "bytes, at most"},
		{"a token mints credentials", text("kubernetes.io/service-account-token", "token", []byte("{}")), "is not carried"},
		{"a bootstrap token lets nodes join", text("bootstrap.kubernetes.io/token", "token-id", []byte("{}")), "is not carried"},
		{"opaque is for later", text("Opaque", "a", []byte("{}")), "is not carried"},
		{"no type", `{"data":{".dockerconfigjson":"e30="}}`, "is not carried"},
		{"the key of another type", text(jsonType, cfgKey, []byte(`{}`)), "must have the key"},
		{"a key more", `{"type":"` + jsonType + `","data":{".dockerconfigjson":"e30=","x":"e30="}}`, "no other"},
		{"no data", `{"type":"` + jsonType + `"}`, "must have the key"},
		{"null", `{"type":"` + jsonType + `","data":{".dockerconfigjson":"bnVsbA=="}}`, "not a JSON object"},
		{"a list", `{"type":"` + jsonType + `","data":{".dockerconfigjson":"W10="}}`, "not a JSON object"},
		{"not JSON", text(jsonType, jsonKey, []byte("s3cret")), "not a JSON object"},
		{"deeper than any", text(jsonType, jsonKey, []byte(strings.Repeat(`{"a":`, 10_001))), "not a JSON object"},
		{"not base64", `{"type":"` + jsonType + `","data":{".dockerconfigjson":"s3cret!"}}`, "not the JSON of a Secret"},
		{"metadata of its own", `{"type":"` + jsonType + `","metadata":{"namespace":"kube-system"},"data":{".dockerconfigjson":"e30="}}`, "nothing else"},
		{"immutable", `{"type":"` + jsonType + `","immutable":true,"data":{".dockerconfigjson":"e30="}}`, "nothing else"},
		{"two objects", text(jsonType, jsonKey, []byte("{}")) + "{}", "after its end"},
		{"nothing", "", "not the JSON"},
		{"a word", "null", "is not carried"},
	} {
		got, err := decode(c.text)
		switch {
		case c.wrong == "" && err != nil, c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: %v, want %q", c.reason, err, c.wrong)
		case err != nil && (strings.Contains(err.Error(), "s3cret") || len(err.Error()) > 400):
			t.Errorf("%s: the error repeats content: %v", c.reason, err)
		case err == nil && strings.Contains(fmt.Sprintf("%v %+v %#v", *got, *got, *got), "registry"):
			t.Errorf("%s: the content prints itself", c.reason)
		}
	}
}

func TestEncode(t *testing.T) {
	s := pullSecret("shop", "registry", "s3cret")
	s.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "s3cret"}
	out, err := encode(s)
	if err != nil || len(out) > maxText {
		t.Fatal(err, len(out))
	}
	got, err := decode(out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Data, got.Data); diff != "" || got.Type != s.Type {
		t.Error(got.Type, diff)
	}
	s.Data[corev1.DockerConfigJsonKey] = []byte(`{"a":"` + strings.Repeat("x", maxContent-8) + `"}`)
	if out, err = encode(s); err != nil || len(out) > maxText {
		t.Errorf("the largest does not fit: %v, %d", err, len(out))
	}
	s.Type = corev1.SecretTypeTLS
	if _, err := encode(s); err == nil || !strings.Contains(err.Error(), "kubernetes.io/tls") {
		t.Errorf("another type: %v", err)
	}
}

// FuzzDecode: whatever a consumer writes, what comes out is small, of a type that may be,
// and encodes to what means the same.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{text(jsonType, jsonKey, login("x")), text(cfgType, cfgKey, []byte("{}")), "{}", "null", `{"type":1}`, `{"data":null}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		c, err := decode(in)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		key := keys[c.Type]
		if key == "" || len(c.Data) != 1 || len(c.Data[key]) > maxContent || !json.Valid(c.Data[key]) {
			t.Errorf("%s passes", c)
		}
		again, err := encode(&corev1.Secret{Type: c.Type, Data: c.Data})
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(again)
		if err != nil || !cmp.Equal(back.Data, c.Data) {
			t.Errorf("it does not come back: %v", err)
		}
	})
}
