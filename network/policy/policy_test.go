package policy

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ipam"
)

// The world of the table: db and cache of namespace shop are guarded; at the other end are web of
// shop, web and probe of namespace ops (team=ops), and an address that is no pod's.
var (
	db    = Pod{Namespace: "shop", UID: "u-db", Labels: map[string]string{"app": "db"}, Addresses: addrs("10.42.0.5"), Ports: []Port{{"sql", corev1.ProtocolTCP, 5432}, {"stats", corev1.ProtocolUDP, 8125}}}
	cache = Pod{Namespace: "shop", UID: "u-cache", Labels: map[string]string{"app": "cache"}, Addresses: addrs("10.42.0.6")}
	web   = Pod{Namespace: "shop", UID: "u-web", Labels: map[string]string{"app": "web"}, Addresses: addrs("10.81.0.7", "fd81::7"), Ports: []Port{{"http", corev1.ProtocolTCP, 8080}}}
	other = Pod{Namespace: "ops", UID: "u-other", Labels: map[string]string{"app": "web"}, Addresses: addrs("10.81.1.8"), Ports: []Port{{"http", corev1.ProtocolTCP, 9090}}}
	probe = Pod{Namespace: "ops", UID: "u-probe", Labels: map[string]string{"app": "probe"}, Addresses: addrs("10.81.1.9")}
)

func addrs(all ...string) (out []netip.Addr) {
	for _, a := range all {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func table(policies ...networkingv1.NetworkPolicy) World {
	return World{
		Namespace: "shop", Policies: policies, Namespaces: map[string]map[string]string{"shop": {"kubernetes.io/metadata.name": "shop"}, "ops": {"team": "ops"}},
		Guarded: []Pod{db, cache}, Others: []Pod{web, other, probe}, Mapped: []Mapped{mappedThing},
	}
}

// policies reads specs, each the spec of a policy of its own.
func policies(t *testing.T, specs ...string) (all []networkingv1.NetworkPolicy) {
	t.Helper()
	for i, text := range specs {
		p := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("p%d", i)}}
		if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		all = append(all, p)
	}
	return all
}

const stranger = "10.99.9.9"

// What is mapped in shop, by what providers call it.
var mappedThing = Mapped{Real: netip.MustParseAddr("192.0.2.50"), External: netip.MustParseAddr("10.255.255.4")}

// everybody are the ends of the table's attempts, and how they are written.
var everybody = map[string]string{"web": "10.81.0.7", "web6": "fd81::7", "other": "10.81.1.8", "probe": "10.81.1.9", "stranger": stranger, "mapped": "10.255.255.4"}

