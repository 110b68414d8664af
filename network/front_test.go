package network

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
)

// TestGatewayNow is where peers' packets have to go, whatever agents think of each other.
func TestGatewayNow(t *testing.T) {
	const key = "tenant-rome"
	carries := map[string]v1alpha1.TunnelReport{key: {Alive: true}}
	first, second := "b", "a" // by rendezvous
	for _, c := range []struct {
		reason string
		agents []agent
		told   []string
		want   string
	}{
		{"nobody lives", []agent{{node: first}, {node: second, reports: carries}}, []string{first}, ""},
		{"the peer was told of the other one alone", []agent{{node: first, alive: true}, {node: second, alive: true}}, []string{second}, second},
		{"nobody says anything: whom all choose", []agent{{node: second, alive: true}, {node: first, alive: true}}, nil, first},
		{"who is chosen is dead", []agent{{node: first, reports: carries}, {node: second, alive: true}}, nil, second},
		{"another one has the tunnel still", []agent{{node: first, alive: true}, {node: second, alive: true, reports: carries}}, nil, second},
		{"both say so, one of them of before", []agent{{node: first, alive: true, reports: carries}, {node: second, alive: true, reports: carries}}, nil, first},
		{"another one has a dead tunnel", []agent{{node: first, alive: true}, {node: second, alive: true, reports: map[string]v1alpha1.TunnelReport{key: {}}}}, nil, first},
		{"another one has another tunnel", []agent{{node: first, alive: true}, {node: second, alive: true, reports: map[string]v1alpha1.TunnelReport{"tenant-x": {Alive: true}}}}, nil, first},
	} {
		if got := gatewayNow(key, c.agents, c.told); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

// frontedFacts are what a cluster knows that is called through Services, with everything there.
func frontedFacts(kind corev1.ServiceType) (*facts, *pair, *corev1.Service) {
	p := provided("rome", noon, "10.9.0.0/16")
	f := usual(p)
	f.settings.Service = kind
	f.agents, f.candidates = []agent{{node: "n", alive: true}}, []string{"n"}
	f.nodes["n"] = &corev1.Node{ObjectMeta: named("n"), Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: "198.51.100.9"}, {Type: corev1.NodeInternalIP, Address: "192.168.0.9"}, {Type: corev1.NodeInternalIP, Address: "fd00::9"}}}}
	s := &corev1.Service{}
	front{name: "tunnel-tenant-rome", peering: p.key, port: 7100}.shape(s, f.settings)
	s.Spec.IPFamilies, s.Spec.Ports[0].NodePort = []corev1.IPFamily{corev1.IPv4Protocol}, 31234
	if kind == corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	}
	f.services, f.slices = map[string]*corev1.Service{s.Name: s}, map[string]*discoveryv1.EndpointSlice{}
	return f, p, s
}

