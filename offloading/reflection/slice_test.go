package reflection

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// network is what 10.1.0.0/16 and fd00:1::/64 at home become at every provider:
// 10.201.0.0/16 and fd00:201::/64. Strange are addresses that it gets wrong.
type network struct {
	strange map[string]string
	only4   bool // it has no IPv6
}

func (n network) Translate(_ string, here netip.Addr) (netip.Addr, bool) {
	if there, ok := n.strange[here.String()]; ok {
		a, _ := netip.ParseAddr(there)
		return a, true
	}
	s := here.String()
	switch {
	case strings.HasPrefix(s, "10.1."):
		return netip.MustParseAddr("10.201." + s[len("10.1."):]), true
	case strings.HasPrefix(s, "fd00:1:") && !n.only4:
		return netip.MustParseAddr("fd00:201:" + s[len("fd00:1:"):]), true
	}
	return netip.Addr{}, false
}

func (n network) Carries(_ string, ipv4 bool) bool { return ipv4 || !n.only4 }

func (network) Allows(tenant string, a netip.Addr) bool {
	return tenant != "" && (netip.MustParsePrefix("10.201.0.0/16").Contains(a) || netip.MustParsePrefix("fd00:201::/64").Contains(a))
}

func (network) TenantViews(string) []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.201.0.0/16"), netip.MustParsePrefix("fd00:201::/64")}
}

func (network) Known() bool { return true }

// ViewSource tells nothing, nor does TenantViewSource.
func (network) ViewSource(func(string) []reconcile.Request) source.Source {
	return source.Func(func(context.Context, queue) error { return nil })
}

func (n network) TenantViewSource(mapper func(string) []reconcile.Request) source.Source {
	return n.ViewSource(mapper)
}

// sliceText is what a consumer writes of a slice of the Service web.
func sliceText(addresses ...string) string {
	return `{"content":{"service":"web","type":"IPv4","ports":[{"name":"web","port":8080}],"endpoints":[{"address":"` + strings.Join(addresses, `"},{"address":"`) + `"}]}}`
}

// endpoint is of a pod on a node.
func endpoint(address, node string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, NodeName: &node, Zone: new("a"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "x"},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}}
}

// sliceOf is one of a Service, as the controller of this cluster makes it.
func sliceOf(namespace, name, service string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: objectMeta(namespace, name), AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: new("web"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}}}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	return s
}

