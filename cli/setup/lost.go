package setup

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Lost are the kinds, their versions and their fields that definitions of an installation in the cluster have and the
// given objects do not, like "tenants.pelago.dev v1alpha1 spec.limits", sorted: who applies these objects is older than
// what is there, and what is stored in such fields would be gone with the next write.
func (s Site) Lost(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
	var lost []string
	known := map[string]bool{}
	for _, object := range objects {
		if object.GroupVersionKind() != definitionKind {
			continue
		}
		known[object.GetName()] = true
		there := &unstructured.Unstructured{}
		there.SetGroupVersionKind(definitionKind)
		switch err := s.Client.Get(ctx, client.ObjectKeyFromObject(object), there); {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("reading the definition of %s: %w", object.GetName(), err)
		}
		before, now := schemas(there), schemas(object)
		for version, was := range before {
			about := object.GetName() + " " + version
			if is, has := now[version]; has {
				lost = append(lost, fieldsLost(about+" ", was, is)...)
			} else {
				lost = append(lost, about)
			}
		}
	}
	all, err := s.labelled(ctx, definitionKind, client.MatchingLabels{v1alpha1.LabelManagedBy: Installed})
	if err != nil {
		return nil, err
	}
	for i := range all {
		if !known[all[i].Name] {
			lost = append(lost, all[i].Name)
		}
	}
	slices.Sort(lost)
	return lost, nil
}

// schemas are those of the versions of a definition, by name.
func schemas(definition *unstructured.Unstructured) map[string]map[string]any {
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	all := map[string]map[string]any{}
	for _, v := range versions {
		if version, is := v.(map[string]any); is {
			name, _, _ := unstructured.NestedString(version, "name")
			all[name], _, _ = unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		}
	}
	return all
}

// fieldsLost are the paths of properties that one schema has and another has not.
func fieldsLost(path string, was, is map[string]any) (lost []string) {
	if keeps, _ := is["x-kubernetes-preserve-unknown-fields"].(bool); keeps {
		return nil
	}
	for _, below := range []struct{ key, mark string }{{"items", "[]"}, {"additionalProperties", "{}"}} {
		before, had := was[below.key].(map[string]any)
		now, has := is[below.key].(map[string]any)
		if had && has {
			lost = append(lost, fieldsLost(path+below.mark, before, now)...)
		}
	}
	before, _ := was["properties"].(map[string]any)
	now, _ := is["properties"].(map[string]any)
	dot := "."
	if path[len(path)-1] == ' ' {
		dot = ""
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		field, has := now[name].(map[string]any)
		if !has {
			lost = append(lost, path+dot+name)
			continue
		}
		deeper, _ := before[name].(map[string]any)
		lost = append(lost, fieldsLost(path+dot+name, deeper, field)...)
	}
	return lost
}