// TestCalled is what peers are told, what the Service leads to, and what the owner is told.
func TestCalled(t *testing.T) {
	const balanced, ported = corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort
	for _, c := range []struct {
		reason string
		kind   corev1.ServiceType
		change func(*facts, *corev1.Service)
		want   []string
		to     string // of the slice
		says   string // of the condition
	}{
		{"no Service is asked for", "", nil, []string{"198.51.100.9:7100", "192.168.0.9:7100", "[fd00::9]:7100"}, "", ""},
		{"a load balancer", balanced, nil, []string{"203.0.113.7:7100"}, "192.168.0.9", ""},
		{"a load balancer with names and addresses of both families, and nonsense", balanced, func(_ *facts, s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example.org"}, {IP: "2001:db8::7"}, {}, {IP: "127.0.0.1"}, {Hostname: "a b"}, {Hostname: "lb.example.org"}}
		}, []string{"lb.example.org:7100", "[2001:db8::7]:7100"}, "192.168.0.9", ""},
		{"a load balancer of very many addresses", balanced, func(_ *facts, s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = nil
			for a := netip.MustParseAddr("203.0.113.1"); len(s.Status.LoadBalancer.Ingress) < 40; a = a.Next() {
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
			}
		}, []string{"203.0.113.1:7100", "203.0.113.2:7100", "203.0.113.3:7100", "203.0.113.4:7100", "203.0.113.5:7100", "203.0.113.6:7100", "203.0.113.7:7100", "203.0.113.8:7100"}, "192.168.0.9", ""},
		{"it has no address yet: those of nodes cannot be reached", balanced, func(_ *facts, s *corev1.Service) { s.Status.LoadBalancer.Ingress = nil }, nil, "192.168.0.9",
			"Waiting: peers cannot call this tunnel yet: waiting for the address of Service tunnel-tenant-rome in namespace pelago-network"},
		{"it is not there yet", balanced, func(f *facts, _ *corev1.Service) { f.services = nil }, nil, "", "Waiting: peers cannot call this tunnel yet: Service tunnel-tenant-rome is being made"},
		{"it is going", balanced, func(_ *facts, s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: noon} }, nil, "", "is being made"},
		{"it is of another type still", balanced, func(_ *facts, s *corev1.Service) { s.Spec.Type = ported }, nil, "", "is being made"},
		{"it may not be made", balanced, func(f *facts, _ *corev1.Service) {
			f.services, f.denied = nil, map[string]string{"tunnel-tenant-rome": "exceeded quota"}
		}, nil, "", "Waiting: peers cannot call this tunnel: exceeded quota"},
		{"ports of nodes", ported, nil, []string{"198.51.100.9:31234", "192.168.0.9:31234", "[fd00::9]:31234"}, "192.168.0.9", ""},
		{"no port of nodes yet", ported, func(_ *facts, s *corev1.Service) { s.Spec.Ports[0].NodePort = 0 }, nil, "192.168.0.9", ""},
		{"the owner's word wins", balanced, func(f *facts, _ *corev1.Service) { f.settings.Endpoints = []string{"gw.example.org", "x:1"} }, []string{"gw.example.org:7100", "x:1"}, "192.168.0.9", ""},
		{"and nobody waits for another", balanced, func(f *facts, s *corev1.Service) {
			f.settings.Endpoints, s.Status.LoadBalancer.Ingress = []string{"x:1"}, nil
		}, []string{"x:1"}, "192.168.0.9", ""},
		{"the owner's hosts have the ports of nodes", ported, func(f *facts, _ *corev1.Service) { f.settings.Endpoints = []string{"gw.example.org", "x:1"} }, []string{"gw.example.org:31234", "x:1"}, "192.168.0.9", ""},
		{"a Service of somebody else's", balanced, func(_ *facts, s *corev1.Service) { s.Labels = nil }, nil, "", "NameTaken: peers cannot call this tunnel by network.service: Service or EndpointSlice tunnel-tenant-rome in namespace pelago-network is somebody else's: rename or remove it"},
		{"a slice of somebody else's, and the owner's word", balanced, func(f *facts, _ *corev1.Service) {
			f.slices["tunnel-tenant-rome"], f.settings.Endpoints = &discoveryv1.EndpointSlice{ObjectMeta: named("tunnel-tenant-rome")}, []string{"x:1"}
		}, []string{"x:1"}, "", "NameTaken: "},
		{"of the other family", balanced, func(_ *facts, s *corev1.Service) { s.Spec.IPFamilies[0] = corev1.IPv6Protocol }, []string{"203.0.113.7:7100"}, "fd00::9", ""},
		{"of a family that the gateway has not", balanced, func(f *facts, s *corev1.Service) {
			s.Spec.IPFamilies[0], f.nodes["n"].Status.Addresses = corev1.IPv6Protocol, f.nodes["n"].Status.Addresses[:2]
		}, nil, "", "node n, has no address of the family ([IPv6])"},
		{"no agent lives: what is behind stays", balanced, func(f *facts, _ *corev1.Service) { f.agents[0].alive = false }, []string{"203.0.113.7:7100"}, "", "AgentsMissing: "},
	} {
		t.Run(c.reason, func(t *testing.T) {
			f, p, s := frontedFacts(c.kind)
			if c.change != nil {
				c.change(f, s)
			}
			d := decide(f)
			if diff := cmp.Diff(c.want, d.specs[p].Endpoints); diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
			to := ""
			for _, x := range d.fronts {
				if x.slice != nil {
					to = x.slice.Endpoints[0].Addresses[0]
					if *x.slice.Endpoints[0].NodeName != "n" || *x.slice.Ports[0].Port != 7100 || *x.slice.Ports[0].Protocol != corev1.ProtocolUDP || *x.slice.Ports[0].Name != s.Spec.Ports[0].Name {
						t.Errorf("the slice is %+v", x.slice)
					}
				}
			}
			if to != c.to {
				t.Errorf("it leads to %q, want %q", to, c.to)
			}
			got := d.conditions["rome"].Reason + ": " + d.conditions["rome"].Message
			if !strings.Contains(got, c.says) || c.says == "" && strings.Contains(got, "call") {
				t.Errorf("the owner is told %s, want %q", got, c.says)
			}
			// A tunnel that the other end has made is one, and what is missing is said.
			f.agents = []agent{{node: "n", alive: true, reports: map[string]v1alpha1.TunnelReport{p.key: {Alive: true}}}}
			now := decide(f).conditions["rome"]
			if now.Status != metav1.ConditionTrue || (now.Message == "") != (c.says == "" || strings.HasPrefix(c.says, "AgentsMissing")) {
				t.Errorf("with a tunnel that lives: %s, %s", now.Status, now.Message)
			}
		})
	}
}

