package agent

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/plan"
)

func mappingOf(namespace, name, at, to string) v1alpha1.IPMapping {
	m := v1alpha1.IPMapping{ObjectMeta: labelled(namespace, name), Spec: v1alpha1.IPMappingSpec{
		Address: to, Ports: []v1alpha1.IPMappingPort{{Name: "sql", Protocol: v1alpha1.IPMappingTCP, Port: 5432}, {Name: "dns", Protocol: v1alpha1.IPMappingUDP, Port: 53}},
	}}
	m.Generation = 2
	m.Status = v1alpha1.IPMappingStatus{Address: at, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 2}}}
	return m
}

func offloadingOf(namespace string, r v1alpha1.Reachability) []v1alpha1.NamespaceOffloading {
	return []v1alpha1.NamespaceOffloading{{ObjectMeta: labelled(namespace, v1alpha1.OffloadingName), Spec: v1alpha1.NamespaceOffloadingSpec{Reachability: r}}}
}

// TestInputMapped holds which mappings open doors, and for whom: nothing does that was not found to
// be right as it is now.
func TestInputMapped(t *testing.T) {
	doors := func(at, to string, from ...string) []dataplane.Door {
		return []dataplane.Door{
			{At: netip.MustParseAddrPort(at + ":53"), To: netip.MustParseAddrPort(to + ":53"), UDP: true, Most: 1024, From: addrs(from...)},
			{At: netip.MustParseAddrPort(at + ":5432"), To: netip.MustParseAddrPort(to + ":5432"), Most: 1024, From: addrs(from...)},
		}
	}
	usual := doors("10.43.0.4", "192.0.2.50", "10.42.3.4")
	for _, c := range []struct {
		reason  string
		facts   func(*facts)
		want    []dataplane.Door
		problem string
	}{
		{reason: "for pods of its namespace that run there", want: usual},
		{reason: "of the namespace of another provider", facts: func(f *facts) { f.mappings[0].Namespace = "bank" }},
		{reason: "of a namespace that is not offloaded there any more", facts: func(f *facts) { f.maps[0].Spec.Namespaces = nil }},
		{reason: "a pod of another namespace changes nothing", facts: func(f *facts) {
			f.away["milan"] = append(f.away["milan"], podAt(labelled("bank", "web"), "milan", "10.81.3.5"))
		}, want: usual},
		{reason: "no pod is there", facts: func(f *facts) { f.away = nil }, want: doors("10.43.0.4", "192.0.2.50")},
		{reason: "its namespace says that nobody is reached", facts: func(f *facts) { f.offloaded = offloadingOf("shop", v1alpha1.ReachNone) }},
		{reason: "its namespace says that all are", facts: func(f *facts) { f.offloaded = offloadingOf("shop", v1alpha1.ReachFull) }, want: usual},
		{reason: "the owner says that nobody is reached", facts: func(f *facts) { f.configs[0].Spec.Reachability = v1alpha1.ReachNone }},
		{reason: "it was refused", facts: func(f *facts) { f.mappings[0].Status.Conditions[0].Status = metav1.ConditionFalse }},
		{reason: "it has changed since it was found right", facts: func(f *facts) { f.mappings[0].Generation = 3 }},
		{reason: "nothing was said of it", facts: func(f *facts) { f.mappings[0].Status.Conditions = nil }},
		{reason: "it is going", facts: func(f *facts) { f.mappings[0].DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }},
		{reason: "it has no address yet", facts: func(f *facts) { f.mappings[0].Status.Address = "" }},
		{reason: "what it has is none", facts: func(f *facts) { f.mappings[0].Status.Address = "x" }, problem: "has no address of its own"},
		{reason: "what is mapped is none", facts: func(f *facts) { f.mappings[0].Spec.Address = "x" }, problem: "has no address of its own"},
		{reason: "a younger one with the same address", facts: func(f *facts) {
			f.mappings = append(f.mappings, mappingOf("shop", "evil", "10.43.0.4", "192.0.2.51"))
		}, want: usual, problem: "shop/evil has no address of its own"},
		{reason: "a pod, whoever found that right", facts: func(f *facts) { f.mappings[0].Spec.Address = "10.42.1.5" }, problem: "leads to a pod or node"},
		{reason: "a node", facts: func(f *facts) { f.mappings[0].Spec.Address = "192.168.0.2" }, problem: "leads to a pod or node"},
		{reason: "what stands for something", facts: func(f *facts) { f.mappings[0].Spec.Address = "10.43.0.2" }, problem: "leads to a pod or node"},
		{reason: "the metadata of clouds", facts: func(f *facts) { f.mappings[0].Spec.Address = "169.254.169.254" }, problem: "its door from"},
		{reason: "loopback", facts: func(f *facts) { f.mappings[0].Spec.Address = "127.0.0.1" }, problem: "its door from"},
		{reason: "the address that stands for nodes", facts: func(f *facts) { f.mappings[0].Status.Address = "10.43.0.1" }, problem: "is not at an address of the external range"},
		{reason: "an address of a pod", facts: func(f *facts) { f.mappings[0].Status.Address = "10.42.1.5" }, problem: "is not at an address of the external range"},
	} {
		f := someFacts()
		f.mappings = []v1alpha1.IPMapping{mappingOf("shop", "db", "10.43.0.4", "192.0.2.50")}
		if c.facts != nil {
			c.facts(&f)
		}
		k := input(f)
		p := plan.Compute(k.input)
		var got []dataplane.Door
		for _, g := range p.Config.Gateways {
			if g.Peering == "tenant-turin" && len(g.Doors) > 0 {
				t.Errorf("%s: a consumer has doors", c.reason)
			}
			got = append(got, g.Doors...)
		}
		if d := cmp.Diff(c.want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
		if err := p.Config.Check(); err != nil {
			t.Errorf("%s: the data plane does not take it: %v", c.reason, err)
		}
		said := false
		for _, problem := range append(k.problems, p.Problems...) {
			said = said || strings.Contains(problem.Text, c.problem)
		}
		if c.problem != "" && !said {
			t.Errorf("%s: no word of it: %v, %v", c.reason, k.problems, p.Problems)
		}
	}
}

func TestTrimMapping(t *testing.T) {
	before := mappingOf("shop", "db", "10.43.0.4", "192.0.2.50")
	before.Annotations = map[string]string{"much": strings.Repeat("x", 1000)}
	got, err := trim(&before)
	if err != nil {
		t.Fatal(err)
	}
	after := got.(*v1alpha1.IPMapping)
	if !mapped(after) || len(after.Annotations) > 0 || !cmp.Equal(before.Spec, after.Spec) {
		t.Errorf("what is left is %+v", after)
	}
	if !same(after, after.DeepCopy()) {
		t.Error("it is not the same as itself")
	}
	other := after.DeepCopy()
	other.Status.Conditions[0].Status = metav1.ConditionFalse
	if same(after, other) {
		t.Error("one that is refused now is the same")
	}
}

// TestInputMappedEach holds that what is mapped is open to each provider that has part in its namespace for as
// many connections as to one alone, and for the pods there.
func TestInputMappedEach(t *testing.T) {
	const atOslo = v1alpha1.PeeringNamespacePrefix + "oslo"
	f := someFacts()
	f.mappings = []v1alpha1.IPMapping{mappingOf("shop", "db", "10.43.0.4", "192.0.2.50")}
	own, oslo := networkConfig(atOslo, "consumer", 5, "10.42.0.0/16"), networkConfig(atOslo, "provider", 6, "10.42.0.0/16")
	own.Spec.External, own.Spec.Port = f.configs[0].Spec.External, 7102
	oslo.Status.Views = []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.83.0.0/16"}}
	f.configs = append(f.configs, own, oslo)
	f.keys["peering-oslo"] = encoded(secret(5))
	f.nodes = append(f.nodes, corev1.Node{ObjectMeta: labelled("", "oslo", v1alpha1.LabelType, v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering, "oslo")})
	f.maps = append(f.maps, v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: atOslo}, Spec: f.maps[0].Spec})
	f.away["oslo"] = []corev1.Pod{podAt(labelled("shop", "api"), "oslo", "10.83.7.8")}
	got := map[string][]dataplane.Door{}
	for _, g := range plan.Compute(input(f).input).Config.Gateways {
		got[g.Peering] = g.Doors
	}
	for peering, from := range map[string]string{"peering-milan": "10.42.3.4", "peering-oslo": "10.42.7.8"} {
		if len(got[peering]) != 2 {
			t.Errorf("%s has the doors %+v", peering, got[peering])
		}
		for _, d := range got[peering] {
			if d.Most != 1024 || d.To.Addr() != netip.MustParseAddr("192.0.2.50") || len(d.From) != 1 || d.From[0] != netip.MustParseAddr(from) {
				t.Errorf("a door of %s is %+v, want 1,024 connections from %s", peering, d, from)
			}
		}
	}
}
