package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
)

const path1, path2 = "0f3a9c1185a5c5e9", "5f3a9c1185a5c5e9"

// pathIn is a path of a tenant, used two minutes ago.
func pathIn(namespace, name string, ready metav1.Condition, prefixes ...string) v1alpha1.NetworkPath {
	return v1alpha1.NetworkPath{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.NetworkPathSpec{Prefixes: prefixes},
		Status: v1alpha1.NetworkPathStatus{Used: when(-2 * time.Minute), Conditions: []metav1.Condition{ready}}}
}

// linked is a cluster at which milan, its consumer, has two paths, while it has none of its own.
func linked() *snapshot {
	s := busy()
	s.fabric.paths = []v1alpha1.NetworkPath{
		pathIn("pelago-tenant-milan", path2, is(v1alpha1.ConditionReady), "10.44.0.0/16"),
		pathIn("pelago-tenant-milan", path1, isNot(v1alpha1.ConditionReady, v1alpha1.ReasonTunnelDown, "nothing comes back"), "10.99.0.0/16"),
		pathIn("pelago-tenant-turin", path1, is(v1alpha1.ConditionReady), "10.44.0.0/16"),
	}
	s.tenants[0].Spec.DirectPaths = true
	up := alive()
	up.Endpoint, up.LatencyMicros = "203.0.113.9:7103", 1_200
	s.fabric.leases = append(s.fabric.leases, agentOf("rome-2", -time.Second, map[string]v1alpha1.TunnelReport{v1alpha1.NetworkPathKey("pelago-tenant-milan", path2): up}))
	return s
}

// TestPaths holds what a provider is told of direct paths: of each tenant its own, to where as pods
// here see it, and how they are; that one is down is no problem, as there is another way.
func TestPaths(t *testing.T) {
	r := linked().report(now)
	if len(r.Networks) != 2 || r.Networks[0].Role != v1alpha1.RoleConsumer || r.Networks[0].DirectPaths || len(r.Networks[0].Paths) > 0 {
		t.Fatalf("as a consumer: %+v", r.Networks)
	}
	want := []PathReport{
		{Name: path1, Views: []v1alpha1.NetworkView{{Real: "10.99.0.0/16"}}, Reason: v1alpha1.ReasonTunnelDown, Message: "nothing comes back", Used: when(-2 * time.Minute)},
		{Name: path2, Views: []v1alpha1.NetworkView{{Real: "10.44.0.0/16", View: "10.44.0.0/16"}}, Ready: true, Used: when(-2 * time.Minute),
			Gateway: "rome-2", Endpoint: "203.0.113.9:7103", LatencyMicros: 1_200, Loss: 0.012},
	}
	if diff := cmp.Diff(want, r.Networks[1].Paths); diff != "" || !r.Networks[1].DirectPaths {
		t.Errorf("as a provider: allowed %t %s", r.Networks[1].DirectPaths, diff)
	}
	for _, p := range append(r.Problems, r.Pending...) {
		if strings.Contains(p.Object+p.Message, "path") {
			t.Errorf("told %+v", p)
		}
	}
	for detailed, lines := range map[bool][]string{
		false: {"DIRECT PATHS OF PATH LEAD TO READY LATENCY USED REASON", "milan " + path1 + " - no - 2m ago TunnelDown", "milan " + path2 + " 10.44.0.0/16 yes 1.2 ms 2m ago -"},
		true: {"direct paths are allowed between its pods here and those at other providers", "path " + path1 + ": nothing comes back",
			"path " + path2 + ": the other side at 203.0.113.9:7103; this one at node rome-2"},
	} {
		var out bytes.Buffer
		if err := (view{out: &out, now: now, detailed: detailed}).report(r); err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, line) {
				t.Errorf("detailed %t, without %q:\n%s", detailed, line, out.String())
			}
		}
	}
}

// TestPathsOfOthers: a path is shown until its agent is silent as far as it goes, and a cluster that has
// none says nothing of them.
func TestPathsOfOthers(t *testing.T) {
	s := linked()
	s.fabric.leases[2] = agentOf("rome-2", -40*time.Second, map[string]v1alpha1.TunnelReport{v1alpha1.NetworkPathKey("pelago-tenant-milan", path2): alive()})
	s.fabric.paths[0].Status.Conditions = nil
	if p := s.report(now).Networks[1].Paths[1]; p.Gateway != "" || p.LatencyMicros != 0 || p.Ready || p.Reason != v1alpha1.ReasonPending {
		t.Errorf("of a silent agent: %+v", p)
	}
	s.fabric.paths, s.tenants[0].Spec.DirectPaths, s.peerings[0].Spec.DirectPaths = nil, false, true
	r := s.report(now)
	if !r.Networks[0].DirectPaths || r.Networks[1].DirectPaths {
		t.Errorf("the Peering allows it, the Tenant does not: %+v", r.Networks)
	}
	var out bytes.Buffer
	if err := (view{out: &out, now: now, width: screen.Width}).report(r); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "DIRECT") {
		t.Errorf("shown:\n%s", out.String())
	}
}

// TestPathsBehind holds what a consumer is told of paths to it, which its provider makes and objects of
// its own cluster are not: that provider's alone, and what it says itself of each.
func TestPathsBehind(t *testing.T) {
	s := linked()
	s.peerings[0].Spec.DirectPaths = true
	i := slices.IndexFunc(s.fabric.configs, func(c v1alpha1.NetworkConfig) bool {
		return c.Namespace == "pelago-peering-milan" && c.Name == v1alpha1.NetworkProvider
	})
	milan := &s.fabric.configs[i]
	milan.Spec.Transit = []string{"10.60.0.0/16"}
	milan.Status.Views = append(milan.Status.Views, v1alpha1.NetworkView{Real: "10.60.0.0/16", View: "10.97.0.0/16"})
	one := pathIn("", path1, is(v1alpha1.ConditionReady), "10.60.0.0/16")
	milan.Spec.ConsumerPaths = []v1alpha1.ConsumerPath{{Name: path1, NetworkPathSpec: one.Spec}, {Name: path2, NetworkPathSpec: one.Spec}}
	milan.Status.ConsumerPaths = []v1alpha1.ConsumerPathStatus{{Name: path1, NetworkPathStatus: one.Status}}
	up := alive()
	up.Endpoint, up.LatencyMicros = "203.0.113.9:7103", 1_200
	s.fabric.leases = append(s.fabric.leases, agentOf("rome-3", -time.Second, map[string]v1alpha1.TunnelReport{v1alpha1.NetworkPathKey("pelago-peering-milan", path1): up}))
	views := []v1alpha1.NetworkView{{Real: "10.60.0.0/16", View: "10.97.0.0/16"}}
	want := []PathReport{
		{Name: path1, Views: views, Ready: true, Used: when(-2 * time.Minute), Gateway: "rome-3", Endpoint: "203.0.113.9:7103", LatencyMicros: 1_200, Loss: 0.012},
		{Name: path2, Views: views, Reason: v1alpha1.ReasonPending},
	}
	r := s.report(now)
	if diff := cmp.Diff(want, r.Networks[0].Paths); diff != "" || len(r.Networks[1].Paths) != 2 || r.Networks[1].Paths[1].Gateway != "rome-2" {
		t.Errorf("as a consumer: %s; as a provider: %+v", diff, r.Networks[1].Paths)
	}
}
