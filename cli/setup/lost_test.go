package setup

import (
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestFieldsLost holds that each field is found that one schema has and another lacks, and none where all are kept.
func TestFieldsLost(t *testing.T) {
	read := func(text string) (all map[string]any) {
		t.Helper()
		if err := yaml.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	was := read(`
properties:
  spec:
    properties:
      old: {type: string}
      limits: {additionalProperties: {properties: {a: {}, b: {}}}}
      list: {items: {properties: {c: {}, d: {}}}}
      free: {properties: {e: {}}}
  status: {}
`)
	is := read(`
properties:
  spec:
    properties:
      new: {type: string}
      limits: {additionalProperties: {properties: {a: {}}}}
      list: {items: {properties: {c: {}}}}
      free: {x-kubernetes-preserve-unknown-fields: true}
`)
	if got, want := fieldsLost("tenants v1 ", was, is), []string{"tenants v1 spec.limits{}.b", "tenants v1 spec.list[].d", "tenants v1 spec.old", "tenants v1 status"}; !slices.Equal(got, want) {
		t.Errorf("lost are %q, want %q", got, want)
	}
	if got := fieldsLost("tenants v1 ", was, was); len(got) > 0 {
		t.Errorf("of the same schema %q are lost", got)
	}
}
