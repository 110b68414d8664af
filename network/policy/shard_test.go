package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// crowd is a world with many peers of one rule.
func crowd(t *testing.T, peers int) World {
	t.Helper()
	w := table(policies(t, `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`)...)
	for i := range peers {
		w.Others = append(w.Others, Pod{Namespace: "shop", UID: fmt.Sprintf("8a5c2f60-0000-4000-8000-%012d", i), Addresses: addrs(fmt.Sprintf("10.82.%d.%d", i/250, i%250))})
	}
	return w
}

// TestShards holds that what is written fits, that a pod that changes changes one object, and that the
// number of objects does not go up and down with single pods.
func TestShards(t *testing.T) {
	before := 0
	for _, c := range []struct{ peers, want int }{{100, 1}, {600, 2}, {480, 2}, {300, 2}, {90, 2}, {3000, 8}, {1500, 8}, {900, 2}, {100, 2}, {5000, 16}, {100, 1}} {
		specs, problems := Compile(crowd(t, c.peers)).Shards("shop", before)
		if len(specs) != c.want || len(problems) > 0 {
			t.Errorf("%d peers after %d shards are %d, want %d: %q", c.peers, before, len(specs), c.want, problems)
		}
		before = len(specs)
		for i, s := range specs {
			text, _ := json.Marshal(s)
			if len(s.Pods) > v1alpha1.MaxNetworkPods || len(text) > 1<<20 || s.Shard != int32(i) || int(s.Shards) != len(specs) || s.Revision != specs[0].Revision || i > 0 && (s.Rules != nil || s.Guarded != nil) {
				t.Errorf("%d peers: shard %d has %d pods in %d bytes: %+v", c.peers, i, len(s.Pods), len(text), s.Rules)
			}
		}
	}
	w := crowd(t, 3000)
	was, _ := Compile(w).Shards("shop", 8)
	w.Others[1000].Namespace = "ops"
	is, _ := Compile(w).Shards("shop", 8)
	changed := 0
	for i := range is {
		if !reflect.DeepEqual(was[i], is[i]) {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("one pod changes %d objects", changed)
	}
	w.Policies = policies(t, `{podSelector: {}, ingress: [{from: [{podSelector: {}}], ports: [{port: 1}]}]}`)
	if is, _ := Compile(w).Shards("shop", 8); is[0].Revision == was[0].Revision {
		t.Error("other rules have the same revision")
	}
}

// TestBounds holds that what is too much is left out on the safe side, and said.
func TestBounds(t *testing.T) {
	specs, problems := Compile(crowd(t, 12000)).Shards("shop", 16)
	total := 0
	for _, s := range specs {
		total += len(s.Pods)
	}
	if len(specs) != v1alpha1.MaxNetworkShards || total > v1alpha1.MaxNetworkShards*v1alpha1.MaxNetworkPods || len(problems) != 1 || !strings.Contains(problems[0], "more pods than can be told") {
		t.Errorf("of 12000 peers %d are in %d shards: %q", total, len(specs), problems)
	}
	if text := show(specs); strings.Count(text, "selected:") != 2 {
		t.Error("guarded pods are left out, and not peers")
	}
	// More entries than rules.
	var entries []string
	for i := range v1alpha1.MaxNetworkRules + 10 {
		entries = append(entries, fmt.Sprintf("{ports: [{port: %d}]}", i+1))
	}
	specs, problems = Compile(table(policies(t, `{podSelector: {}, ingress: [`+strings.Join(entries, ", ")+`]}`)...)).Shards("shop", 1)
	if len(specs[0].Rules) != v1alpha1.MaxNetworkRules || len(problems) != 1 || !strings.Contains(problems[0], "more than 256 rules") {
		t.Errorf("there are %d rules: %q", len(specs[0].Rules), problems)
	}
	if gateway(specs, false, parse(t, "db in web tcp/257")) || !gateway(specs, false, parse(t, "db in web tcp/256")) {
		t.Error("what is beyond the bound is allowed, or what is within is not")
	}
	// Who holds wholly is not blamed for the next one.
	_, problems = Compile(table(policies(t, `{podSelector: {}, ingress: [`+strings.Join(entries[:v1alpha1.MaxNetworkRules], ", ")+`]}`,
		`{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{}, {}]}`)...)).Shards("shop", 1)
	if len(problems) != 1 || !strings.Contains(problems[0], "those from spec.egress[0] of NetworkPolicy p1 on allow nothing") {
		t.Errorf("of a policy after one of %d rules it is said: %q", v1alpha1.MaxNetworkRules, problems)
	}
	// Many ports and blocks of one entry are several rules, and mean the same.
	var ports, except []string
	for i := range 100 {
		ports = append(ports, fmt.Sprintf("{port: %d}", 2*i+1))
		except = append(except, fmt.Sprintf("10.%d.0.0/17", i))
	}
	p := policies(t, `{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [`+strings.Join(except, ", ")+`]}}], ports: [`+strings.Join(ports, ", ")+`]}]}`)
	w := table(p...)
	specs, problems = Compile(w).Shards("shop", 1)
	for _, r := range specs[0].Rules {
		if len(r.Ports) > v1alpha1.MaxNetworkPorts || len(r.Blocks) > v1alpha1.MaxNetworkBlocks {
			t.Errorf("a rule has %d ports and %d blocks", len(r.Ports), len(r.Blocks))
		}
	}
	for _, text := range []string{"db in web tcp/1", "db in web tcp/199", "db in web tcp/2", "db in stranger tcp/5"} {
		if a := parse(t, text); gateway(specs, false, a) != reference(w, a) || len(problems) > 0 {
			t.Errorf("%s: allowed is %t, %q", text, gateway(specs, false, a), problems)
		}
	}
}

// BenchmarkCompile is one look at a namespace in a large cluster.
func BenchmarkCompile(b *testing.B) {
	w := World{Namespace: "shop", Namespaces: map[string]map[string]string{"shop": nil}, Guarded: []Pod{db}}
	for i := range 20 {
		w.Policies = append(w.Policies, networkingv1.NetworkPolicy{})
		w.Policies[i].Name = fmt.Sprintf("p%d", i)
		w.Policies[i].Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: new(metav1.LabelSelector{MatchLabels: map[string]string{"n": fmt.Sprint(i)}})}}}}
	}
	for i := range 5000 {
		w.Others = append(w.Others, Pod{Namespace: "shop", UID: fmt.Sprintf("%012d", i), Labels: map[string]string{"n": fmt.Sprint(i % 40)}, Addresses: addrs(fmt.Sprintf("10.82.%d.%d", i/250, i%250))})
	}
	for b.Loop() {
		Compile(w).Shards("shop", 8)
	}
}

