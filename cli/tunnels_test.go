package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
)

const key1, key2 = "mGlzWkYMlWgI6ZSPmPZNAD6bUi0PsTBzNEaGSyLVVzw=", "2GlzWkYMlWgI6ZSPmPZNAD6bUi0PsTBzNEaGSyLVVzw="

// config is the word of one side of a peering, and how the other one sees it.
func config(namespace, name, key string, endpoints []string, views ...v1alpha1.NetworkView) v1alpha1.NetworkConfig {
	return v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:   v1alpha1.NetworkConfigSpec{PublicKey: key, Endpoints: endpoints},
		Status: v1alpha1.NetworkConfigStatus{Views: views, Conditions: []metav1.Condition{is(v1alpha1.ConditionReady)}}}
}

// agentOf is the Lease of a node's agent, renewed then.
func agentOf(node string, renewed time.Duration, reports map[string]v1alpha1.TunnelReport) coordinationv1.Lease {
	text, err := json.Marshal(reports)
	if err != nil {
		panic(err)
	}
	micro := metav1.NewMicroTime(now.Add(renewed))
	return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NetworkNamespace, Name: node, Annotations: map[string]string{v1alpha1.AnnotationTunnels: string(text)}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node, RenewTime: &micro}}
}

// alive is a tunnel that works.
func alive() v1alpha1.TunnelReport {
	r := v1alpha1.TunnelReport{Alive: true, LatencyMicros: 23_400, Loss: 0.012, Endpoint: "198.51.100.7:7100", Kernel: true, Peer: key2}
	since(&r, -3*time.Hour)
	return r
}

func since(r *v1alpha1.TunnelReport, d time.Duration) { r.Since = when(d) }

// joined is the network of a cluster that has a tunnel to milan as its consumer, and one to
// it as its provider that is down.
func joined() fabric {
	same := v1alpha1.NetworkView{Real: "10.44.0.0/16", View: "10.44.0.0/16"}
	moved := v1alpha1.NetworkView{Real: "10.42.0.0/16", View: "10.255.0.0/16"}
	dead := v1alpha1.TunnelReport{Endpoint: "198.51.100.7:7101"}
	since(&dead, -5*time.Minute)
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "pelago-agent"}, Spec: appsv1.DaemonSetSpec{
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "pelago.dev/pelago:v0.3.0"}}}}}}
	return fabric{agents: agents, ready: true,
		configs: []v1alpha1.NetworkConfig{
			config("pelago-peering-milan", "consumer", key1, []string{"192.0.2.1:7100"}, moved),
			config("pelago-peering-milan", "provider", key2, nil, moved, same),
			config("pelago-tenant-milan", "consumer", key2, []string{"198.51.100.7:7101"}, same),
			config("pelago-tenant-milan", "provider", key1, []string{"192.0.2.1:7101"}, moved),
			config("pelago-tenant-of-a-peering-that-is-over", "provider", key1, nil, moved),
		},
		leases: []coordinationv1.Lease{
			agentOf("rome-1", -time.Second, map[string]v1alpha1.TunnelReport{"peering-milan": alive()}),
			agentOf("rome-2", -2*time.Second, map[string]v1alpha1.TunnelReport{"tenant-milan": dead}),
		}}
}

