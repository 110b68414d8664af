package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/policy"
)

// rulesOf are NetworkRules of one shard.
func rulesOf(namespace, home string, guarded []v1alpha1.NetworkDirection, rules []v1alpha1.NetworkRule, pods ...v1alpha1.NetworkRulesPod) v1alpha1.NetworkRules {
	return v1alpha1.NetworkRules{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.NetworkRulesName(home, 0), ResourceVersion: "1"},
		Spec:       v1alpha1.NetworkRulesSpec{Namespace: home, Shards: 1, Revision: "0123456789abcdef", Guarded: guarded, Rules: rules, Pods: pods},
	}
}

const (
	ingress = v1alpha1.NetworkIngress
	egress  = v1alpha1.NetworkEgress
)

func way(all ...v1alpha1.NetworkDirection) []v1alpha1.NetworkDirection { return all }

// TestReadRules holds what is refused, and that it is said why.
func TestReadRules(t *testing.T) {
	fine := func() []v1alpha1.NetworkRules {
		return []v1alpha1.NetworkRules{rulesOf(atTurin, "shop", way(ingress), []v1alpha1.NetworkRule{
			{Policy: "db", Direction: ingress, Protocol: "TCP", Ports: []v1alpha1.NetworkPortRange{{First: 1, Last: 65535}}, Blocks: []v1alpha1.NetworkAddressRange{{First: "10.0.0.1", Last: "10.0.0.1"}}},
		}, v1alpha1.NetworkRulesPod{UID: "u", Isolated: way(ingress, egress), Selected: []int32{0}})}
	}
	for _, c := range []struct {
		reason string
		change func(*[]v1alpha1.NetworkRules)
		want   string
	}{
		{"all of it", func(*[]v1alpha1.NetworkRules) {}, ""},
		{"no shards", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Shards = 0 }, "spec.shards: 0"},
		{"too many shards", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Shards = 1 << 30 }, "spec.shards: 1073741824"},
		{"a shard is missing", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Shards = 2 }, "not all of its shards"},
		{"a shard of another revision", func(n *[]v1alpha1.NetworkRules) {
			more := fine()[0]
			more.Spec.Shard, more.Spec.Shards, more.Spec.Revision, more.Spec.Rules, more.Spec.Guarded = 1, 2, "ffffffffffffffff", nil, nil
			(*n)[0].Spec.Shards = 2
			*n = append(*n, more)
		}, "not all of its shards"},
		{"a shard twice", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Shards = 2; *n = append(*n, (*n)[0]) }, "not all of its shards"},
		{"rules in the second shard", func(n *[]v1alpha1.NetworkRules) {
			(*n)[0].Spec.Shards = 2
			more := (*n)[0]
			more.Spec.Shard = 1
			*n = append(*n, more)
		}, "shard 1"},
		{"a direction that is none", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Guarded = way("Up") }, `spec.guarded: "Up" is neither`},
		{"a rule without one", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Rules[0].Direction = "" }, "spec.rules[0].direction"},
		{"SCTP", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Rules[0].Protocol = "SCTP" }, `spec.rules[0].protocol: "SCTP"`},
		{"ports of no protocol", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Rules[0].Protocol = "" }, "spec.rules[0].protocol: empty"},
		{"ports backwards", func(n *[]v1alpha1.NetworkRules) {
			(*n)[0].Spec.Rules[0].Ports[0].First, (*n)[0].Spec.Rules[0].Ports[0].Last = 9, 8
		}, "spec.rules[0].ports: 9 to 8"},
		{"too many rules", func(n *[]v1alpha1.NetworkRules) {
			(*n)[0].Spec.Rules = slices.Repeat((*n)[0].Spec.Rules, v1alpha1.MaxNetworkRules+1)
		}, "spec.rules: there are 257"},
		{"too many ports", func(n *[]v1alpha1.NetworkRules) {
			(*n)[0].Spec.Rules[0].Ports = slices.Repeat((*n)[0].Spec.Rules[0].Ports, 65)
		}, "spec.rules[0].ports, blocks: 65 and 1"},
		{"a block backwards", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Rules[0].Blocks[0].First = "10.0.0.2" }, "spec.rules[0].blocks: from"},
		{"a block of two families", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Rules[0].Blocks[0].Last = "fd00::1" }, "spec.rules[0].blocks: from"},
		{"blocks that are very many prefixes", func(n *[]v1alpha1.NetworkRules) {
			for i := range 64 {
				(*n)[0].Spec.Rules[0].Blocks = append((*n)[0].Spec.Rules[0].Blocks[:i:i], v1alpha1.NetworkAddressRange{First: fmt.Sprintf("%x::1", 0x1000+i), Last: fmt.Sprintf("%x:ffff:ffff:ffff:ffff:ffff:ffff:fffe", 0x1000+i)})
			}
			(*n)[0].Spec.Rules = slices.Repeat((*n)[0].Spec.Rules, 9)
		}, "more than 16384 prefixes"},
		{"a pod of both", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Pods[0].Addresses = []string{"10.0.0.1"} }, "shard 0: spec.pods[0].uid, addresses"},
		{"a pod of neither", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Pods[0].UID = "" }, "spec.pods[0].uid, addresses"},
		{"an address that is none", func(n *[]v1alpha1.NetworkRules) {
			(*n)[0].Spec.Pods[0] = v1alpha1.NetworkRulesPod{Addresses: []string{"10.0.0.1%eth0"}}
		}, "spec.pods[0].addresses"},
		{"a rule that there is not", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Pods[0].Selected = []int32{1} }, "spec.pods[0].selected: there is no rule 1"},
		{"a rule before the first", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Pods[0].PeerOf = []int32{-1} }, "spec.pods[0].peerOf: there is no rule -1"},
		{"ports of no rule", func(n *[]v1alpha1.NetworkRules) {
			(*n)[0].Spec.Pods[0].Ports = []v1alpha1.NetworkRulesPorts{{Rule: 7, Ports: []int32{1}}}
		}, "spec.pods[0].ports: there is no rule 7"},
		{"a port that is none", func(n *[]v1alpha1.NetworkRules) {
			(*n)[0].Spec.Pods[0].Ports = []v1alpha1.NetworkRulesPorts{{Rule: 0, Ports: []int32{65536}}}
		}, "spec.pods[0].ports: 65536"},
		{"too many pods", func(n *[]v1alpha1.NetworkRules) { (*n)[0].Spec.Pods = slices.Repeat((*n)[0].Spec.Pods, 501) }, "it has 501 pods"},
	} {
		all := fine()
		c.change(&all)
		var shards []*v1alpha1.NetworkRules
		for i := range all {
			shards = append(shards, &all[i])
		}
		set, err := readRules(shards)
		if got := message(err); (c.want == "") != (err == nil) || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
		}
		if err == nil && len(set.pods) == 0 {
			t.Errorf("%s: no pods", c.reason)
		}
	}
}

