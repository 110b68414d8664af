package network

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/network/plan"
)

const (
	// frontPrefix begins the names of the Services in front of tunnels.
	frontPrefix = "tunnel-"
	// frontPort is what their port is called.
	frontPort = "tunnel"
)

// front is what the tunnel of a peering is called through where nodes cannot be called: a
// Service, and a slice that makes the gateway all there is behind it. It has no selector, as
// no pod is what is called.
type front struct {
	name string
	// peering is its key, and port that of its tunnel on whichever node is gateway.
	peering string
	port    int32
	// slice is nil where it is not known who is gateway: what there is stays then.
	slice *discoveryv1.EndpointSlice
}

// wait is why peers cannot call a tunnel through its Service yet.
type wait struct{ reason, text string }

func frontName(key string) string { return frontPrefix + key }

// fronts says whether an object is one of those in front of tunnels. What others made is not
// touched, whatever it is called.
func fronts(o client.Object) bool {
	return o.GetLabels()[v1alpha1.LabelManagedBy] == component && strings.HasPrefix(o.GetName(), frontPrefix)
}

// called is where peers call the tunnel of a peering: by what its owner says, by the Service in
// front of it if there is to be one, or at nodes.
func (d *decision) called(f *facts, p *pair, port int32) []string {
	kind := f.settings.Service
	if kind == "" || port == 0 {
		return f.endpoints(p, port)
	}
	x := front{name: cmp.Or(p.front, frontName(p.key)), peering: p.key, port: port}
	service, slice := f.services[x.name], f.slices[x.name]
	said := len(f.settings.Endpoints) > 0
	waits := func(reason, format string, args ...any) []string {
		d.waits[p] = wait{reason, fmt.Sprintf(format, args...)}
		return saidEndpoints(f.settings, port) // what the owner says goes out in any case
	}
	if service != nil && !fronts(service) || slice != nil && !fronts(slice) {
		return waits(v1alpha1.ReasonNameTaken, "peers cannot call this tunnel by network.service: Service or EndpointSlice %s in namespace %s is somebody else's: rename or remove it",
			x.name, v1alpha1.NetworkNamespace)
	}
	made := service != nil && service.DeletionTimestamp == nil && service.Spec.Type == kind
	gateway := gatewayNow(p.key, f.agents, f.told(p))
	if made && f.nodes[gateway] != nil {
		x.slice = behind(x, service, f.nodes[gateway])
	}
	d.fronts = append(d.fronts, x)
	switch at := ingress(service, port); {
	case f.denied[x.name] != "":
		return waits(v1alpha1.ReasonWaiting, "peers cannot call this tunnel: %s", f.denied[x.name])
	case !made:
		return waits(v1alpha1.ReasonWaiting, "peers cannot call this tunnel yet: Service %s is being made in namespace %s", x.name, v1alpha1.NetworkNamespace)
	case x.slice == nil && f.nodes[gateway] != nil:
		return waits(v1alpha1.ReasonWaiting, "peers cannot call this tunnel: its gateway, node %s, has no address of the family (%v) of Service %s", gateway, service.Spec.IPFamilies, x.name)
	case kind == corev1.ServiceTypeNodePort && len(service.Spec.Ports) == 1 && service.Spec.Ports[0].NodePort > 0:
		return f.endpoints(p, service.Spec.Ports[0].NodePort)
	case said, len(at) == 0 && kind == corev1.ServiceTypeNodePort:
		return saidEndpoints(f.settings, port)
	case len(at) == 0:
		return waits(v1alpha1.ReasonWaiting, "peers cannot call this tunnel yet: waiting for the address of Service %s in namespace %s, which a load balancer has to give",
			x.name, v1alpha1.NetworkNamespace)
	default:
		return at
	}
}

// fronted says whether some peering wants what has a name. It does also while nothing can be
// said of it, as when keys cannot be read: a Service that is made anew has another address.
func (f *facts) fronted(name string) bool {
	return f.settings.Service != "" && (slices.ContainsFunc(f.pairs, func(p *pair) bool { return p.wanted && frontName(p.key) == name }) ||
		slices.ContainsFunc(f.openings, func(o *opening) bool { return frontName(o.name) == name }) ||
		slices.ContainsFunc(f.paths, func(p *path) bool { return (f.locks == nil || p.keeps(f.locks[p.key])) && p.front.front == name }))
}

