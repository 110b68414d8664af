package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/network/plan"
)

// TestSubjectsOfMany holds that in a cluster of many nodes those follow pods, and what is said of them, that are
// gateways or come next, whatever peering it is about, and others nothing of the kind.
func TestSubjectsOfMany(t *testing.T) {
	f := apiFacts()
	f.offloaded = append(f.offloaded, reaching("shop", v1alpha1.ReachFull))
	f.configs[2].Spec.Callers = &metav1.LabelSelector{MatchLabels: map[string]string{"uses": "turin"}}
	f.configs[0].Spec.Endpoints = []string{"10.1.0.3:7100", "10.1.0.5:7100", "10.1.0.4:7100", "10.1.0.7:7100", "10.1.0.9:7100"}
	many := manyFacts("", 20, 0)
	f.nodes, f.alive = append(many.nodes, f.nodes[2]), many.alive
	all := map[subject]bool{
		{node: "milan"}: true, {namespace: "shop"}: true, {pods: "shop"}: true, apiSubject: true,
		{callers: "!" + v1alpha1.LabelTenant + ",uses=turin"}: true,
	}
	few := map[subject]bool{apiSubject: true}
	near := func() (names map[string]bool) {
		names = map[string]bool{}
		for i := range many.nodes {
			name, want := many.nodes[i].Name, few
			if f.as(name).standing() >= isNext {
				names[name], want = true, all
			}
			if d := cmp.Diff(want, f.as(name).subjects(), cmp.AllowUnexported(subject{})); d != "" {
				t.Errorf("%s follows (-want +got):\n%s", name, d)
			}
			for _, p := range plan.Compute(input(f.as(name)).input).Gateways {
				if p == name && f.as(name).standing() != isGateway {
					t.Errorf("%s is gateway, and does not know", name)
				}
			}
		}
		return names
	}
	before := near()
	if len(before) < 4 || len(before) > 8 {
		t.Errorf("of two peerings %v are gateways or next", before)
	}
	for i, name := range []string{"node-2", "node-4", "node-3", "node-6"} { // as milan was told
		if !before[name] || i == 0 && f.as(name).standing() != isGateway {
			t.Errorf("%s is %d", name, f.as(name).standing())
		}
	}
	delete(f.alive, "node-2")
	if after := near(); !after["node-8"] {
		t.Errorf("after the gateway's end %v are gateways or next", after)
	}
	for i := range many.nodes { // a plan may leave nodes out that are before it
		if g := f.as(many.nodes[i].Name); g.standing() == isIdle {
			g.serves = true
			if d := cmp.Diff(all, g.subjects(), cmp.AllowUnexported(subject{})); d != "" {
				t.Errorf("where a tunnel ends is followed (-want +got):\n%s", d)
			}
		}
	}
}

// TestServe holds that a node which is gateway without having been one of the next ones begins to follow, once.
func TestServe(t *testing.T) {
	var c cluster
	for i, step := range []struct {
		is           standing
		serves, more bool
	}{{isIdle, false, false}, {isIdle, true, true}, {isIdle, true, false}, {isIdle, false, false}, {isNext, true, false}, {isIdle, true, false}} {
		c.stands(step.is)
		if more := c.serve(step.serves); more != step.more {
			t.Errorf("%d: more is %t", i, more)
		}
	}
}

// TestGatewayAnew holds, at a real API server, that a node far down the order follows nothing of a namespace, and
// that it has read the namespace by the first plan by which it is gateway, as all before it died at once.
func TestGatewayAnew(t *testing.T) {
	server := kubetest.Server(t)
	api := server.Client(t)
	at, users := v1alpha1.PeeringNamespace(server.Name(t, "milan")), server.Namespace(t)
	create := func(o client.Object) {
		t.Helper()
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(context.Background(), o) })
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: at}})
	var nodes, endpoints []string
	for i := range 6 {
		address := fmt.Sprintf("198.18.77.%d", i+1)
		n := nodeAt(server.Name(t, fmt.Sprintf("node-%d", i)), address, "")
		n.Status.Addresses = n.Status.Addresses[1:2]
		create(&n)
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		if err := api.Status().Update(t.Context(), &n); err != nil {
			t.Fatal(err)
		}
		nodes, endpoints = append(nodes, n.Name), append(endpoints, address+":7100")
	}
	for i, name := range []string{"consumer", "provider"} {
		c := networkConfig(at, name, byte(i+1), "10.42.0.0/16")
		c.Spec.Endpoints = endpoints
		create(&c)
	}
	create(&v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: at, Name: v1alpha1.NamespaceMapName}, Spec: v1alpha1.NamespaceMapSpec{
		Namespaces: map[string]v1alpha1.NamespaceMapping{users: {Strategy: v1alpha1.MappingDefaultName}},
	}})
	s := sliceOf(labelled(users, "back"), "", "10.42.1.5")
	s.Ports = []discoveryv1.EndpointPort{}
	create(&s)
	c, changed := begun(t, server.Config, at)
	for _, n := range nodes {
		c.lives(n, true)
	}
	limit := time.After(30 * time.Second)
	for {
		f := c.facts()
		followed := c.followed()[subject{namespace: users}] != nil
		if f.is == isIdle {
			if followed || len(f.home[users]) > 0 {
				t.Fatalf("it follows the namespace: %v", f.home[users])
			}
			break
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // peerings of other tests may have to end
		case <-limit:
			t.Fatalf("it is %d", f.is)
		}
	}
	for _, n := range nodes {
		c.lives(n, false)
	}
	f := c.facts()
	if f.is != isGateway || len(f.home[users]) != 1 {
		t.Errorf("it is %d, and has read %v", f.is, f.home[users])
	}
	c.lives(nodes[0], true)
	c.lives(nodes[1], true)
	if f := c.facts(); f.is != isNext || len(f.home[users]) != 1 {
		t.Errorf("when others are back it is %d, and has read %v", f.is, f.home[users])
	}
	for _, n := range nodes {
		c.lives(n, true)
	}
	if f := c.facts(); f.is != isIdle || len(f.home[users]) != 0 || c.followed()[subject{namespace: users}] != nil {
		t.Errorf("when all are back it is %d, and has read %v", f.is, f.home[users])
	}
}