func TestBetween(t *testing.T) {
	for _, c := range []struct{ first, last, want string }{
		{"10.0.0.1", "10.0.0.1", "10.0.0.1/32"},
		{"0.0.0.0", "255.255.255.255", "0.0.0.0/0"},
		{"10.0.0.0", "10.0.1.255", "10.0.0.0/23"},
		{"10.0.0.255", "10.0.1.0", "10.0.0.255/32 10.0.1.0/32"},
		{"10.0.0.1", "10.0.0.6", "10.0.0.1/32 10.0.0.2/31 10.0.0.4/31 10.0.0.6/32"},
		{"255.255.255.254", "255.255.255.255", "255.255.255.254/31"},
		{"fd00::", "fd00::ffff", "fd00::/112"},
		{"::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::/0"},
	} {
		got := ipam.Between(netip.MustParseAddr(c.first), netip.MustParseAddr(c.last))
		if d := cmp.Diff(prefixes(strings.Fields(c.want)...), got, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
			t.Errorf("from %s to %s (-want +got):\n%s", c.first, c.last, d)
		}
	}
}

// TestRulebook holds that what is wrong changes nothing, and of what nothing good was seen nobody is open.
func TestRulebook(t *testing.T) {
	var b rulebook
	key := ruleKey{atTurin, "shop"}
	version := 0
	step := func(reason string, counts bool, want func(*ruleset) bool, problem string, all ...v1alpha1.NetworkRules) {
		t.Helper()
		for i := range all {
			version++
			all[i].ResourceVersion = fmt.Sprint(version)
		}
		sets, problems := b.update(all, func(ruleKey) bool { return counts })
		if !want(sets[key]) {
			t.Errorf("%s: got %+v", reason, sets[key])
		}
		if (problem == "") != (len(problems) == 0) || problem != "" && !strings.Contains(problems[0].String(), problem) {
			t.Errorf("%s: problems are %v, want %q", reason, problems, problem)
		}
	}
	isClosed := func(s *ruleset) bool { return s == everybody }
	none := func(s *ruleset) bool { return s == nil }
	guards := func(d directions) func(*ruleset) bool {
		return func(s *ruleset) bool { return s != nil && s != everybody && s.guarded == d }
	}
	good, other := rulesOf(atTurin, "shop", way(ingress), nil), rulesOf(atTurin, "shop", way(egress), nil)
	bad := rulesOf(atTurin, "shop", way("Up"), nil)
	half := rulesOf(atTurin, "shop", way(egress), nil)
	half.Spec.Shards = 2
	step("nothing", true, none, "")
	step("wrong from the beginning", true, isClosed, "all pods of this namespace are isolated", bad)
	step("half from the beginning", true, isClosed, "not all of its shards are there yet; until then", half)
	step("good", true, guards(directions{in: true}), "", good)
	step("then wrong", true, guards(directions{in: true}), `"Up" is neither Ingress nor Egress; what was known of them before goes on`, bad)
	step("then half", true, guards(directions{in: true}), "not all of its shards are there yet; what was known", half)
	step("good again, and another one", true, guards(directions{out: true}), "", other)
	step("gone", true, none, "")
	step("what was known is forgotten with it", true, isClosed, "isolated", bad)
	step("of no namespace here", false, none, "", good)
	misnamed := good
	misnamed.Name = "shop.7"
	step("by another name", true, none, "", misnamed)
}

