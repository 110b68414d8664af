package tunnel

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
)

// redacted is what is seen of a secret.
const redacted = "(secret)"

// Secret is a private key, or a key that both sides share. It is never shown: all
// ways to print, log or encode it give "(secret)", also from inside another value.
// The zero Secret is none.
type Secret struct {
	// Inside a function, since fmt prints unexported fields of a value without asking
	// its methods, and follows pointers there for verbs that do not fit.
	reveal func() [32]byte
}

// NewSecret makes a private key.
func NewSecret() (Secret, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return Secret{}, fmt.Errorf("making a private key: %w", err)
	}
	return SecretOf(key.Bytes())
}

// SecretOf is the secret of 32 bytes, which it copies.
func SecretOf(key []byte) (Secret, error) {
	if len(key) != 32 {
		return Secret{}, fmt.Errorf("a key has 32 bytes, not %d", len(key))
	}
	copied := [32]byte(key)
	return Secret{reveal: func() [32]byte { return copied }}, nil
}

// ParseSecret reads a key as WireGuard's own tools write it, in base64.
func ParseSecret(text string) (Secret, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return Secret{}, errors.New("a key is 32 bytes in base64") // the cause would quote it
	}
	return SecretOf(key)
}

// IsZero reports whether there is none.
func (s Secret) IsZero() bool { return s.reveal == nil }

// Equal reports whether two secrets are the same, in constant time.
func (s Secret) Equal(o Secret) bool {
	a, b := s.Reveal(), o.Reveal()
	return s.IsZero() == o.IsZero() && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Reveal returns the key itself: for whoever stores it in a Secret of Kubernetes or
// gives it to a kernel. It is zero if there is none.
func (s Secret) Reveal() [32]byte {
	if s.IsZero() {
		return [32]byte{}
	}
	return s.reveal()
}

// Public is the public key of a private one, zero if there is none.
func (s Secret) Public() PublicKey {
	if s.IsZero() {
		return PublicKey{}
	}
	key := s.Reveal()
	private, err := ecdh.X25519().NewPrivateKey(key[:])
	if err != nil {
		return PublicKey{} // the length is right, and nothing else can be wrong
	}
	return PublicKey(private.PublicKey().Bytes())
}

// String redacts.
func (s Secret) String() string { return redacted }

// GoString redacts.
func (s Secret) GoString() string { return redacted }

// Format redacts, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue redacts.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText redacts.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON redacts.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(redacted)), nil }

// PublicKey is by which a WireGuard peer is known. The zero PublicKey is none.
type PublicKey [32]byte

// ParsePublicKey reads a key in base64.
func ParsePublicKey(text string) (PublicKey, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != 32 {
		return PublicKey{}, fmt.Errorf("%q is no public key: 32 bytes in base64", text)
	}
	return PublicKey(key), nil
}

// IsZero reports whether there is none.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// String is the key in base64.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// MarshalText is String.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is ParsePublicKey.
func (k *PublicKey) UnmarshalText(text []byte) (err error) {
	*k, err = ParsePublicKey(string(text))
	return err
}
