package kubetest

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// laterField is a field of the spec and the status of every kind that a later build has
// and no type of this one: servers of tests know it, so that only writers can lose it.
const laterField = "fromLater"

// addLater puts the field into a definition.
func addLater(definition *unstructured.Unstructured) error {
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		return err
	}
	for _, each := range versions {
		version, ok := each.(map[string]any)
		if !ok {
			return fmt.Errorf("a version of %s is %T", definition.GetName(), each)
		}
		for _, part := range []string{"spec", "status"} {
			path := []string{"schema", "openAPIV3Schema", "properties", part}
			if _, there, _ := unstructured.NestedMap(version, path...); !there {
				continue
			}
			if err := unstructured.SetNestedField(version, "string", append(path, "properties", laterField, "type")...); err != nil {
				return fmt.Errorf("adding a field to %s: %w", definition.GetName(), err)
			}
		}
	}
	return unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions")
}

// Later writes into spec and status of an object, or into the named one of them, what a
// later build would, and returns a check, to be made after this build has changed the
// object, that it is still there.
func Later(t testing.TB, c client.Client, obj client.Object, only ...string) (kept func()) {
	t.Helper()
	parts := only
	if len(parts) == 0 {
		parts = []string{"spec", "status"}
	}
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(obj.GetNamespace())
	u.SetName(obj.GetName())
	what := gvk.Kind + " " + obj.GetName()
	for _, part := range parts {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{%q:{%q:"kept"}}`, part, laterField))
		if part == "status" {
			err = c.Status().Patch(context.Background(), u, patch)
		} else {
			err = c.Patch(context.Background(), u, patch)
		}
		if err != nil {
			t.Fatalf("writing a later field of the %s of %s: %v", part, what, err)
		}
	}
	before := u.GetResourceVersion()
	return func() {
		t.Helper()
		if err := c.Get(context.Background(), client.ObjectKeyFromObject(u), u); err != nil {
			t.Fatal(err)
		}
		if u.GetResourceVersion() == before {
			t.Errorf("%s has not been changed, which proves nothing", what)
		}
		for _, part := range parts {
			if text, _, _ := unstructured.NestedString(u.Object, part, laterField); text != "kept" {
				t.Errorf("the %s of %s has lost a field that a later build has written", part, what)
			}
		}
	}
}