// ruled are someFacts with NetworkRules, of the tenant turin and of milan.
func ruled(all ...v1alpha1.NetworkRules) facts {
	f := someFacts()
	f.hosted[0].Labels[v1alpha1.LabelHomeUID] = "db"
	f.hosted[1].Labels[v1alpha1.LabelHomeUID] = "db" // of another tenant
	f.hosted = append(f.hosted,
		podAt(labelled("x", "new", v1alpha1.LabelTenant, "turin", v1alpha1.LabelHomeUID, "new"), "b", "10.42.2.9"),
		podAt(labelled("y", "else", v1alpha1.LabelTenant, "turin", v1alpha1.LabelHomeUID, "else"), "b", "10.42.2.10"))
	f.namespaces = []corev1.Namespace{
		{ObjectMeta: labelled("", "x", v1alpha1.LabelTenant, "turin", v1alpha1.LabelHomeNamespace, "shop")},
		{ObjectMeta: labelled("", "y", v1alpha1.LabelTenant, "turin", v1alpha1.LabelHomeNamespace, "bank")},
		{ObjectMeta: labelled("", "z", v1alpha1.LabelTenant, "genoa", v1alpha1.LabelHomeNamespace, "vault")},
	}
	var b rulebook
	f.rule(&b, all)
	return f
}

