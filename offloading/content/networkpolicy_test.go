package content

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// spaces are namespaces of home that are at the provider, and there what they are called here.
var (
	spaces = map[string]map[string]string{
		"shop": {"kubernetes.io/metadata.name": "shop", "team": "a"},
		"db":   {"kubernetes.io/metadata.name": "db", "team": "b"},
	}
	policyRules = Rules{Spaces: map[string]string{"shop": "shop-rome", "db": "db-rome"}}
)

func specOf(t *testing.T, text string) networkingv1.NetworkPolicySpec {
	t.Helper()
	var s networkingv1.NetworkPolicySpec
	if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return s
}

// told is what a provider makes of home's policy, and why it makes nothing.
func told(t *testing.T, home networkingv1.NetworkPolicySpec, rules Rules) (*networkingv1.NetworkPolicy, string) {
	t.Helper()
	k := Kinds["NetworkPolicy"]
	text, wrong := k.Encode(ResolvePolicy(&networkingv1.NetworkPolicy{Spec: home}, spaces))
	if wrong != "" {
		return nil, wrong
	}
	o, wrong := k.Decode(text, rules)
	if wrong != "" {
		return nil, wrong
	}
	return o.(*networkingv1.NetworkPolicy), ""
}

// TestTranslate is the table of what becomes of each field.
func TestTranslate(t *testing.T) {
	const in = "{podSelector: {}, policyTypes: [Ingress], ingress: [%s]}"
	const out = "{podSelector: {}, policyTypes: [Egress], egress: [%s]}"
	from := func(peers string) string { return fmt.Sprintf(in, "{from: ["+peers+"]}") }
	block := func(b string) string { return from("{ipBlock: " + b + "}") }
	nothing := "{podSelector: {}, policyTypes: [Ingress]}"
	for _, c := range []struct{ reason, home, there string }{
		{"nothing said is ingress", "{podSelector: {}}", nothing},
		{"rules for egress are both", "{podSelector: {}, egress: [{}]}", "{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{}]}"},
		{"rules of a direction that is not named say nothing", "{podSelector: {}, policyTypes: [Ingress], egress: [{}]}", nothing},
		{"a selector", "{podSelector: {matchLabels: {app: web}, matchExpressions: [{key: a, operator: NotIn, values: [b]}]}}",
			"{podSelector: {matchLabels: {app: web}, matchExpressions: [{key: a, operator: NotIn, values: [b]}]}, policyTypes: [Ingress]}"},
		{"everybody", fmt.Sprintf(in, "{}"), fmt.Sprintf(in, "{}")},
		{"everybody at a port", fmt.Sprintf(in, "{ports: [{port: 80}]}"), fmt.Sprintf(in, "{ports: [{protocol: TCP, port: 80}]}")},
		{"ports", fmt.Sprintf(out, "{ports: [{protocol: UDP, port: 53}, {port: 80, endPort: 90}, {port: web}, {protocol: SCTP}]}"),
			fmt.Sprintf(out, "{ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 80, endPort: 90}, {protocol: TCP, port: web}, {protocol: SCTP}]}")},
		{"pods of the namespace", from("{podSelector: {matchLabels: {app: web}}}"), from("{podSelector: {matchLabels: {app: web}}}")},
		{"a namespace", from("{namespaceSelector: {matchLabels: {team: b}}}"),
			from("{namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [db-rome]}]}}")},
		{"pods in all namespaces", from("{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}"),
			from("{namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [db-rome, shop-rome]}]}, podSelector: {matchLabels: {app: web}}}")},
		{"a namespace that is not there, alone", from("{namespaceSelector: {matchLabels: {team: c}}}"), nothing},
		{"and beside another peer", from("{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}, {podSelector: {}}"), from("{podSelector: {}}")},
		{"the last rule of egress goes, and egress stays closed", "{podSelector: {}, egress: [{to: [{namespaceSelector: {matchLabels: {team: c}}}]}]}", "{podSelector: {}, policyTypes: [Ingress, Egress]}"},
		{"everybody by a block", block("{cidr: 0.0.0.0/0}"), block("{cidr: 0.0.0.0/0}")},
		{"everybody by a block of IPv6", block("{cidr: '::/0'}"), block("{cidr: '::/0'}")},
		{"the world", block("{cidr: 198.51.100.7/24}"), block("{cidr: 198.51.100.0/24}")},
		{"home's own", block("{cidr: 10.1.0.0/16}"), nothing},
		{"home's own of IPv6", block("{cidr: 'fd00:1::/64'}"), nothing},
		{"home's own, and pods", from("{ipBlock: {cidr: 192.168.1.0/24}}, {podSelector: {}}"), from("{podSelector: {}}")},
		{"everybody but home's own", block("{cidr: 0.0.0.0/0, except: [10.1.0.0/16, 198.51.100.0/24]}"),
			block("{cidr: 0.0.0.0/0, except: [10.0.0.0/8, 100.64.0.0/10, 172.16.0.0/12, 192.168.0.0/16, 198.51.100.0/24]}")},
		{"everybody but the cloud", block("{cidr: 0.0.0.0/0, except: [169.254.169.254/32]}"), block("{cidr: 0.0.0.0/0, except: [169.254.0.0/16]}")},
		{"half of all", block("{cidr: 128.0.0.0/1}"), block("{cidr: 128.0.0.0/1, except: [169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16]}")},
		{"all private addresses of IPv6", block("{cidr: 'fc00::/7'}"), nothing},
		{"all link-local addresses", from("{ipBlock: {cidr: 169.254.0.0/16}}, {ipBlock: {cidr: 'fe80::/10'}}"), nothing},
		{"what clouds have their metadata in", block("{cidr: 169.0.0.0/8}"), block("{cidr: 169.0.0.0/8, except: [169.254.0.0/16]}")},
		{"a type said twice", "{podSelector: {}, policyTypes: [Ingress, Ingress]}", nothing},
		{"two policies' worth of rules", fmt.Sprintf(in, "{from: [{podSelector: {}}]}, {ports: [{port: 80}]}"), fmt.Sprintf(in, "{from: [{podSelector: {}}]}, {ports: [{protocol: TCP, port: 80}]}")},
	} {
		home, want := specOf(t, c.home), specOf(t, c.there)
		got, wrong := told(t, home, policyRules)
		if wrong != "" {
			t.Errorf("%s: %s", c.reason, wrong)
			continue
		}
		if !same(&got.Spec, &want) {
			t.Errorf("%s:\n%s", c.reason, cmp.Diff(want, got.Spec))
		}
	}
}

