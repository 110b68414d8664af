package chain

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestNamespace(t *testing.T) {
	selected := func(name string, ready ...metav1.Condition) v1alpha1.ClusterOffloading {
		return v1alpha1.ClusterOffloading{Name: name, RemoteNamespace: "shop-rome", Conditions: append(yes(v1alpha1.ConditionOffloadingRequired), ready...)}
	}
	away := v1alpha1.ClusterOffloading{Name: "oslo", Conditions: []metav1.Condition{no(v1alpha1.ConditionOffloadingRequired, v1alpha1.ReasonNotSelected, "")}}
	facts := func(change func(*NamespaceFacts)) NamespaceFacts {
		f := NamespaceFacts{Name: "shop", Labels: map[string]string{v1alpha1.LabelOffloaded: "true"}, Offloading: offloading("", region("eu")), Nodes: []NodeFacts{milan(nil)},
			Mapped: map[string]v1alpha1.MappedNamespace{"milan": {Name: "shop-rome", Phase: v1alpha1.MappingReady}}, Here: 1, Away: 2}
		f.Offloading.Status.Clusters = []v1alpha1.ClusterOffloading{selected("milan", yes(v1alpha1.ConditionReady)...), away}
		change(&f)
		return f
	}
	refused := no(v1alpha1.ConditionReady, v1alpha1.ReasonNameTaken, "shop-rome is not this tenant's")
	cases := []struct {
		reason string
		facts  NamespaceFacts
		want   string
		says   []string
	}{
		{"well", facts(func(*NamespaceFacts) {}),
			"D it is offloaded\nD Pelago has acted on it\nD milan is selected\nD shop is there at milan\nD node milan is ready\nA oslo is selected\nD its pods were made under today's terms\n",
			[]string{"strategy LocalAndRemote, called shop-TENANT there, after what the provider calls this cluster, region=eu", "shop-rome", "it has no virtual node", "1 here, 2 at other clusters, 0 without a node"}},
		{"onward", facts(func(f *NamespaceFacts) {
			f.Offloading.Spec.Onward, f.Offloading.Status.Clusters[0].Onward = v1alpha1.OnwardAllow, true
		}), "", []string{"region=eu, onward if their owners like", "shop-rome; its pods may run at a provider of milan's"}},
		{"a build that does not know of onward", facts(func(f *NamespaceFacts) {
			f.Offloading.Status.Clusters[0].Conditions = []metav1.Condition{no(v1alpha1.ConditionOffloadingRequired, v1alpha1.ReasonUnsupported, "until its owner upgrades it")}
		}), "", []string{"until its owner upgrades it"}},
		{"not offloaded", facts(func(f *NamespaceFacts) { f.Offloading = nil }), "B it is offloaded\n", []string{"pelago offload namespace shop"}},
		{"just labelled", facts(func(f *NamespaceFacts) {
			f.Offloading, f.Labels = nil, map[string]string{v1alpha1.LabelOffload: "true"}
		}), "W it is offloaded\n", []string{"asks for it"}},
		{"new", facts(func(f *NamespaceFacts) { f.Offloading.Status = v1alpha1.NamespaceOffloadingStatus{} }),
			"D it is offloaded\nW Pelago has acted on it\nU milan is selected\n", []string{"not looked at yet"}},
		{"its label is missing", facts(func(f *NamespaceFacts) { f.Labels = nil }),
			"D it is offloaded\nW Pelago has acted on it\nU milan is selected\nU shop is there at milan\nU node milan is ready\nU oslo is selected\n", []string{"its new pods get no terms"}},
		{"reserved", facts(func(f *NamespaceFacts) {
			f.Offloading.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInvalid, Message: "the namespace is the cluster's own"}}
		}), "", []string{"Invalid: the namespace is the cluster's own", "pelago unoffload namespace shop"}},
		{"ending", facts(func(f *NamespaceFacts) {
			f.Offloading.DeletionTimestamp = &metav1.Time{Time: now}
			f.Offloading.Status.Conditions = []metav1.Condition{no(v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, "2 pods are left")}
		}), "", []string{"its pods come home, then its remote namespaces go; 2 pods are left"}},
		{"refused", facts(func(f *NamespaceFacts) {
			f.Offloading.Status.Clusters[0] = selected("milan", refused)
			f.Mapped["milan"] = v1alpha1.MappedNamespace{Phase: v1alpha1.MappingRefused, Reason: v1alpha1.ReasonNameTaken, Message: "shop-rome is not this tenant's"}
		}), "D it is offloaded\nD Pelago has acted on it\nD milan is selected\nB shop is there at milan\nU node milan is ready\nA oslo is selected\nD its pods were made under today's terms\n",
			[]string{"NameTaken: shop-rome is not this tenant's", "its owner removes it", "pelago offload namespace shop --namespace-mapping-strategy SelectedName"}},
		{"drained there", facts(func(f *NamespaceFacts) {
			f.Tenants = map[string]string{"milan": "rome-2"}
			f.Offloading.Status.Clusters[0] = selected("milan", no(v1alpha1.ConditionReady, v1alpha1.ReasonDrained, "drained"))
			f.Mapped["milan"] = v1alpha1.MappedNamespace{Phase: v1alpha1.MappingRefused, Reason: v1alpha1.ReasonDrained, Message: "drained"}
		}), "", []string{"pelago uncordon tenant rome-2\n"}},
		{"drained there, as far as only the sum says", facts(func(f *NamespaceFacts) {
			f.Tenants = map[string]string{"milan": "rome-2"}
			f.Offloading.Status.Clusters[0], f.Mapped = selected("milan", no(v1alpha1.ConditionReady, v1alpha1.ReasonDrained, "drained")), nil
		}), "", []string{"pelago uncordon tenant rome-2\n"}},
		{"refused, as far as only the sum says", facts(func(f *NamespaceFacts) {
			f.Offloading.Status.Clusters[0] = selected("milan", refused)
			f.Mapped = nil
		}), "", []string{"NameTaken: shop-rome is not this tenant's", "its owner removes it"}},
		{"nobody has answered", facts(func(f *NamespaceFacts) { f.Offloading.Status.Clusters[0], f.Mapped = selected("milan"), nil }), "", []string{"the provider has not answered yet"}},
		{"kept", facts(func(f *NamespaceFacts) {
			f.Mapped["turin"] = v1alpha1.MappedNamespace{Name: "shop-rome", Phase: v1alpha1.MappingKept, Reason: v1alpha1.ReasonVolumesKept}
		}), "", []string{"its namespace there: shop-rome kept, its volume claims are kept"}},
		{"nothing matches", facts(func(f *NamespaceFacts) {
			f.Offloading.Status.Clusters, f.Mapped = nil, nil
			f.Offloading.Status.Phase = v1alpha1.OffloadingPhaseNoClusterSelected
		}), "D it is offloaded\nD Pelago has acted on it\nB a cluster is selected\nD its pods were made under today's terms\n", []string{"no virtual node matches region=eu", "--cluster-selector"}},
		{"there is nothing to match", facts(func(f *NamespaceFacts) {
			f.Offloading.Status.Clusters, f.Mapped, f.Nodes = nil, nil, nil
			f.Offloading.Status.Phase = v1alpha1.OffloadingPhaseNoClusterSelected
		}), "", []string{"there is no virtual node", "peer with a cluster"}},
		{"objects that are refused, and others", facts(func(f *NamespaceFacts) {
			f.Objects = map[string][]v1alpha1.ReflectedObject{"milan": {
				{Kind: "Ingress", Namespace: "shop", Name: "web", Refused: true, Reason: v1alpha1.ReasonRefused, Message: "the provider refuses it; ask its owner"},
				{Kind: "Service", Namespace: "shop", Name: "web", Reason: v1alpha1.ReasonFamilyMissing, Message: "it is of another family"}}}
		}), "D it is offloaded\nD Pelago has acted on it\nD milan is selected\nD shop is there at milan\nD node milan is ready\nB its objects are at milan as they are here\nA oslo is selected\nD its pods were made under today's terms\n",
			[]string{"Ingress web: the provider refuses it; Service web: it is of another family\nask its owner; see docs/reflection.md"}},
		{"objects that are reached there", facts(func(f *NamespaceFacts) {
			f.Objects = map[string][]v1alpha1.ReflectedObject{"milan": {{Kind: "Service", Name: "web", Addresses: []string{"192.0.2.7", "lb.example"}}}}
		}), "D it is offloaded\nD Pelago has acted on it\nD milan is selected\nD shop is there at milan\nD node milan is ready\nD milan says where it is reached\nA oslo is selected\nD its pods were made under today's terms\n",
			[]string{"Service web by 192.0.2.7, lb.example\n"}},
		{"objects that are otherwise", facts(func(f *NamespaceFacts) {
			for range 7 {
				f.Objects = map[string][]v1alpha1.ReflectedObject{"milan": append(f.Objects["milan"], v1alpha1.ReflectedObject{Kind: "Service", Name: "web", Reason: v1alpha1.ReasonFamilyMissing, Message: "it is otherwise"})}
			}
		}), "D it is offloaded\nD Pelago has acted on it\nD milan is selected\nD shop is there at milan\nD node milan is ready\nA its objects are at milan as they are here\nA oslo is selected\nD its pods were made under today's terms\n",
			[]string{"Service web: it is otherwise; and 2 more\n"}},
		{"Services that need no pod", facts(func(f *NamespaceFacts) { f.Sent = []string{"a", "b", "c", "d", "e", "f"} }),
			"D it is offloaded\nD Pelago has acted on it\nD milan is selected\nD shop is there at milan\nD node milan is ready\nA oslo is selected\nD its pods were made under today's terms\nD Services of it are there also without a pod\n",
			[]string{"a; b; c; d; e; and 1 more; a cluster's own pods call them where Peering and Tenant both say reachability full"}},
		{"older pods", facts(func(f *NamespaceFacts) { f.Outdated = 1 }), "", []string{"1 of them under other terms", "--restart-workloads"}},
	}
	for _, c := range cases {
		got := Namespace(c.facts)
		if text := outline(got); c.want != "" && text != c.want {
			t.Errorf("%s:\n%swant\n%s", c.reason, text, c.want)
		}
		var said strings.Builder
		for _, s := range got.Steps {
			said.WriteString(s.Evidence + "\n" + s.Remedy + "\n")
		}
		for _, want := range c.says {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%s: it lacks %q:\n%s", c.reason, want, said.String())
			}
		}
	}
}

func TestSelectorText(t *testing.T) {
	one := func(key, operator string, values ...string) v1alpha1.ClusterRequirement {
		return v1alpha1.ClusterRequirement{Key: key, Operator: operator, Values: values}
	}
	selector := &v1alpha1.ClusterSelector{NodeSelectorTerms: []v1alpha1.ClusterSelectorTerm{
		{MatchExpressions: []v1alpha1.ClusterRequirement{one("a", "In", "1"), one("b", "In", "1", "2"), one("c", "NotIn", "1"), one("d", "NotIn", "1", "2")}},
		{MatchExpressions: []v1alpha1.ClusterRequirement{one("e", "Exists"), one("f", "DoesNotExist"), one("g", "Gt", "1"), one("h", "Lt", "2")}}}}
	if got, want := SelectorText(selector), "a=1,b in (1,2),c!=1,d notin (1,2) or e,!f,g>1,h<2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := SelectorText(nil); got != "all clusters" {
		t.Errorf("no selector is %q", got)
	}
}
