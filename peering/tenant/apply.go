package tenant

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// fieldOwner is who owns the fields that this package applies.
const fieldOwner = client.FieldOwner("pelago-tenant")

// apply makes an object as it is given, where it is not so yet, whoever else wrote
// the same fields.
func apply(ctx context.Context, c client.Client, obj client.Object) error {
	kind, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return fmt.Errorf("applying %s: %w", obj.GetName(), err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", kind.Kind, obj.GetName(), err)
	}
	// What a Go struct cannot leave out must not be claimed.
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(content, "status")
	if spec, ok := content["spec"].(map[string]any); ok && len(spec) == 0 {
		unstructured.RemoveNestedField(content, "spec")
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", kind.Kind, obj.GetName(), err)
	}
	return nil
}

// remove deletes this very object; one that is gone, or has been replaced, is fine.
func remove(ctx context.Context, c client.Client, obj client.Object) error {
	if obj.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := obj.GetUID()
	err := c.Delete(ctx, obj, client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

// removeNamed deletes an object by name, whatever it is now.
func removeNamed(ctx context.Context, c client.Client, obj client.Object) error {
	if err := c.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}