// TestShardsAreTaken holds that what is written is within what gateways take, and the rest said.
func TestShardsAreTaken(t *testing.T) {
	c := Compiled{Guarded: []v1alpha1.NetworkDirection{v1alpha1.NetworkIngress}}
	for i := range 6000 {
		c.Pods = append(c.Pods, Member{Key: fmt.Sprint(i), Pod: v1alpha1.NetworkRulesPod{Addresses: []string{"10.42.0.1"}, Selected: make([]int32, 12)}})
	}
	specs, problems := c.Shards("shop", 1)
	mentions := 0
	for i := range specs {
		for j := range specs[i].Pods {
			mentions += specs[i].Pods[j].Mentions()
		}
		if size := specs[i].Size(); size > v1alpha1.MaxNetworkRulesSize {
			t.Errorf("shard %d has %d bytes", i, size)
		}
	}
	if mentions > v1alpha1.MaxNetworkMentions || mentions < v1alpha1.MaxNetworkMentions/2 || len(problems) != 1 {
		t.Errorf("%d mentions are written, and %q is said", mentions, problems)
	}
}

// TestBeyond holds that pods which gateways know by their addresses alone are isolated where there is no room for
// what is allowed to them, that those before them have all of theirs, and that it is said how many are not known
// at all.
func TestBeyond(t *testing.T) {
	both := []v1alpha1.NetworkDirection{v1alpha1.NetworkEgress, v1alpha1.NetworkIngress}
	world := func(pods int) Compiled {
		c := Compiled{Guarded: both, Rules: make([]v1alpha1.NetworkRule, 20)}
		for i := range pods {
			p := v1alpha1.NetworkRulesPod{Addresses: []string{fmt.Sprintf("10.42.%d.%d", i/250, i%250)}, Isolated: both, Selected: make([]int32, 20)}
			c.Pods = append(c.Pods, Member{Key: fmt.Sprint(i), Pod: p})
		}
		for i := range pods {
			p := v1alpha1.NetworkRulesPod{Addresses: c.Pods[i].Pod.Addresses, PeerOf: []int32{1}}
			c.Pods = append(c.Pods, Member{Key: fmt.Sprint(i), Pod: p, Peer: true})
		}
		return c
	}
	for _, c := range []struct {
		pods, loose int
	}{{5000, 0}, {9000, 1000}} {
		compiled := world(c.pods)
		specs, problems := compiled.Shards("shop", 1)
		isolated, allowed, peers := map[string]bool{}, 0, 0
		for i := range specs {
			if size := specs[i].Size() - 20*300; len(specs[i].Pods) > v1alpha1.MaxNetworkPods || size > v1alpha1.MaxNetworkRulesSize {
				t.Errorf("shard %d has %d pods in %d bytes", i, len(specs[i].Pods), size)
			}
			for _, p := range specs[i].Pods {
				if p.PeerOf != nil {
					peers++
					continue
				}
				isolated[p.Addresses[0]] = len(p.Isolated) == 2
				if len(p.Selected) > 0 {
					allowed++
				}
			}
		}
		if missing := c.pods - len(isolated); missing < c.loose || c.loose == 0 && missing > 0 {
			t.Errorf("%d of %d pods are not isolated", missing, c.pods)
		}
		if allowed < 2000 || peers > allowed {
			t.Errorf("of %d pods %d have what is allowed to them, and %d are peers", c.pods, allowed, peers)
		}
		if len(problems) != 1 || strings.Contains(problems[0], "do not know at all") != (c.loose > 0) {
			t.Errorf("of %d pods it is said: %q", c.pods, problems)
		}
	}
}

