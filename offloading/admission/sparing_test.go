package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// spareTries is how often a request is repeated: other tests write nodes meanwhile, which
// belong to no namespace, and for which the same conditions are evaluated.
const spareTries = 10

// sparing: which policies the API server converts the objects of a request for, and of
// these that they end with their conditions. It does so for each pod of the cluster.
func sparing(t *testing.T, g *guarded, plain, offloaded string) {
	mapped := g.must(t, g.manager, "spare-rome", map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeNamespace: "shop"})
	tenant := g.must(t, g.manager, "pelago-tenant-spare", nil)
	nodes := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1.NamespaceNodeLease}}
	g.borrow(t, nodes)
	pod := func(namespace, node string) *corev1.Pod {
		p := simplePod(namespace, "spare-"+strings.TrimSuffix(node, "-"+g.test))
		p.Spec.NodeName = node
		create(t, g.c, p)
		return p
	}
	times := 0
	next := func() string { times++; return fmt.Sprint("b", times) }
	remote, virtual, local := pod(mapped, "worker"), pod(offloaded, g.node("milan")), pod(plain, "worker")
	for _, c := range []struct {
		reason  string
		request func() error
		want    []string
	}{
		{"pods of tenants: their labels say that the manager may write them",
			func() error { return relabel(t, g.c, remote, "a", next(), "status") }, nil},
		{"so too when they go", func() error { return g.c.Delete(t.Context(), remote, client.GracePeriodSeconds(0), client.DryRunAll) }, nil},
		{"a pod that is made at a provider may not name a virtual node",
			func() error { return g.manager.Create(t.Context(), simplePod(mapped, "spare"), client.DryRunAll) }, []string{"pelago-pods"}},
		{"one of an offloaded namespace may, and must not be made by the manager",
			func() error { return g.c.Create(t.Context(), simplePod(offloaded, "spare"), client.DryRunAll) }, []string{"pelago-manager-pods"}},
		{"all others: neither", func() error { return g.c.Create(t.Context(), simplePod(plain, "spare"), client.DryRunAll) }, []string{"pelago-manager-pods", "pelago-pods"}},
		{"a pod on a virtual node: the manager's, by one condition",
			func() error { return relabel(t, g.manager, virtual, "a", next(), "status") }, []string{"pelago-manager-pods"}},
		{"a pod elsewhere: not by the manager", func() error { return relabel(t, g.c, local, "a", next(), "status") }, []string{"pelago-manager-pods"}},
		{"what a tenant writes is within bounds, by one condition", func() error {
			return g.c.Create(t.Context(), &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "spare"}}, client.DryRunAll)
		}, []string{"pelago-tenant-objects"}},
		{"leases of nodes are everybody's", func() error {
			return g.c.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: nodes.Name, Name: g.node("spare")}}, client.DryRunAll)
		}, nil},
	} {
		var different string
		for range spareTries {
			before := g.conditions(t)
			if err := c.request(); err != nil {
				t.Fatalf("%s: %v", c.reason, err)
			}
			got := sets.New[string]()
			for policy, count := range g.conditions(t) {
				if count != before[policy] {
					got.Insert(policy)
				}
			}
			if different = cmp.Diff(sets.New(c.want...), got); different == "" {
				break
			}
		}
		if different != "" {
			t.Errorf("%s: policies whose conditions were evaluated (-want +got):\n%s", c.reason, different)
		}
	}
}

// conditions says of each of the policies how often a request ended with its conditions,
// as the API server counts.
func (g *guarded) conditions(t *testing.T) map[string]string {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(g.server.Config)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		rest, ours := strings.CutPrefix(line, "apiserver_admission_match_condition_evaluation_seconds_count{")
		_, rest, named := strings.Cut(rest, `name="`)
		if name, _, of := strings.Cut(rest, "-"+g.test+`"`); ours && named && of {
			found[name] += line // one for each operation
		}
	}
	return found
}

// leasesOfNodes: in the namespace of kubelets' leases the manager writes leases, and has
// no other way.
func leasesOfNodes(t *testing.T, g *guarded) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1.NamespaceNodeLease}}
	g.borrow(t, ns)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: g.node("milan")}}
	want(t, "a virtual node's lease", g.manager.Create(t.Context(), lease, client.DryRunAll))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "a"}}
	eventually(t, "the policies are in force there", func() bool { return g.manager.Create(t.Context(), account.DeepCopy(), client.DryRunAll) != nil })
	want(t, "an account beside leases", g.manager.Create(t.Context(), account, client.DryRunAll), "in tenant namespaces only")
	want(t, "removing the namespace of leases", g.manager.Delete(t.Context(), ns, client.DryRunAll), "only namespaces of peerings")
}

// borrow puts the policies in force for a namespace of the cluster, until the test ends.
func (g *guarded) borrow(t *testing.T, ns *corev1.Namespace) {
	t.Helper()
	if err := relabel(t, g.c, ns, testLabel, g.test, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		back := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, testLabel))
		_ = g.c.Patch(context.Background(), ns, back)
	})
}