// TestAbroad: what one provider is told of a slice.
func TestAbroad(t *testing.T) {
	with := func(e discoveryv1.Endpoint, ready, serving, terminating *bool) discoveryv1.Endpoint {
		e.Conditions = discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating}
		return e
	}
	host := endpoint("10.1.0.1", "n")
	host.Hostname = new("web-0")
	yes, no := new(true), new(false)
	for _, c := range []struct {
		reason    string
		kind      discoveryv1.AddressType
		endpoints []discoveryv1.Endpoint
		on        []string
		want      string
	}{
		{"nothing", "IPv4", nil, nil, ""},
		{"here", "IPv4", []discoveryv1.Endpoint{endpoint("10.1.0.1", "n")}, []string{""}, "10.201.0.1 ready serving"},
		{"the other family", "IPv6", []discoveryv1.Endpoint{endpoint("fd00:1::1", "n")}, []string{""}, "fd00:201::1 ready serving"},
		{"a name of a host", "IPv4", []discoveryv1.Endpoint{host}, []string{""}, "10.201.0.1 ready serving web-0"},
		{"in order of their addresses", "IPv4", []discoveryv1.Endpoint{endpoint("10.1.0.2", "n"), endpoint("10.1.0.1", "n")}, []string{"", ""}, "10.201.0.1 ready serving, 10.201.0.2 ready serving"},
		{"there already", "IPv4", []discoveryv1.Endpoint{endpoint("10.1.0.1", "milan"), endpoint("10.1.0.2", "n")}, []string{"milan", ""}, "10.201.0.2 ready serving"},
		{"at another provider", "IPv4", []discoveryv1.Endpoint{endpoint("10.1.0.1", "oslo")}, []string{"oslo"}, "10.201.0.1 ready serving"},
		{"at another one that is away", "IPv4", []discoveryv1.Endpoint{endpoint("10.1.0.1", "bern"), endpoint("10.1.0.2", "n")}, []string{"bern", ""}, "10.201.0.1, 10.201.0.2 ready serving"},
		{"ending at one that is away", "IPv4", []discoveryv1.Endpoint{with(endpoint("10.1.0.1", "bern"), no, yes, yes)}, []string{"bern"}, "10.201.0.1 terminating"},
		{"ending", "IPv4", []discoveryv1.Endpoint{with(endpoint("10.1.0.1", "n"), no, yes, yes)}, []string{""}, "10.201.0.1 serving terminating"},
		{"not ready", "IPv4", []discoveryv1.Endpoint{with(endpoint("10.1.0.1", "n"), no, no, no)}, []string{""}, "10.201.0.1"},
		{"nothing is said", "IPv4", []discoveryv1.Endpoint{with(endpoint("10.1.0.1", "n"), nil, nil, nil)}, []string{""}, "10.201.0.1 unsaid"},
		{"no address there", "IPv4", []discoveryv1.Endpoint{endpoint("192.0.2.1", "n"), endpoint("10.1.0.2", "n")}, []string{"", ""}, "10.201.0.2 ready serving"},
		{"it becomes the machine itself", "IPv4", []discoveryv1.Endpoint{endpoint("10.9.0.1", "n")}, []string{""}, ""},
		{"it becomes the other family", "IPv4", []discoveryv1.Endpoint{endpoint("10.9.0.2", "n")}, []string{""}, ""},
		{"it becomes nothing", "IPv4", []discoveryv1.Endpoint{endpoint("10.9.0.3", "n")}, []string{""}, ""},
		{"no address at all", "IPv4", []discoveryv1.Endpoint{{}}, []string{""}, ""},
		{"what is no address", "IPv4", []discoveryv1.Endpoint{endpoint("x", "n")}, []string{""}, ""},
	} {
		s := sliceOf("shop", "web-1", "web", c.endpoints...)
		s.AddressType = c.kind
		before := s.DeepCopy()
		told := abroad(s, "milan", c.on, map[string]bool{"bern": true}, network{strange: map[string]string{"10.9.0.1": "127.0.0.1", "10.9.0.2": "fd00:201::9", "10.9.0.3": ""}})
		if diff := cmp.Diff(before, s); diff != "" {
			t.Errorf("%s: home's is changed: %s", c.reason, diff)
		}
		if got := shown(told); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

// shown is what a slice says of its endpoints.
func shown(s *discoveryv1.EndpointSlice) string {
	if s == nil {
		return "no slice"
	}
	var all []string
	for _, e := range s.Endpoints {
		one := []string{e.Addresses[0]}
		for _, c := range []struct {
			name string
			is   *bool
		}{{"ready", e.Conditions.Ready}, {"serving", e.Conditions.Serving}, {"terminating", e.Conditions.Terminating}} {
			if c.is != nil && *c.is {
				one = append(one, c.name)
			}
		}
		if e.Conditions == (discoveryv1.EndpointConditions{}) {
			one = append(one, "unsaid")
		}
		if e.Hostname != nil {
			one = append(one, *e.Hostname)
		}
		if e.NodeName != nil || e.Zone != nil || e.TargetRef != nil {
			one = append(one, "and where it is")
		}
		all = append(all, strings.Join(one, " "))
	}
	return strings.Join(all, ", ")
}

// newSlices is a world with a network, whose helpers speak of slices; a pod of its
// namespace is there, and so is the Service web.
func newSlices(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.addresses, w.allowed = network{}, network{}
	w.restart()
	w.build(v1alpha1.FeatureOfKind(kindService), v1alpha1.FeatureOfKind(kindSlice))
	w.create(service(w.home, "web"))
	w.pod("web")
	w.as(kindService, "web")
	if w.answer("web") != "True/Ready" {
		t.Fatal("the Service is not there")
	}
	w.kind = kindSlice
	return w
}

// another is the virtual node of another provider, called as its peering is.
func (w *world) another() string {
	w.t.Helper()
	name := w.name + "-oslo"
	node := &corev1.Node{ObjectMeta: objectMeta("", name)}
	node.Labels = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: name}
	w.create(node)
	return name
}

