package test

import (
	"context"
	"encoding/json"
	"fmt"
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

// frontLimit is how long a tunnel may take to go another way: what numbers its gateway tells
// are half a minute old.
const frontLimit = 90 * time.Second

// networkService has rome call milan's gateway by a load balancer, where milan's nodes cannot be
// called and call nobody themselves; the tunnel works, also when its gateway dies.
func networkService(t *testing.T, c *continuum) {
	x := &crossing{shop: c.offloaded(t, "rome", "--cluster-selector", "region=north")}
	busy := x.gatewayOf(t, "milan") // is stopped later, and has no pod of ours
	x.Run(t, "kubectl", "milan", "--", "cordon", busy)
	t.Cleanup(func() { x.Run(t, "kubectl", "milan", "--", "uncordon", busy) })
	probe := x.watch(t, "to-called", "rome-1", "called-watched")
	x.create(t, whoService("called-watched", "watched-called", nil))
	x.serve(t, "watched-called", "milan")
	x.running(t, probe.pod)
	probe.well(t, time.Now(), healLimit)

	x.fronted(t, string(corev1.ServiceTypeLoadBalancer))
	key := v1alpha1.NetworkKey(v1alpha1.TenantNamespace("rome"))
	name := "tunnel-" + key
	var want string
	x.eventually(t, healLimit, "rome is told the load balancer's address and no other", func() error {
		s, err := get[corev1.Service](c, "milan", v1alpha1.NetworkNamespace, name)
		if err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) != 1 {
			return fmt.Errorf("Service %s has the addresses %v", name, s.Status.LoadBalancer.Ingress)
		}
		want = join(s.Status.LoadBalancer.Ingress[0].IP, s.Spec.Ports[0].Port)
		return x.told(func(all []string) bool { return slices.Equal(all, []string{want}) })
	})
	open := x.private(t)
	x.eventually(t, frontLimit, "rome's tunnel goes by the load balancer", func() error {
		_, r, err := c.tunnel("rome", v1alpha1.NetworkKey(v1alpha1.PeeringNamespace("milan")))
		if err == nil && r.Endpoint != want {
			err = fmt.Errorf("its other end is at %s, want %s", r.Endpoint, want)
		}
		return err
	})
	probe.well(t, time.Now(), healLimit)

	gateway := x.gatewayOf(t, "milan")
	begin := time.Now()
	x.stop(t, "milan", gateway)
	x.eventually(t, healLimit, "the Service leads to another node", func() error {
		s, err := get[discoveryv1.EndpointSlice](c, "milan", v1alpha1.NetworkNamespace, name)
		if err == nil && (len(s.Endpoints) != 1 || *s.Endpoints[0].NodeName == gateway) {
			err = fmt.Errorf("it leads to %v", s.Endpoints)
		}
		return err
	})
	probe.well(t, time.Now(), frontLimit)
	outage, broken := probe.outage(t, begin, false)
	t.Logf("the gateway behind a load balancer stopped: requests without an answer for %s", outage.Round(time.Millisecond))
	if broken != "" {
		t.Errorf("the connection broke: %s", broken)
	}

	open()
	x.fronted(t, "")
	x.eventually(t, healLimit, "rome is told nodes again, and the Service is gone", func() error {
		if err := x.told(func(all []string) bool { return len(all) > 1 && !slices.Contains(all, want) }); err != nil {
			return err
		}
		if _, err := get[corev1.Service](c, "milan", v1alpha1.NetworkNamespace, name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("Service %s is there: %v", name, err)
		}
		return nil
	})
	probe.well(t, time.Now(), frontLimit)
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

// told says nil if rome is told what is right of milan's endpoints.
func (x *crossing) told(right func([]string) bool) error {
	n, err := get[v1alpha1.NetworkConfig](x.continuum, "rome", v1alpha1.PeeringNamespace("milan"), v1alpha1.NetworkProvider)
	if err == nil && !right(n.Spec.Endpoints) {
		err = fmt.Errorf("rome is told %v", n.Spec.Endpoints)
	}
	return err
}

// private lets rome's tunnels not call nodes of milan, nor these rome's, as in a cloud whose
// nodes have no way in or out, until open is called or the test ends.
func (x *crossing) private(t *testing.T) (open func()) {
	t.Helper()
	addresses := func(cluster string) string {
		var all []string
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
		return "{ " + strings.Join(all, ", ") + " }"
	}
	rome, milan, nodes := addresses("rome"), addresses("milan"), x.nodes(t, "milan")
	on := func(args ...string) {
		for _, node := range nodes {
			x.Run(t, append([]string{"run", "milan", "--node", node, "--", "nft"}, args...)...)
		}
	}
	const table, ports = "private", " udp dport 7100-8099"
	open = func() {
		for _, node := range nodes { // again at the end, when one that was stopped is back
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			if out, err := x.Try(ctx, "run", "milan", "--node", node, "--", "nft", "delete", "table", "inet", table); err != nil {
				t.Logf("opening %s: %v %s", node, err, out)
			}
			cancel()
		}
	}
	t.Cleanup(open)
	on("add", "table", "inet", table)
	on("add chain inet " + table + " in { type filter hook prerouting priority -350; }")
	on("add rule inet " + table + " in ip saddr " + rome + " ip daddr " + milan + ports + " drop")
	on("add chain inet " + table + " out { type filter hook output priority 0; }")
	on("add rule inet " + table + " out ct direction original ip daddr " + rome + ports + " drop")
	return open
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