// TestCases is the test table of the design. An attempt is written "POD in|out FAR PROTOCOL/PORT";
// those that are not named are not tried here, but by the fuzzer.
func TestCases(t *testing.T) {
	all := "db in web tcp/1, db in stranger udp/9, db out web tcp/1, cache in probe tcp/1, cache out stranger udp/5"
	for reason, c := range map[string]struct {
		specs    []string
		yes, no  string
		problems string
	}{
		"without a policy all is open":                              {nil, all, "", ""},
		"podSelector empty selects all pods, and no ingress denies": {[]string{`{podSelector: {}}`}, "db out web tcp/1, cache out web tcp/1", "db in web tcp/1, cache in web tcp/1, db in stranger udp/1", ""},
		"podSelector matching":                                      {[]string{`{podSelector: {matchLabels: {app: db}}}`}, "cache in web tcp/1, db out web tcp/1", "db in web tcp/1", ""},
		"podSelector not matching":                                  {[]string{`{podSelector: {matchLabels: {app: none}}}`}, all, "", ""},
		"podSelector with expressions":                              {[]string{`{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [db]}]}}`}, "db in web tcp/1", "cache in web tcp/1", ""},
		"an entry without from allows all":                          {[]string{`{podSelector: {}, ingress: [{}]}`}, all, "", ""},
		"peers by podSelector are of the namespace": {[]string{`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`},
			"db in web tcp/1, db in web6 tcp/1", "db in other tcp/1, db in probe tcp/1, db in stranger tcp/1", ""},
		"peers by podSelector that is empty": {[]string{`{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`}, "db in web tcp/1", "db in other tcp/1", ""},
		"namespaceSelector alone":            {[]string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}}]}]}`}, "db in other tcp/1, db in probe udp/3", "db in web tcp/1", ""},
		"namespaceSelector that is empty":    {[]string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`}, "db in other tcp/1, db in web tcp/1", "db in stranger tcp/1", ""},
		"both selectors in one entry": {[]string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}, podSelector: {matchLabels: {app: web}}}]}]}`},
			"db in other tcp/1", "db in probe tcp/1, db in web tcp/1", ""},
		"both selectors in two entries": {[]string{`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}}, {podSelector: {matchLabels: {app: web}}}]}]}`},
			"db in other tcp/1, db in probe tcp/1, db in web tcp/1", "db in stranger tcp/1", ""},
		"ipBlock": {[]string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.81.0.0/16}}]}]}`}, "db in web tcp/1, db in probe tcp/1", "db in web6 tcp/1, db in stranger tcp/1", ""},
		"ipBlock with except": {[]string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.81.0.0/16, except: [10.81.1.0/24, 10.81.0.0/30]}}]}]}`},
			"db in web tcp/1", "db in probe tcp/1, db in other tcp/1", ""},
		"ipBlock of everything of one family": {[]string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}`}, "db in stranger udp/9, db in web tcp/1", "db in web6 tcp/1", ""},
		"port by number":                      {[]string{`{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`}, "db in web tcp/80", "db in web tcp/81, db in web udp/80", ""},
		"port of UDP":                         {[]string{`{podSelector: {}, ingress: [{ports: [{port: 53, protocol: UDP}]}]}`}, "db in web udp/53", "db in web tcp/53", ""},
		"range of ports":                      {[]string{`{podSelector: {}, ingress: [{ports: [{port: 100, endPort: 200}]}]}`}, "db in web tcp/100, db in web tcp/200", "db in web tcp/99, db in web tcp/201", ""},
		"protocol without port":               {[]string{`{podSelector: {}, ingress: [{ports: [{protocol: UDP}]}]}`}, "db in web udp/1", "db in web tcp/1", ""},
		"port by name is of the selected pod": {[]string{`{podSelector: {}, ingress: [{ports: [{port: sql}]}]}`}, "db in web tcp/5432, db in stranger tcp/5432", "db in web udp/5432, cache in web tcp/5432, db in web tcp/8125", ""},
		"port by name has its protocol":       {[]string{`{podSelector: {}, ingress: [{ports: [{port: stats, protocol: UDP}]}]}`}, "db in web udp/8125", "db in web tcp/8125", ""},
		"name and number in one entry":        {[]string{`{podSelector: {}, ingress: [{ports: [{port: sql}, {port: 80}]}]}`}, "db in web tcp/5432, db in web tcp/80, cache in web tcp/80", "cache in web tcp/5432", ""},
		"port by name of peers": {[]string{`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}`},
			"db out web tcp/8080, db out other tcp/9090, db in web tcp/1", "db out web tcp/9090, db out other tcp/8080, db out probe tcp/8080, db out stranger tcp/8080", ""},
		"port by name of peers in blocks": {[]string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.81.0.0/24}}], ports: [{port: http}]}]}`},
			"db out web tcp/8080", "db out web6 tcp/8080, db out other tcp/9090", ""},
		"SCTP allows nothing and is said":                    {[]string{`{podSelector: {}, ingress: [{ports: [{port: 80, protocol: SCTP}]}]}`}, "", "db in web tcp/80, db in web udp/80", "SCTP"},
		"egress to what is mapped, by its own address":       {[]string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.2.50/32}}], ports: [{port: 5432}]}]}`}, "db out mapped tcp/5432", "db out mapped tcp/1, db out web tcp/5432", ""},
		"egress to what is mapped, by that in its place":     {[]string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.255.255.0/24}}]}]}`}, "db out mapped tcp/1", "db out web tcp/1", ""},
		"egress to another one beside what is mapped":        {[]string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.0.2.51/32}}]}]}`}, "", "db out mapped tcp/1", ""},
		"egress to all but what is mapped":                   {[]string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [192.0.2.0/24]}}]}]}`}, "db out web tcp/1, db out stranger tcp/1", "db out mapped tcp/1", ""},
		"egress to all but what is mapped, and beside to it": {[]string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [192.0.2.0/24]}}, {ipBlock: {cidr: 192.0.2.50/32}}]}]}`}, "db out mapped tcp/1", "", ""},
		"what is mapped begins nothing":                      {[]string{`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.50/32}}]}]}`}, "", "db in mapped tcp/1", ""},
		"egress alone":                                       {[]string{`{podSelector: {}, policyTypes: [Egress]}`}, "db in web tcp/1", "db out web tcp/1, db out stranger udp/1", ""},
		"egress to a peer":                                   {[]string{`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}`}, "db out web tcp/1, db in other tcp/1", "db out other tcp/1", ""},
		"both types, nothing allowed":                        {[]string{`{podSelector: {}, policyTypes: [Ingress, Egress]}`}, "", all, ""},
		"types inferred of egress rules":                     {[]string{`{podSelector: {}, egress: [{to: [{podSelector: {}}]}]}`}, "db out web tcp/1", "db in web tcp/1, db out other tcp/1", ""},
		"policyTypes win over rules":                         {[]string{`{podSelector: {}, policyTypes: [Ingress], ingress: [{}], egress: [{to: [{podSelector: {}}]}]}`}, "db in web tcp/1, db out other tcp/1", "", ""},
		"two policies on one pod": {[]string{`{podSelector: {}, ingress: [{from: [{podSelector: {}}], ports: [{port: 1}]}]}`, `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: ops}}}]}]}`},
			"db in web tcp/1, db in other udp/9, cache in web tcp/1", "db in web tcp/2, cache in other tcp/1", ""},
		"a policy that allows wins over one that denies": {[]string{`{podSelector: {}}`, `{podSelector: {}, ingress: [{}]}`}, all, "", ""},
		"a selector that cannot be read isolates":        {[]string{`{podSelector: {matchExpressions: [{key: app, operator: Sometimes}]}, ingress: [{from: [{podSelector: {matchExpressions: [{key: a, operator: In}]}}, {ipBlock: {cidr: x}}]}]}`}, "db out web tcp/1", "db in web tcp/1, cache in stranger tcp/1", "selector of peer 0"},
	} {
		t.Run(reason, func(t *testing.T) {
			for _, guarded := range []string{"by addresses", "by UIDs", "at the other end"} {
				near := table(policies(t, c.specs...)...)
				w, byUID := near, guarded == "by UIDs"
				if w.ByUID = byUID; guarded == "at the other end" {
					w.Guarded, w.Others, w.Far, w.Near = nil, near.Guarded, near.Guarded, near.Others
				}
				compiled := Compile(w)
				shards, problems := compiled.Shards("shop", 1)
				if text := strings.Join(problems, "; "); (text != "") != (c.problems != "") || !strings.Contains(text, c.problems) {
					t.Errorf("guarded %s: the problems are %q, want %q", guarded, text, c.problems)
				}
				for want, list := range map[bool]string{true: c.yes, false: c.no} {
					for text := range strings.SplitSeq(list, ", ") {
						if text == "" {
							continue
						}
						a := parse(t, text)
						if c.problems != "selector of peer 0" && reference(near, a) != want {
							t.Errorf("%s: the reference says %t: the case or it is wrong", text, !want)
						}
						if gateway(shards, byUID, a) != want {
							t.Errorf("guarded %s: %s: allowed is %t, want %t, by\n%s", guarded, text, !want, want, show(shards))
						}
					}
				}
			}
		})
	}
}

