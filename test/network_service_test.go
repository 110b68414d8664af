package test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// frontLimit is how long a tunnel may take to go another way: what numbers its gateway tells
	// are half a minute old.
	frontLimit = 90 * time.Second
	// moveLimit is how long there may be no answer when the node behind a Service dies: a second
	// more than without one.
	moveLimit = outageLimit + time.Second
)

// networkService has rome call milan's gateway through a Service, where milan's nodes cannot be
// called at the tunnel's own port and call nobody themselves: by a load balancer, then by ports of
// nodes. The tunnel works, also when its gateway dies.
func networkService(t *testing.T, c *continuum) {
	x := &crossing{shop: c.offloaded(t, "rome", "--cluster-selector", "region=north")}
	busy := x.gatewayOf(t, "milan") // is stopped later
	x.vacate(t, "milan", busy)
	// What is measured is the Service, not how soon others are seen to be gone: the node has no
	// manager, and no packets of the load balancer's come to it first.
	x.Run(t, "kubectl", "milan", "--", "delete", "pods", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=pelago-manager", "--field-selector", "spec.nodeName="+busy)
	x.Run(t, "kubectl", "milan", "--", "rollout", "status", "-n", v1alpha1.SystemNamespace, "deployment/pelago-manager", "--timeout=3m")
	x.Run(t, "kubectl", "milan", "--", "label", "node", busy, corev1.LabelNodeExcludeBalancers+"=")
	t.Cleanup(func() {
		x.Run(t, "kubectl", "milan", "--", "label", "node", busy, corev1.LabelNodeExcludeBalancers+"-")
	})
	probe := x.watch(t, "to-called", "rome-1", "called-watched")
	x.create(t, whoService("called-watched", "watched-called", nil))
	x.serve(t, "watched-called", "milan")
	x.running(t, probe.pod)
	probe.well(t, time.Now(), healLimit)

	name := "tunnel-" + v1alpha1.NetworkKey(v1alpha1.TenantNamespace("rome"))
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort} {
		x.fronted(t, string(kind))
		t.Run(string(kind), func(t *testing.T) { x.called(t, probe, kind, name, busy) })
	}
	x.fronted(t, "")
	x.eventually(t, healLimit, "rome is told nodes again, and the Service is gone", func() error {
		_, err := x.told(func(all []string) bool {
			return len(all) > 1 && !slices.ContainsFunc(all, func(e string) bool { return !own(e) })
		})
		if err != nil {
			return err
		}
		if _, err := get[corev1.Service](c, "milan", v1alpha1.NetworkNamespace, name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Service %s is there: %v", name, err)
		}
		return nil
	})
	probe.well(t, time.Now(), frontLimit)
}

// own says whether an endpoint is at a tunnel's own port, which no Service takes from others.
func own(endpoint string) bool {
	at, err := netip.ParseAddrPort(endpoint)
	return err == nil && at.Port() >= tunnelPorts && at.Port() < tunnelPorts+1000
}

// tunnelPorts is the first port of tunnels.
const tunnelPorts = 7100

// called holds that rome is told what its Service of a kind is called by and nothing else, that the
// tunnel goes that way, and goes on when the node behind it dies.
func (x *crossing) called(t *testing.T, probe *watched, kind corev1.ServiceType, name, busy string) {
	var told []string
	x.eventually(t, healLimit, "rome is told where the Service is called, and nothing else", func() error {
		s, err := get[corev1.Service](x.continuum, "milan", v1alpha1.NetworkNamespace, name)
		switch {
		case err != nil:
			return err
		case s.Spec.Type != kind || len(s.Spec.Ports) != 1:
			return fmt.Errorf("Service %s is of type %s with %d ports", name, s.Spec.Type, len(s.Spec.Ports))
		}
		var want []string
		if kind == corev1.ServiceTypeNodePort {
			for _, a := range x.addresses(t, "milan") {
				want = append(want, join(a, s.Spec.Ports[0].NodePort))
			}
		} else {
			for _, in := range s.Status.LoadBalancer.Ingress {
				want = append(want, join(in.IP, s.Spec.Ports[0].Port))
			}
		}
		told, err = x.told(func(all []string) bool {
			slices.Sort(want)
			return len(want) > 0 && slices.Equal(slices.Sorted(slices.Values(all)), want)
		})
		if err != nil {
			err = fmt.Errorf("%w, want %v", err, want)
		}
		return err
	})
	x.private(t)
	at := func() (string, error) {
		_, r, err := x.tunnel("rome", v1alpha1.NetworkKey(v1alpha1.PeeringNamespace("milan")))
		if err == nil && !slices.Contains(told, r.Endpoint) {
			err = fmt.Errorf("its other end is at %s, want one of %v", r.Endpoint, told)
		}
		return r.Endpoint, err
	}
	var end string
	x.eventually(t, frontLimit, "rome's tunnel goes by the Service", func() (err error) {
		end, err = at()
		return err
	})
	x.eventually(t, patience, "the gateway is on "+busy, func() error {
		now, err := x.gateway("milan", v1alpha1.NetworkKey(v1alpha1.TenantNamespace("rome")))
		if err == nil && now != busy {
			err = fmt.Errorf("it is on %s", now)
		}
		return err
	})
	probe.well(t, time.Now(), healLimit)

	begin := time.Now()
	x.stop(t, "milan", busy)
	x.eventually(t, healLimit, "the Service leads to another node", func() error {
		s, err := get[discoveryv1.EndpointSlice](x.continuum, "milan", v1alpha1.NetworkNamespace, name)
		if err == nil && (len(s.Endpoints) != 1 || *s.Endpoints[0].NodeName == busy) {
			err = fmt.Errorf("it leads to %v", s.Endpoints)
		}
		return err
	})
	moved := time.Since(begin)
	probe.well(t, time.Now(), frontLimit)
	outage, broken := probe.outage(t, begin, false)
	t.Logf("%s: the gateway's node %s stopped; rome called %s; the Service leads to another node within %s; requests without an answer for %s",
		kind, busy, end, moved.Round(100*time.Millisecond), outage.Round(time.Millisecond))
	if outage > moveLimit {
		t.Errorf("requests without an answer for %s, at most %s", outage, moveLimit)
	}
	if broken != "" {
		t.Errorf("the connection broke: %s", broken)
	}
}

