package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// trimmed is an object as caches have it.
func trimmed[T client.Object](t *testing.T, o T) T {
	t.Helper()
	got, err := trim(o.DeepCopyObject())
	if err != nil {
		t.Fatal(err)
	}
	return got.(T)
}

// TestTrim holds that nothing is missing of what plans are made of.
func TestTrim(t *testing.T) {
	aged := func() facts {
		f := someFacts()
		for i := range f.configs {
			f.configs[i].CreationTimestamp = metav1.Unix(int64(1000+i), 0)
		}
		return f
	}
	f, want := aged(), input(aged())
	if want.input.Peerings[0].Since != time.Unix(1000, 0) || want.input.Peerings[1].Since != time.Unix(1002, 0) {
		t.Errorf("the peerings began at %v and %v", want.input.Peerings[0].Since, want.input.Peerings[1].Since)
	}
	for i := range f.nodes {
		f.nodes[i] = *trimmed(t, &f.nodes[i])
	}
	for i := range f.configs {
		f.configs[i] = *trimmed(t, &f.configs[i])
	}
	for i := range f.hosted {
		f.hosted[i] = *trimmed(t, &f.hosted[i])
	}
	for i := range f.given {
		f.given[i] = *trimmed(t, &f.given[i])
	}
	for i := range f.maps {
		f.maps[i] = *trimmed(t, &f.maps[i])
	}
	for _, pods := range f.away {
		for i := range pods {
			pods[i] = *trimmed(t, &pods[i])
		}
	}
	for _, slices := range f.home {
		for i := range slices {
			slices[i] = *trimmed(t, &slices[i])
		}
	}
	if d := cmp.Diff(want.input, input(f).input, cmpopts.EquateComparable(want.input.Pods[0], want.input.Nodes[0].Addresses[0])); d != "" {
		t.Error(d)
	}
	l := trimmed(t, leaseOf("7", "a", 2))
	var s sight
	if s.saw("a", l, time.Unix(0, 0)); l.ResourceVersion != "7" || !s.alive("a") || s.leases["a"].term != 2*time.Second {
		t.Errorf("of a Lease is left %+v", l)
	}
	if got := trimmed(t, &corev1.Secret{Data: map[string][]byte{"a": nil}}); len(got.Data) != 1 {
		t.Errorf("of the keys are left %v", got.Data)
	}
	large := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}, Labels: map[string]string{"app": "x"}}, Spec: corev1.PodSpec{Containers: make([]corev1.Container, 9)}}
	if got := trimmed(t, large); got.Annotations != nil || got.Labels != nil || got.Spec.Containers != nil {
		t.Errorf("of a pod is left %+v", got)
	}
	theirs := &v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: atTurin}, Spec: v1alpha1.NamespaceMapSpec{Namespaces: map[string]v1alpha1.NamespaceMapping{"x": {}}}}
	if got := trimmed(t, theirs); got.Spec.Namespaces != nil {
		t.Errorf("of a tenant's map is left %v", got.Spec)
	}
}

// TestSame holds that changes are noticed, and that what is no change is none.
func TestSame(t *testing.T) {
	f := someFacts()
	changed := func(o client.Object, change func(client.Object)) client.Object {
		other := o.DeepCopyObject().(client.Object)
		other.SetResourceVersion("later")
		change(other)
		return other
	}
	for _, c := range []struct {
		reason string
		of     client.Object
		change func(client.Object)
		want   bool
	}{
		{"a node's heartbeat", &f.nodes[0], func(client.Object) {}, true},
		{"a node's address", &f.nodes[0], func(o client.Object) { o.(*corev1.Node).Status.Addresses = nil }, false},
		{"a node's range", &f.nodes[0], func(o client.Object) { o.(*corev1.Node).Spec.PodCIDRs = nil }, false},
		{"a node's label", &f.nodes[2], func(o client.Object) { o.SetLabels(nil) }, false},
		{"a pod", &f.hosted[0], func(client.Object) {}, true},
		{"a pod's address", &f.hosted[0], func(o client.Object) { o.(*corev1.Pod).Status.PodIPs = nil }, false},
		{"a pod's node", &f.hosted[0], func(o client.Object) { o.(*corev1.Pod).Spec.NodeName = "c" }, false},
		{"a pod's end", &f.hosted[0], func(o client.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodFailed }, false},
		{"a slice", &f.given[0], func(client.Object) {}, true},
		{"a slice's endpoint", &f.given[0], func(o client.Object) { o.(*discoveryv1.EndpointSlice).Endpoints = nil }, false},
		{"a config", &f.configs[0], func(client.Object) {}, true},
		{"a config's spec", &f.configs[0], func(o client.Object) { o.(*v1alpha1.NetworkConfig).Spec.Port = 1 }, false},
		{"a config's views", &f.configs[1], func(o client.Object) { o.(*v1alpha1.NetworkConfig).Status.Views = nil }, false},
		{"a config's end", &f.configs[1], func(o client.Object) { o.SetDeletionTimestamp(&metav1.Time{}) }, false},
		{"a map", &f.maps[0], func(client.Object) {}, true},
		{"a map's namespace", &f.maps[0], func(o client.Object) { o.(*v1alpha1.NamespaceMap).Spec.Namespaces["y"] = v1alpha1.NamespaceMapping{} }, false},
		{"the keys", &corev1.Secret{Data: map[string][]byte{"a": {1}}}, func(client.Object) {}, true},
		{"a key", &corev1.Secret{Data: map[string][]byte{"a": {1}}}, func(o client.Object) { o.(*corev1.Secret).Data["a"][0] = 2 }, false},
		{"what is not known is another", &coordinationv1.Lease{}, func(client.Object) {}, false},
	} {
		if got := same(c.of, changed(c.of, c.change)); got != c.want {
			t.Errorf("%s: the same is %t", c.reason, got)
		}
	}
}