// leftFronts are the Services and slices of ours that nobody wants: those of peerings that have
// none, and slices that would be behind a Service of somebody else.
func (f *facts) leftFronts() (left []client.Object) {
	for _, name := range slices.Sorted(maps.Keys(f.services)) {
		if s := f.services[name]; fronts(s) && !f.fronted(name) && s.DeletionTimestamp == nil {
			left = append(left, s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.slices)) {
		foreign := f.services[name] != nil && !fronts(f.services[name])
		if s := f.slices[name]; fronts(s) && (foreign || !f.fronted(name)) && s.DeletionTimestamp == nil {
			left = append(left, s)
		}
	}
	return left
}

// ingress is where a load balancer takes what is for a Service.
func ingress(s *corev1.Service, port int32) (all []string) {
	if s == nil {
		return nil
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		host := i.IP
		if host == "" {
			host = i.Hostname
		}
		text := net.JoinHostPort(host, strconv.Itoa(int(port)))
		if _, _, err := home.ParseEndpoint(text); err == nil && len(all) < maxEndpoints && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// gatewayNow is the node that has the tunnel of a peering: of the agents that live one that says
// that it carries packets, since what a peer sends has to go where that is while agents here do
// not see the same others; else the one that all of them choose. It is "" if none lives.
func gatewayNow(key string, agents []agent, told []string) string {
	var live, carrying []string
	for _, a := range agents {
		if !a.alive {
			continue
		}
		live = append(live, a.node)
		if a.reports[key].Alive {
			carrying = append(carrying, a.node)
		}
	}
	chosen := plan.Gateway(key, live, told)
	if len(carrying) > 0 && !slices.Contains(carrying, chosen) {
		return plan.Gateway(key, carrying, told)
	}
	return chosen
}

// behind is the slice that leads from a Service to a node, nil if that has no address of its
// family.
func behind(x front, s *corev1.Service, node *corev1.Node) *discoveryv1.EndpointSlice {
	family := discoveryv1.AddressTypeIPv4
	if len(s.Spec.IPFamilies) > 0 && s.Spec.IPFamilies[0] == corev1.IPv6Protocol {
		family = discoveryv1.AddressTypeIPv6
	}
	all := plan.AddressesOf(node, plan.Neighbour) // whichever node takes the packets sends them on
	at := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Is4() == (family == discoveryv1.AddressTypeIPv4) })
	if at < 0 {
		return nil
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: x.name, Labels: map[string]string{
			v1alpha1.LabelManagedBy: component, discoveryv1.LabelServiceName: x.name, discoveryv1.LabelManagedBy: component,
		}},
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{all[at].String()}, NodeName: &node.Name,
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To(frontPort), Protocol: ptr.To(corev1.ProtocolUDP), Port: &x.port}},
	}
}

// shape makes a Service the one in front of a tunnel. What else its owner has said of it stays,
// but for annotations of the settings that are not there any more.
func (x front) shape(s *corev1.Service, settings home.Network) {
	s.Name = x.name
	s.Labels = merged(s.Labels, map[string]string{v1alpha1.LabelManagedBy: component})
	given := slices.Sorted(maps.Keys(settings.ServiceAnnotations))
	for _, key := range strings.Fields(s.Annotations[v1alpha1.AnnotationGiven]) {
		if !slices.Contains(given, key) {
			delete(s.Annotations, key)
		}
	}
	delete(s.Annotations, v1alpha1.AnnotationGiven)
	if len(given) > 0 {
		s.Annotations = merged(s.Annotations, settings.ServiceAnnotations)
		s.Annotations[v1alpha1.AnnotationGiven] = strings.Join(given, " ")
	}
	s.Spec.Type, s.Spec.Selector = settings.Service, nil
	nodePort := int32(0)
	for _, p := range s.Spec.Ports {
		if p.Name == frontPort {
			nodePort = p.NodePort
		}
	}
	s.Spec.Ports = []corev1.ServicePort{{
		Name: frontPort, Protocol: corev1.ProtocolUDP, Port: x.port, TargetPort: intstr.FromInt32(x.port), NodePort: nodePort,
	}}
}

// merged is a map with the entries of another one.
func merged(into, from map[string]string) map[string]string {
	if into == nil {
		into = map[string]string{}
	}
	maps.Copy(into, from)
	return into
}
