package fleet

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// into copies a watched object into one of the type a caller wants. A peer's object
// need not fit the type.
func into(u *unstructured.Unstructured, obj client.Object) error {
	if out, ok := obj.(*unstructured.Unstructured); ok {
		u.DeepCopyInto(out)
		return nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		return fmt.Errorf("reading the peer's %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// gvkOf returns the kind of an object, or of the items of a list.
func gvkOf(obj runtime.Object, scheme *runtime.Scheme, list bool) (schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if list {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	return gvk, err
}

func labelSet(u *unstructured.Unstructured) labels.Set { return u.GetLabels() }