// fronted sets by which Services milan's tunnels are called.
func (x *crossing) fronted(t *testing.T, kind string) {
	t.Helper()
	x.settings(t, "milan", func(values map[string]any) {
		section, _ := values["network"].(map[string]any)
		if section == nil {
			section = map[string]any{}
		}
		section["service"], values["network"] = kind, section
	})
}

// told are milan's endpoints as rome is told them, and an error if that is not right.
func (x *crossing) told(right func([]string) bool) ([]string, error) {
	n, err := get[v1alpha1.NetworkConfig](x.continuum, "rome", v1alpha1.PeeringNamespace("milan"), v1alpha1.NetworkProvider)
	if err == nil && !right(n.Spec.Endpoints) {
		err = fmt.Errorf("rome is told %v", n.Spec.Endpoints)
	}
	return n.Spec.Endpoints, err
}

// addresses are those of a cluster's nodes.
func (x *crossing) addresses(t *testing.T, cluster string) (all []string) {
	t.Helper()
	for _, name := range x.nodes(t, cluster) {
		n, err := get[corev1.Node](x.continuum, cluster, "", name)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				all = append(all, a.Address)
			}
		}
	}
	return all
}

// private lets rome's tunnels not call nodes of milan at tunnels' own ports, nor these rome's, as in
// a cloud whose nodes have no way in or out, until the test ends.
func (x *crossing) private(t *testing.T) {
	t.Helper()
	set := func(cluster string) string { return "{ " + strings.Join(x.addresses(t, cluster), ", ") + " }" }
	rome, milan, nodes := set("rome"), set("milan"), x.nodes(t, "milan")
	on := func(args ...string) {
		for _, node := range nodes {
			x.Run(t, append([]string{"run", "milan", "--node", node, "--", "nft"}, args...)...)
		}
	}
	const table = "private"
	ip := "ip"
	if a, err := netip.ParseAddr(x.addresses(t, "rome")[0]); err == nil && a.Is6() {
		ip = "ip6"
	}
	ports := fmt.Sprintf(" udp dport %d-%d", tunnelPorts, tunnelPorts+999)
	t.Cleanup(func() { // a node that was stopped has lost it
		on("add", "table", "inet", table)
		on("delete", "table", "inet", table)
	})
	on("add", "table", "inet", table)
	on("add chain inet " + table + " in { type filter hook prerouting priority -350; }")
	on("add rule inet " + table + " in " + ip + " saddr " + rome + " " + ip + " daddr " + milan + ports + " drop")
	on("add chain inet " + table + " out { type filter hook output priority 0; }")
	on("add rule inet " + table + " out ct direction original " + ip + " daddr " + rome + ports + " drop")
}

// tunnel is the node of a cluster that has a tunnel, and what it says of it.
func (c *continuum) tunnel(cluster, key string) (string, v1alpha1.TunnelReport, error) {
	node, err := c.gateway(cluster, key)
	if err != nil {
		return "", v1alpha1.TunnelReport{}, err
	}
	l, err := get[coordinationv1.Lease](c, cluster, v1alpha1.NetworkNamespace, v1alpha1.AgentLease(node))
	said := map[string]v1alpha1.TunnelReport{}
	if err == nil {
		err = json.Unmarshal([]byte(l.Annotations[v1alpha1.AnnotationTunnels]), &said)
	}
	return node, said[key], err
}
