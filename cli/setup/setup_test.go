package setup

import (
	"io"
	"os"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestPruned holds that all kinds that the chart makes, with everything that it can, are
// looked for when a later installation no longer has them, and when it is removed.
func TestPruned(t *testing.T) {
	all, err := os.Open("../../deploy/testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = all.Close() }()
	kept := []schema.GroupKind{{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, {Kind: "Namespace"}}
	objects, seen := yaml.NewYAMLOrJSONDecoder(all, 1<<16), map[schema.GroupVersionKind]bool{}
	for {
		var o metav1.TypeMeta
		if err := objects.Decode(&o); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if kind := o.GroupVersionKind(); !kind.Empty() && !seen[kind] {
			seen[kind] = true
			if !slices.Contains(pruned, kind) && !slices.Contains(kept, kind.GroupKind()) {
				t.Errorf("%s are made and never pruned", kind)
			}
		}
	}
	if len(seen) < 15 {
		t.Errorf("only %d kinds were read: %v", len(seen), seen)
	}
}
