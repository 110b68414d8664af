package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/plan"
)

func reaching(namespace string, r v1alpha1.Reachability) v1alpha1.NamespaceOffloading {
	return v1alpha1.NamespaceOffloading{ObjectMeta: labelled(namespace, "offloading"), Spec: v1alpha1.NamespaceOffloadingSpec{Reachability: r}}
}

// reachFacts are those with tokens in shop, with what says how far each side and namespace goes.
func reachFacts(home, tenant v1alpha1.Reachability, spaces ...v1alpha1.NamespaceOffloading) facts {
	f := apiFacts()
	f.configs[0].Spec.Reachability, f.configs[2].Spec.Reachability = home, tenant
	f.offloaded = append(spaces, f.offloaded[1])
	if len(spaces) == 0 {
		f.offloaded = apiFacts().offloaded
	}
	f.inside = map[string][]corev1.Pod{
		"shop": {podAt(labelled("shop", "web"), "milan", "10.81.3.4"), podAt(labelled("shop", "back"), "a", "10.42.1.5"), podAt(labelled("shop", "quiet"), "b", "10.42.2.50")},
		"lone": {podAt(labelled("lone", "x"), "b", "10.42.2.60"), podAt(labelled("lone", "ended"), "b", "10.42.2.61")},
	}
	f.inside["lone"][1].Status.Phase = corev1.PodSucceeded
	return f
}

func TestInputReach(t *testing.T) {
	const none, usual, full = v1alpha1.ReachNone, v1alpha1.ReachOffloadedOnly, v1alpha1.ReachFull
	call := []netip.AddrPort{netip.MustParseAddrPort("10.51.0.2:443")}
	usually := []plan.Peering{
		{Limited: true, Here: addrs("10.42.1.5"), There: addrs("10.42.3.4", "10.42.3.5")},
		{Limited: true, Here: addrs("10.42.2.7"), There: addrs("10.50.1.1", "10.51.0.2")},
	}
	for _, c := range []struct {
		reason  string
		facts   facts
		milan   func(*plan.Peering)
		turin   func(*plan.Peering)
		problem string
	}{
		{reason: "nobody says anything", facts: reachFacts("", "")},
		{reason: "both say what is usual", facts: reachFacts(usual, usual)},
		{reason: "home lets all be reached: no set is needed, and the provider's are as they were", facts: reachFacts(full, ""), milan: func(p *plan.Peering) { p.Limited = false }},
		{reason: "the provider lets all be reached", facts: reachFacts("", full), turin: func(p *plan.Peering) { p.Limited = false }},
		{reason: "home lets none be reached", facts: reachFacts(none, ""), milan: func(p *plan.Peering) { p.Closed, p.Here, p.There = true, nil, nil }},
		{reason: "the provider lets none be reached, and its tenant's pods call home's API", facts: reachFacts("", none),
			turin: func(p *plan.Peering) { p.Closed, p.There, p.Calls = true, nil, call }},
		{reason: "a word of another build is held narrow", facts: reachFacts("some", ""), problem: `peering peering-milan: this build does not know the reachability "some"`,
			milan: func(p *plan.Peering) { p.Closed, p.Here, p.There = true, nil, nil }},
		{reason: "what the peer says of itself is not looked at", facts: func() facts {
			f := reachFacts("", "")
			f.configs[1].Spec.Reachability, f.configs[3].Spec.Reachability = full, none
			return f
		}()},
		{reason: "a namespace lets all of its pods be reached", facts: reachFacts("", "", reaching("shop", full)),
			milan: func(p *plan.Peering) { p.Here = addrs("10.42.1.5", "10.42.2.50") }},
		{reason: "a namespace that is at no provider", facts: reachFacts("", "", reaching("lone", full))},
		{reason: "a namespace lets none be reached, here or there", facts: reachFacts("", "", reaching("shop", none)),
			milan: func(p *plan.Peering) {
				p.Here, p.There, p.ShutHere, p.ShutThere = nil, addrs("10.42.3.5"), addrs("10.42.1.5", "10.42.2.50"), addrs("10.42.3.4")
			},
			turin: func(p *plan.Peering) { p.ShutHere = addrs("10.42.1.5", "10.42.2.50") }},
		{reason: "a namespace lets none be reached, where all else may", facts: reachFacts(full, "", reaching("lone", none)),
			milan: func(p *plan.Peering) { p.Limited, p.ShutHere = false, addrs("10.42.2.60") },
			turin: func(p *plan.Peering) { p.ShutHere = addrs("10.42.2.60") }},
		{reason: "a namespace lets none be reached, and who is in it is not read yet: nobody is opened", facts: func() facts {
			f := reachFacts(full, "", reaching("lone", none))
			delete(f.inside, "lone")
			return f
		}()},
		{reason: "a namespace does not open what home holds closed", facts: reachFacts(none, "", reaching("shop", full)),
			milan: func(p *plan.Peering) { p.Closed, p.Here, p.There = true, nil, nil }},
		{reason: "something that is not the namespace's", facts: func() facts {
			f := reachFacts("", "", reaching("shop", none))
			f.offloaded[0].Name = "other"
			return f
		}()},
	} {
		want := slices.Clone(usually)
		for i, change := range []func(*plan.Peering){c.milan, c.turin} {
			if change != nil {
				change(&want[i])
			}
		}
		k := input(c.facts)
		for i, got := range k.input.Peerings {
			got = plan.Peering{Limited: got.Limited, Closed: got.Closed, Here: got.Here, There: got.There, ShutHere: got.ShutHere, ShutThere: got.ShutThere, Calls: got.Calls}
			if d := cmp.Diff(want[i], got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); d != "" {
				t.Errorf("%s: at %s (-want +got):\n%s", c.reason, k.input.Peerings[i].Key, d)
			}
		}
		if len(k.input.Peerings[0].Doors) != 1 {
			t.Errorf("%s: home's API has no door", c.reason)
		}
		if problems := texts(k.problems); c.problem == "" && problems != "" || !strings.Contains(problems, c.problem) {
			t.Errorf("%s: problems %s, want %s", c.reason, problems, c.problem)
		}
		if p := plan.Compute(k.input); p.Config.Check() != nil {
			t.Errorf("%s: no kernel can follow: %v", c.reason, p.Config.Check())
		}
	}
}

