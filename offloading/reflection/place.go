package reflection

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// What a consumer sends is made in the namespace that is mapped for its own, and in no other.

// place finds the namespace mapped for an object.
func (r *provider) place(ctx context.Context, s *v1alpha1.ShadowObject, tenant string) (place, error) {
	m := &v1alpha1.NamespaceMap{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: v1alpha1.NamespaceMapName}, m)
	if apierrors.IsNotFound(err) {
		return place{}, nil // the consumer makes it again if it was lost
	} else if err != nil {
		return place{}, fmt.Errorf("reading the namespace map: %w", err)
	}
	mapped, there := m.Status.Namespaces[s.Spec.Home.Namespace]
	switch {
	case !there:
		return place{over: m.Status.ObservedGeneration == m.Generation}, nil
	case mapped.Phase == v1alpha1.MappingPending:
		return place{}, nil
	case mapped.Phase != v1alpha1.MappingReady || mapped.Name == "":
		return place{over: true}, nil
	}
	ours, err := r.space(ctx, mapped.Name, tenant, s.Spec.Home.Namespace)
	if err != nil || !ours {
		return place{}, err
	}
	return place{name: mapped.Name}, nil
}

// space says whether a namespace is there and was made for a tenant, and for a namespace
// at home unless that is empty.
func (r *provider) space(ctx context.Context, name, tenant, home string) (bool, error) {
	n := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, n); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading the namespace %s: %w", name, err)
	}
	return n.DeletionTimestamp == nil && mappedFor(n) == tenant && (home == "" || n.Labels[v1alpha1.LabelHomeNamespace] == home), nil
}
