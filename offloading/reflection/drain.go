package reflection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=list

// mappedRole is what the manager is bound to in mapped namespaces.
const mappedRole = "pelago-manager-mapped"

// mostOwners bounds how many pods a NetworkPolicy is left to: those that end last. A reference is some 170 bytes with what
// Kubernetes notes of it, and a tenant may have more pods than an object has room for.
const mostOwners = 100

// drainPages bounds how many lists one kind in one namespace may take: a tenant never has so many objects.
const drainPages = 1000

// Drainer removes what was made for a tenant that ends, in namespaces that do not take it along: one that holds volume
// claims is kept, and is nobody's then, so that Secrets and Services would be left in it for good. All others are
// deleted, in which Kubernetes itself sees to it that what isolates pods outlives them.
type Drainer struct {
	// Client writes, and Live reads past the cache, which has no content of these kinds.
	Client client.Client
	Live   client.Reader
}

// Empty asks for the end of everything that was made in a mapped namespace for its tenant. What does not go holds up
// nothing else.
func (d Drainer) Empty(ctx context.Context, n *corev1.Namespace) error {
	namespace, tenant := n.Name, mappedFor(n)
	if tenant == "" {
		return nil
	}
	var failed []error
	for _, name := range carried {
		kind, _ := kindOf(name)
		remove := d.remove
		if name == kindPolicy {
			pods, err := d.pods(ctx, namespace, tenant)
			if err != nil {
				return errors.Join(append(failed, err)...)
			}
			if len(pods) > 0 {
				remove = func(ctx context.Context, made *metav1.PartialObjectMetadata) error { return d.leaveTo(ctx, made, pods) }
			}
		}
		var first error
		err := eachMade(ctx, d.Client, d.Live, namespace, tenant, kind, drainPages, func(made *metav1.PartialObjectMetadata) error {
			if made.DeletionTimestamp != nil {
				return nil
			}
			if err := client.IgnoreNotFound(remove(ctx, made)); err != nil && first == nil {
				first = plain("removing an object of a tenant that ends", err)
			}
			return ctx.Err()
		})
		if apierrors.IsForbidden(err) {
			armed, err := d.armed(ctx, namespace)
			if err == nil && !armed {
				return nil // nothing was made there without that right
			}
			return errors.Join(err, errForbidden)
		}
		failed = append(failed, first, err)
	}
	return errors.Join(failed...)
}

// remove deletes this very object.
func (d Drainer) remove(ctx context.Context, made *metav1.PartialObjectMetadata) error {
	return d.Client.Delete(ctx, made, client.Preconditions{UID: &made.UID})
}

// leaveTo lets a NetworkPolicy go when the last of the pods has gone that it isolates while they end: Kubernetes
// collects what has no owner any more.
func (d Drainer) leaveTo(ctx context.Context, made *metav1.PartialObjectMetadata, pods []metav1.OwnerReference) error {
	left := func(o metav1.OwnerReference) bool { return slices.Contains(pods, o) }
	if slices.ContainsFunc(made.OwnerReferences, left) {
		return nil // as a look before this one did
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": made.UID, "ownerReferences": pods}})
	if err != nil {
		return err
	}
	return d.Client.Patch(ctx, made, client.RawPatch(types.MergePatchType, patch))
}

// pods are those of a tenant in a namespace that end last, as owners.
func (d Drainer) pods(ctx context.Context, namespace, tenant string) (owners []metav1.OwnerReference, err error) {
	var last []metav1.PartialObjectMetadata
	for next, more := "", true; more; more = next != "" {
		list := metadataList(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := d.Live.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelTenant: tenant},
			client.Limit(sweepPage), client.Continue(next))
		if err != nil {
			return nil, fmt.Errorf("listing the tenant's pods: %w", err)
		}
		last = append(last, list.Items...)
		slices.SortStableFunc(last, endsLater)
		last = last[:min(len(last), mostOwners)]
		next = list.Continue
	}
	for i := range last {
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: last[i].Name, UID: last[i].UID})
	}
	return owners, nil
}

// endsLater puts what nobody has deleted yet first, and then what has the most time.
func endsLater(a, b metav1.PartialObjectMetadata) int {
	switch x, y := a.DeletionTimestamp, b.DeletionTimestamp; {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return -1
	case y == nil:
		return 1
	default:
		return y.Compare(x.Time)
	}
}

// errForbidden says that the manager may not do yet, or not any more, what it has been given the right to.
var errForbidden = errors.New("the manager may not look for what was made for the tenant")

// armed says whether the manager has been given its rights in a namespace, be it a moment ago.
func (d Drainer) armed(ctx context.Context, namespace string) (bool, error) {
	list := &rbacv1.RoleBindingList{}
	if err := d.Live.List(ctx, list, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelTenant}); err != nil {
		return false, fmt.Errorf("listing role bindings: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].RoleRef.Name == mappedRole {
			return true, nil
		}
	}
	return false, nil
}
