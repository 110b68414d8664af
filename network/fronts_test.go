package network

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/network/plan"
)

// service is the one in front of a side's tunnel, nil if there is none.
func (s *side) service() *corev1.Service {
	s.world.t.Helper()
	o := &corev1.Service{}
	err := s.world.raw.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: frontName(s.key())}, o)
	if client.IgnoreNotFound(err) != nil {
		s.world.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return o
}

// leads is the node to which that Service leads, "" if there is none.
func (s *side) leads() string {
	s.world.t.Helper()
	o := &discoveryv1.EndpointSlice{}
	err := s.world.raw.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: frontName(s.key())}, o)
	switch {
	case apierrors.IsNotFound(err):
		return ""
	case err != nil:
		s.world.t.Fatal(err)
	}
	n := &corev1.Node{}
	if err := s.world.raw.Get(ctx, client.ObjectKey{Name: *o.Endpoints[0].NodeName}, n); err != nil {
		s.world.t.Fatal(err)
	}
	if len(o.Endpoints) != 1 || o.Endpoints[0].Addresses[0] != n.Status.Addresses[0].Address || *o.Ports[0].Port != s.own().Spec.Port ||
		o.Labels[discoveryv1.LabelServiceName] != o.Name || o.Labels[discoveryv1.LabelManagedBy] == v1alpha1.GroupVersion.Group {
		s.world.t.Errorf("the slice is %+v of %+v", o.Endpoints, o.Labels)
	}
	return n.Name
}

// given is what a load balancer does.
func (s *side) given(address string) {
	s.world.t.Helper()
	o := s.service()
	o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	s.world.status(o)
}

// called is where the other side is told to call milan.
func (w *world) called() []string {
	w.t.Helper()
	return w.rome.pair(v1alpha1.NetworkProvider).Spec.Endpoints
}

// balanced is a world whose milan is called through a load balancer, with agents everywhere.
func balanced(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.milan.config.Network.Service = corev1.ServiceTypeLoadBalancer
	w.agents()
	w.settle()
	w.milan.given("203.0.113.7")
	w.settle()
	return w
}

// agents lets all of them renew their Leases.
func (w *world) agents() {
	w.t.Helper()
	for _, s := range []*side{w.rome, w.milan} {
		for _, node := range s.nodes {
			s.report(node, nil)
		}
	}
}

// TestFrontBegins holds that addresses of nodes do not go out where there is to be a load
// balancer, whose own do.
func TestFrontBegins(t *testing.T) {
	w := newWorld(t)
	w.milan.config.Network.Service = corev1.ServiceTypeLoadBalancer
	w.milan.config.Network.ServiceAnnotations = map[string]string{"example.org/kind": "udp"}
	w.agents()
	w.settle()
	m := w.milan
	s := m.service()
	if s == nil || s.Spec.Type != corev1.ServiceTypeLoadBalancer || s.Spec.Selector != nil || len(s.Spec.Ports) != 1 || s.Spec.Ports[0].Protocol != corev1.ProtocolUDP ||
		s.Spec.Ports[0].Port != m.own().Spec.Port || s.Labels[v1alpha1.LabelManagedBy] != component || s.Annotations["example.org/kind"] != "udp" {
		t.Fatalf("the Service is %+v", s)
	}
	if got := w.called(); len(got) != 0 {
		t.Errorf("before it has an address peers are told to call %v", got)
	}
	if got := m.networkReady(); !strings.HasPrefix(got, "False/Waiting: peers cannot call this tunnel yet: waiting for the address of Service tunnel-"+m.key()) {
		t.Errorf("the owner is told %s", got)
	}
	if got, want := m.leads(), plan.Gateway(m.key(), m.nodes, nil); got != want {
		t.Errorf("it leads to %q, want %q", got, want)
	}
	if w.rome.service() != nil || len(w.rome.own().Spec.Endpoints) != 2 {
		t.Errorf("at rome, who asked for none, there is %v, and it is called at %v", w.rome.service(), w.rome.own().Spec.Endpoints)
	}
	m.given("203.0.113.7")
	w.settle()
	if d := cmp.Diff([]string{"203.0.113.7:7100"}, w.called()); d != "" {
		t.Errorf("with an address (-want +got):\n%s", d)
	}
	if got := m.networkReady(); !strings.HasPrefix(got, "False/Waiting: waiting for ") {
		t.Errorf("then the owner is told %s", got)
	}
	writes := w.writes
	m.restart()
	w.settle()
	if w.writes != writes {
		t.Errorf("after a restart there are the writes\n%s", w.since(writes))
	}
}

