package network

import (
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// keyLife is how old a private key becomes before it is replaced.
const keyLife = 30 * 24 * time.Hour

// inUseAfter is how long a key has to be published before the one before it is dropped: agents
// learn of what is published and of the Secret by two ways.
const inUseAfter = 10 * time.Second

// maxRotate bounds what is remembered of a value of AnnotationRotate, in bytes.
const maxRotate = 128

// lock is the private key of one tunnel, and the one that will be used next if there is one.
type lock struct {
	key, next tunnel.Secret
	// made is when key was made or came into use, asked the value of AnnotationRotate that
	// has been answered.
	made  time.Time
	asked string
}

// history is what is remembered of a lock besides its keys.
type history struct {
	Made  metav1.Time `json:"made"`
	Asked string      `json:"asked,omitempty"`
}

// published is what of a lock is said to the other side, by what was said before and what that
// side knows: the next key takes the place of the key as soon as it is known there.
func (l lock) published(before, known string) (key, next string) {
	if l.next.IsZero() {
		return l.key.Public().String(), ""
	}
	if next := l.next.Public().String(); known == next || before == next {
		return next, ""
	}
	return l.key.Public().String(), l.next.Public().String()
}

// turn is the next step of one lock: a key if there is none; a next one if that is asked for or
// the key is old; and the next one in place of the key once it has been published as that for a
// while. Agents go by what is published, and find the private key to it at any moment. It says
// whether a key was replaced.
func (l lock) turn(asked string, inUse bool, now time.Time, fresh func() (tunnel.Secret, error)) (after lock, replaced bool, err error) {
	if len(asked) > maxRotate {
		asked = asked[:maxRotate]
	}
	switch {
	case l.key.IsZero():
		key, err := fresh()
		if err != nil {
			return l, false, err
		}
		return lock{key: key, made: now, asked: asked}, false, nil
	case !l.next.IsZero() && inUse:
		return lock{key: l.next, made: now, asked: l.asked}, true, nil
	case !l.next.IsZero():
		return l, false, nil
	case asked != "" && asked != l.asked, now.Sub(l.made) >= keyLife, l.made.Sub(now) > keyLife:
		if l.next, err = fresh(); err != nil {
			return l, false, err
		}
		if asked != "" {
			l.asked = asked
		}
		return l, false, nil
	}
	return l, false, nil
}

// equal says whether two locks are the same.
func (l lock) equal(o lock) bool {
	return l.key.Equal(o.key) && l.next.Equal(o.next) && l.made.Equal(o.made) && l.asked == o.asked
}

// unlocked reads the locks of a Secret, by key of the peering. What cannot be read is none.
func unlocked(s *corev1.Secret) map[string]lock {
	locks := map[string]lock{}
	if s == nil {
		return locks
	}
	var told map[string]history
	if json.Unmarshal([]byte(s.Annotations[v1alpha1.AnnotationKeys]), &told) != nil {
		told = nil
	}
	for name, text := range s.Data {
		key, err := tunnel.ParseSecret(string(text))
		if err != nil || strings.HasSuffix(name, nextName("")) {
			continue
		}
		l := lock{key: key, made: told[name].Made.Time, asked: told[name].Asked}
		if l.made.IsZero() {
			l.made = s.CreationTimestamp.Time
		}
		if next, err := tunnel.ParseSecret(string(s.Data[nextName(name)])); err == nil {
			l.next = next
		}
		locks[name] = l
	}
	return locks
}

// nextName is the name of the next key of a peering.
func nextName(key string) string { return v1alpha1.NetworkNextKey(key) }

// locked writes locks into a Secret, and removes all that is none of them.
func locked(s *corev1.Secret, locks map[string]lock) error {
	data, told := map[string][]byte{}, map[string]history{}
	for name, l := range locks {
		data[name] = encoded(l.key)
		if !l.next.IsZero() {
			data[nextName(name)] = encoded(l.next)
		}
		told[name] = history{Made: metav1.NewTime(l.made), Asked: l.asked}
	}
	text, err := json.Marshal(told)
	if err != nil {
		return fmt.Errorf("writing down when keys were made: %w", err)
	}
	s.Data = data
	s.Annotations = maps.Clone(s.Annotations)
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[v1alpha1.AnnotationKeys] = string(text)
	return nil
}

func encoded(s tunnel.Secret) []byte {
	key := s.Reveal()
	return []byte(base64.StdEncoding.EncodeToString(key[:]))
}

// maker makes private keys of randomness.
func maker(random io.Reader) func() (tunnel.Secret, error) {
	return func() (tunnel.Secret, error) {
		seed := make([]byte, 32)
		if _, err := io.ReadFull(random, seed); err != nil {
			return tunnel.Secret{}, fmt.Errorf("making a private key: %w", err)
		}
		key, err := ecdh.X25519().NewPrivateKey(seed)
		if err != nil {
			return tunnel.Secret{}, fmt.Errorf("making a private key: %w", err)
		}
		return tunnel.SecretOf(key.Bytes())
	}
}
