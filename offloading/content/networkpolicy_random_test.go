package content

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// peerPod is one end of a connection in one cluster.
type peerPod struct {
	namespace string
	labels    map[string]string
	address   netip.Addr
}

// passes is what the API's documentation says of a connection: whether the policies of a pod's namespace
// let it pass in one direction.
func passes(policies []networkingv1.NetworkPolicySpec, spaces map[string]map[string]string, pod, other peerPod, d networkingv1.PolicyType, port int32) bool {
	isolated := false
	for _, p := range policies {
		if !matches(&p.PodSelector, pod.labels) || !slices.Contains(directions(&p), d) {
			continue
		}
		isolated = true
		if d == networkingv1.PolicyTypeIngress {
			for _, r := range p.Ingress {
				if letsPeer(r.From, spaces, pod, other) && letsPort(r.Ports, port) {
					return true
				}
			}
			continue
		}
		for _, r := range p.Egress {
			if letsPeer(r.To, spaces, pod, other) && letsPort(r.Ports, port) {
				return true
			}
		}
	}
	return !isolated
}

func matches(s *metav1.LabelSelector, of map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(of))
}

func letsPeer(peers []networkingv1.NetworkPolicyPeer, spaces map[string]map[string]string, pod, other peerPod) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock != nil {
			in := func(text string) bool { return netip.MustParsePrefix(text).Contains(other.address) }
			return in(p.IPBlock.CIDR) && !slices.ContainsFunc(p.IPBlock.Except, in)
		}
		of, is := spaces[other.namespace]
		space := is && other.namespace == pod.namespace
		if p.NamespaceSelector != nil {
			space = is && matches(p.NamespaceSelector, of)
		}
		return space && (p.PodSelector == nil || matches(p.PodSelector, other.labels))
	})
}

func letsPort(ports []networkingv1.NetworkPolicyPort, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		switch {
		case p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP:
			return false
		case p.Port == nil:
			return true
		case p.EndPort != nil:
			return p.Port.IntVal <= port && port <= *p.EndPort
		}
		return p.Port.IntVal == port
	})
}

var (
	keys, values = []string{"app", "team"}, []string{"a", "b"}
	someBlocks   = []networkingv1.IPBlock{
		{CIDR: "0.0.0.0/0"}, {CIDR: "0.0.0.0/0", Except: []string{"198.51.100.0/24"}}, {CIDR: "198.51.100.0/24"}, {CIDR: "198.51.100.0/24", Except: []string{"198.51.100.128/25"}},
		{CIDR: "10.0.0.0/8"}, {CIDR: "0.0.0.0/0", Except: []string{"10.1.0.0/16"}}, {CIDR: "10.81.0.0/16", Except: []string{"10.81.0.3/32"}},
	}
)

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

func someLabels(r *rand.Rand) map[string]string {
	out := map[string]string{}
	for _, key := range keys {
		if r.IntN(3) > 0 {
			out[key] = pick(r, values)
		}
	}
	return out
}

func someSelector(r *rand.Rand) *metav1.LabelSelector {
	switch r.IntN(4) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: pick(r, keys), Operator: metav1.LabelSelectorOpDoesNotExist}}}
	case 2:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: pick(r, keys), Operator: metav1.LabelSelectorOpNotIn, Values: []string{pick(r, values)}}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{pick(r, keys): pick(r, values)}}
}

func somePeers(r *rand.Rand) (all []networkingv1.NetworkPolicyPeer) {
	for range r.IntN(3) {
		var p networkingv1.NetworkPolicyPeer
		switch r.IntN(4) {
		case 0:
			p.IPBlock = &someBlocks[r.IntN(len(someBlocks))]
		case 1:
			p.PodSelector = someSelector(r)
		case 2:
			p.NamespaceSelector = someSelector(r)
		default:
			p.PodSelector, p.NamespaceSelector = someSelector(r), someSelector(r)
		}
		all = append(all, p)
	}
	return all
}

func somePolicy(r *rand.Rand) (s networkingv1.NetworkPolicySpec) {
	s.PodSelector = *someSelector(r)
	types := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	s.PolicyTypes = [][]networkingv1.PolicyType{nil, types, types[:1], types[1:]}[r.IntN(4)]
	ports := func() (all []networkingv1.NetworkPolicyPort) {
		switch r.IntN(4) {
		case 0:
			all = []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(80))}}
		case 1:
			all = []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(70)), EndPort: new(int32(90))}, {Protocol: new(corev1.ProtocolUDP)}}
		}
		return all
	}
	for range r.IntN(3) {
		s.Ingress = append(s.Ingress, networkingv1.NetworkPolicyIngressRule{From: somePeers(r), Ports: ports()})
	}
	for range r.IntN(3) {
		s.Egress = append(s.Egress, networkingv1.NetworkPolicyEgressRule{To: somePeers(r), Ports: ports()})
	}
	return s
}