// TestTunnel holds what is said of one tunnel.
func TestTunnel(t *testing.T) {
	report := func(change func(*v1alpha1.TunnelReport)) func(*fabric) {
		return func(f *fabric) {
			r := alive()
			change(&r)
			f.leases = []coordinationv1.Lease{agentOf("rome-1", 0, map[string]v1alpha1.TunnelReport{"peering-milan": r})}
		}
	}
	dead := func(r *v1alpha1.TunnelReport) { r.Alive = false; since(r, -time.Minute) }
	for _, c := range []struct {
		reason  string
		change  func(*fabric)
		state   TunnelState
		gateway string
		problem string // "": none; begins with … if it is pending
		remedy  string
	}{
		{"it works", func(*fabric) {}, TunnelUp, "rome-1", "", ""},
		{"nothing comes back", report(dead), TunnelDown, "rome-1", "nothing has come back through the tunnel of node rome-1 for 1m", "the other one at 203.0.113.9:7100; this one at 192.0.2.1:7100"},
		{"nobody can be reached", func(f *fabric) {
			report(dead)(f)
			f.configs[0].Spec.Endpoints, f.configs[1].Spec.Endpoints = nil, nil
		}, TunnelDown, "rome-1", "nothing has come back", "set config.network.endpoints"},
		{"it has no device", report(func(r *v1alpha1.TunnelReport) { dead(r); r.Problem = "opening /dev/net/tun: no such device" }), TunnelDown, "rome-1",
			"node rome-1 has no tunnel: opening /dev/net/tun: no such device", "logs ds/pelago-agent"},
		{"it has just begun", report(func(r *v1alpha1.TunnelReport) { *r = v1alpha1.TunnelReport{} }), TunnelStarting, "rome-1", "…node rome-1 seeks the other side", "UDP"},
		{"it moved: who was heard of last has it", func(f *fabric) {
			old := alive()
			dead(&old)
			f.leases = append([]coordinationv1.Lease{agentOf("rome-9", -20*time.Second, map[string]v1alpha1.TunnelReport{"peering-milan": old})}, f.leases...)
		}, TunnelUp, "rome-1", "", ""},
		{"an agent that ended has none", func(f *fabric) {
			ended := agentOf("rome-9", 0, map[string]v1alpha1.TunnelReport{"peering-milan": alive()})
			ended.Spec.HolderIdentity = new(string)
			f.leases = append(f.leases, ended)
		}, TunnelUp, "rome-1", "", ""},
		{"its gateway is gone while others live", func(f *fabric) {
			f.leases[0] = agentOf("rome-1", -40*time.Second, map[string]v1alpha1.TunnelReport{"peering-milan": alive()})
		}, TunnelDown, "rome-1", "the agent of its gateway, node rome-1, is silent", "get pods -o wide"},
		{"the clock of whoever asks is behind", func(f *fabric) {
			for i, node := range []string{"rome-1", "rome-2"} {
				f.leases[i] = agentOf(node, time.Hour, map[string]v1alpha1.TunnelReport{"peering-milan": alive()})
			}
			f.leases = f.leases[:1]
		}, TunnelUp, "rome-1", "", ""},
		{"nobody has it", func(f *fabric) { f.leases = f.leases[1:] }, TunnelStarting, "", "…no node of this cluster is its gateway yet", "get pods"},
		{"an annotation of another version", func(f *fabric) { f.leases[0].Annotations[v1alpha1.AnnotationTunnels] = `["x"]` }, TunnelStarting, "", "…no node of this cluster", ""},
		{"Leases may not be read", func(f *fabric) { f.unread, f.leases = true, nil }, TunnelUnknown, "", "…who may not read Leases", ""},
		{"the other side has not spoken", func(f *fabric) { f.configs[1].Spec = v1alpha1.NetworkConfigSpec{} }, TunnelStarting, "", "…the other cluster has not said yet", ""},
		{"the other side has no object yet", func(f *fabric) { f.configs = f.configs[:1] }, TunnelStarting, "", "…the other cluster has not said yet", ""},
		{"this side has not spoken", func(f *fabric) { f.configs = f.configs[1:2] }, TunnelStarting, "", "…this cluster has not said yet", "pelago-manager"},
		{"no view of a range of theirs", func(f *fabric) {
			f.configs[1].Status.Conditions = []metav1.Condition{isNot(v1alpha1.ConditionReady, v1alpha1.ReasonPoolExhausted, "no /16 is free")}
		}, TunnelUp, "rome-1", "no /16 is free", "docs/network.md"},
		{"they refuse a range of ours, at length", func(f *fabric) {
			f.configs[0].Status.Conditions = []metav1.Condition{isNot(v1alpha1.ConditionReady, v1alpha1.ReasonRangesRefused, strings.Repeat("too large ", 3000))}
		}, TunnelUp, "rome-1", "the other cluster does not carry ranges of this one: too large", "docs/network.md"},
		{"what the ranges lack comes before a tunnel that is down", func(f *fabric) {
			report(dead)(f)
			f.configs[1].Status.Conditions = []metav1.Condition{isNot(v1alpha1.ConditionReady, v1alpha1.ReasonPoolExhausted, "no /16 is free")}
		}, TunnelDown, "rome-1", "no /16 is free", ""},
	} {
		s := busy()
		s.fabric = joined()
		s.fabric.configs = s.fabric.configs[:2]
		s.fabric.configs[1].Spec.Endpoints = []string{"203.0.113.9:7100"}
		c.change(&s.fabric)
		r := s.report(now)
		if len(r.Networks) != 1 {
			t.Errorf("%s: there are %d tunnels", c.reason, len(r.Networks))
			continue
		}
		n := r.Networks[0]
		if n.Name != "milan" || n.Role != v1alpha1.RoleConsumer || n.Tunnel != c.state || n.Gateway != c.gateway || (n.Tunnel == TunnelUp) != (n.LatencyMicros > 0) {
			t.Errorf("%s: %+v", c.reason, n)
		}
		list := r.Problems
		want, pending := strings.CutPrefix(c.problem, "…")
		if pending {
			list = r.Pending
		}
		var found []Problem
		for _, p := range append(r.Problems, r.Pending...) {
			if p.Object == "network of milan" {
				found = append(found, p)
			}
		}
		switch {
		case c.problem == "" && len(found) > 0, c.problem != "" && len(found) != 1:
			t.Errorf("%s: told %+v", c.reason, found)
		case c.problem == "":
		case !strings.HasPrefix(found[0].Message, want) || !strings.Contains(found[0].Remedy, c.remedy) || len(found[0].Message) > 512:
			t.Errorf("%s: told %+v", c.reason, found[0])
		case !contains(list, found[0]):
			t.Errorf("%s: pending is %t, want it otherwise", c.reason, !pending)
		}
	}
}

