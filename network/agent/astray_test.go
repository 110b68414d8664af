package agent

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/network/plan"
)

// TestAstray holds, at a real API server, that a pod with an address of another node's range is where it
// runs as soon as a slice speaks of it, also for an agent that begins then, and not where only a slice says so.
func TestAstray(t *testing.T) {
	server := kubetest.Server(t)
	api := server.Client(t)
	peering, space, one, two := server.Name(t, "milan"), server.Name(t, "shop"), server.Name(t, "one"), server.Name(t, "two")
	at := v1alpha1.PeeringNamespace(peering)
	create := func(o client.Object) {
		t.Helper()
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
	}
	for _, name := range []string{at, space} {
		create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for name, cidrs := range map[string][]string{one: {"10.142.1.0/24", "fd42:0:0:1::/64"}, two: {"10.142.2.0/24", "fd42:0:0:2::/64"}} {
		create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: cidrs[0], PodCIDRs: cidrs}})
	}
	for i, name := range []string{"consumer", "provider"} {
		c := networkConfig(at, name, byte(i+1), []string{"10.142.0.0/16", "10.60.0.0/16"}[i])
		c.Spec.Pods = append(c.Spec.Pods, []string{"fd42::/48", "fd60::/48"}[i])
		create(&c)
	}
	create(&v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: at, Name: v1alpha1.NamespaceMapName}, Spec: v1alpha1.NamespaceMapSpec{Namespaces: map[string]v1alpha1.NamespaceMapping{space: {Strategy: v1alpha1.MappingDefaultName}}}})
	create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "default"}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "back"}, Spec: corev1.PodSpec{NodeName: two, Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	create(pod)
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, "10.142.1.5", []corev1.PodIP{{IP: "10.142.1.5"}, {IP: "fd42:0:0:1::5"}}
	if err := api.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	slice := sliceOf(metav1.ObjectMeta{Namespace: space, Name: "back", Labels: map[string]string{discoveryv1.LabelServiceName: "back"}}, two, "10.142.1.5", "10.142.1.6")
	c, changed := begun(t, server.Config, at)
	pods := func(c *cluster) []netip.Addr {
		nodes := input(c.facts()).input.Nodes
		return nodes[slices.IndexFunc(nodes, func(n plan.Node) bool { return n.Name == two })].Pods
	}
	until := func(what string, want ...netip.Addr) {
		t.Helper()
		limit := time.After(20 * time.Second)
		for got := pods(c); !slices.Equal(got, want); got = pods(c) {
			select {
			case <-changed:
			case <-time.After(paceMost): // as an agent does
			case <-limit:
				t.Fatalf("not within 20 s: %s; there are %v", what, got)
			}
		}
	}
	until("nothing speaks of it")
	create(&slice)
	until("the pod is where it runs, by both of its addresses, and the other one is not", addrs("10.142.1.5", "fd42:0:0:1::5")...)
	later, _ := begun(t, server.Config, at)
	if got := pods(later); !slices.Equal(got, addrs("10.142.1.5", "fd42:0:0:1::5")) {
		t.Errorf("an agent that begins knows of %v", got)
	}
	if err := api.Delete(t.Context(), &slice); err != nil {
		t.Fatal(err)
	}
	until("nothing speaks of it any more")
}