// TestFrontMoves holds that a Service leads to another node in one look when the gateway moves,
// and stays where it is when nobody can be.
func TestFrontMoves(t *testing.T) {
	w := balanced(t)
	m := w.milan
	first := plan.Gateway(m.key(), m.nodes, nil)
	second := m.nodes[(slices.Index(m.nodes, first)+1)%2]
	look := func(what, want string) {
		t.Helper()
		w.clock.Step(lookRest)
		if _, err := m.decider.Reconcile(ctx, whole); err != nil {
			t.Fatal(err)
		}
		if got := m.leads(); got != want {
			t.Errorf("%s: it leads to %q, want %q", what, got, want)
		}
	}
	w.agents()
	w.clock.Step(4 * time.Second)
	m.report(second, nil)
	look("the gateway's Lease holds", first)
	w.clock.Step(time.Second)
	look("it has run out", second)
	m.report(second, map[string]v1alpha1.TunnelReport{m.key(): {Alive: true}})
	m.report(first, nil)
	look("the first one is back, and the second has the tunnel still", second)
	m.report(second, nil)
	look("the second has it no more", first)
	w.clock.Step(time.Minute)
	look("nobody lives", first)
	if d := cmp.Diff([]string{"203.0.113.7:7100"}, m.own().Spec.Endpoints); d != "" {
		t.Errorf("after all that peers are told (-want +got):\n%s", d)
	}
}

// TestFrontChanges changes settings, and lets people delete and change what they find.
func TestFrontChanges(t *testing.T) {
	w := balanced(t)
	m := w.milan
	before := m.service()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: at(m.namespace, before.Name)}
	for what, damage := range map[string]func(){
		"the Service deleted": func() { _ = w.raw.Delete(ctx, m.service()) },
		"the slice deleted":   func() { _ = w.raw.Delete(ctx, slice) },
		"the slice emptied":   func() { w.change(slice, `{"endpoints":[]}`) },
		"a selector":          func() { w.change(m.service(), `{"spec":{"selector":{"a":"b"}}}`) },
		"the slice of another family": func() {
			_ = w.raw.Delete(ctx, slice)
			six := &discoveryv1.EndpointSlice{ObjectMeta: at(m.namespace, before.Name), AddressType: discoveryv1.AddressTypeIPv6}
			six.Labels = map[string]string{v1alpha1.LabelManagedBy: component}
			w.create(six)
		},
	} {
		damage()
		w.agents()
		w.settle()
		if s := m.service(); s == nil || s.Spec.Selector != nil || m.leads() == "" {
			t.Errorf("%s: there is %+v, that leads to %q", what, s, m.leads())
		}
	}
	after := m.service()
	if after.UID == before.UID || len(w.called()) != 0 {
		t.Errorf("what was deleted is there still, or its address: %v", w.called())
	}
	m.config.Network.Service = corev1.ServiceTypeNodePort
	m.config.Network.ServiceAnnotations = map[string]string{"a": "b"}
	w.agents()
	w.settle()
	s := m.service()
	port := s.Spec.Ports[0].NodePort
	f := &facts{settings: m.config.Network, candidates: m.nodes, nodes: map[string]*corev1.Node{m.nodes[0]: w.node(m.nodes[0]), m.nodes[1]: w.node(m.nodes[1])}}
	want := f.endpoints(&pair{key: m.key()}, port)
	if d := cmp.Diff(want, w.called()); d != "" || s.UID != after.UID || s.Annotations["a"] != "b" || port == 0 || len(want) != 2 {
		t.Errorf("as NodePort it is %+v; peers are told (-want +got):\n%s", s, d)
	}
	m.config.Network.ServiceAnnotations = nil
	w.settle()
	if s := m.service(); len(s.Annotations) != 0 || s.Spec.Ports[0].NodePort != port {
		t.Errorf("without annotations it is %+v", s)
	}
	m.config.Network.Service = ""
	w.settle()
	if m.service() != nil || m.leads() != "" || len(w.called()) != 2 || !strings.HasSuffix(w.called()[0], ":7100") {
		t.Errorf("without a Service there is %v, and peers are told %v", m.service(), w.called())
	}
}

func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{}
	if err := w.raw.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// TestFrontForeign holds that what somebody else has made stays as it is, and its owner is told.
