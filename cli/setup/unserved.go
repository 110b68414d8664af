package setup

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Unserved are the kinds of objects that the cluster does not serve and that no definition among the objects makes, each
// once, in the order of the objects: to apply these would end in the middle.
func (s Site) Unserved(objects []*unstructured.Unstructured) ([]schema.GroupVersionKind, error) {
	looked := map[schema.GroupKind]bool{}
	for _, object := range objects {
		if object.GroupVersionKind() == definitionKind {
			group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
			looked[schema.GroupKind{Group: group, Kind: kind}] = true
		}
	}
	var unserved []schema.GroupVersionKind
	for _, object := range objects {
		kind := object.GroupVersionKind()
		if looked[kind.GroupKind()] {
			continue
		}
		looked[kind.GroupKind()] = true
		switch _, err := s.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); {
		case meta.IsNoMatchError(err):
			unserved = append(unserved, kind)
		case err != nil:
			return nil, fmt.Errorf("asking for kind %s: %w", kind.Kind, err)
		}
	}
	return unserved, nil
}