func texts(problems []plan.Problem) string {
	var all []string
	for _, p := range problems {
		all = append(all, p.String())
	}
	return strings.Join(all, "; ")
}

// TestSubjectsReach holds that pods of a namespace are followed where it says something of them, and
// that this is seen when it changes.
func TestSubjectsReach(t *testing.T) {
	for said, want := range map[v1alpha1.Reachability]bool{"": false, v1alpha1.ReachOffloadedOnly: false, v1alpha1.ReachNone: true, v1alpha1.ReachFull: true} {
		f := reachFacts("", "", reaching("shop", said))
		if got := f.subjects()[subject{pods: "shop"}]; got != want {
			t.Errorf("shop says %q: followed is %t", said, got)
		}
		f.configs = nil
		if got := f.subjects(); len(got) != 0 {
			t.Errorf("shop says %q, and there is no peer: followed is %v", said, got)
		}
	}
	before, after := reaching("shop", ""), reaching("shop", v1alpha1.ReachNone)
	config, other := networkConfig(atMilan, "consumer", 1, "10.42.0.0/16"), networkConfig(atMilan, "consumer", 1, "10.42.0.0/16")
	other.Spec.Reachability = v1alpha1.ReachFull
	for _, pair := range [][2]client.Object{{trimmed(t, &before), trimmed(t, &after)}, {trimmed(t, &config), trimmed(t, &other)}} {
		if same(pair[0], pair[1]) {
			t.Errorf("%T: a change of reachability is not seen", pair[0])
		}
	}
}