func parse(t *testing.T, text string) attempt {
	t.Helper()
	words := strings.Fields(text)
	a := attempt{pod: map[string]*Pod{"db": &db, "cache": &cache}[words[0]], far: netip.MustParseAddr(everybody[words[2]])}
	a.direction = map[string]v1alpha1.NetworkDirection{"in": v1alpha1.NetworkIngress, "out": v1alpha1.NetworkEgress}[words[1]]
	protocol, port, _ := strings.Cut(words[3], "/")
	a.protocol = corev1.Protocol(strings.ToUpper(protocol))
	a.port = intstr.Parse(port).IntVal
	return a
}

func show(shards []v1alpha1.NetworkRulesSpec) string {
	text, _ := yaml.Marshal(shards)
	return string(text)
}

// TestChange follows a policy that appears, changes and goes, and what of the objects changes.
func TestChange(t *testing.T) {
	at := parse(t, "db in web tcp/80")
	var before []v1alpha1.NetworkRulesSpec
	for _, step := range []struct {
		reason, spec string
		want         bool
	}{
		{"none", "", true}, {"one appears", `{podSelector: {}}`, false}, {"it changes", `{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`, true},
		{"it changes whom it selects", `{podSelector: {matchLabels: {app: cache}}, ingress: [{ports: [{port: 80}]}]}`, true}, {"it goes", "", true},
	} {
		w := table()
		if step.spec != "" {
			w.Policies = policies(t, step.spec)
		}
		now, _ := Compile(w).Shards("shop", len(before))
		if got := gateway(now, false, at); got != step.want {
			t.Errorf("%s: allowed is %t, want %t", step.reason, got, step.want)
		}
		if (step.spec == "") != (len(now) == 0) {
			t.Errorf("%s: there are %d shards", step.reason, len(now))
		}
		before = now
	}
}