// TestFar holds that guarded pods of both ends come before all peers, that one of which nothing could
// be said is no peer either, and that nobody is told of at this end where no rule is about the other.
func TestFar(t *testing.T) {
	w := crowd(t, 0)
	w.Others = append(w.Others, db)
	for i := range 9000 {
		w.Near = append(w.Near, Pod{Namespace: "shop", UID: fmt.Sprintf("near-%d", i), Addresses: addrs(fmt.Sprintf("10.82.%d.%d", i/250, i%250))})
	}
	w.Guarded, w.Far = append(w.Near[:0:0], w.Near...), nil
	specs, _ := Compile(w).Shards("shop", 1)
	for _, s := range specs {
		for _, p := range s.Pods {
			if p.PeerOf != nil && p.Addresses[0] != db.Addresses[0].String() {
				t.Fatalf("%s is told of as a peer of nobody", p.Addresses)
			}
		}
	}
	w.Far = []Pod{db}
	specs, problems := Compile(w).Shards("shop", 1)
	guarded := map[string]bool{}
	for _, s := range specs {
		for _, p := range s.Pods {
			if p.PeerOf == nil {
				guarded[p.Addresses[0]] = true
			}
		}
	}
	if len(guarded) < 7000 || len(problems) != 1 {
		t.Errorf("%d are guarded, and said is %q", len(guarded), problems)
	}
	for _, s := range specs {
		for _, p := range s.Pods {
			if p.PeerOf != nil && !guarded[p.Addresses[0]] {
				t.Fatalf("%s is told of as a peer, and not that it is isolated", p.Addresses)
			}
		}
	}
	w.Guarded, w.Near = w.Guarded[:100], w.Near[:100]
	specs, problems = Compile(w).Shards("shop", 1)
	if len(specs) != 1 || len(problems) > 0 || len(specs[0].GuardedThere) != 1 || len(specs[0].Pods) != (1+100)+(2+100) { // guarded, and their peers at the other end and at this one
		t.Errorf("%d pods in %d shards, %q", len(specs[0].Pods), len(specs), problems)
	}
}
