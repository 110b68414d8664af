package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// dice makes worlds in which labels, addresses and ports meet often.
type dice struct{ *rand.Rand }

func (d dice) one(of ...string) string   { return of[d.IntN(len(of))] }
func (d dice) in(n int) bool             { return d.IntN(n) == 0 }
func (d dice) port() int32               { return int32(1 + d.IntN(12)) }
func (d dice) protocol() corev1.Protocol { return corev1.Protocol(d.one("TCP", "UDP")) }

func (d dice) labels() map[string]string {
	all := map[string]string{}
	for _, key := range []string{"a", "b"} {
		if d.in(2) {
			all[key] = d.one("x", "y")
		}
	}
	return all
}

func (d dice) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	switch d.IntN(4) {
	case 0:
	case 1:
		s.MatchLabels = map[string]string{d.one("a", "b"): d.one("x", "y")}
	default:
		e := metav1.LabelSelectorRequirement{Key: d.one("a", "b"), Operator: metav1.LabelSelectorOperator(d.one("In", "NotIn", "Exists", "DoesNotExist"))}
		if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
			e.Values = []string{d.one("x", "y")}
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

func (d dice) address() netip.Addr {
	if d.in(3) {
		return netip.MustParseAddr(fmt.Sprintf("fd00::%x", d.IntN(16)))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", d.IntN(16)))
}

func (d dice) prefix(least int) string {
	a := d.address()
	p, _ := a.Prefix(a.BitLen() - d.IntN(least))
	return p.String()
}

func (d dice) pods(namespaces []string, prefix string, used map[netip.Addr]bool) (all []Pod) {
	for i := range d.IntN(5) {
		p := Pod{Namespace: d.one(namespaces...), UID: fmt.Sprintf("%s%d", prefix, i), Labels: d.labels()}
		for range 2 {
			a := d.address()
			if other := len(p.Addresses) > 0 && p.Addresses[0].BitLen() == a.BitLen(); !used[a] && !other {
				used[a] = true
				p.Addresses = append(p.Addresses, a)
			}
		}
		for range d.IntN(3) {
			p.Ports = append(p.Ports, Port{d.one("one", "two"), d.protocol(), d.port()})
		}
		all = append(all, p)
	}
	return all
}

func (d dice) peers() (all []networkingv1.NetworkPolicyPeer) {
	for range d.IntN(3) {
		p := networkingv1.NetworkPolicyPeer{}
		switch d.IntN(4) {
		case 0:
			p.IPBlock = &networkingv1.IPBlock{CIDR: d.prefix(6)}
			for range d.IntN(3) {
				p.IPBlock.Except = append(p.IPBlock.Except, d.prefix(4))
			}
		case 1:
			p.PodSelector = d.selector()
		case 2:
			p.NamespaceSelector = d.selector()
		default:
			p.PodSelector, p.NamespaceSelector = d.selector(), d.selector()
		}
		all = append(all, p)
	}
	return all
}

func (d dice) ports() (all []networkingv1.NetworkPolicyPort) {
	for range d.IntN(3) {
		p := networkingv1.NetworkPolicyPort{}
		if !d.in(3) {
			p.Protocol = new(d.protocol())
		}
		if d.in(8) {
			p.Protocol = new(corev1.ProtocolSCTP)
		}
		switch d.IntN(4) {
		case 0:
		case 1:
			p.Port = new(intstr.FromString(d.one("one", "two")))
		case 2:
			p.Port = new(intstr.FromInt32(d.port()))
			p.EndPort = new(p.Port.IntVal + int32(d.IntN(4)))
		default:
			p.Port = new(intstr.FromInt32(d.port()))
		}
		all = append(all, p)
	}
	return all
}

func (d dice) world() World {
	used := map[netip.Addr]bool{}
	w := World{Namespace: "n0", Namespaces: map[string]map[string]string{"n0": d.labels(), "n1": d.labels(), "n2": d.labels()}, ByUID: d.in(2)}
	w.Guarded = d.pods([]string{"n0"}, "g", used)
	w.Others = d.pods([]string{"n0", "n1", "n2", "gone"}, "o", used)
	if !w.ByUID { // as at home, where both ends are guarded
		w.Far = slices.DeleteFunc(slices.Clone(w.Others), func(p Pod) bool { return p.Namespace != w.Namespace })
		w.Near = append(d.pods([]string{"n0", "n1", "n2", "gone"}, "r", used), w.Guarded...)
	}
	for range d.IntN(3) {
		if m := (Mapped{d.address(), d.address()}); !used[m.Real] && !used[m.External] && m.Real != m.External && m.Real.BitLen() == m.External.BitLen() {
			used[m.Real], used[m.External], w.Mapped = true, true, append(w.Mapped, m)
		}
	}
	for i := range d.IntN(4) {
		p := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", 9-i)}, Spec: networkingv1.NetworkPolicySpec{PodSelector: *d.selector()}}
		switch d.IntN(4) {
		case 0:
			p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		case 1:
			p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
		case 2:
			p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
		}
		for range d.IntN(3) {
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: d.peers(), Ports: d.ports()})
		}
		for range d.IntN(3) {
			p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: d.peers(), Ports: d.ports()})
		}
		w.Policies = append(w.Policies, p)
	}
	return w
}

