package v1alpha1

import (
	"crypto/ecdh"
	"encoding/base64"
	"strings"
	"testing"
)

// TestInBandKey holds that a token makes one pair of keys, of which the public one belongs to the private
// one, that other tokens make others, and that nothing else makes any.
func TestInBandKey(t *testing.T) {
	seen := map[string]bool{}
	for n := range byte(16) {
		token := base64.RawURLEncoding.EncodeToString(append(make([]byte, 31), n))
		private, public, err := InBandKey(token)
		if err != nil {
			t.Fatal(err)
		}
		again, _, _ := InBandKey(token)
		key, err := ecdh.X25519().NewPrivateKey(private)
		if err != nil || string(again) != string(private) || base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()) != public || seen[public] {
			t.Errorf("token %d makes %s, %v", n, public, err)
		}
		if private[0]&7 != 0 || private[31]&128 != 0 || private[31]&64 == 0 {
			t.Errorf("token %d makes a key that WireGuard would write otherwise", n)
		}
		seen[public] = true
	}
	// What was said once is said for ever: invitations outlive updates.
	if _, public, _ := InBandKey(strings.Repeat("A", 43)); public != "H5/ZXj+0ofFVUtrxpK7SVgQQDjSJrNsdwS46ttFECz8=" {
		t.Errorf("a token of zeros makes %s", public)
	}
	for _, wrong := range []string{"", "x", strings.Repeat("A", 42), strings.Repeat("A", 44), strings.Repeat("A", 42) + "B", strings.Repeat("A", 42) + "=", strings.Repeat("/", 43)} {
		if _, _, err := InBandKey(wrong); err == nil {
			t.Errorf("%q is a token", wrong)
		}
	}
}