// slice is the one at the provider, nil if there is none.
func (w *world) slice(name string) *discoveryv1.EndpointSlice {
	return get(w, w.remote, name, &discoveryv1.EndpointSlice{})
}

// says fails the test unless the slice at the provider does, once everything was looked at.
func (w *world) says(reason, name, want string) {
	w.t.Helper()
	w.both(name)
	if got := shown(w.slice(name)); got != want {
		w.t.Errorf("%s: %q, want %q (%s)", reason, got, want, w.answer(name))
	}
}

// TestSliceTravels: one follows what is said of it at home, in both families, and goes
// when nothing is left of it.
func TestSliceTravels(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	four := sliceOf(w.home, "web-4", "web", endpoint("10.1.0.1", "node-1"), endpoint("10.1.0.2", w.name), endpoint("192.0.2.1", "node-1"))
	six := sliceOf(w.home, "web-6", "web", endpoint("fd00:1::1", "node-1"))
	six.AddressType = discoveryv1.AddressTypeIPv6
	w.create(four)
	w.create(six)
	w.says("the pods here", "web-4", "10.201.0.1 ready serving")
	w.says("the other family", "web-6", "fd00:201::1 ready serving")
	labels := map[string]string{"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "pelago.dev",
		v1alpha1.LabelManagedBy: manager, v1alpha1.LabelTenant: w.name, v1alpha1.LabelHomeNamespace: w.home}
	if diff := cmp.Diff(labels, w.slice("web-4").Labels); diff != "" || w.answer("web-4") != "True/Ready" {
		t.Errorf("%s %s", w.answer("web-4"), diff)
	}
	before := w.writes
	w.both("web-4")
	w.both("web-6")
	if w.writes != before {
		t.Errorf("%d writes though nothing changes", w.writes-before)
	}
	four.Endpoints[0].Conditions.Ready = new(false)
	w.update(four)
	w.says("not ready any more", "web-4", "10.201.0.1 serving")
	four.Endpoints = append(four.Endpoints, endpoint("10.1.0.3", "node-2"))
	w.update(four)
	w.says("one more", "web-4", "10.201.0.1 serving, 10.201.0.3 ready serving")
	four.Endpoints = four.Endpoints[1:2]
	w.update(four)
	w.says("all are there already", "web-4", "no slice")
	if w.shadow("web-4") != nil || w.told("") != 0 {
		t.Error("a slice without endpoints is there, or is told")
	}
	four.Endpoints = []discoveryv1.Endpoint{endpoint("10.1.0.1", "node-1")}
	w.update(four)
	w.says("one is here again", "web-4", "10.201.0.1 ready serving")
	made := w.slice("web-4")
	made.Endpoints[0].Addresses[0], made.Labels[discoveryv1.LabelManagedBy] = "10.0.0.1", "x"
	w.update(made)
	w.says("changed by hand", "web-4", "10.201.0.1 ready serving")
	if diff := cmp.Diff(labels, w.slice("web-4").Labels); diff != "" {
		t.Error(diff)
	}
	w.remove(four)
	w.says("deleted at home", "web-4", "no slice")
	if w.shadow("web-4") != nil {
		t.Error("its ShadowObject stays")
	}
	w.says("the other one is not", "web-6", "fd00:201::1 ready serving")
	names := sliceOf(w.home, "web-n", "web", endpoint("example.org", "node-1"))
	names.AddressType = discoveryv1.AddressTypeFQDN
	w.create(names)
	w.says("by name", "web-n", "no slice")
	if w.shadow("web-n") != nil || w.told("names do not travel") != 1 {
		t.Error("a slice of names is sent, or its owner is not told")
	}
	w.remove(get(w, w.home, "web", &corev1.Pod{}))
	w.both("web-6")
	w.clock.Step(grace)
	w.says("no pod of its namespace is there any more", "web-6", "no slice")
}

