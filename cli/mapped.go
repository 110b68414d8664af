package cli

import (
	"strings"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// mappedAt is what became of a namespace of this cluster at others, by the names of
// their peerings.
func mappedAt(maps []v1alpha1.NamespaceMap, namespace string) map[string]v1alpha1.MappedNamespace {
	mapped := map[string]v1alpha1.MappedNamespace{}
	for _, m := range maps {
		peering, ours := strings.CutPrefix(m.Namespace, v1alpha1.PeeringNamespacePrefix)
		if at, has := m.Status.Namespaces[namespace]; ours && has {
			mapped[peering] = at
		}
	}
	return mapped
}
