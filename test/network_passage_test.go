package test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// passageLimit ends a wait for a peering of a world to have all that calls need. On a busy machine
// that has taken more than a minute.
const passageLimit = 4 * time.Minute

// passage is one peering of a world, with a namespace of the consumer's that has a pod on each
// node of both sides, each behind a Service of its own.
type passage struct {
	*continuum
	world, consumer, provider string
	// v4 and v6 are how the consumer's addresses lie to the provider's, absent in a family that
	// one of both does not have.
	v4, v6 relation
	// second is the other one between two clusters. The first has their own ranges for views.
	second bool
	// inBand has the consumer say all that it says through the tunnel.
	inBand bool
	// domain is what the consumer is called in its own DNS.
	domain string

	shop    shop
	gateway map[string]string // nodes, by cluster
	// consumerViews is how the provider sees the consumer's ranges, providerViews the reverse.
	consumerViews, providerViews []v1alpha1.NetworkView
	outside                      []netip.Addr // what stands for the consumer's nodes, as the provider sees it
	home, away                   []*spot
	callers                      []*spot // on the network of the consumer's nodes
}

// spot is a pod of a passage.
type spot struct {
	cluster, node string
	// pod is as the consumer has it, local as the cluster that runs it has it.
	pod, local *corev1.Pod
	// service is what leads to it, as the other side's pods know it.
	service *corev1.Service
}