// TestShape holds that a Service keeps what others have said of it.
func TestShape(t *testing.T) {
	_, _, s := frontedFacts(corev1.ServiceTypeLoadBalancer)
	x := front{name: s.Name, peering: "tenant-rome", port: 7101}
	s.Annotations = map[string]string{"cloud/id": "7"}
	s.Spec.ExternalTrafficPolicy, s.Spec.Selector = corev1.ServiceExternalTrafficPolicyLocal, map[string]string{"a": "b"}
	x.shape(s, home.Network{Service: corev1.ServiceTypeNodePort, ServiceAnnotations: map[string]string{"a": "1", "b": "2"}})
	if p := s.Spec.Ports[0]; p.NodePort != 31234 || p.Port != 7101 || p.TargetPort.IntVal != 7101 || p.Protocol != corev1.ProtocolUDP || s.Spec.Selector != nil || s.Spec.Type != corev1.ServiceTypeNodePort {
		t.Errorf("it is %+v", s.Spec)
	}
	if s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		t.Error("what its owner said of it is gone")
	}
	if d := cmp.Diff(map[string]string{"cloud/id": "7", "a": "1", "b": "2", v1alpha1.AnnotationGiven: "a b"}, s.Annotations); d != "" {
		t.Errorf("annotations (-want +got):\n%s", d)
	}
	x.shape(s, home.Network{ServiceAnnotations: map[string]string{"b": "3"}})
	if d := cmp.Diff(map[string]string{"cloud/id": "7", "b": "3", v1alpha1.AnnotationGiven: "b"}, s.Annotations); d != "" {
		t.Errorf("with one less (-want +got):\n%s", d)
	}
	x.shape(s, home.Network{})
	if d := cmp.Diff(map[string]string{"cloud/id": "7"}, s.Annotations); d != "" {
		t.Errorf("with none (-want +got):\n%s", d)
	}
}

// TestLeft is what is removed: what is ours and nobody wants, and nothing while something is
// only not known.
func TestLeft(t *testing.T) {
	mine := map[string]string{v1alpha1.LabelManagedBy: component}
	const ours = "tunnel-tenant-rome"
	for _, c := range []struct {
		reason string
		change func(*facts)
		want   []string
	}{
		{"all is wanted", func(*facts) {}, nil},
		{"keys cannot be read", func(f *facts) { f.locks = nil }, nil},
		{"no Services are wanted", func(f *facts) { f.settings.Service = "" }, []string{ours, ours}},
		{"the peering has ended", func(f *facts) { f.pairs[0].wanted = false }, []string{ours, ours}},
		{"the Service is somebody else's now", func(f *facts) { f.services[ours].Labels = nil }, []string{ours}},
		{"one is going", func(f *facts) {
			f.settings.Service, f.services[ours].DeletionTimestamp = "", &metav1.Time{Time: noon}
		}, []string{ours}},
		{"others' are nobody's business", func(f *facts) {
			f.services["tunnel-x"] = &corev1.Service{ObjectMeta: named("tunnel-x")}
			f.services["x"] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: mine}}
			f.slices["tunnel-x"] = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "tunnel-x", Labels: map[string]string{v1alpha1.LabelManagedBy: "install"}}}
		}, nil},
	} {
		f, _, _ := frontedFacts(corev1.ServiceTypeNodePort)
		f.slices[ours] = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: ours, Labels: mine}}
		c.change(f)
		var got []string
		for _, o := range f.leftFronts() {
			got = append(got, o.GetName())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.reason, got, c.want)
		}
	}
}