// TestThrough: what gateways guard passes in each direction that is isolated, and so do names.
func TestThrough(t *testing.T) {
	rules := policyRules
	rules.Through = []netip.Prefix{netip.MustParsePrefix("fd00:201::/64"), netip.MustParsePrefix("10.201.0.0/16")}
	rules.NameServers = []netip.Addr{netip.MustParseAddr("169.254.77.53")}
	const gateway = "[{ipBlock: {cidr: 10.201.0.0/16}}, {ipBlock: {cidr: 'fd00:201::/64'}}]"
	const asked = "ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]"
	egress := "{to: " + gateway + "}, {to: [{ipBlock: {cidr: 169.254.77.53/32}}], " + asked + "}"
	own := Rules{ClusterNames: true}
	for _, c := range []struct {
		reason string
		rules  Rules
		home   string
		there  string
	}{
		{"nobody else", rules, "{podSelector: {}}", "{podSelector: {}, policyTypes: [Ingress], ingress: [{from: " + gateway + "}]}"},
		{"no egress", rules, "{podSelector: {}, policyTypes: [Egress]}", "{podSelector: {}, policyTypes: [Egress], egress: [" + egress + "]}"},
		{"both", rules, "{podSelector: {}, policyTypes: [Egress, Ingress], ingress: [{ports: [{port: 80}]}]}",
			"{podSelector: {}, policyTypes: [Egress, Ingress], ingress: [{ports: [{protocol: TCP, port: 80}]}, {from: " + gateway + "}], egress: [" + egress + "]}"},
		{"without a network", own, "{podSelector: {}, policyTypes: [Ingress, Egress]}",
			"{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{to: [{namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [kube-system]}]}, podSelector: {matchLabels: {k8s-app: kube-dns}}}], " + asked + "}]}"},
	} {
		got, wrong := told(t, specOf(t, c.home), c.rules)
		want := specOf(t, c.there)
		if wrong != "" || !same(&got.Spec, &want) {
			t.Errorf("%s: %s\n%s", c.reason, wrong, cmp.Diff(want, got.Spec))
		}
	}
}

