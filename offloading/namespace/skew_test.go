package namespace

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestLaterFields: what a later build has written stays when this one changes a
// NamespaceOffloading and the maps that come of it, here and at the provider.
func TestLaterFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	remote := &v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(milan), Name: v1alpha1.NamespaceMapName}}
	kept := []func(){kubetest.Later(t, w.raw, w.offloading()), kubetest.Later(t, w.raw, homeMap(milan)), kubetest.Later(t, w.raw, remote)}
	w.patch(w.offloading(), "spec", map[string]any{"clusterSelector": map[string]any{"nodeSelectorTerms": []any{map[string]any{
		"matchExpressions": []any{map[string]any{"key": "no-such-label", "operator": "Exists"}}}}}})
	w.settle()
	for _, check := range kept {
		check()
	}
}