func TestGuardInput(t *testing.T) {
	pairs := func(texts ...string) (all []netip.AddrPort) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddrPort(text))
		}
		return all
	}
	tcp := func(d v1alpha1.NetworkDirection) v1alpha1.NetworkRule {
		return v1alpha1.NetworkRule{Policy: "p", Direction: d, Protocol: "TCP", Ports: []v1alpha1.NetworkPortRange{{First: 80, Last: 80}}}
	}
	named := func(d v1alpha1.NetworkDirection) v1alpha1.NetworkRule {
		return v1alpha1.NetworkRule{Policy: "p", Direction: d, Protocol: "TCP", PerPod: true}
	}
	ports := []dataplane.Ports{{First: 80, Last: 80}}
	blocks := func(first, last string) []v1alpha1.NetworkAddressRange {
		return []v1alpha1.NetworkAddressRange{{First: first, Last: last}}
	}
	for _, c := range []struct {
		reason   string
		rules    v1alpha1.NetworkRules
		facts    func(*facts)
		want     *dataplane.Guard // of milan if the rules are for there, else of turin
		problems string
	}{
		{"a pod by its UID, a peer by its address", rulesOf(atTurin, "shop", nil, []v1alpha1.NetworkRule{tcp(ingress)},
			v1alpha1.NetworkRulesPod{UID: "db", Isolated: way(ingress), Selected: []int32{0}}, v1alpha1.NetworkRulesPod{Addresses: []string{"10.50.1.1"}, PeerOf: []int32{0}}), nil,
			&dataplane.Guard{HereIn: addrs("10.42.2.7"), Entries: []dataplane.Entry{
				{Name: "shop/p/Ingress/TCP/false#1", Pods: addrs("10.42.2.7"), Peers: prefixes("10.50.1.1/32"), Protocol: 6, Ports: ports},
			}}, ""},
		{"a pod that no rules know yet, in a namespace that says so", rulesOf(atTurin, "shop", way(ingress, egress), nil, v1alpha1.NetworkRulesPod{UID: "db"}), nil,
			&dataplane.Guard{HereIn: addrs("10.42.2.9"), HereOut: addrs("10.42.2.9")}, ""},
		{"a UID that is not here", rulesOf(atTurin, "shop", nil, nil, v1alpha1.NetworkRulesPod{UID: "gone", Isolated: way(ingress)}), nil, &dataplane.Guard{}, ""},
		{"addresses that are not home's", rulesOf(atTurin, "shop", nil, []v1alpha1.NetworkRule{tcp(ingress)},
			v1alpha1.NetworkRulesPod{Addresses: []string{"192.168.0.1"}, PeerOf: []int32{0}}, v1alpha1.NetworkRulesPod{Addresses: []string{"10.42.2.8"}, Isolated: way(ingress), Selected: []int32{0}}), nil,
			&dataplane.Guard{Entries: []dataplane.Entry{{Name: "shop/p/Ingress/TCP/false#1", Protocol: 6, Ports: ports}}}, "2 addresses that are in no range of home's"},
		{"everybody, and blocks", rulesOf(atTurin, "shop", nil, []v1alpha1.NetworkRule{{Policy: "a", Direction: egress, AnyPeer: true}, {Policy: "b", Direction: egress, Blocks: blocks("10.50.0.0", "10.50.0.255")}},
			v1alpha1.NetworkRulesPod{UID: "db", Isolated: way(egress), Selected: []int32{0, 1}}), nil,
			&dataplane.Guard{HereOut: addrs("10.42.2.7"), Entries: []dataplane.Entry{
				{Name: "shop/a/Egress//false#1", Out: true, Pods: addrs("10.42.2.7"), Peers: prefixes("0.0.0.0/0", "::/0")},
				{Name: "shop/b/Egress//false#1", Out: true, Pods: addrs("10.42.2.7"), Peers: prefixes("10.50.0.0/24")},
			}}, ""},
		{"names of ports", rulesOf(atTurin, "shop", nil, []v1alpha1.NetworkRule{named(ingress), named(egress)},
			v1alpha1.NetworkRulesPod{UID: "db", Isolated: way(ingress), Selected: []int32{0, 1}, Ports: []v1alpha1.NetworkRulesPorts{{Rule: 0, Ports: []int32{5432}}}},
			v1alpha1.NetworkRulesPod{Addresses: []string{"10.50.1.1"}, PeerOf: []int32{0, 1}, Ports: []v1alpha1.NetworkRulesPorts{{Rule: 1, Ports: []int32{8080, 8081}}}},
			v1alpha1.NetworkRulesPod{Addresses: []string{"10.50.1.2"}, Ports: []v1alpha1.NetworkRulesPorts{{Rule: 1, Ports: []int32{9}}}}), nil,
			&dataplane.Guard{HereIn: addrs("10.42.2.7"), Entries: []dataplane.Entry{
				{Name: "shop/p/Egress/TCP/true#1", Out: true, Pods: addrs("10.42.2.7"), Peers: prefixes("10.50.1.1/32"), Protocol: 6, Named: true, Pairs: pairs("10.50.1.1:8080", "10.50.1.1:8081")},
				{Name: "shop/p/Ingress/TCP/true#1", Pods: addrs("10.42.2.7"), Peers: prefixes("10.50.1.1/32"), Protocol: 6, Named: true, Pairs: pairs("10.42.2.7:5432")},
			}}, ""},
		{"rules that cannot be understood, of which no good ones were seen", rulesOf(atTurin, "shop", way("Up"), nil), nil,
			&dataplane.Guard{HereIn: addrs("10.42.2.7", "10.42.2.9"), HereOut: addrs("10.42.2.7", "10.42.2.9")}, "all pods of this namespace are isolated"},
		{"more than one peering may have", rulesOf(atTurin, "shop", nil, slices.Repeat([]v1alpha1.NetworkRule{tcp(ingress)}, 256)), func(f *facts) {
			for i := range 5 {
				home := fmt.Sprintf("a%d", i)
				f.rules[ruleKey{atTurin, home}] = f.rules[ruleKey{atTurin, "shop"}]
			}
		}, nil, `and all pods of "shop" are isolated`},
		{"rules of a namespace that is not offloaded here", rulesOf(atTurin, "vault", way(ingress), nil), nil, &dataplane.Guard{}, ""},
		{"a pod whose namespace is not known yet", rulesOf(atTurin, "shop", nil, nil, v1alpha1.NetworkRulesPod{UID: "db"}), func(f *facts) { f.hosted[2].Namespace = "later" },
			&dataplane.Guard{HereIn: addrs("10.42.2.9"), HereOut: addrs("10.42.2.9")}, ""},
		{"home's API is free", rulesOf(atTurin, "shop", nil, nil, v1alpha1.NetworkRulesPod{UID: "db", Isolated: way(egress)}), func(f *facts) {
			f.configs[3].Spec.External, f.configs[3].Spec.APIServer = []string{"10.50.255.0/24"}, "10.50.255.2:443"
		}, &dataplane.Guard{HereOut: addrs("10.42.2.7"), Free: pairs("10.50.255.2:443")}, ""},
		// At home.
		{"a pod here, and peers there by this cluster's view", rulesOf(atMilan, "shop", nil, []v1alpha1.NetworkRule{tcp(ingress), {Policy: "q", Direction: ingress, Blocks: blocks("10.81.0.0", "10.81.0.255")}, {Policy: "r", Direction: ingress, Blocks: blocks("10.0.0.0", "10.255.255.255")}},
			v1alpha1.NetworkRulesPod{Addresses: []string{"10.42.1.5"}, Isolated: way(ingress), Selected: []int32{0, 1, 2}}, v1alpha1.NetworkRulesPod{Addresses: []string{"10.81.3.4"}, PeerOf: []int32{0}}), nil,
			&dataplane.Guard{HereIn: addrs("10.42.1.5"), Entries: []dataplane.Entry{
				{Name: "shop/p/Ingress/TCP/false#1", Pods: addrs("10.42.1.5"), Peers: prefixes("10.42.3.4/32"), Protocol: 6, Ports: ports},
				{Name: "shop/q/Ingress//false#1", Pods: addrs("10.42.1.5"), Peers: prefixes("10.42.0.0/24")},
				{Name: "shop/r/Ingress//false#1", Pods: addrs("10.42.1.5"), Peers: prefixes("10.42.0.0/16")},
			}}, ""},
		{"a pod there, as home sees it", rulesOf(atMilan, "shop", nil, []v1alpha1.NetworkRule{{Policy: "p", Direction: egress, Blocks: blocks("192.168.0.1", "192.168.0.1")}},
			v1alpha1.NetworkRulesPod{Addresses: []string{"10.81.3.4"}, Isolated: way(egress), Selected: []int32{0}}, v1alpha1.NetworkRulesPod{Addresses: []string{"10.42.1.5"}, PeerOf: []int32{0}}), nil,
			&dataplane.Guard{ThereOut: addrs("10.42.3.4"), Entries: []dataplane.Entry{
				{Name: "shop/p/Egress//false#1", Out: true},
				{Name: "shop/p/Egress//false#1/there", There: true, Out: true, Pods: addrs("10.42.3.4"), Peers: prefixes("10.42.1.5/32", "192.168.0.1/32")},
			}}, ""},
		{"nobody's address, and a UID, at home", rulesOf(atMilan, "shop", nil, nil, v1alpha1.NetworkRulesPod{Addresses: []string{"172.16.0.1"}, Isolated: way(ingress)}, v1alpha1.NetworkRulesPod{UID: "db", Isolated: way(ingress)}), nil, &dataplane.Guard{}, ""},
	} {
		f := ruled(c.rules)
		if c.facts != nil {
			c.facts(&f)
		}
		k := input(f)
		p := k.input.Peerings[1]
		if c.rules.Namespace == atMilan {
			p = k.input.Peerings[0]
		}
		if c.want != nil || p.Guard == nil {
			// As the data plane is told.
			out := plan.Compute(plan.Input{Node: "a", Nodes: k.input.Nodes[:1], Peerings: []plan.Peering{p}})
			got := out.Config.Gateways[0].Guard
			if d := cmp.Diff(c.want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, netip.AddrPort{})); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, d)
			}
			if err := out.Config.Check(); err != nil {
				t.Errorf("%s: %v", c.reason, err)
			}
		}
		if text := fmt.Sprint(k.problems); (c.problems == "") != (len(k.problems) == 0) || !strings.Contains(text, c.problems) {
			t.Errorf("%s: problems are %s, want %q", c.reason, text, c.problems)
		}
	}
}

