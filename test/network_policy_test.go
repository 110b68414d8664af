package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// webRule lets the port of the servers through, all of them where none is given.
func webRule(ports ...networkingv1.NetworkPolicyPort) []networkingv1.NetworkPolicyPort { return ports }

func policyOf(name string, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func labelled(app string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// peersOf are pods of the policy's namespace by their label.
func peersOf(apps ...string) (peers []networkingv1.NetworkPolicyPeer) {
	for _, app := range apps {
		selector := labelled(app)
		peers = append(peers, networkingv1.NetworkPolicyPeer{PodSelector: &selector})
	}
	return peers
}

// networkPolicies holds all that a policy may say.
func networkPolicies(t *testing.T, c *continuum) { policiesHold(t, newCrossing(t, c), true) }

// policiesHold holds that NetworkPolicies of a namespace mean between two clusters what they mean
// in one: at both ends, in both directions, while they come, change and go.
func policiesHold(t *testing.T, x *crossing, all bool) {
	x.create(t, whoPod("", "other", "rome-1"))
	other := x.running(t, "other")
	at := map[string]*corev1.Pod{"front": x.front, "other": other, "data-0": x.data[0], "data-1": x.data[1]}
	front := seen(t, x.rome, x.front.Status.PodIP)
	to := map[string]string{"front": front, "data-0": x.data[0].Status.PodIP, "data-1": x.data[1].Status.PodIP}
	ways := []string{"front>data-0", "front>data-1", "other>data-0", "data-0>front", "data-1>front"}
	ask := func(way string) error {
		from, host, _ := strings.Cut(way, ">")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		out, err := x.Exec(ctx, "rome", x.name, at[from].Name, "timeout", "4", "wget", "-q", "-O", "-", "http://"+join(to[host], webPort)+"/cgi-bin/who")
		if err == nil && !strings.Contains(out, host) {
			return fmt.Errorf("%q answers", out)
		}
		return err
	}
	closed := func(names ...string) (pass map[string]bool) {
		pass = map[string]bool{}
		for _, w := range ways {
			pass[w] = !slices.Contains(names, w)
		}
		return pass
	}
	web, wrong, high := intstr.FromInt32(webPort), intstr.FromInt32(webPort+1), int32(webPort+10)
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	ingress := func(selected metav1.LabelSelector, rules ...networkingv1.NetworkPolicyIngressRule) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{PodSelector: selected, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: rules}
	}
	egress := func(selected metav1.LabelSelector, rules ...networkingv1.NetworkPolicyEgressRule) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{PodSelector: selected, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, Egress: rules}
	}
	one := metav1.LabelSelector{MatchLabels: map[string]string{"statefulset.kubernetes.io/pod-name": "data-0"}}
	ofPod := func(s metav1.LabelSelector) []networkingv1.NetworkPolicyPeer {
		return []networkingv1.NetworkPolicyPeer{{PodSelector: &s}}
	}
	block := func(cidr string, except ...string) []networkingv1.NetworkPolicyPeer {
		return []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}}
	}
	own := netip.MustParseAddr(x.front.Status.PodIP)
	everybody, single := netip.PrefixFrom(own, 0).Masked(), netip.PrefixFrom(own, own.BitLen())
	named := map[string]string{"kubernetes.io/metadata.name": x.name}
	steps := []struct {
		name string
		spec *networkingv1.NetworkPolicySpec
		pass map[string]bool
		also bool // where not all are tried
	}{
		{"none", nil, closed(), true},
		{"nobody may call the pods at milan", new(ingress(labelled("data"))), closed("front>data-0", "front>data-1", "other>data-0"), false},
		{"only front may", new(ingress(labelled("data"), networkingv1.NetworkPolicyIngressRule{From: peersOf("front")})), closed("other>data-0"), true},
		{"only front may, and by another port", new(ingress(labelled("data"), networkingv1.NetworkPolicyIngressRule{From: peersOf("front"), Ports: webRule(networkingv1.NetworkPolicyPort{Protocol: &tcp, Port: &wrong})})),
			closed("front>data-0", "front>data-1", "other>data-0"), false},
		{"only front may, by ports of a range", new(ingress(labelled("data"), networkingv1.NetworkPolicyIngressRule{From: peersOf("front"), Ports: webRule(networkingv1.NetworkPolicyPort{Protocol: &tcp, Port: &web, EndPort: &high})})),
			closed("other>data-0"), false},
		{"only front may call one of them, and by UDP alone", new(ingress(one, networkingv1.NetworkPolicyIngressRule{From: peersOf("front"), Ports: webRule(networkingv1.NetworkPolicyPort{Protocol: &udp, Port: &web})})),
			closed("front>data-0", "other>data-0"), false},
		{"a block without one of its addresses may", new(ingress(labelled("data"), networkingv1.NetworkPolicyIngressRule{From: block(everybody.String(), single.String())})),
			closed("front>data-0", "front>data-1"), false},
		{"the pods of a namespace of that name may", new(ingress(labelled("data"), networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: named}, PodSelector: new(labelled("other"))}}})), closed("front>data-0", "front>data-1"), false},
		{"those at milan may call nobody", new(egress(labelled("data"))), closed("data-0>front", "data-1>front"), false},
		{"one of those at milan may call front", new(egress(labelled("data"), networkingv1.NetworkPolicyEgressRule{To: peersOf("other")})), closed("data-0>front", "data-1>front"), false},
		{"at rome only one of those at milan may call front", new(ingress(labelled("front"), networkingv1.NetworkPolicyIngressRule{From: ofPod(one)})), closed("data-1>front"), true},
		{"front may call nobody", new(egress(labelled("front"))), closed("front>data-0", "front>data-1"), false},
		{"front may call one of those at milan", new(egress(labelled("front"), networkingv1.NetworkPolicyEgressRule{To: ofPod(one)})), closed("front>data-1"), true},
		{"nobody may anything", &networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}}, closed(ways...), false},
		{"none again", nil, closed(), true},
	}
	const name = "rule"
	for _, step := range steps {
		if !all && !step.also {
			continue
		}
		t.Run(strings.ReplaceAll(step.name, " ", "-"), func(t *testing.T) {
			now, err := get[networkingv1.NetworkPolicy](x.continuum, "rome", x.name, name)
			switch rome := x.Clients["rome"]; {
			case step.spec == nil:
				err = client.IgnoreNotFound(rome.Delete(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: x.name, Name: name}}))
			case err == nil:
				now.Spec = *step.spec
				err = rome.Update(t.Context(), now)
			case client.IgnoreNotFound(err) == nil:
				made := policyOf(name, *step.spec)
				made.Namespace = x.name
				err = rome.Create(t.Context(), made)
			}
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			x.eventually(t, networkLimit, "who reaches whom is as the policy says", func() error {
				var mu sync.Mutex
				var wrong []error
				var calls sync.WaitGroup
				for _, way := range ways {
					calls.Go(func() {
						err := ask(way)
						mu.Lock()
						defer mu.Unlock()
						switch {
						case err != nil && step.pass[way]:
							wrong = append(wrong, fmt.Errorf("%s does not pass: %w", way, err))
						case err == nil && !step.pass[way]:
							wrong = append(wrong, fmt.Errorf("%s passes", way))
						}
					})
				}
				calls.Wait()
				return errors.Join(wrong...)
			})
			t.Logf("limit: %s: so within %s; closed %v", step.name, time.Since(began).Round(100*time.Millisecond), slices.Sorted(func(yield func(string) bool) {
				for _, w := range slices.Sorted(maps.Keys(step.pass)) {
					if !step.pass[w] && !yield(w) {
						return
					}
				}
			}))
		})
	}
}
