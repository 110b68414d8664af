package vnode

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/status"
)

const clusterID = "7b0d9c36-6d0f-4b0e-9a58-3f1d8e7c2a10"

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func list(pairs ...string) v1alpha1.ResourceList {
	l := v1alpha1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[pairs[i]] = resource.MustParse(pairs[i+1])
	}
	return l
}

func acceptedAs(is bool, reason string) func(*facts) {
	return func(f *facts) {
		set := status.False
		if is {
			set = status.True
		}
		set(&f.request.Status.Conditions, 1, v1alpha1.ConditionAccepted, reason, "so")
	}
}

// usual is an accepted offer without a node yet.
func usual(change ...func(*facts)) facts {
	f := facts{
		now: noon, began: noon.Add(-time.Hour), address: "10.0.0.7", version: "v0.3.0", kubernetes: "v1.35.1", port: 10250,
		request: &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-peering-milan", Name: "default"}},
		peering: &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: v1alpha1.PeeringSpec{ClusterID: clusterID, Consume: &v1alpha1.Consume{}},
			Status: v1alpha1.PeeringStatus{Remote: &v1alpha1.ClusterInfo{KubernetesVersion: "v1.36.3"}}},
		offer: &v1alpha1.ResourceOffer{Spec: v1alpha1.ResourceOfferSpec{
			Resources: list("cpu", "4", "memory", "8Gi", "pods", "20"), Used: list("cpu", "500m", "memory", "1Gi", "pods", "2"),
			Labels: map[string]string{"topology.kubernetes.io/region": "eu", "color": "blue"},
			Shapes: []v1alpha1.NodeShape{
				{Architecture: "arm64", OperatingSystem: "linux", Nodes: 2}, {Architecture: "amd64", OperatingSystem: "linux", Nodes: 2},
				{Architecture: "amd64", OperatingSystem: "linux", Nodes: 1}, {Architecture: "no/label", OperatingSystem: "linux", Nodes: 9},
			},
		}},
		state: &fleet.State{Reachable: true, Reason: v1alpha1.ReasonPeerReachable, Since: noon.Add(-time.Minute)},
	}
	acceptedAs(true, v1alpha1.ReasonAccepted)(&f)
	for _, c := range change {
		c(&f)
	}
	return f
}

// made has the node that follows.
func made(f *facts) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.name()}}
	describe(n, *f)
	state(n, *f)
	n.ResourceVersion = "1"
	f.node = n
}

func going(f *facts)   { now := metav1.NewTime(noon); f.request.DeletionTimestamp = &now }
func noOffer(f *facts) { f.offer = nil }
func foreign(f *facts) {
	f.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", ResourceVersion: "1"}}
}
func undecided(f *facts)    { f.request.Status.Conditions = nil }
func beingDrained(f *facts) { f.node.Annotations[annotationDraining] = "2026-01-02T11:59:00Z" }
func noPeering(f *facts)    { f.peering = nil }
func unpeering(f *facts)    { now := metav1.NewTime(noon); f.peering.DeletionTimestamp = &now }
func consumesNone(f *facts) { f.peering.Spec.Consume = nil }
func connection(reachable bool, reason string, age time.Duration) func(*facts) {
	return func(f *facts) { f.state = &fleet.State{Reachable: reachable, Reason: reason, Since: noon.Add(-age)} }
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		reason string
		facts  facts
		want   course
		said   string
	}{
		{"an accepted offer", usual(), keepUp, ""},
		{"a node that is there", usual(made), keepUp, ""},
		{"no word yet", usual(undecided, noOffer), rest, v1alpha1.ReasonWaiting},
		{"an offer nobody has decided on", usual(acceptedAs(false, v1alpha1.ReasonNothingFree)), rest, v1alpha1.ReasonWaiting},
		{"a foreign node and no accepted offer", usual(foreign, acceptedAs(false, v1alpha1.ReasonNothingFree)), rest, v1alpha1.ReasonWaiting},
		{"an offer that has expired: the node stays", usual(made, acceptedAs(false, v1alpha1.ReasonExpired)), keepUp, ""},
		{"an offer that breaks a rule: the node stays", usual(made, acceptedAs(false, v1alpha1.ReasonInvalid)), keepUp, ""},
		{"declined", usual(made, acceptedAs(false, v1alpha1.ReasonDeclined)), end, v1alpha1.ReasonDeclined},
		{"thought better of", usual(made, acceptedAs(false, v1alpha1.ReasonUndecided)), end, v1alpha1.ReasonUndecided},
		{"withdrawn", usual(made, noOffer, acceptedAs(false, v1alpha1.ReasonDrained)), end, v1alpha1.ReasonDrained},
		{"withdrawn, and not said yet", usual(made, noOffer), end, v1alpha1.ReasonWithdrawn},
		{"accepted again while draining: first to the end", usual(made, beingDrained), end, v1alpha1.ReasonTerminating},
		{"the request goes", usual(made, going), end, v1alpha1.ReasonTerminating},
		{"the peering goes", usual(made, unpeering), end, v1alpha1.ReasonTerminating},
		{"the peering consumes no more", usual(made, consumesNone), end, v1alpha1.ReasonTerminating},
		{"no peering", usual(made, noPeering), end, v1alpha1.ReasonTerminating},
	} {
		got := decide(c.facts)
		if got.course != c.want || got.reason != c.said {
			t.Errorf("%s: course %d, %q; want %d, %q", c.reason, got.course, got.reason, c.want, c.said)
		}
	}
}

