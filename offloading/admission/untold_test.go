package admission

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestPoliciesUntold: a Role that is not filled yet holds nobody up, and the manager may
// go on with pods that are there, but makes none that it may not make.
func TestPoliciesUntold(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	plain := g.must(t, g.c, "plain", nil)
	g.inForce(t, plain)
	bound, unbound := simplePod(plain, "bound"), simplePod(plain, "unbound")
	bound.Spec.NodeName = "worker"
	create(t, g.c, bound)
	create(t, g.c, unbound)
	const no = "in namespaces of tenants only"
	want(t, "the status of a pod that is on no virtual node", relabel(t, g.manager, bound, "a", "b", "status"), no)
	for _, key := range []string{v1alpha1.AnnotationAdmissionNodes, v1alpha1.AnnotationAdmissionDaemons, v1alpha1.AnnotationAdmissionCluster} {
		g.tell(t, key, "")
	}
	eventually(t, "each node may be virtual", func() bool { return relabel(t, g.manager, bound, "a", "b", "status") == nil })
	want(t, "making a pod", g.manager.Create(t.Context(), simplePod(plain, "made"), client.DryRunAll), no)
	want(t, "changing one that waits", relabel(t, g.manager, unbound, "a", "b", ""), no)
	named := simplePod(plain, "named")
	named.Spec.NodeName = g.node("milan")
	want(t, "a pod with a node", g.c.Create(t.Context(), named))
	want(t, "a binding", g.bind(t, unbound, g.node("milan"), false))
	_, err := g.namespace(t, g.c, strings.Repeat("n", 54), map[string]string{v1alpha1.LabelOffload: "true"})
	want(t, "a long name", err)
}

// TestPoliciesMany: the longest lists are within what the API server takes and lets an
// expression cost.
func TestPoliciesMany(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	plain := g.must(t, g.c, "plain", nil)
	g.inForce(t, plain)
	last := strings.Repeat("n", 63)
	nodes := []string{g.node("milan")}
	for i := range 3000 {
		nodes = append(nodes, fmt.Sprintf("n%062d", i))
	}
	g.tell(t, v1alpha1.AnnotationAdmissionNodes, strings.Join(append(nodes, last), " "))
	g.tell(t, v1alpha1.AnnotationAdmissionDaemons, strings.Repeat("d", 64<<10-len(plain)-len(" /let"))+" "+plain+"/let")
	let, kept := simplePod(plain, "let"), simplePod(plain, "kept")
	create(t, g.c, let)
	create(t, g.c, kept)
	eventually(t, "a pod is let through", func() bool { return g.bind(t, let, last, false) == nil })
	want(t, "its status by the manager", relabel(t, g.manager, let, "a", "b", "status"))
	want(t, "another one", g.bind(t, kept, last, false), "is not offloaded")
	want(t, "to a node of this cluster", g.bind(t, kept, "worker", false))
	for node, parts := range map[string][]string{last: {"spec.nodeName", "is not offloaded"}, "worker": nil} {
		pod := simplePod(plain, "on-"+node[:1])
		pod.Spec.NodeName = node
		want(t, "a pod with a node", g.c.Create(t.Context(), pod), parts...)
	}
}

// TestRolesOfTheManager: it writes the Role of the policies, in Pelago's own namespace; see
// also TestInstallAgain of cli.
func TestRolesOfTheManager(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	plain := g.must(t, g.c, "plain", nil)
	g.inForce(t, plain)
	for _, name := range []string{v1alpha1.AdmissionName, "another"} {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: plain, Name: name}}
		want(t, "making "+name, g.manager.Create(t.Context(), role, client.DryRunAll), "gives no rights")
		create(t, g.c, role)
		want(t, "changing "+name, relabel(t, g.manager, role, "a", "b", ""), "gives no rights")
		want(t, "removing "+name, g.manager.Delete(t.Context(), role, client.DryRunAll), "gives no rights")
	}
}