// TestPolicyStays: what would select others there than at home, or is too much, stays home.
func TestPolicyStays(t *testing.T) {
	rule := func(n int, text string) string { return strings.TrimSuffix(strings.Repeat(text+", ", n), ", ") }
	for _, c := range []struct{ reason, home, wrong string }{
		{"a label that pods lose", "{podSelector: {matchLabels: {topology.kubernetes.io/zone: a}}}", "topology.kubernetes.io/zone"},
		{"of a peer", "{podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: pelago.dev/tenant, operator: DoesNotExist}]}}]}]}", "ingress[0].peers[0].podSelector: it names the label \"pelago.dev/tenant\""},
		{"many rules", "{podSelector: {}, ingress: [" + rule(maxPolicyRules+1, "{ports: [{port: 80}]}") + "]}", "101 rules, at most 100"},
		{"many peers", "{podSelector: {}, ingress: [{from: [" + rule(maxPolicyPeers+1, "{podSelector: {}}") + "]}]}", "101 peers"},
		{"many pairs", "{podSelector: {}, ingress: [{from: [" + rule(40, "{podSelector: {}}") + "], ports: [" + rule(40, "{port: 80}") + "]}]}", "1600 combinations"},
	} {
		if _, wrong := told(t, specOf(t, c.home), policyRules); !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %q, want %q", c.reason, wrong, c.wrong)
		}
	}
}