func TestReadiness(t *testing.T) {
	const away = v1alpha1.ReasonPeerUnreachable
	young := func(f *facts) { f.began = noon.Add(-time.Second) }
	none := func(f *facts) { f.state = nil }
	for _, c := range []struct {
		reason string
		facts  facts
		want   string
	}{
		{"the provider answers", usual(), "True Ready"},
		{"it does not", usual(made, connection(false, away, 0)), "False " + away},
		{"it shows too much", usual(made, connection(false, v1alpha1.ReasonTooMany, 0)), "False " + v1alpha1.ReasonTooMany},
		{"it refuses us", usual(made, connection(true, v1alpha1.ReasonForbidden, 0)), "False " + v1alpha1.ReasonForbidden},
		{"connecting after a restart: as before", usual(made, connection(false, v1alpha1.ReasonPending, time.Second)), "as before"},
		{"connecting for too long", usual(made, connection(false, v1alpha1.ReasonPending, connectingFor)), "False " + away},
		{"connecting, without a node", usual(connection(false, v1alpha1.ReasonPending, time.Second)), "False " + v1alpha1.ReasonWaiting},
		{"no connection yet after a restart: as before", usual(made, none, young), "as before"},
		{"no connection", usual(made, none), "False " + away},
		{"the offer has ended", usual(made, acceptedAs(false, v1alpha1.ReasonExpired)), "False " + v1alpha1.ReasonExpired},
	} {
		got := "as before"
		if r := readiness(c.facts); r != nil {
			got = string(r.Status) + " " + r.Reason
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.reason, got, c.want)
		}
	}
}

func TestLabels(t *testing.T) {
	f := usual(made, func(f *facts) {
		f.node.Labels["mine"], f.node.Labels["theirs"] = "people's", "people's"
		f.node.Annotations["note"] = "people's"
		f.node.Spec.Taints = append(f.node.Spec.Taints, corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule})
		f.node.Spec.Unschedulable = true
		delete(f.node.Labels, v1alpha1.LabelRequest)
	})
	f.offer.Spec.Labels = map[string]string{
		"color": "red", "theirs": "the offer's", "tier": "gold", "topology.kubernetes.io/zone": "a",
		"type": "evil", "kubernetes.io/arch": "evil", "node.k8s.io/x": "evil", "pelago.dev/type": "evil", "x.pelago.dev/y": "evil",
		"node.kubernetes.io/exclude-from-external-load-balancers": "evil", "bad key": "x", "bad": "a/b",
	}
	describe(f.node, f)
	want := map[string]string{
		"mine": "people's", "theirs": "people's", "color": "red", "tier": "gold", "topology.kubernetes.io/zone": "a",
		"pelago.dev/managed-by": component, "pelago.dev/type": "virtual-node", "pelago.dev/remote-cluster-id": clusterID,
		"pelago.dev/peering": "milan", "pelago.dev/request": "default", "type": "virtual-kubelet",
		"kubernetes.io/hostname": "milan", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
		"node.kubernetes.io/exclude-from-external-load-balancers": "true",
	}
	if diff := cmp.Diff(want, f.node.Labels); diff != "" {
		t.Errorf("labels (-want +got)\n%s", diff)
	}
	if len(f.node.Spec.Taints) != 2 || !f.node.Spec.Unschedulable || f.node.Annotations["note"] == "" {
		t.Errorf("what people wrote is gone: %+v, %v", f.node.Spec, f.node.Annotations)
	}
	f.offer.Spec.Labels = nil
	if describe(f.node, f); f.node.Labels["tier"] != "" || f.node.Labels["theirs"] == "" {
		t.Errorf("after the offer has none: %v", f.node.Labels)
	}
	before := f.node.DeepCopy()
	if describe(f.node, f); !cmp.Equal(before, f.node) {
		t.Error("a second time changes something")
	}
}

