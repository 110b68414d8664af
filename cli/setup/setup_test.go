package setup

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestPruned holds that all kinds that the chart makes, with everything that it can, are
// looked for when a later installation no longer has them, and when it is removed.
func TestPruned(t *testing.T) {
	all, err := os.ReadFile("../../deploy/testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kept := []schema.GroupKind{{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, {Kind: "Namespace"}}
	for named := range strings.Lines(string(all)) { // what is generated is there by kind and name only, in comments
		words := strings.Fields(named)
		if len(words) != 3 || words[0] != "#" {
			break
		}
		if !slices.ContainsFunc(pruned, func(k schema.GroupVersionKind) bool { return k.Kind == words[1] }) &&
			!slices.ContainsFunc(kept, func(k schema.GroupKind) bool { return k.Kind == words[1] }) {
			t.Errorf("%s are made and never pruned", words[1])
		}
	}
	objects, seen := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(all), 1<<16), map[schema.GroupVersionKind]bool{}
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