// TestPolicyHostile: whatever a consumer writes, the provider says what is wrong with it.
func TestPolicyHostile(t *testing.T) {
	rule := func(rules string) string {
		return `{"content":{"podSelector":{},"types":["Ingress"],"ingress":[` + rules + `]}}`
	}
	peer := func(p string) string { return rule(`{"peers":[` + p + `]}`) }
	testDecode(t, "NetworkPolicy", policyRules, []decoding{
		{"all of it", `{"content":{"podSelector":{"matchLabels":{"a":"b"}},"types":["Egress","Ingress"],"egress":[{"everybody":true}],"ingress":[{"peers":[{"podSelector":{}}],"ports":[{"protocol":"TCP","name":"web"}]}]}}`, ""},
		{"a selector of namespaces", peer(`{"namespaceSelector":{}}`), "not the JSON"},
		{"labels", `{"labels":{"a":"b"},"content":{"podSelector":{},"types":["Ingress"]}}`, ""}, // and has none
		{"annotations", `{"annotations":{"a":"b"},"content":{"podSelector":{},"types":["Ingress"]}}`, "annotations do not travel"},
		{"no types", `{"content":{"podSelector":{}}}`, "types"},
		{"types twice", `{"content":{"podSelector":{},"types":["Ingress","Ingress"]}}`, "types[1]"},
		{"another type", `{"content":{"podSelector":{},"types":["Admin"]}}`, "types[0]"},
		{"rules without a type", `{"content":{"podSelector":{},"types":["Egress"],"ingress":[{"everybody":true}]}}`, "ingress: rules for a direction"},
		{"nobody", rule(`{}`), "either everybody or peers"},
		{"everybody and some", rule(`{"everybody":true,"peers":[{"podSelector":{}}]}`), "either everybody or peers"},
		{"neither block nor pods", peer(`{}`), "neither a block nor pods"},
		{"both", peer(`{"block":"192.0.2.0/24","podSelector":{}}`), "either a block, or pods"},
		{"no block", peer(`{"block":"all"}`), "no prefix"},
		{"IPv4 in IPv6", peer(`{"block":"::ffff:10.0.0.0/104"}`), "no prefix"},
		{"except elsewhere", peer(`{"block":"192.0.2.0/24","except":["198.51.100.0/24"]}`), "except[0]"},
		{"except all", peer(`{"block":"192.0.2.0/24","except":["192.0.2.0/24"]}`), "except[0]"},
		{"many excepts", peer(`{"block":"0.0.0.0/0","except":[` + strings.TrimSuffix(strings.Repeat(`"192.0.2.0/24",`, maxExcepts+1), ",") + `]}`), "at most 64"},
		{"a path as a namespace", peer(`{"namespaces":["../kube-system"]}`), "no name of a namespace"},
		{"many namespaces", peer(`{"namespaces":["` + strings.Repeat(`a","`, maxPolicySpaces) + `a"]}`), "513, at most 512"},
		{"an operator", peer(`{"podSelector":{"matchExpressions":[{"key":"a","operator":"Like"}]}}`), "cannot be read"},
		{"a long selector", peer(`{"podSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["` + strings.Repeat(`x","`, maxSelector) + `"]}]}}`), "terms, at most"},
		{"a protocol", rule(`{"everybody":true,"ports":[{"protocol":"ICMP"}]}`), "ports[0].protocol"},
		{"a port", rule(`{"everybody":true,"ports":[{"protocol":"TCP","port":65536}]}`), "ports[0].port"},
		{"backwards", rule(`{"everybody":true,"ports":[{"protocol":"TCP","port":90,"endPort":80}]}`), "ports[0].endPort"},
		{"a range of a name", rule(`{"everybody":true,"ports":[{"protocol":"TCP","name":"web","endPort":80}]}`), "ports[0].endPort"},
		{"a name", rule(`{"everybody":true,"ports":[{"protocol":"TCP","name":"-"}]}`), "ports[0].name"},
	})
	for _, c := range []struct{ reason, text string }{
		{"a namespace that is not the tenant's, named as it is here", peer(`{"namespaces":["kube-system","shop-rome"]}`)},
		{"private addresses of the provider's", peer(`{"block":"10.0.0.0/8"},{"block":"169.254.169.254/32"},{"block":"192.168.1.0/24"}`)},
	} {
		o, wrong := Kinds["NetworkPolicy"].Decode(c.text, policyRules)
		if wrong != "" || len(o.(*networkingv1.NetworkPolicy).Spec.Ingress) != 0 {
			t.Errorf("%s lets pass %+v (%s)", c.reason, o, wrong)
		}
	}
	if _, wrong := Kinds["NetworkPolicy"].Decode(rule(""), Rules{Deny: []string{"NetworkPolicy"}}); !strings.Contains(wrong, "takes no NetworkPolicy") {
		t.Errorf("denied: %q", wrong)
	}
}

// TestPolicyClosed: what the provider's owner closes stays closed; NetworkPolicies add up.
func TestPolicyClosed(t *testing.T) {
	for _, c := range []struct {
		owner  string
		closes []networkingv1.PolicyType
		taken  bool
	}{
		{"{podSelector: {}}", []networkingv1.PolicyType{"Ingress"}, false},
		{"{podSelector: {}, policyTypes: [Egress]}", []networkingv1.PolicyType{"Egress"}, true},
		{"{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {a: b}}}]}]}", []networkingv1.PolicyType{"Ingress"}, false},
		{"{podSelector: {}, policyTypes: [Ingress, Egress], egress: [{}]}", []networkingv1.PolicyType{"Ingress", "Egress"}, false},
		{"{podSelector: {}, policyTypes: [Egress], egress: [{}]}", []networkingv1.PolicyType{"Egress"}, true},
	} {
		closed := Closes(&networkingv1.NetworkPolicy{Spec: specOf(t, c.owner)})
		if !slices.Equal(closed, c.closes) {
			t.Errorf("%s closes %v", c.owner, closed)
		}
		_, wrong := told(t, specOf(t, "{podSelector: {}, ingress: [{}]}"), Rules{Closed: closed})
		if (wrong == "") != c.taken || !c.taken && !strings.Contains(wrong, "types[0]: a NetworkPolicy of the provider's owner closes Ingress") {
			t.Errorf("beside %s: %q", c.owner, wrong)
		}
	}
}