func contains(list []Problem, p Problem) bool {
	for _, one := range list {
		if one == p {
			return true
		}
	}
	return false
}

// A cluster without a network says nothing of one.
func TestNoNetwork(t *testing.T) {
	s := busy()
	s.fabric = fabric{}
	r := s.report(now)
	var out bytes.Buffer
	if err := (view{out: &out, now: now, width: screen.Width, detailed: true}).report(r); err != nil {
		t.Fatal(err)
	}
	if len(r.Networks) > 0 || strings.Contains(out.String(), "NETWORK") || strings.Contains(out.String(), "pelago-agent") {
		t.Errorf("%d tunnels, shown:\n%s", len(r.Networks), out.String())
	}
}

// TestThrough holds that what another provider is told of is called by whose it is.
func TestThrough(t *testing.T) {
	s := busy()
	for i := range s.fabric.configs {
		if n := &s.fabric.configs[i]; n.Namespace == "pelago-peering-milan" && n.Name == v1alpha1.NetworkConsumer {
			n.Status.Views = append(n.Status.Views, v1alpha1.NetworkView{Real: "10.77.0.0/16", View: "10.78.0.0/16"})
		}
	}
	s.fabric.configs = append(s.fabric.configs, config(v1alpha1.PeeringNamespace("oslo"), v1alpha1.NetworkProvider, key2, nil, v1alpha1.NetworkView{Real: "10.42.0.0/16", View: "10.77.0.0/16"}))
	var out bytes.Buffer
	if err := (view{out: &out, now: now, width: screen.Width, detailed: true}).report(s.report(now)); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, "oslo 10.77.0.0/16 10.78.0.0/16 at milan") || !strings.Contains(text, "this cluster 10.42.0.0/16") {
		t.Errorf("shown:\n%s", out.String())
	}
}

func TestMeasures(t *testing.T) {
	for micros, want := range map[int64]string{0: "-", 49: "0.0 ms", 340: "0.3 ms", 9_940: "9.9 ms", 12_600: "13 ms", 1_500_000: "1500 ms"} {
		if got := millis(micros); got != want {
			t.Errorf("%d µs: %s, want %s", micros, got, want)
		}
	}
	for part, want := range map[float64]string{0: "0%", -1: "0%", 0.004: "<1%", 0.012: "1%", 0.996: "100%", 7: "100%"} {
		if got := percent(part); got != want {
			t.Errorf("%g: %s, want %s", part, got, want)
		}
	}
}

// testTunnels holds that status reads the network of a server.
func (s *stage) testTunnels(t *testing.T, peering string) {
	if err := s.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.NetworkNamespace}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	space := v1alpha1.PeeringNamespace(peering)
	if err := s.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "agent"}
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.AgentName}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "x"}}}}}}
	views := []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.255.0.0/16"}}
	ours, theirs := config(space, "consumer", key1, nil), config(space, "provider", key2, nil)
	report := map[string]v1alpha1.TunnelReport{v1alpha1.NetworkKey(space): alive()}
	lease := agentOf("rome-1", time.Since(now), report)
	s.create(agents, &ours, &theirs, &lease)
	theirs.Status.Views = views
	if err := s.c.Status().Update(t.Context(), &theirs); err != nil {
		t.Fatal(err)
	}
	got := s.run("status", peering)
	for _, want := range []string{"pelago-agent not ready, x", peering + "    consumer  up      rome-1   23 ms    1%    10.255.0.0/16", "10.42.0.0/16  10.255.0.0/16  here"} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("status without %q: %+v", want, got)
		}
	}
	if got := s.run("status", "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"tunnel": "up"`) {
		t.Errorf("status in JSON: %+v", got)
	}
	ours.Spec.Reachability = v1alpha1.ReachFull
	if err := s.c.Update(t.Context(), &ours); err != nil {
		t.Fatal(err)
	}
	if got := s.run("status", peering); !strings.Contains(got.out, "REACHABLE") || !strings.Contains(got.out, "  full") {
		t.Errorf("status of a network in which all pods take part: %+v", got)
	}
	space = v1alpha1.TenantNamespace(peering)
	if err := s.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	path := pathIn(space, path1, is(v1alpha1.ConditionReady), "10.66.0.0/16")
	path.Spec.Until = metav1.Now()
	consumer := config(space, "consumer", key2, nil)
	s.create(&path, &consumer)
	if got := s.run("status"); got.code != 0 || !strings.Contains(got.out, "DIRECT PATHS OF") || !strings.Contains(got.out, path1) {
		t.Errorf("status without the path: %+v", got)
	}
}
