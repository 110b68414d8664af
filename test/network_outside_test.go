package test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// networkFromOutside holds that who calls a Service of rome's by a node port of milan's, from outside of
// milan, always gets a pod that runs there, though one at rome is behind it for pods.
func networkFromOutside(t *testing.T, c *continuum) {
	c.patchTenant(t, "milan", "rome", func(x *v1alpha1.Tenant) { x.Spec.Services = &v1alpha1.TenantServices{NodePorts: true} })
	t.Cleanup(func() { c.patchTenant(t, "milan", "rome", func(x *v1alpha1.Tenant) { x.Spec.Services = nil }) })
	x := &crossing{shop: c.offloaded(t, "rome")}
	x.create(t, whoService("both", "both", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }))
	for name, node := range map[string]string{"near": "rome-1", "far": "milan"} {
		pod := whoPod("", name, node)
		pod.Labels["app"] = "both"
		x.create(t, pod)
	}
	here := c.shop(t, "rome")
	caller := whoPod("", "caller", "rome-1")
	caller.Spec.HostNetwork = true
	here.create(t, caller)
	caller = here.running(t, "caller")
	x.running(t, "near")
	far := x.running(t, "far")
	twin, err := c.twin("milan", far)
	if err != nil {
		t.Fatal(err)
	}
	var there *corev1.Service
	x.eventually(t, networkLimit, "both pods are behind the Service at milan", func() error {
		if there, err = get[corev1.Service](c, "milan", twin.Namespace, "both"); err != nil {
			return err
		}
		if there.Spec.Type != corev1.ServiceTypeNodePort || there.Spec.Ports[0].NodePort == 0 {
			return fmt.Errorf("it is %+v", there.Spec)
		}
		return readyBehind(c, "milan", there, 2)
	})
	x.eventually(t, networkLimit, "pods at milan get both", func() error {
		_, server, err := x.ask("rome", far, "both", 80)
		if err == nil && server != "near" {
			err = fmt.Errorf("%s answered", server)
		}
		return err
	})
	port := there.Spec.Ports[0].NodePort
	x.eventually(t, networkLimit, "the node of the pod answers one from outside", func() error {
		_, server, err := x.ask("rome", caller, twin.Status.HostIP, port)
		if err == nil && server != "far" {
			err = fmt.Errorf("%s answered", server)
		}
		return err
	})
	for i := range 20 {
		if _, server, err := x.ask("rome", caller, twin.Status.HostIP, port); err != nil || server != "far" {
			t.Errorf("call %d from outside gets %q, %v; want the pod of that node, always", i, server, err)
		}
	}
	for _, name := range c.nodes(t, "milan") {
		if at := statusOf(t, c.SandboxHandle).node(t, "milan", name).Addresses; name != twin.Spec.NodeName && !slices.Contains(at, twin.Status.HostIP) {
			if client, server, err := x.ask("rome", caller, at[0], port); err == nil {
				t.Errorf("%s, which has no pod of the Service, answers %s from outside, by %s", name, client, server)
			}
		}
	}
}

// readyBehind holds that as many endpoints are ready behind a Service.
func readyBehind(c *continuum, cluster string, s *corev1.Service, want int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var list discoveryv1.EndpointSliceList
	if err := c.Clients[cluster].List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: s.Name}); err != nil {
		return err
	}
	n := 0
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				n++
			}
		}
	}
	if n != want {
		return fmt.Errorf("%d endpoints are ready behind Service %s of %s, want %d", n, s.Name, cluster, want)
	}
	return nil
}
