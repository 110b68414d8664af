package v1alpha1

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
)

func TestAddKind(t *testing.T) {
	m := meta.NewDefaultRESTMapper(nil)
	for kind, want := range map[string]string{"NetworkRules": "networkrules", "NetworkConfig": "networkconfigs", "Identity": "identities"} {
		AddKind(m, GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
		if got, err := m.RESTMapping(GroupVersion.WithKind(kind).GroupKind(), "v1alpha1"); err != nil || got.Resource.Resource != want {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
	}
}