func TestFrontForeign(t *testing.T) {
	w := newWorld(t)
	m := w.milan
	theirs := w.create(&corev1.Service{ObjectMeta: at(m.namespace, frontName(m.key())),
		Spec: corev1.ServiceSpec{Selector: map[string]string{"a": "b"}, Ports: []corev1.ServicePort{{Port: 80}}}}).(*corev1.Service)
	other := w.create(&corev1.Service{ObjectMeta: at(m.namespace, "tunnel-other"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	m.config.Network.Service = corev1.ServiceTypeLoadBalancer
	w.agents()
	w.settle()
	if s := m.service(); s.ResourceVersion != theirs.ResourceVersion || m.leads() != "" {
		t.Errorf("what is somebody else's is %+v now, with something of ours behind", s)
	}
	if got := m.networkReady(); !strings.HasPrefix(got, "False/NameTaken: ") || !strings.Contains(got, theirs.Name) {
		t.Errorf("its owner is told %s", got)
	}
	if len(w.called()) != 0 {
		t.Errorf("peers are told %v", w.called())
	}
	_ = w.raw.Delete(ctx, theirs)
	w.agents()
	w.settle()
	if s := m.service(); s == nil || s.Labels[v1alpha1.LabelManagedBy] != component || m.leads() == "" {
		t.Errorf("when theirs is gone there is %+v", s)
	}
	m.config.Network.Service = ""
	w.settle()
	if err := w.raw.Get(ctx, client.ObjectKeyFromObject(other), other); err != nil {
		t.Errorf("another one of theirs: %v", err)
	}
}

// TestFrontEnds removes the Service with its peering.
func TestFrontEnds(t *testing.T) {
	w := balanced(t)
	_ = w.raw.Delete(ctx, &v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)})
	w.settle()
	o := &discoveryv1.EndpointSliceList{}
	if err := w.raw.List(ctx, o, client.InNamespace(w.milan.namespace)); err != nil || w.milan.service() != nil || len(o.Items) != 0 {
		t.Errorf("left are %v and %d slices, %v", w.milan.service(), len(o.Items), err)
	}
}

// TestFrontDenied holds that the owner is told why there is no Service, and that all else goes
// on.
func TestFrontDenied(t *testing.T) {
	w := newWorld(t)
	w.milan.config.Network.Service = corev1.ServiceTypeLoadBalancer
	w.milan.decider.client = interceptor.NewClient(w.milan.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, is := o.(*corev1.Service); is {
				return apierrors.NewForbidden(corev1.Resource("services"), o.GetName(), io.ErrShortBuffer)
			}
			return c.Create(ctx, o, opts...)
		},
	})
	w.agents()
	for range 5 {
		_ = w.look()
	}
	if got := w.milan.networkReady(); !strings.HasPrefix(got, "False/Waiting: peers cannot call this tunnel: making Service") || !strings.Contains(got, io.ErrShortBuffer.Error()) {
		t.Errorf("the owner is told %s", got)
	}
	if w.milan.own().Spec.PublicKey == "" {
		t.Error("nothing is published")
	}
	w.milan.decider.client = w.milan.client
	w.agents()
	w.settle()
	if got := w.milan.networkReady(); !strings.Contains(got, "waiting for the address") {
		t.Errorf("then the owner is told %s", got)
	}
}

// TestFrontRights does all of it with no more rights than the manager has there.
func TestFrontRights(t *testing.T) {
	w := newWorld(t)
	w.raw.Off() // others write as well
	m := w.milan
	server := kubetest.Server(t)
	account := w.create(&corev1.ServiceAccount{ObjectMeta: at(m.namespace, "manager")})
	w.create(&rbacv1.Role{ObjectMeta: at(m.namespace, "manager"), Rules: besideAgents(t)})
	w.create(&rbacv1.RoleBinding{ObjectMeta: at(m.namespace, "manager"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "manager"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: m.namespace, Name: "manager"}}})
	token := &authenticationv1.TokenRequest{}
	if err := w.raw.SubResource("token").Create(ctx, account, token); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(server.Config)
	config.BearerToken = token.Status.Token
	limited, err := client.NewWithWatch(config, client.Options{Scheme: kubetest.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	within(t, "its rights are in force", func() bool { return limited.List(ctx, &corev1.ServiceList{}, client.InNamespace(m.namespace)) == nil })
	m.decider.near = limited
	mine := func(o client.Object) bool { return o.GetNamespace() == m.namespace }
	m.decider.client = interceptor.NewClient(m.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, secret := o.(*corev1.Secret); mine(o) && !secret {
				return limited.Create(ctx, o, opts...)
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if mine(o) {
				return limited.Patch(ctx, o, patch, opts...)
			}
			return c.Patch(ctx, o, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if mine(o) {
				return limited.Delete(ctx, o, opts...)
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer} {
		m.config.Network.Service = kind
		w.agents()
		for range 8 {
			if err := w.look(); err != nil {
				t.Fatal(err)
			}
		}
		if s := m.service(); s == nil || s.Spec.Type != kind || m.leads() == "" {
			t.Errorf("with its rights there is %v", s)
		}
	}
	m.config.Network.Service = ""
	w.settle()
	if m.service() != nil || m.leads() != "" {
		t.Error("with its rights it is not removed")
	}
	if services := (&corev1.ServiceList{}); !apierrors.IsForbidden(limited.List(ctx, services)) {
		t.Error("it sees the Services of all namespaces")
	}
}

// besideAgents are the rules of the manager's Role in the namespace of agents, as it is installed.
func besideAgents(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	text, err := os.ReadFile("../deploy/generated/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for reader := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		found := &rbacv1.Role{}
		if err := reader.Decode(found); err != nil {
			t.Fatalf("finding the Role: %v", err)
		}
		if found.Kind == "Role" && found.Namespace == v1alpha1.NetworkNamespace && found.Name == "pelago-manager" {
			return found.Rules
		}
	}
}