// TestUntold holds that a pod at home is not to be reached before policies know it.
func TestUntold(t *testing.T) {
	for _, c := range []struct {
		reason string
		rules  []v1alpha1.NetworkRules
		want   string
	}{
		{"no policies", nil, "10.42.1.5 10.42.1.9"},
		{"one is known", []v1alpha1.NetworkRules{rulesOf(atMilan, "shop", way(ingress), nil, v1alpha1.NetworkRulesPod{Addresses: []string{"10.42.1.5"}})}, "10.42.1.5"},
		{"of policies for what pods begin none has to be", []v1alpha1.NetworkRules{rulesOf(atMilan, "shop", way(egress), nil)}, "10.42.1.5 10.42.1.9"},
		{"nothing good was seen", []v1alpha1.NetworkRules{rulesOf(atMilan, "shop", way("Up"), nil)}, ""},
	} {
		f := ruled(c.rules...)
		f.home["shop"] = append(f.home["shop"], sliceOf(labelled("shop", "new"), "a", "10.42.1.9"))
		if d := cmp.Diff(addrs(strings.Fields(c.want)...), input(f).input.Peerings[0].Here, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

// BenchmarkGuard is a plan with 1,000 pods and 100 rules of 40 pods and peers each, of which nothing
// has changed.
func BenchmarkGuard(b *testing.B) {
	n := rulesOf(atTurin, "shop", way(ingress), nil)
	more := rulesOf(atTurin, "shop", nil, nil)
	var hosted []corev1.Pod
	pods := make([]v1alpha1.NetworkRulesPod, 1000)
	for i := range pods {
		uid := fmt.Sprint("pod", i)
		pods[i] = v1alpha1.NetworkRulesPod{UID: uid, Isolated: way(ingress)}
		if i%2 > 0 {
			pods[i] = v1alpha1.NetworkRulesPod{Addresses: []string{fmt.Sprintf("10.50.%d.%d", i/256, i%256)}}
			continue
		}
		hosted = append(hosted, podAt(labelled("x", uid, v1alpha1.LabelTenant, "turin", v1alpha1.LabelHomeUID, uid), "b", fmt.Sprintf("10.42.%d.%d", i/256, i%256)))
	}
	for i := range 100 {
		n.Spec.Rules = append(n.Spec.Rules, v1alpha1.NetworkRule{Policy: fmt.Sprint("p", i), Direction: ingress})
		for j := range 40 {
			pods[(20*i+2*j)%1000].Selected = append(pods[(20*i+2*j)%1000].Selected, int32(i))
			pods[(20*i+2*j+1)%1000].PeerOf = append(pods[(20*i+2*j+1)%1000].PeerOf, int32(i))
		}
	}
	n.Spec.Shards, more.Spec.Shards, more.Spec.Shard, more.Name = 2, 2, 1, v1alpha1.NetworkRulesName("shop", 1)
	n.Spec.Pods, more.Spec.Pods = pods[:500], pods[500:]
	f := ruled(n, more)
	f.hosted = hosted
	for b.Loop() {
		p := plan.Compute(input(f).input)
		if g := p.Config.Gateways[len(p.Config.Gateways)-1].Guard; g == nil || len(g.Entries) != 100 || len(g.HereIn) != 500 || len(g.Entries[0].Pods) != 40 {
			b.Fatal(g)
		}
	}
}

// FuzzRules holds that whatever a tenant writes, the data plane takes the plan, no other tenant's
// changes, and nobody's address but his own pods' is isolated or let in.
func FuzzRules(f *testing.F) {
	for _, n := range []v1alpha1.NetworkRules{
		rulesOf(atTurin, "shop", way(ingress, egress), []v1alpha1.NetworkRule{
			{Policy: "db", Direction: ingress, Protocol: "TCP", Ports: []v1alpha1.NetworkPortRange{{First: 1, Last: 65535}}, Blocks: []v1alpha1.NetworkAddressRange{{First: "10.0.0.1", Last: "fd00::1"}}},
		}, v1alpha1.NetworkRulesPod{UID: "db", Isolated: way(ingress), Selected: []int32{0}}),
		rulesOf(atTurin, "shop", nil, []v1alpha1.NetworkRule{{Policy: "db", Direction: egress, AnyPeer: true, PerPod: true, Protocol: "UDP"}},
			v1alpha1.NetworkRulesPod{Addresses: []string{"10.50.1.1", "::1"}, PeerOf: []int32{0}, Ports: []v1alpha1.NetworkRulesPorts{{Rule: 0, Ports: []int32{53, 53}}}}, v1alpha1.NetworkRulesPod{UID: "new", Selected: []int32{0, 0}, Isolated: way(egress)}),
		rulesOf(atTurin, "bank", way("x"), nil),
	} {
		text, err := json.Marshal(n.Spec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	want := plan.Compute(input(ruled()).input)
	f.Fuzz(func(t *testing.T, b []byte) {
		var n v1alpha1.NetworkRules
		if json.NewDecoder(bytes.NewReader(b)).Decode(&n.Spec) != nil {
			return
		}
		n.Namespace, n.Name = atTurin, v1alpha1.NetworkRulesName(n.Spec.Namespace, n.Spec.Shard)
		k := input(ruled(n))
		got := plan.Compute(k.input)
		if err := got.Config.Check(); err != nil {
			t.Fatal(err)
		}
		mine := map[string]bool{"10.42.2.7": true, "10.42.2.9": true, "10.42.2.10": true}
		for i, g := range got.Config.Gateways {
			guard := g.Guard
			g.Guard = nil
			if d := cmp.Diff(want.Config.Gateways[i], g, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, netip.AddrPort{})); d != "" {
				t.Fatalf("a gateway changes: %s", d)
			}
			if guard == nil {
				continue
			}
			if g.Peering != "tenant-turin" {
				t.Fatalf("rules of turin are for %s", g.Peering)
			}
			here := slices.Concat(guard.HereIn, guard.HereOut)
			for _, e := range guard.Entries {
				if !e.There {
					here = append(here, e.Pods...)
				}
			}
			for _, a := range here {
				if !mine[a.String()] {
					t.Fatalf("%s is none of turin's pods", a)
				}
			}
		}
		for _, p := range k.problems {
			if len(p.String()) > 400 {
				t.Fatalf("a problem of %d bytes", len(p.String()))
			}
		}
	})
}

// TestTooManyRules holds that pods here are isolated when there are more rules than count, and not open.
func TestTooManyRules(t *testing.T) {
	rules := slices.Repeat([]v1alpha1.NetworkRule{{Policy: "p", Direction: ingress, AnyPeer: true}}, 256)
	f := ruled(rulesOf(atMilan, "shop", nil, rules, v1alpha1.NetworkRulesPod{Addresses: []string{"10.42.1.5"}, Isolated: way(ingress), Selected: []int32{0}}))
	for i := range 5 {
		f.rules[ruleKey{atMilan, fmt.Sprintf("a%d", i)}] = f.rules[ruleKey{atMilan, "shop"}]
	}
	g := input(f).input.Peerings[0].Guard
	pod := netip.MustParseAddr("10.42.1.5")
	if g == nil || !slices.Contains(g.HereIn, pod) || !slices.Contains(g.HereOut, pod) {
		t.Fatalf("the pods of the last namespace are open: %+v", g)
	}
	for _, e := range g.Entries {
		if strings.HasPrefix(e.Name, "shop/") {
			t.Errorf("an entry allows them something: %+v", e)
		}
	}
}

// TestAmount holds that gateways count rules as home's manager does, who says what is more than they take.
func TestAmount(t *testing.T) {
	for _, n := range []v1alpha1.NetworkRules{
		rulesOf(atTurin, "shop", way(ingress), nil),
		rulesOf(atTurin, "shop", nil, []v1alpha1.NetworkRule{
			{Policy: "db", Direction: ingress, Protocol: "TCP", Ports: []v1alpha1.NetworkPortRange{{First: 1, Last: 9}, {First: 80, Last: 80}}, Blocks: []v1alpha1.NetworkAddressRange{{First: "10.0.0.1", Last: "10.0.0.9"}, {First: "fd00::", Last: "fd00::1"}}},
			{Policy: "db", Direction: egress, AnyPeer: true, PerPod: true, Protocol: "UDP"},
		}, v1alpha1.NetworkRulesPod{UID: "db", Isolated: way(ingress), Selected: []int32{0, 1}},
			v1alpha1.NetworkRulesPod{Addresses: []string{"10.50.1.1", "fd01::1"}, PeerOf: []int32{1}, Ports: []v1alpha1.NetworkRulesPorts{{Rule: 1, Ports: []int32{53, 54}}}}),
	} {
		set, err := readRules([]*v1alpha1.NetworkRules{&n})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := policy.AmountOf(&n.Spec), set.amount(); got != want {
			t.Errorf("home counts %+v, a gateway %+v", got, want)
		}
	}
}

// TestTrimRules holds that no object takes more memory than a consumer's manager needs of one, and that
// what is too large is wrong.
func TestTrimRules(t *testing.T) {
	ports := slices.Repeat([]v1alpha1.NetworkRulesPorts{{Ports: slices.Repeat([]int32{1}, 64)}}, 256)
	large := rulesOf(atTurin, "shop", way(ingress), nil, slices.Repeat([]v1alpha1.NetworkRulesPod{{UID: "db", Ports: ports}}, 500)...)
	for reason, c := range map[string]struct {
		rules v1alpha1.NetworkRules
		whole bool
	}{"large": {large, false}, "small": {rulesOf(atTurin, "shop", way(ingress), nil, v1alpha1.NetworkRulesPod{UID: "db"}), true}} {
		kept, err := trim(&c.rules)
		if err != nil {
			t.Fatal(err)
		}
		r := kept.(*v1alpha1.NetworkRules)
		_, err = readRules([]*v1alpha1.NetworkRules{r})
		if (err == nil) != c.whole || (len(r.Spec.Pods) > 0) != c.whole {
			t.Errorf("%s: %d pods are kept, and what is read of them is wrong: %v", reason, len(r.Spec.Pods), err)
		}
	}
}

// TestCounts holds that home's own rules count also for a namespace that is being left, whose pods are there still, and a tenant's
// for what it has offloaded alone.
func TestCounts(t *testing.T) {
	f := apiFacts()
	counts := f.counts()
	for namespace, p := range f.pairs() {
		if got, want := counts(ruleKey{namespace, "left"}), p.role == plan.Consumer; got != want {
			t.Errorf("rules of a namespace that is not offloaded count in %s: %t", namespace, got)
		}
	}
	if counts(ruleKey{"pelago-tenant-nobody", "left"}) {
		t.Error("rules of no peering count")
	}
}
