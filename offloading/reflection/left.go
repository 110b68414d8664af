package reflection

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// What was made of Secrets and ConfigMaps is remembered by its version, without content: while that and all
// that it was judged by are the same, neither the ShadowObject nor the object is read.

// version is an object as it was at one time; of none if it is empty.
type version struct {
	of      v1alpha1.ObjectRef
	uid     types.UID
	version string
}

func versionOf(o client.Object) version {
	return version{v1alpha1.ObjectRef{Namespace: o.GetNamespace(), Name: o.GetName()}, o.GetUID(), o.GetResourceVersion()}
}

// shown is a ShadowObject in the cache, which holds metadata only; nil if it is not there. One that comes later is looked at
// when it is there.
func (r *provider) shown(ctx context.Context, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ShadowObject"))
	if err := r.client.Get(ctx, key, m); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the metadata of the shadow object: %w", err)
	}
	return m, nil
}

// circumstances are the versions of a tenant's terms and of its map of namespaces.
func (r *provider) circumstances(ctx context.Context, namespace, tenant string) (string, error) {
	t, m := &v1alpha1.Tenant{}, &v1alpha1.NamespaceMap{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: tenant}, t, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the tenant: %w", err)
	}
	key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.NamespaceMapName}
	if err := r.client.Get(ctx, key, m, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the namespace map: %w", err)
	}
	return fmt.Sprintf("/%s/%d/%s/%s", t.UID, t.Generation, m.UID, m.ResourceVersion), nil
}

// unchanged says whether what was made of a ShadowObject is as it was left, and so is all that it was judged by.
func (r *provider) unchanged(ctx context.Context, m *metav1.PartialObjectMetadata, tenant, under string, n made) (bool, error) {
	kind, ok := kindOf(n.kind)
	if !ok || n.judged == "" || n.judged != m.ResourceVersion+under || m.DeletionTimestamp != nil {
		return false, nil
	}
	if ours, err := r.space(ctx, n.left.of.Namespace, tenant, n.home); err != nil || !ours {
		return false, err
	}
	gvk, err := r.client.GroupVersionKindFor(kind.New())
	if err != nil {
		return false, fmt.Errorf("finding the kind %s: %w", kind.Name, err)
	}
	have := &metav1.PartialObjectMetadata{}
	have.SetGroupVersionKind(gvk)
	err = r.live.Get(ctx, client.ObjectKey{Namespace: n.left.of.Namespace, Name: n.left.of.Name}, have)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil // the look at all of it says what follows
	}
	if err != nil {
		return false, plain("reading the metadata of the object", err)
	}
	return versionOf(have) == n.left, nil
}