func TestSize(t *testing.T) {
	for _, c := range []struct {
		reason            string
		asked, free, used v1alpha1.ResourceList
		want              map[string]string
	}{
		{"what is free and what is used", nil, list("cpu", "3500m", "memory", "7Gi"), list("cpu", "500m", "memory", "1Gi", "pods", "3"),
			map[string]string{"cpu": "4", "memory": "8Gi", "pods": "3"}},
		{"no more than asked", list("cpu", "2", "example.com/gpu", "1"), list("cpu", "3", "memory", "1Gi"), list("cpu", "1"),
			map[string]string{"cpu": "2", "memory": "1Gi"}},
		{"cordoned: what is used", nil, list("cpu", "0", "memory", "0", "pods", "0"), list("cpu", "1", "pods", "1"),
			map[string]string{"cpu": "1", "memory": "0", "pods": "1"}},
	} {
		f := usual(func(f *facts) {
			f.request.Spec.Resources, f.offer.Spec.Resources, f.offer.Spec.Used = c.asked, c.free, c.used
		})
		got := map[string]string{}
		for name, q := range size(f) {
			got[string(name)] = q.String()
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.reason, diff)
		}
		if want, _ := c.free["cpu"]; want.Cmp(f.offer.Spec.Resources["cpu"]) != 0 {
			t.Errorf("%s: the offer was changed", c.reason)
		}
	}
}

// dialled is the address that API servers take by their default --kubelet-preferred-address-types: the first there is.
func dialled(addresses []corev1.NodeAddress) string {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeInternalIP, corev1.NodeExternalDNS, corev1.NodeExternalIP} {
		for _, a := range addresses {
			if a.Type == kind {
				return a.Address
			}
		}
	}
	return ""
}

func TestState(t *testing.T) {
	f := usual(made)
	f.node.Status.Conditions = append(f.node.Status.Conditions, corev1.NodeCondition{Type: "Theirs", Status: corev1.ConditionTrue})
	s := &f.node.Status
	conditions := map[string]string{}
	for _, c := range s.Conditions {
		conditions[string(c.Type)] = string(c.Status)
	}
	want := map[string]string{"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "NetworkUnavailable": "False", "Theirs": "True"}
	if diff := cmp.Diff(want, conditions); diff != "" {
		t.Errorf("conditions (-want +got)\n%s", diff)
	}
	if got := fmt.Sprint(s.Addresses); got != "[{InternalIP 10.0.0.7}]" || s.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
		t.Errorf("addresses %s, port %d", got, s.DaemonEndpoints.KubeletEndpoint.Port)
	}
	if got := dialled(s.Addresses); got != "10.0.0.7" {
		t.Errorf("an API server that is told nothing else asks %q for logs", got)
	}
	if _, err := version.ParseSemantic(s.NodeInfo.KubeletVersion); err != nil || s.NodeInfo.KubeletVersion != "v1.36.3+pelago" || s.NodeInfo.Architecture != "amd64" {
		t.Errorf("node info %+v: %v", s.NodeInfo, err)
	}
	before := f.node.DeepCopy()
	f.now = f.now.Add(time.Minute)
	if state(f.node, f); !cmp.Equal(before.Status, *s) {
		t.Errorf("time alone changes the status: %s", cmp.Diff(before.Status, *s))
	}
	connection(false, v1alpha1.ReasonPeerUnreachable, 0)(&f)
	if state(f.node, f); nodeReady(f.node).Status != corev1.ConditionFalse || !nodeReady(f.node).LastTransitionTime.Time.Equal(f.now) {
		t.Errorf("lost: %+v", nodeReady(f.node))
	}
	// An offer that has nothing for a while does not change what the nodes are.
	f.offer.Spec.Shapes = nil
	if describe(f.node, f); f.node.Labels[corev1.LabelArchStable] != "amd64" {
		t.Error("the architecture is gone")
	}
}

