package tunnel

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// leaks says how much of a key is in a text, in any of the ways a key is written.
func leaks(text string, key Secret) string {
	k := key.Reveal()
	numbers := strings.Trim(fmt.Sprint(k[:8]), "[]")
	for _, written := range []string{
		hex.EncodeToString(k[:8]), strings.ToUpper(hex.EncodeToString(k[:8])), base64.StdEncoding.EncodeToString(k[:])[:10],
		numbers, strings.ReplaceAll(numbers, " ", ", "), strings.ReplaceAll(numbers, " ", ","), string(k[:8]),
		strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", k[:4]), "[]byte{"), "}"),
	} {
		if strings.Contains(text, written) {
			return written
		}
	}
	return ""
}

func TestSecretIsNeverShown(t *testing.T) {
	key := newKey(t)
	config := Config{Name: "wg", PrivateKey: key, PresharedKey: key}
	type holder struct {
		config  Config
		secrets []Secret
		byName  map[string]Secret
		pointer *Config
	}
	var shown []string
	hidden := holder{config, []Secret{key}, map[string]Secret{"a": key}, &config}
	for _, v := range []any{key, &key, config, &config, hidden, &hidden, []Secret{key}, map[string]any{"k": key}, state{}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%t", "%p", "% x", "%08d"} {
			shown = append(shown, fmt.Sprintf(verb, v))
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		more, err := yaml.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("set", "value", v)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("set", "value", v)
		shown = append(shown, string(text), string(more), log.String(), errors.Join(fmt.Errorf("bad: %v", v)).Error())
	}
	for _, text := range shown {
		if part := leaks(text, key); part != "" {
			t.Errorf("%q of a secret is shown in %q", part, text)
		}
	}
	if got := fmt.Sprintf("%+v", config); !strings.Contains(got, "PrivateKey:(secret)") {
		t.Errorf("nobody can see that there is one: %s", got)
	}
	if leaks(fmt.Sprintf("%x", key.Reveal()), key) == "" {
		t.Error("a leak would not be found")
	}
}

func TestKeysAreRead(t *testing.T) {
	private := append([]byte{9}, make([]byte, 31)...)
	key, err := ParseSecret(base64.StdEncoding.EncodeToString(private))
	if err != nil {
		t.Fatal(err)
	}
	if same, err := SecretOf(private); err != nil || !same.Equal(key) || key.Equal(newKey(t)) || key.Equal(Secret{}) || !(Secret{}).Equal(Secret{}) {
		t.Errorf("equality is wrong, or %v", err)
	}
	public := key.Public()
	// RFC 7748, section 5.2: the base point times itself.
	if got, want := hex.EncodeToString(public[:]), "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"; got != want {
		t.Errorf("the public key is %s, want %s", got, want)
	}
	if again, err := ParsePublicKey(public.String()); err != nil || again != public || public.IsZero() || !(Secret{}).Public().IsZero() {
		t.Errorf("%s is read as %s, %v", public, again, err)
	}
	for _, bad := range []string{"", "abc", public.String() + "=", public.String()[:20], "!" + public.String()[1:]} {
		_, err := ParseSecret(bad)
		if err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q as a secret: %v; want an error that does not quote it", bad, err)
		}
		if _, err := ParsePublicKey(bad); err == nil {
			t.Errorf("%q is a public key", bad)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	key, peer := newKey(t), newKey(t).Public()
	good := Config{Name: "wg", MTU: 1420, PrivateKey: key, Peer: peer, Endpoints: []string{"198.18.0.1:1", "[fd00::1]:65535", "gate.example.org:51820"}}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		reason string
		spoil  func(*Config)
		want   string
	}{
		{"no name", func(c *Config) { c.Name = "" }, "name:"},
		{"a name that Linux refuses", func(c *Config) { c.Name = "sixteen-letters0" }, "name:"},
		{"a name that is a path", func(c *Config) { c.Name = "a/b" }, "name:"},
		{"too small for IPv6", func(c *Config) { c.MTU = 1200 }, "mtu: 1200"},
		{"no key", func(c *Config) { c.PrivateKey = Secret{} }, "privateKey:"},
		{"no peer", func(c *Config) { c.Peer = PublicKey{} }, "peer: is missing"},
		{"ourselves", func(c *Config) { c.Peer = key.Public() }, "own key"},
		{"ourselves, next", func(c *Config) { c.NextPeer = key.Public() }, "own key"},
		{"half a second", func(c *Config) { c.Keepalive = time.Second / 2 }, "keepalive:"},
		{"no port", func(c *Config) { c.Endpoints = []string{"a:1", "b"} }, "endpoints[1]:"},
		{"port 0", func(c *Config) { c.Endpoints = []string{"a:0"} }, "endpoints[0]:"},
		{"no host", func(c *Config) { c.Endpoints = []string{":1"} }, "endpoints[0]:"},
	} {
		config := good
		c.spoil(&config)
		if err := config.validate(); err == nil || !strings.Contains(err.Error(), c.want) || leaks(err.Error(), key) != "" {
			t.Errorf("%s: %v, want %q", c.reason, err, c.want)
		}
	}
}
