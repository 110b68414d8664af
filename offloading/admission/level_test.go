package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// enforce is the label of a namespace that bounds what its pods may do.
const enforce = "pod-security.kubernetes.io/enforce"

// managersLevels: the manager makes no namespace of a tenant, and leaves none, in which pods may do
// what they like, unless the owner has said so in the values of the chart.
func managersLevels(t *testing.T, g *guarded, plain string) {
	const no = "keeps namespaces of tenants at a level"
	with := func(tenant, level, version string) map[string]string {
		labels := map[string]string{v1alpha1.LabelTenant: tenant, v1alpha1.LabelHomeNamespace: "shop", testLabel: g.test}
		if level != "" {
			labels[enforce] = level
		}
		if version != "" {
			labels[enforce+"-version"] = version
		}
		return labels
	}
	for _, c := range []struct {
		prefix, tenant, level, version string
		parts                          []string
	}{
		{"level", "rome", "baseline", "latest", nil}, {"level", "rome", "restricted", "latest", nil}, {"level", "trusted", "privileged", "latest", nil},
		{"level", "rome", "privileged", "latest", []string{no, "tenants.privileged"}}, {"level", "rome", "baseline", "", []string{no}},
		{"level", "rome", "baseline", "v1.20", []string{no}}, {"level", "rome", "", "latest", []string{no}},
		{"pelago-tenant-rome", "rome", "restricted", "latest", nil}, {"pelago-tenant-rome", "rome", "baseline", "latest", []string{no}},
		{"pelago-peering-rome", "rome", "privileged", "latest", []string{no}},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.server.Name(t, c.prefix), Labels: with(c.tenant, c.level, c.version)}}
		want(t, "a namespace "+ns.Name+" at the level "+c.level+c.version, g.manager.Create(t.Context(), ns, client.DryRunAll), c.parts...)
	}
	on := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	mapped, peering := on(g.must(t, g.manager, "kept-rome", with("rome", "", ""))), on(g.must(t, g.manager, "pelago-peering-kept", nil))
	want(t, "another level that bounds", relabel(t, g.manager, mapped, enforce, "restricted", ""))
	want(t, "no bound", relabel(t, g.manager, mapped, enforce, "privileged", ""), no)
	want(t, "no level", relabel(t, g.manager, mapped, enforce, nil, ""), no)
	want(t, "no version", relabel(t, g.manager, mapped, enforce+"-version", nil, ""), no)
	want(t, "an old version", relabel(t, g.manager, mapped, enforce+"-version", "v1.20", ""), no)
	want(t, "giving one without a level to a tenant", relabel(t, g.manager, peering, v1alpha1.LabelTenant, "rome", ""), no)
	want(t, "another label", relabel(t, g.manager, mapped, v1alpha1.LabelOnward, "true", ""))

	want(t, "no bound, by the owner", relabel(t, g.c, mapped, enforce, "privileged", ""))
	want(t, "another label, then", relabel(t, g.manager, mapped, v1alpha1.LabelOnward, nil, ""))
	want(t, "another tenant, then", relabel(t, g.manager, mapped, v1alpha1.LabelTenant, "oslo", ""), no)
	want(t, "a bound", relabel(t, g.manager, mapped, enforce, "baseline", ""))
	want(t, "handing it over", relabel(t, g.manager, mapped, v1alpha1.LabelTenant, nil, ""))
	want(t, "what is offloaded has no level of ours", relabel(t, g.manager, on(plain), v1alpha1.LabelOffloaded, "true", ""))
	want(t, "nor when that ends", relabel(t, g.manager, on(plain), v1alpha1.LabelOffloaded, nil, ""))
}