func TestKubeletVersion(t *testing.T) {
	for said, want := range map[string]string{
		"v1.36.3": "v1.36.3+pelago", "1.29.1-eks-508b6b3": "v1.29.1+pelago", "v1.30.0+k3s1": "v1.30.0+pelago",
		"": "v1.35.1+pelago", "evil\nlabel": "v1.35.1+pelago", "v1.2": "v1.35.1+pelago", "v" + strings.Repeat("1", 80) + ".0.0": "v1.35.1+pelago",
	} {
		f := usual(func(f *facts) { f.peering.Status.Remote.KubernetesVersion = said })
		if got := kubeletVersion(f); got != want {
			t.Errorf("%.40q gives %s, want %s", said, got, want)
		}
	}
	if got := kubeletVersion(usual(func(f *facts) { f.peering.Status.Remote, f.kubernetes = nil, "" })); got != "v0.0.0+pelago" {
		t.Errorf("nothing known: %s", got)
	}
}

// TestDeclaredFeatures holds that a node has the features of the provider's release, as far as home knows of such.
func TestDeclaredFeatures(t *testing.T) {
	for _, c := range []struct {
		provider, home string
		want           bool
	}{
		{"v1.36.3", "v1.36.0", true}, {"1.36.0+k3s1", "v1.37.1", true}, {"v2.0.0", "v1.36.3", true},
		{"v1.34.4", "v1.36.3", false}, {"v1.35.9", "v1.36.3", false}, {"v1.36.3", "v1.35.9", false}, {"", "v1.36.3", false}, {"v1.36.3", "", false}, {"evil", "v1.36.3", false},
	} {
		f := usual(func(f *facts) { f.peering.Status.Remote.KubernetesVersion, f.kubernetes = c.provider, c.home }, made)
		if got := f.node.Status.DeclaredFeatures; slices.Contains(got, "RestartAllContainersOnContainerExits") != c.want ||
			slices.Contains(got, "ExtendWebSocketsToKubelet") || !slices.IsSorted(got) {
			t.Errorf("a provider of %q and a home of %q: %v", c.provider, c.home, got)
		}
	}
	f := usual(func(f *facts) { f.kubernetes = "v1.36.3" }, made)
	f.peering.Status.Remote.KubernetesVersion = "v1.35.0"
	if state(f.node, f); f.node.Status.DeclaredFeatures != nil {
		t.Errorf("after a downgrade: %v", f.node.Status.DeclaredFeatures)
	}
}

func TestHostname(t *testing.T) {
	a, b := hostname(strings.Repeat("a", 90)+"x"), hostname(strings.Repeat("a", 90)+"y")
	if a == b || len(validation.IsValidLabelValue(a)) > 0 || hostname("milan") != "milan" {
		t.Errorf("%s, %s", a, b)
	}
}

// Whatever an offer says, the node can be stored and says no more than it may.
func FuzzNode(f *testing.F) {
	f.Add("color", "blue", "amd64", "linux", "v1.36.3", int32(3))
	f.Add("kubernetes.io/arch", "evil", "a/b", "", "v1.e9", int32(-1))
	f.Add("type", "x", "", "\xff", "v99999999999999999999.0.0", int32(1))
	f.Fuzz(func(t *testing.T, key, value, arch, os, release string, nodes int32) {
		facts := usual(func(f *facts) {
			f.offer.Spec.Labels = map[string]string{key: value}
			f.offer.Spec.Shapes = []v1alpha1.NodeShape{{Architecture: arch, OperatingSystem: os, Nodes: nodes}}
			f.peering.Status.Remote.KubernetesVersion = release
		})
		made(&facts)
		for k, v := range facts.node.Labels {
			if len(validation.IsQualifiedName(k)) > 0 || len(validation.IsValidLabelValue(v)) > 0 {
				t.Errorf("label %q=%q", k, v)
			}
		}
		if facts.node.Labels["type"] != "virtual-kubelet" || facts.node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode {
			t.Errorf("labels %v", facts.node.Labels)
		}
		if _, err := version.ParseSemantic(facts.node.Status.NodeInfo.KubeletVersion); err != nil {
			t.Error(err)
		}
	})
}
