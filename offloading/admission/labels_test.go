package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// givenLabels are those of namespaces that only Pelago gives.
var givenLabels = []string{v1alpha1.LabelTenant, v1alpha1.LabelPeering, v1alpha1.LabelHomeNamespace,
	v1alpha1.LabelOnward, v1alpha1.LabelOriginNamespace, v1alpha1.LabelOriginOwner}

// namespacesMade: who may make namespaces makes none that is a tenant's or a peering's, however
// much else is allowed to him.
func namespacesMade(t *testing.T, g *guarded) {
	refused := func(what string, err error, keys ...string) {
		t.Helper()
		want(t, what, err, "leave out "+strings.Join(keys, ", ")+", given by Pelago only")
		for _, key := range givenLabels {
			if err != nil && !slices.Contains(keys, key) && strings.Contains(err.Error(), key) {
				t.Errorf("%s: %v names %s, which is not in question", what, err, key)
			}
		}
	}
	plain := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.must(t, g.c, "made-plain", nil)}}
	for _, key := range givenLabels {
		for _, value := range []string{"rome", ""} {
			_, err := g.namespace(t, g.c, "made", map[string]string{key: value})
			refused("made with "+key+"="+value, err, key)
		}
		applied := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.server.Name(t, "applied")}}
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{%q:%q,%q:"rome"}}}`, applied.Name, testLabel, g.test, key)
		refused("applied with "+key, g.c.Patch(t.Context(), applied, client.RawPatch("application/apply-patch+yaml", []byte(text)), client.FieldOwner("test")), key)
		refused("given to one that is there: "+key, relabel(t, g.c, plain, key, "rome", ""), key)

		mine := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.must(t, g.manager, "pelago-tenant-made", map[string]string{key: "rome"})}}
		refused("changed: "+key, relabel(t, g.c, mine, key, "oslo", ""), key)
		want(t, "another label beside "+key, relabel(t, g.c, mine, "team", "a", ""))
	}
	tenants := map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeNamespace: "shop"}
	_, err := g.namespace(t, g.c, "made", tenants)
	refused("made as a tenant's", err, v1alpha1.LabelTenant, v1alpha1.LabelHomeNamespace)
	g.must(t, g.manager, "made-rome", tenants)
	g.must(t, g.manager, "pelago-peering-made", map[string]string{v1alpha1.LabelPeering: "milan"})
	g.must(t, g.c, "made", map[string]string{v1alpha1.LabelManagedBy: "me", "pelago.dev.example.com/tenant": "rome"})
}
