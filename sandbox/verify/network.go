package verify

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podToPod sends requests around the ring of nodes in both directions. The
// server must see the address of the client's pod: no translation in between.
func podToPod(ctx context.Context, e *env) error {
	pods, err := e.webPods(ctx)
	if err != nil {
		return err
	}
	for i := range pods {
		from, to := pods[i], pods[(i+1)%len(pods)]
		if err := e.across(ctx, from, to); err != nil {
			return err
		}
		if err := e.across(ctx, to, from); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) across(ctx context.Context, from, to *corev1.Pod) error {
	for _, ip := range podIPs(to) {
		what := fmt.Sprintf("%s on %s to reach %s on %s at %s", from.Name, from.Spec.NodeName, to.Name, to.Spec.NodeName, ip)
		err := until(ctx, what, func(ctx context.Context) error {
			a, err := e.fetchFrom(ctx, from.Name, hostPort(ip, httpPort))
			switch {
			case err != nil:
				return err
			case a.name != to.Name:
				return fmt.Errorf("%s answered", a.name)
			case !slices.Contains(podIPs(from), a.client):
				return fmt.Errorf("it saw the client as %s, whose pod has %v", a.client, podIPs(from))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *env) webPods(ctx context.Context) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for i := range e.Nodes {
		p, err := e.ready(ctx, web(i))
		if err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	return pods, nil
}

func (e *env) webNames() []string {
	var names []string
	for i := range e.Nodes {
		names = append(names, web(i))
	}
	return names
}

// ends are the first and the last of the shared pods, the same if there is one.
func (e *env) ends() []string { return slices.Compact([]string{web(0), web(len(e.Nodes) - 1)}) }

// clusterAddress reaches every pod behind a Service from the first and the last
// node; a client that is one of them reaches itself too.
func clusterAddress(ctx context.Context, e *env) error {
	s, err := e.client.CoreV1().Services(e.namespace).Get(ctx, webName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading service %s: %w", webName, err)
	}
	ips, err := addresses(s.Spec.ClusterIPs...)
	if err != nil {
		return err
	}
	if err := wantFamilies("service "+s.Name, ips, e.Families); err != nil {
		return err
	}
	for _, ip := range ips {
		for _, client := range e.ends() {
			err := everyServer(ctx, fmt.Sprintf("%s from %s", ip, client), e.webNames(), func(ctx context.Context) (answer, error) {
				return e.fetchFrom(ctx, client, hostPort(ip, 80))
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// sameNode reaches a Service from a pod beside the only one behind it. The answer goes from pod to
// pod over their bridge, and is the Service's only if the node's firewall sees it there.
func sameNode(ctx context.Context, e *env) error {
	beside := e.pod(e.slug, serve)
	onNode(&beside.Spec, e.Nodes[0])
	if err := e.createPod(ctx, beside); err != nil {
		return err
	}
	s, err := e.createService(ctx, e.service(e.slug, map[string]string{checkLabel: webName, webLabel: "0"}))
	if err != nil {
		return err
	}
	ips, err := addresses(s.Spec.ClusterIPs...)
	if err != nil {
		return err
	}
	if _, err := e.ready(ctx, beside.Name); err != nil {
		return err
	}
	for _, ip := range ips {
		err := everyServer(ctx, ip.String()+" from "+beside.Name, []string{web(0)}, func(ctx context.Context) (answer, error) {
			return e.fetchFrom(ctx, beside.Name, hostPort(ip, 80))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// nodePort reaches a Service from the host through each address of each node.
func nodePort(ctx context.Context, e *env) error {
	s := e.webService(e.slug)
	s.Spec.Type = corev1.ServiceTypeNodePort
	s, err := e.createService(ctx, s)
	if err != nil {
		return err
	}
	for _, node := range e.Nodes {
		ips, err := e.nodeIPs(ctx, node)
		if err != nil {
			return err
		}
		for _, ip := range ips {
			if !serves(s, ip) {
				continue
			}
			address := hostPort(ip, s.Spec.Ports[0].NodePort)
			err := until(ctx, "an answer at "+address+" on "+node, func(ctx context.Context) error {
				_, err := e.fetchFromHost(ctx, address)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// serves reports whether a Service has the family of an address.
func serves(s *corev1.Service, ip netip.Addr) bool {
	family := corev1.IPv6Protocol
	if ip.Is4() {
		family = corev1.IPv4Protocol
	}
	return slices.Contains(s.Spec.IPFamilies, family)
}

func (e *env) nodeIPs(ctx context.Context, name string) ([]netip.Addr, error) {
	n, err := e.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	var texts []string
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			texts = append(texts, a.Address)
		}
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("node %s has no internal address", name)
	}
	return addresses(texts...)
}

// loadBalancer gets an address for a Service and reaches it from the host.
func loadBalancer(ctx context.Context, e *env) error {
	s := e.webService(e.slug)
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	if _, err := e.createService(ctx, s); err != nil {
		return err
	}
	ips, err := e.balancerIPs(ctx, s.Name)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		err := everyServer(ctx, "load balancer "+ip.String(), e.webNames(), func(ctx context.Context) (answer, error) {
			return e.fetchFromHost(ctx, hostPort(ip, 80))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// balancerIPs waits for the addresses of a load balancer.
func (e *env) balancerIPs(ctx context.Context, service string) ([]netip.Addr, error) {
	var ips []netip.Addr
	err := until(ctx, "an address for service "+service, func(ctx context.Context) error {
		s, err := e.client.CoreV1().Services(e.namespace).Get(ctx, service, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var texts []string
		for _, i := range s.Status.LoadBalancer.Ingress {
			texts = append(texts, i.IP)
		}
		if len(texts) == 0 {
			return errors.New("it has none")
		}
		if ips, err = addresses(texts...); err != nil {
			return err
		}
		return wantFamilies("service "+service, ips, e.Families)
	})
	return ips, err
}
