package network

import (
	"context"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// rereadEvery is how soon it is noticed that somebody else has changed the Secret.
const rereadEvery = time.Minute

// keyring is the Secret with the private keys. It is read past the cache, as a key must not be
// made twice, and written only as it was read.
type keyring struct {
	client    client.Client
	live      client.Reader
	namespace string

	secret *corev1.Secret // nil if there is none
	read   time.Time
	known  bool // it has been read
}

// locks returns what is in the Secret. With an error it is what was there last, and nil if that is not known.
func (k *keyring) locks(ctx context.Context, now time.Time) (map[string]lock, error) {
	if age := now.Sub(k.read); k.read.IsZero() || age >= rereadEvery || age < 0 {
		s := &corev1.Secret{}
		err := k.live.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: v1alpha1.NetworkKeysName}, s)
		switch {
		case apierrors.IsNotFound(err):
			k.secret = nil
		case err != nil:
			err = fmt.Errorf("reading the keys of tunnels: %w", err)
			if !k.known {
				return nil, err
			}
			return unlocked(k.secret), err
		default:
			k.secret = s
		}
		k.read, k.known = now, true
	}
	return unlocked(k.secret), nil
}

// keep writes locks, if they are not what the Secret holds.
func (k *keyring) keep(ctx context.Context, locks map[string]lock) error {
	if k.secret == nil && len(locks) == 0 {
		return nil
	}
	next := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: v1alpha1.NetworkKeysName,
		Labels: map[string]string{v1alpha1.LabelManagedBy: component}}}
	if k.secret != nil {
		next = k.secret.DeepCopy()
	}
	if err := locked(next, locks); err != nil {
		return err
	}
	if k.secret != nil && len(next.Data) == len(k.secret.Data) && (len(next.Data) == 0 || reflect.DeepEqual(next.Data, k.secret.Data)) &&
		next.Annotations[v1alpha1.AnnotationKeys] == k.secret.Annotations[v1alpha1.AnnotationKeys] {
		return nil
	}
	write := func() error { return k.client.Update(ctx, next) }
	if k.secret == nil {
		write = func() error { return k.client.Create(ctx, next) }
	}
	if err := write(); err != nil {
		k.read = time.Time{} // whatever is there now is read again
		return fmt.Errorf("keeping the keys of tunnels in namespace %s: %w", k.namespace, err)
	}
	k.secret = next
	return nil
}