// TestUnknown holds that a pod which was not there yet is isolated if a policy might select it.
func TestUnknown(t *testing.T) {
	late := Pod{Namespace: "shop", UID: "u-late", Addresses: addrs("10.42.0.99")}
	for spec, want := range map[string]bool{`{podSelector: {matchLabels: {app: x}}}`: false, `{podSelector: {matchLabels: {app: x}}, policyTypes: [Egress]}`: true} {
		shards, _ := Compile(table(policies(t, spec)...)).Shards("shop", 1)
		if got := gateway(shards, false, attempt{&late, v1alpha1.NetworkIngress, netip.MustParseAddr(stranger), corev1.ProtocolTCP, 1}); got != want {
			t.Errorf("%s: an unknown pod may be reached: %t, want %t", spec, got, want)
		}
	}
}

// TestWhatAgentsTake holds that blocks which agents would refuse, and all rules of the namespace with them, are left out and said: such as
// no packet has, and more prefixes than there may be.
func TestWhatAgentsTake(t *testing.T) {
	var excepts []string
	for i := range 800 {
		excepts = append(excepts, netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(5368709*(i+1)-1)))).String()+"/32")
	}
	for _, c := range []struct{ reason, spec, want string }{
		{"very many excepts", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [` + strings.Join(excepts, ", ") + `]}}]}]}`, "more than"},
		{"IPv4 as IPv6", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: "::ffff:10.0.0.0/104"}}]}]}`, "write them as of IPv4"},
		{"IPv4 as IPv6 in a larger block", `{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: "::/80"}}]}]}`, ""},
	} {
		compiled := Compile(table(policies(t, c.spec)...))
		shards, problems := compiled.Shards("shop", 0)
		if said := strings.Join(problems, "\n"); c.want == "" && said != "" || !strings.Contains(said, c.want) {
			t.Errorf("%s: said is %q, want %q", c.reason, said, c.want)
		}
		n := 0
		for _, r := range shards[0].Rules {
			for _, b := range r.Blocks {
				first, last := netip.MustParseAddr(b.First), netip.MustParseAddr(b.Last)
				if first.Is4In6() || last.Is4In6() {
					t.Errorf("%s: a block from %s to %s", c.reason, first, last)
				}
				n += len(ipam.Between(first, last))
			}
		}
		if n > v1alpha1.MaxNetworkPrefixes {
			t.Errorf("%s: %d prefixes", c.reason, n)
		}
	}
}
