package reflection

import (
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// uncalled says why a provider's own pods do not call a Service that its owner lets them call: the build there has
// a network, and knows no callers. It is "" if it does, or nobody lets them.
func uncalled(there v1alpha1.ClusterInfo, says v1alpha1.NamespaceOffloadingSpec, kind string, obj client.Object) string {
	if kind != kindService || !says.Opens(obj) || !slices.Contains(there.Features, v1alpha1.FeatureNetwork) || slices.Contains(there.Features, v1alpha1.FeatureCallers) {
		return ""
	}
	version := there.Version
	if version == "" {
		version = "of an unknown version"
	}
	return fmt.Sprintf("the provider runs Pelago %.64s, which does not know %s; it is called there by this cluster's pods alone until that is upgraded", version, v1alpha1.FeatureCallers)
}