// open peers, makes the namespace, and the pods that the consumer's own nodes run.
func (p *passage) open(t *testing.T) {
	t.Helper()
	how := []string{"--consumer", p.consumer}
	if p.inBand {
		how = append(how, "--in-band", "--direct-paths")
	}
	line := p.Invite(t, p.provider, how...)
	if r := p.Shell(t, p.consumer, line+" --timeout 3m30s"); r.Code != 0 {
		t.Fatalf("%s: %s does not become a consumer of %s: exit %d\n%s%s", p.world, p.consumer, p.provider, r.Code, r.Out, r.Errs)
	}
	p.nodeReady(t, p.consumer, p.provider)
	allow := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"services":{"nodePorts":true,"loadBalancers":true}}}`))
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: p.consumer}}
	if err := p.Clients[p.provider].Patch(t.Context(), tenant, allow); err != nil {
		t.Fatal(err)
	}
	// The sandbox goes when the test ends, so nothing is taken down.
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "at-" + p.provider}}
	if err := p.Clients[p.consumer].Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	p.shop = shop{p.continuum, p.consumer, n.Name}
	p.Pelago(t, p.consumer, "offload", "namespace", n.Name)
	peers := whoService("peers", "", func(s *corev1.ServiceSpec) {
		s.ClusterIP, s.Selector, s.IPFamilyPolicy = corev1.ClusterIPNone, map[string]string{"peer": "yes"}, new(corev1.IPFamilyPolicyPreferDualStack)
	})
	p.shop.create(t, peers)
	for _, node := range p.nodes(t, p.consumer) {
		front := p.add(t, "front-"+node, node)
		p.home = append(p.home, &spot{cluster: p.consumer, node: node, pod: front})
		caller := whoPod("", "caller-"+node, node)
		caller.Spec.HostNetwork = true
		caller.Spec.Containers[0].Command = []string{"sleep", "100000"}
		caller.Spec.Containers[0].Ports, caller.Spec.Containers[0].ReadinessProbe = nil, nil
		p.shop.create(t, caller)
		p.callers = append(p.callers, &spot{cluster: p.consumer, node: node, pod: caller})
	}
	for _, e := range append(slices.Clone(p.home), p.callers...) {
		e.pod = p.shop.running(t, e.pod.Name)
		e.local = e.pod
	}
}

// add makes a pod with its Service.
func (p *passage) add(t *testing.T, name, node string) *corev1.Pod {
	t.Helper()
	p.shop.create(t, whoService(name, name, func(s *corev1.ServiceSpec) {
		s.Type, s.IPFamilyPolicy = corev1.ServiceTypeLoadBalancer, new(corev1.IPFamilyPolicyPreferDualStack)
	}))
	pod := whoPod("", name, node)
	pod.Labels["peer"] = "yes"
	pod.Spec.Containers[0].Command[2] = longLine
	pod.Spec.Hostname, pod.Spec.Subdomain = name, "peers"
	p.shop.create(t, pod)
	return pod
}

// settlePassages puts a pod of each passage on each node of its provider, and waits until all
// is there that calls need.
func settlePassages(t *testing.T, all []*passage) {
	t.Helper()
	for _, provider := range []string{hub, all[0].consumer} {
		here := slices.DeleteFunc(slices.Clone(all), func(p *passage) bool { return p.provider != provider })
		if len(here) == 0 {
			continue
		}
		nodes := all[0].nodes(t, provider)
		for _, node := range nodes {
			for _, other := range nodes { // only this one takes pods now
				verb := "cordon"
				if other == node {
					verb = "uncordon"
				}
				all[0].Kubectl(t, provider, verb, other)
			}
			for _, p := range here {
				p.away = append(p.away, &spot{cluster: provider, node: node, pod: p.add(t, "data-"+node, provider)})
			}
			for _, p := range here {
				p.bound(t, p.away[len(p.away)-1])
			}
		}
		for _, node := range nodes {
			all[0].Kubectl(t, provider, "uncordon", node)
		}
	}
	for _, p := range all {
		p.settle(t)
	}
}

// bound waits until the provider has given a pod its node.
func (p *passage) bound(t *testing.T, e *spot) {
	t.Helper()
	p.shop.eventually(t, passageLimit, fmt.Sprintf("%s runs %s on %s", p.provider, e.pod.Name, e.node), func() (err error) {
		if e.pod, err = get[corev1.Pod](p.continuum, p.consumer, p.shop.name, e.pod.Name); err != nil {
			return err
		}
		if e.local, err = p.twin(p.provider, e.pod); err == nil && e.local.Spec.NodeName != e.node {
			err = fmt.Errorf("it is on %q", e.local.Spec.NodeName)
		}
		return err
	})
}

// settle waits for views, gateways, addresses and Services, and notes them.
func (p *passage) settle(t *testing.T) {
	t.Helper()
	p.shop.eventually(t, passageLimit, "gateways, views, addresses and Services are there", func() (err error) {
		if p.gateway, err = p.gateways(); err != nil {
			return err
		}
		if err := p.look(); err != nil {
			return err
		}
		for _, e := range p.home {
			if e.service, err = p.leads(p.provider, p.away[0].local.Namespace, e.pod.Name); err != nil {
				return err
			}
		}
		for _, e := range p.away {
			if e.pod, err = get[corev1.Pod](p.continuum, p.consumer, p.shop.name, e.pod.Name); err != nil {
				return err
			}
			if e.local, err = p.twin(p.provider, e.pod); err != nil {
				return err
			}
			if err := isReady(e.pod); err != nil {
				return err
			}
			if len(e.pod.Status.PodIPs) != len(p.families()) {
				return fmt.Errorf("%s has the addresses %v here", e.pod.Name, e.pod.Status.PodIPs)
			}
			if e.service, err = p.leads(p.consumer, p.shop.name, e.pod.Name); err != nil {
				return err
			}
		}
		return nil
	})
	for _, v := range p.consumerViews {
		p.translated(t, "the provider", v)
	}
	for _, v := range p.providerViews {
		p.translated(t, "the consumer", v)
	}
	for _, e := range p.away {
		for _, family := range p.families() {
			real, says := address(e.local.Status.PodIPs, family), address(e.pod.Status.PodIPs, family)
			if view := seen(t, p.providerViews, real); view != says {
				t.Errorf("%s: %s is %s at %s, so %s at %s, and says %s", p.world, e.pod.Name, real, p.provider, view, p.consumer, says)
			}
		}
	}
}

// translated holds that a range of pods is seen as it is where nothing else has it, and only there.
func (p *passage) translated(t *testing.T, by string, v v1alpha1.NetworkView) {
	t.Helper()
	real := netip.MustParsePrefix(v.Real)
	r := p.v4
	if real.Addr().Is6() {
		r = p.v6
	}
	if short := real.Bits() >= 24 && real.Addr().Is4() || real.Bits() >= 112; short {
		return // external addresses
	}
	if (v.Real == v.View) != (r == disjoint && !p.second) {
		t.Errorf("%s, %s at %s, %s addresses: %s sees %s as %s", p.world, p.consumer, p.provider, r, by, v.Real, v.View)
	}
}

func (p *passage) gateways() (map[string]string, error) {
	home, err := p.continuum.gateway(p.consumer, v1alpha1.NetworkKey(v1alpha1.PeeringNamespace(p.provider)))
	if err != nil {
		return nil, err
	}
	away, err := p.continuum.gateway(p.provider, v1alpha1.NetworkKey(v1alpha1.TenantNamespace(p.consumer)))
	return map[string]string{p.consumer: home, p.provider: away}, err
}

// look reads by which addresses each side sees the other.
func (p *passage) look() error {
	namespace := v1alpha1.PeeringNamespace(p.provider)
	mine, err := get[v1alpha1.NetworkConfig](p.continuum, p.consumer, namespace, v1alpha1.NetworkConsumer)
	if err != nil {
		return err
	}
	theirs, err := get[v1alpha1.NetworkConfig](p.continuum, p.consumer, namespace, v1alpha1.NetworkProvider)
	if err != nil {
		return err
	}
	p.consumerViews, p.providerViews = mine.Status.Views, theirs.Status.Views
	want := 2 * len(p.families()) // pods and external addresses
	if len(p.consumerViews) < want || len(p.providerViews) < want {
		return fmt.Errorf("views of the consumer %v, of the provider %v, want %d each", p.consumerViews, p.providerViews, want)
	}
	p.outside = nil
	for _, text := range mine.Spec.External {
		for _, v := range p.consumerViews {
			if v.Real == text {
				p.outside = append(p.outside, netip.MustParsePrefix(v.View).Addr().Next())
			}
		}
	}
	return nil
}

// leads reads a Service with all its addresses.
func (p *passage) leads(cluster, namespace, name string) (*corev1.Service, error) {
	s, err := get[corev1.Service](p.continuum, cluster, namespace, name)
	if err != nil {
		return nil, err
	}
	want := len(p.families())
	if len(s.Spec.ClusterIPs) < want || len(s.Status.LoadBalancer.Ingress) < want || s.Spec.Ports[0].NodePort == 0 {
		err = fmt.Errorf("Service %s of %s has the addresses %v, %v, the node port %d", name, cluster, s.Spec.ClusterIPs, s.Status.LoadBalancer.Ingress, s.Spec.Ports[0].NodePort)
	}
	return s, err
}

// families are those that both sides have.
func (p *passage) families() (all []string) {
	if p.v4 != absent {
		all = append(all, "IPv4")
	}
	if p.v6 != absent {
		all = append(all, "IPv6")
	}
	return all
}