// TestRandomPolicies: between two pods at one provider passes what passes at home, but for what blocks say
// of home's own addresses, which is less; the provider's own pods pass as strangers of home's do; and
// what comes through the gateway always does.
func TestRandomPolicies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	here := map[string]string{"shop": "shop-rome", "db": "db-rome"}
	asked, passed, less := 0, 0, 0
	for range 500 {
		home := map[string]map[string]string{"shop": someLabels(r), "db": someLabels(r), "infra": someLabels(r)}
		there := map[string]map[string]string{"infra": someLabels(r)} // the provider's own of that name
		rules := Rules{Spaces: here, Through: []netip.Prefix{netip.MustParsePrefix("10.201.0.0/16")}}
		mapped := map[string]map[string]string{}
		for name, to := range here {
			mapped[name] = home[name]
			there[to] = map[string]string{corev1.LabelMetadataName: to, "team": pick(r, values)}
		}
		at := func(namespace string, i int) (peerPod, peerPod) {
			p := peerPod{namespace, someLabels(r), netip.AddrFrom4([4]byte{10, 81, 0, byte(i)})}
			return p, peerPod{here[namespace], p.labels, netip.AddrFrom4([4]byte{10, 42, 0, byte(i)})}
		}
		var policies, made []networkingv1.NetworkPolicySpec
		for range 1 + r.IntN(3) {
			p := somePolicy(r)
			text, wrong := Kinds["NetworkPolicy"].Encode(ResolvePolicy(&networkingv1.NetworkPolicy{Spec: p}, mapped))
			if wrong != "" {
				t.Fatal(wrong)
			}
			o, wrong := Kinds["NetworkPolicy"].Decode(text, rules)
			if wrong != "" {
				t.Fatal(wrong)
			}
			policies, made = append(policies, p), append(made, o.(*networkingv1.NetworkPolicy).Spec)
		}
		podHome, podThere := at("shop", 1)
		own := slices.ContainsFunc(policies, func(p networkingv1.NetworkPolicySpec) bool { return ofPrivate(&p) })
		for _, d := range []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress} {
			for _, port := range []int32{80, 85, 99} {
				ask := func(who string, a, b peerPod, exact bool) {
					t.Helper()
					want, got := passes(policies, home, podHome, a, d, port), passes(made, there, podThere, b, d, port)
					if asked++; want {
						passed++
					}
					if want && !got {
						less++
					}
					if got && !want || exact && got != want {
						t.Fatalf("%s %s at %d: home %t, there %t\nhome %+v\nthere %+v", who, d, port, want, got, policies, made)
					}
				}
				for i, namespace := range []string{"shop", "shop", "db"} {
					a, b := at(namespace, 2+i)
					ask("a pod of "+namespace, a, b, !own)
				}
				world := peerPod{address: netip.AddrFrom4([4]byte{198, 51, 100, byte(r.IntN(256))})}
				ask("the world", world, world, true)
				stranger := peerPod{"infra", someLabels(r), netip.MustParseAddr("10.42.7.7")}
				ask("the provider's own", peerPod{address: stranger.address}, stranger, false)
				if beyond := (peerPod{address: netip.MustParseAddr("10.201.3.4")}); !passes(made, there, podThere, beyond, d, port) {
					t.Fatalf("the gateway %s at %d: %+v", d, port, made)
				}
			}
		}
	}
	if t.Logf("%d connections asked about, %d pass at home, %d of these not there", asked, passed, less); passed < asked/10 || passed > asked*9/10 {
		t.Error("the worlds say little")
	}
}

// ofPrivate says whether a policy has blocks of some private addresses and not of others.
func ofPrivate(p *networkingv1.NetworkPolicySpec) bool {
	partly := func(peers []networkingv1.NetworkPolicyPeer) bool {
		return slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
			return p.IPBlock != nil && slices.ContainsFunc(append(slices.Clone(p.IPBlock.Except), p.IPBlock.CIDR), func(text string) bool { return text[:3] == "10." })
		})
	}
	return slices.ContainsFunc(p.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool { return partly(r.From) }) ||
		slices.ContainsFunc(p.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool { return partly(r.To) })
}
