package reflection

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxSecrets is how many Secrets are looked for of one Ingress.
	maxSecrets = 16
	// bareAfter is at how many looks in a row a Secret is missing before that is said: it may
	// be on its way, and each look is twice as late as the one before.
	bareAfter = 4
)

// secrets finds out which Secrets that an Ingress names for TLS are not there. Only their
// metadata is read.
func (r *provider) secrets(ctx context.Context, c *claim, n *made) error {
	want, wrong := c.kind.Decode(c.shadow.Spec.Object, c.rules)
	ingress, ok := want.(*networkingv1.Ingress)
	if wrong != "" || !ok {
		n.bare = 0
		return nil
	}
	var names []string
	for _, t := range ingress.Spec.TLS {
		if t.SecretName != "" && !slices.Contains(names, t.SecretName) {
			names = append(names, t.SecretName)
		}
	}
	var missing []string
	for _, name := range names[:min(len(names), maxSecrets)] {
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kindSecret))
		switch err := r.live.Get(ctx, client.ObjectKey{Namespace: c.place.name, Name: name}, m); {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil && !apierrors.IsForbidden(err):
			return plain("looking for a Secret of an Ingress", err)
		}
	}
	if len(missing) == 0 {
		n.bare = 0
		return nil
	}
	if n.bare++; n.bare > bareAfter {
		c.rules.NoSecrets = missing
	}
	return nil
}