// TestSliceOfPods: a slice that names pods and no nodes is understood.
func TestSliceOfPods(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	there, gone := endpoint("10.1.0.1", ""), endpoint("10.1.0.2", "")
	there.NodeName, there.TargetRef.Name, gone.NodeName = nil, "web", nil
	w.create(sliceOf(w.home, "by-hand", "web", there, gone))
	w.says("the pod is there", "by-hand", "10.201.0.2 ready serving")
}

// TestSliceWithoutNetwork: nothing is written while no address means anything elsewhere,
// and nothing made of what a consumer writes nevertheless; what was there goes.
func TestSliceWithoutNetwork(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	w.create(sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", "node-1")))
	w.create(sliceOf(w.home, "web-2", "web", endpoint("192.0.2.1", "node-1")))
	before := w.writes
	for range 3 {
		w.both("web-2")
	}
	if w.writes != before || w.told("") != 0 {
		t.Errorf("%d writes for a slice that has no address there", w.writes-before)
	}
	if res := w.send("web-2"); res.RequeueAfter <= rereadEvery || res.RequeueAfter > watchedEvery {
		t.Errorf("looked at again after %s: the network says when it comes", res.RequeueAfter)
	}
	w.says("with a network", "web-1", "10.201.0.1 ready serving")
	w.allowed = nil
	w.restart()
	w.take("web-1")
	if w.slice("web-1") != nil || w.answer("web-1") != "False/Refused" {
		t.Errorf("it stays without a network: %s", w.answer("web-1"))
	}
	w.addresses = nil
	w.restart()
	w.says("without a network", "web-1", "no slice")
	if w.shadow("web-1") != nil {
		t.Error("its ShadowObject stays")
	}
	before = w.writes
	for range 3 {
		w.both("web-1")
		w.both("web-2")
	}
	if w.writes != before || w.told("") != 0 {
		t.Errorf("%d writes without a network", w.writes-before)
	}
}

// TestSliceOfAbsent: pods at a provider that does not answer are not ready for others.
func TestSliceOfAbsent(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	oslo := w.another()
	w.create(sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", oslo), endpoint("10.1.0.2", "node-1")))
	w.others = map[string]fleet.State{oslo: {Reachable: true}}
	w.says("it answers", "web-1", "10.201.0.1 ready serving, 10.201.0.2 ready serving")
	w.others[oslo] = fleet.State{}
	w.says("it does not", "web-1", "10.201.0.1, 10.201.0.2 ready serving")
	w.others[oslo] = fleet.State{Reachable: true}
	w.says("it answers again", "web-1", "10.201.0.1 ready serving, 10.201.0.2 ready serving")
}

// TestSliceOfOlderBuild: a provider that does not know slices gets none.
func TestSliceOfOlderBuild(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	w.build(v1alpha1.FeatureOfKind(kindService))
	w.create(sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", "node-1")))
	w.create(sliceOf(w.home, "web-2", "web", endpoint("10.1.0.2", w.name)))
	w.says("an older build", "web-1", "no slice")
	w.says("an older build, and nothing to tell it", "web-2", "no slice")
	if n := w.told("reflection.endpointslice/v1"); w.shadow("web-1") != nil || n != 1 {
		t.Errorf("sent to an older build, or told %d times", n)
	}
	w.build(v1alpha1.FeatureOfKind(kindService), v1alpha1.FeatureOfKind(kindSlice))
	w.says("upgraded", "web-1", "10.201.0.1 ready serving")
}

// TestSliceLoop: what Pelago has made goes nowhere again.
func TestSliceLoop(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	w.create(sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", "node-1")))
	w.says("it travels", "web-1", "10.201.0.1 ready serving")
	back := sliceOf(w.home, "web-2", "web", endpoint("10.1.0.1", "node-1"))
	for name, labels := range map[string]map[string]string{
		"as it was made here for another": w.slice("web-1").Labels,
		"by the label of Kubernetes":      {discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "pelago.dev"},
		"by ours":                         {discoveryv1.LabelServiceName: "web", v1alpha1.LabelManagedBy: manager},
	} {
		back = back.DeepCopy()
		back.ResourceVersion, back.UID, back.Labels = "", "", labels
		w.create(back)
		w.says(name, "web-2", "no slice")
		if w.shadow("web-2") != nil {
			t.Errorf("%s: it is sent", name)
		}
		w.remove(back)
	}
}

// TestSliceOfMapping: the slice of an IPMapping travels though Pelago has made it, and says what
// stands for its endpoint there; one that was made here for a tenant does not, whatever it says.
func TestSliceOfMapping(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	s := sliceOf(w.home, "web", "web", endpoint("192.0.2.50", ""))
	s.Endpoints[0].NodeName = nil
	s.Labels[v1alpha1.LabelManagedBy], s.Annotations = "pelago-network", map[string]string{v1alpha1.AnnotationExternal: "10.1.0.9"}
	w.create(s)
	w.says("by what stands for it", "web", "10.201.0.9 ready serving")
	if made := w.slice("web"); made.Annotations[v1alpha1.AnnotationExternal] != "" {
		t.Errorf("home's own word travels: %v", made.Annotations)
	}
	s.Annotations[v1alpha1.AnnotationExternal] = "10.1.0.10"
	w.update(s)
	w.says("another one stands for it", "web", "10.201.0.10 ready serving")
	s.Annotations[v1alpha1.AnnotationExternal] = "198.51.100.1"
	w.update(s)
	w.says("what stands for it is not seen there", "web", "no slice")
	s.Labels[v1alpha1.LabelTenant], s.Annotations[v1alpha1.AnnotationExternal] = "x", "10.1.0.9"
	w.update(s)
	w.says("it was made for a tenant", "web", "no slice")
}

// TestSliceFollowsService: a slice goes only where its Service goes, whatever a provider
// says is there.
func TestSliceFollowsService(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	w.create(sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", "node-1")))
	w.create(sliceOf(w.home, "db-1", "db", endpoint("10.1.0.2", "node-1")))
	w.create(sliceOf(w.home, "kubernetes-1", "kubernetes", endpoint("10.1.0.4", "node-1")))
	stray := sliceOf(w.home, "stray", "", endpoint("10.1.0.3", "node-1"))
	w.create(stray)
	w.says("its Service is there", "web-1", "10.201.0.1 ready serving")
	w.says("there is no Service", "db-1", "no slice")
	w.says("it belongs to none", "stray", "no slice")
	w.create(service(w.home, "db"))
	forged := shadowOf(v1alpha1.HomeObject{Kind: kindService, Namespace: w.home, Name: "db"}, `{"content":{}}`)
	forged.Namespace = w.TenantNamespace()
	w.rules(ruleOf(kindService, v1alpha1.ReflectDeny))
	w.create(forged)
	w.create(service(w.home, "kubernetes"))
	own := shadowOf(v1alpha1.HomeObject{Kind: kindService, Namespace: w.home, Name: "kubernetes"}, `{"content":{}}`)
	own.Namespace = w.TenantNamespace()
	w.create(own)
	for _, name := range []string{"db-1", "kubernetes-1"} {
		w.says("a provider that says it has a Service of this name", name, "no slice")
		if w.shadow(name) != nil {
			t.Errorf("%s is sent", name)
		}
	}
	w.as(kindService, "web")
	w.kind = kindSlice
	w.says("a rule keeps its Service home", "web-1", "no slice")
	w.rules()
	w.as(kindService, "web")
	w.kind = kindSlice
	w.says("no rule does any more", "web-1", "10.201.0.1 ready serving")
	w.rules(ruleOf(kindSlice, v1alpha1.ReflectDeny))
	w.says("a rule keeps the slice home", "web-1", "no slice")
	w.rules()
	w.says("and no more", "web-1", "10.201.0.1 ready serving")
	w.terms(func(terms *v1alpha1.TenantTerms) {
		terms.Reflection = &v1alpha1.TenantReflection{Deny: []string{kindService}}
	})
	w.as(kindService, "web")
	w.kind = kindSlice
	w.says("the provider takes no Services", "web-1", "no slice")
	if w.shadow("web-1") != nil {
		t.Error("it is sent though its Service is refused")
	}
}
