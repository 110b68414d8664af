package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AddKind tells a mapper of a kind, of ours or not, what its resource is called. A mapper by itself
// takes what ends with an s for a singular.
func AddKind(m *meta.DefaultRESTMapper, kind schema.GroupVersionKind, scope meta.RESTScope) {
	if kind.Group != GroupVersion.Group || kind.Kind != "NetworkRules" {
		m.Add(kind, scope)
		return
	}
	resource := kind.GroupVersion().WithResource(strings.ToLower(kind.Kind))
	m.AddSpecific(kind, resource, resource, scope)
}