// holds compares what gateways would do with the reference, for every pod and many attempts.
func holds(t *testing.T, d dice) (allowed, denied int) {
	t.Helper()
	w := d.world()
	compiled := Compile(w)
	shards, _ := compiled.Shards(w.Namespace, 1+d.IntN(4))
	d.Shuffle(len(w.Policies), func(i, j int) { w.Policies[i], w.Policies[j] = w.Policies[j], w.Policies[i] })
	again, _ := Compile(w).Shards(w.Namespace, len(shards))
	if !reflect.DeepEqual(again, shards) {
		t.Fatalf("the order of policies matters:\n%s\nand\n%s", show(shards), show(again))
	}
	for _, of := range []World{w, {Namespace: w.Namespace, Policies: w.Policies, Namespaces: w.Namespaces, Guarded: w.Far, Others: w.Near, Mapped: w.Mapped}} {
		some, none := d.tries(t, of, shards, w.ByUID)
		allowed, denied = allowed+some, denied+none
	}
	return allowed, denied
}

// tries makes attempts of all guarded pods of a world.
func (d dice) tries(t *testing.T, w World, shards []v1alpha1.NetworkRulesSpec, byUID bool) (allowed, denied int) {
	t.Helper()
	var far []netip.Addr
	for _, p := range w.Others {
		far = append(far, p.Addresses...)
	}
	for _, m := range w.Mapped {
		if far = append(far, m.External); !byUID { // else it is not called by that
			far = append(far, m.Real)
		}
	}
	for len(far) < 24 {
		far = append(far, d.address())
	}
	for i := range w.Guarded {
		p := &w.Guarded[i]
		if len(p.Addresses) == 0 {
			continue
		}
		// An address of the guarded side is at no other end, nor one of the other end at this.
		others := slices.DeleteFunc(slices.Clone(far), func(a netip.Addr) bool {
			return slices.ContainsFunc(w.Guarded, func(g Pod) bool { return slices.Contains(g.Addresses, a) })
		})
		for _, a := range others {
			if at(w, a) == nil && known(shards, a) || byUID && slices.ContainsFunc(w.Mapped, func(m Mapped) bool { return m.Real == a }) {
				continue
			}
			for _, direction := range []v1alpha1.NetworkDirection{v1alpha1.NetworkIngress, v1alpha1.NetworkEgress} {
				for range 6 {
					at := attempt{p, direction, a, d.protocol(), d.port()}
					want := reference(w, at)
					if got := gateway(shards, byUID, at); got != want {
						t.Fatalf("%s %s %s %s/%d: allowed is %t, and the reference says %t; policies\n%s\nshards\n%s", p.UID, direction, a, at.protocol, at.port, got, want, display(w.Policies), show(shards))
					}
					if want {
						allowed++
					} else {
						denied++
					}
				}
			}
		}
	}
	return allowed, denied
}

// known says whether shards tell of an address.
func known(shards []v1alpha1.NetworkRulesSpec, a netip.Addr) bool {
	return slices.ContainsFunc(shards, func(s v1alpha1.NetworkRulesSpec) bool {
		return slices.ContainsFunc(s.Pods, func(p v1alpha1.NetworkRulesPod) bool { return slices.Contains(p.Addresses, a.String()) })
	})
}

func display(policies []networkingv1.NetworkPolicy) (text string) {
	for _, p := range policies {
		text += fmt.Sprintf("%s: %+v\n", p.Name, p.Spec)
	}
	return text
}

// TestRandom holds that what is compiled means what the reference says, in many small worlds.
func TestRandom(t *testing.T) {
	var allowed, denied int
	for seed := range uint64(1500) {
		a, b := holds(t, dice{rand.New(rand.NewPCG(seed, 1))})
		allowed, denied = allowed+a, denied+b
	}
	t.Logf("%d attempts were allowed, %d were not", allowed, denied)
	if allowed < 10000 || denied < 10000 {
		t.Errorf("%d attempts were allowed and %d denied: too few to mean something", allowed, denied)
	}
}

// FuzzCompile tries more of them.
func FuzzCompile(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) { holds(t, dice{rand.New(rand.NewPCG(a, b))}) })
}