// FuzzInput holds that whatever a peer writes makes a plan that the data plane takes, in which
// the other peering is as it was.
func FuzzInput(f *testing.F) {
	f.Add("10.81.0.0/16", "10.42.0.0/16", "198.51.100.1:7100", secret(2).Public().String(), "10.42.1.5")
	f.Add("0.0.0.0/0", "0.0.0.0/0", ":", "", "::")
	f.Add("10.42.0.0/16", "10.50.0.0/16", "[::1]:0", secret(1).Public().String(), "10.42.1.5%x")
	f.Add("fd00::/8", "fd00::/8", strings.Repeat("a", 300)+":1", secret(4).Public().String(), "::ffff:10.42.1.5")
	f.Fuzz(func(t *testing.T, view, real, endpoint, key, address string) {
		facts := someFacts()
		before := plan.Compute(input(facts).input)
		c := &facts.configs[1]
		c.Spec.PublicKey, c.Spec.NextPublicKey, c.Spec.Endpoints, c.Spec.Pods = key, key, []string{endpoint, endpoint}, []string{real, view}
		facts.away["milan"][0].Status.PodIPs[0].IP = address
		facts.home["shop"][0].Endpoints[0].Addresses[0] = address
		k := input(facts)
		p := plan.Compute(k.input)
		if err := p.Config.Check(); err != nil {
			t.Error(err)
		}
		turin := func(p plan.Plan) (tunnels []plan.Tunnel) {
			for _, t := range p.Tunnels {
				if t.Peering == "tenant-turin" {
					tunnels = append(tunnels, t)
				}
			}
			return tunnels
		}
		if d := cmp.Diff(turin(before), turin(p), cmp.Comparer(tunnel.Secret.Equal)); d != "" || len(turin(p)) != 1 {
			t.Errorf("the other peering's tunnel: %s", d)
		}
		// And a tenant, where its provider lets none of his pods be reached but by doors.
		closed := apiFacts()
		closed.configs[2].Spec.Reachability = v1alpha1.ReachNone
		closed.configs[3].Spec.APIServer, closed.configs[3].Spec.External = endpoint, []string{real}
		if err := plan.Compute(input(closed).input).Config.Check(); err != nil {
			t.Error(err)
		}
		// And what this cluster's own manager has written, if it were wrong.
		c.Status.Views = []v1alpha1.NetworkView{{Real: real, View: view}}
		if err := plan.Compute(input(facts).input).Config.Check(); err != nil {
			t.Error(err)
		}
	})
}

// TestClosed holds that a node that ends without a word sends nothing to nodes that would
// send it back, and leaves alone what goes by others.
func TestClosed(t *testing.T) {
	p := prefixes("10.81.0.0/16", "10.82.0.0/16")
	c := dataplane.Config{
		Gateways: []dataplane.Gateway{{Peering: "x"}},
		Routes:   []dataplane.Route{{Prefix: p[0], Gateway: "x", MTU: 1400}, {Prefix: p[1], Node: "b", MTU: 1400}},
	}
	got := closed(c)
	if len(got.Gateways) != 0 || got.Routes[0] != (dataplane.Route{Prefix: p[0]}) || got.Routes[1] != c.Routes[1] || c.Routes[0].Gateway != "x" {
		t.Errorf("got %+v, of %+v", got, c)
	}
}

// TestTrimTwice holds that what was trimmed stays as it is: a cache may do so again.
func TestTrimTwice(t *testing.T) {
	api := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: apiSubject.namespace, Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: apiSubject.service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(6443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
	}
	once := trimmed(t, api)
	twice := trimmed(t, once)
	if len(apiServers([]discoveryv1.EndpointSlice{*once}, true)) != 1 || !cmp.Equal(once, twice) {
		t.Errorf("trimmed once %+v, and twice %+v", once, twice)
	}
}

// TestTrimNamespace holds that those who answer for names know where pods of a namespace were made.
func TestTrimNamespace(t *testing.T) {
	labels := map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeNamespace: "shop-milan",
		v1alpha1.LabelOriginNamespace: "shop", v1alpha1.LabelOriginOwner: "0123456789abcdef"}
	before := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-milan-rome", Labels: labels}}
	after := trimmed(t, before)
	if d := cmp.Diff(labels, after.Labels); d != "" {
		t.Errorf("its labels (-want +got):\n%s", d)
	}
	before.Labels = map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeNamespace: "shop-milan"}
	if same(after, trimmed(t, before)) {
		t.Error("one without an origin is the same")
	}
}
