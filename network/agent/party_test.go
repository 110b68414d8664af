package agent

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/plan"
)

// hopFacts are those of a cluster between turin, its tenant, and milan, its provider, at which turin's
// namespace x runs too: a pod of turin's and one of this cluster's own are there.
func hopFacts() facts {
	f := someFacts()
	toMilan, toTurin, turin := &f.configs[0], &f.configs[2], &f.configs[3]
	turin.Status.Views[0].View = "10.82.0.0/16"
	toMilan.Spec.Pods, toTurin.Spec.Pods = append(toMilan.Spec.Pods, "10.82.0.0/16"), append(toTurin.Spec.Pods, "10.81.0.0/16")
	f.given[0].Endpoints[0].Addresses[0] = "10.82.1.1"
	theirs := podAt(labelled("x", "far", v1alpha1.LabelTenant, "turin"), "milan", "10.81.3.9")
	f.hosted = append(f.hosted, theirs)
	f.away["milan"] = append(f.away["milan"], theirs)
	f.maps[0].Spec.Namespaces["x"] = v1alpha1.NamespaceMapping{}
	return f
}

// TestInputHop is what follows of a provider at which a tenant's pods run.
func TestInputHop(t *testing.T) {
	const own = "10.42.0.0/16"
	milanMay := "10.42.1.5 10.82.1.1" // what Services of shop have here, and those of x at turin
	milan, turin := "10.42.3.4 10.42.3.9", "10.42.2.7 10.81.3.9"
	whole := []dataplane.Party{{There: addrs("10.42.3.9"), Ranges: prefixes("10.82.0.0/16"), With: addrs("10.42.2.7")}}
	empty := []dataplane.Party{{Ranges: prefixes("10.82.0.0/16"), With: addrs("10.42.2.7")}}
	for _, c := range []struct {
		reason             string
		facts              func(*facts)
		pods               string
		toMilan, toTurin   string // transit
		hereMilan, atMilan string // that milan may reach, and what of it is reached
		hereTurin          string
		parties            []dataplane.Party
	}{
		{"each leads to the other, and is kept from the rest", nil, own, "10.82.0.0/16", "10.81.0.0/16", milanMay, milan, turin, whole},
		{"the tenant is not told of milan", func(f *facts) { f.configs[2].Spec.Pods = f.configs[2].Spec.Pods[:1] }, own, "10.82.0.0/16", "", milanMay, milan, "10.42.2.7", whole},
		{"milan is not told of the tenant, whose pod is kept apart all the same", func(f *facts) { f.configs[0].Spec.Pods = f.configs[0].Spec.Pods[:1] }, own, "", "10.81.0.0/16", "10.42.1.5", milan, turin,
			[]dataplane.Party{{There: addrs("10.42.3.9"), With: addrs("10.42.2.7")}}},
		{"the tenant's pod is not there yet", func(f *facts) { f.away["milan"], f.hosted = f.away["milan"][:1], f.hosted[:2] }, own, "10.82.0.0/16", "10.81.0.0/16", milanMay, "10.42.3.4", "10.42.2.7", empty},
		{"its pod has no address", func(f *facts) { f.away["milan"][1].Status.PodIPs, f.hosted[2].Status.PodIPs = nil, nil }, own, "10.82.0.0/16", "10.81.0.0/16", milanMay, "10.42.3.4", "10.42.2.7", empty},
		{"what it gives in other namespaces is not for milan", func(f *facts) { delete(f.maps[0].Spec.Namespaces, "x") }, own, "10.82.0.0/16", "10.81.0.0/16", "10.42.1.5", milan, turin, whole},
		{"nor what it gives in one that is not to be reached", func(f *facts) {
			f.offloaded = []v1alpha1.NamespaceOffloading{{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: v1alpha1.OffloadingName}, Spec: v1alpha1.NamespaceOffloadingSpec{Reachability: v1alpha1.ReachNone}}}
		}, own, "10.82.0.0/16", "10.81.0.0/16", "10.42.1.5", "10.42.3.4", turin, whole},
		{"an address that is no tenant's in the other's list", func(f *facts) { f.given[0].Endpoints[0].Addresses[0] = "10.99.1.1" }, own, "10.82.0.0/16", "10.81.0.0/16", "10.42.1.5", milan, turin, whole},
		{"another tenant's pod there is another party", func(f *facts) {
			of := podAt(labelled("y", "far", v1alpha1.LabelTenant, "genoa"), "milan", "10.81.3.10")
			f.hosted, f.away["milan"] = append(f.hosted, of), append(f.away["milan"], of)
		}, own, "10.82.0.0/16", "10.81.0.0/16", milanMay, milan + " 10.42.3.10", turin,
			append([]dataplane.Party{{There: addrs("10.42.3.10"), With: addrs("10.42.2.8")}}, whole...)},
		{"a tenant that is gone leads nowhere, nor is what it had ours", func(f *facts) { f.configs[3].Spec.PublicKey = "" }, own, "", "", "10.42.1.5", milan, "",
			[]dataplane.Party{{There: addrs("10.42.3.9"), With: addrs("10.42.2.7")}}},
		{"what leads to another tenant is not for one", func(f *facts) {
			consumer, provider := networkConfig("pelago-tenant-genoa", "consumer", 7, own), networkConfig("pelago-tenant-genoa", "provider", 8, own+" 10.82.0.0/16")
			f.configs, f.keys["tenant-genoa"] = append(f.configs, consumer, provider), encoded(secret(8))
		}, own, "10.82.0.0/16", "10.81.0.0/16", milanMay, milan, turin, whole},
	} {
		f := hopFacts()
		if c.facts != nil {
			c.facts(&f)
		}
		k := input(f)
		if len(k.problems) > 0 {
			t.Errorf("%s: problems are %v", c.reason, k.problems)
		}
		sameTexts(t, c.reason+": the pods here", c.pods, k.input.Pods)
		for _, p := range k.input.Peerings {
			switch p.Key {
			case "peering-milan":
				sameTexts(t, c.reason+": what leads from milan", c.toMilan, p.Transit)
				sameTexts(t, c.reason+": what milan may reach", c.hereMilan, p.Here)
				sameTexts(t, c.reason+": what is reached at milan", c.atMilan, p.There)
				if d := cmp.Diff(c.parties, p.Parties, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()); d != "" {
					t.Errorf("%s: who is kept apart (-want +got):\n%s", c.reason, d)
				}
			case "tenant-turin":
				sameTexts(t, c.reason+": what leads from turin", c.toTurin, p.Transit)
				sameTexts(t, c.reason+": what turin may reach", c.hereTurin, p.Here)
				if len(p.Parties) > 0 {
					t.Errorf("%s: of a tenant's, who has pods of nobody else: %v", c.reason, p.Parties)
				}
			case "tenant-genoa":
				sameTexts(t, c.reason+": what leads from genoa", "", p.Transit)
			}
		}
		for _, problem := range plan.Compute(k.input).Problems {
			if strings.Contains(problem.Text, "transit") || strings.Contains(problem.Text, "part") {
				t.Errorf("%s: the plan says: %v", c.reason, problem)
			}
		}
	}
}

// sameTexts compares a list with a text.
func sameTexts[T netip.Addr | netip.Prefix](t *testing.T, what, want string, got []T) {
	t.Helper()
	var texts []string
	for _, one := range got {
		texts = append(texts, any(one).(interface{ String() string }).String())
	}
	if d := cmp.Diff(strings.Fields(want), texts, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}
