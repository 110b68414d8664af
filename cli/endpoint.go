package cli

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
)

// endpoint finds the address of this cluster's authentication endpoint that others
// reach, https://HOST:PORT.
func (c *Cluster) endpoint(ctx context.Context, settings home.Config) (string, error) {
	if settings.Auth.URL != "" {
		return settings.Auth.URL, nil
	}
	var service corev1.Service
	if err := c.Client.Get(ctx, inSystem(v1alpha1.AuthService), &service); err != nil {
		return "", fmt.Errorf("reading the Service %s: %w; run: pelago install", v1alpha1.AuthService, err)
	}
	var nodes corev1.NodeList
	if service.Spec.Type == corev1.ServiceTypeNodePort {
		if err := c.Client.List(ctx, &nodes); err != nil {
			return "", describe(fmt.Errorf("listing nodes: %w", err), c)
		}
	}
	return serviceURL(&service, nodes.Items, serverHost(c.Server))
}

// serviceURL decides what address to hand out for a Service. Server is the host of
// the API server as this program reaches it: a node port without nodes to ask answers there
// more often than not.
func serviceURL(s *corev1.Service, nodes []corev1.Node, server string) (string, error) {
	const override = "or set the address that others reach: pelago install --set config.auth.url=https://HOST:PORT"
	if len(s.Spec.Ports) == 0 {
		return "", fmt.Errorf("the Service %s has no port; run pelago install, %s", s.Name, override)
	}
	port := s.Spec.Ports[0]
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			if host := ingress.IP + ingress.Hostname; host != "" {
				return address(host, port.Port), nil
			}
		}
		return "", fmt.Errorf("the Service %s of type LoadBalancer has no address yet; wait for the load balancer, use node ports (pelago install --auth-service-type NodePort), %s", s.Name, override)
	case corev1.ServiceTypeNodePort:
		if port.NodePort == 0 {
			return "", fmt.Errorf("the Service %s has no node port yet; try again, %s", s.Name, override)
		}
		if host := nodeHost(nodes, server); host != "" {
			return address(host, port.NodePort), nil
		}
		return "", fmt.Errorf("no node of this cluster is ready and has an address for the node port of %s; start one, %s", s.Name, override)
	}
	return "", fmt.Errorf("the Service %s of type %s is reachable from inside this cluster only; run pelago install --auth-service-type NodePort or LoadBalancer, %s", s.Name, s.Spec.Type, override)
}

// nodeHost is an address of a ready node: an external one if there is any, then the
// one that is also the API server's, then an internal one.
func nodeHost(nodes []corev1.Node, server string) string {
	best, rank := "", 0
	for _, node := range nodes {
		if !ready(node) || node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
			continue
		}
		for _, a := range node.Status.Addresses {
			r := 0
			switch {
			case a.Type == corev1.NodeExternalIP:
				r = 3
			case a.Type == corev1.NodeInternalIP && a.Address == server:
				r = 2
			case a.Type == corev1.NodeInternalIP:
				r = 1
			}
			if r > rank {
				best, rank = a.Address, r
			}
		}
	}
	return best
}

func ready(node corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func address(host string, port int32) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// serverHost is the host of an address.
func serverHost(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
