package content

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// maxEndpoints is how many endpoints an EndpointSlice has at most, as in Kubernetes.
	maxEndpoints = 1000
	// maxPortName and maxAppProtocol are the most bytes of what a port says of itself.
	maxPortName, maxAppProtocol = 63, 317
)

// sliceContent is what travels of an EndpointSlice: addresses of a Service that are not at
// the provider. It has no place for nodes, zones, hints and references to pods.
type sliceContent struct {
	Service   string                  `json:"service"`
	Type      discoveryv1.AddressType `json:"type"`
	Ports     []slicePort             `json:"ports,omitempty"`
	Endpoints []sliceEndpoint         `json:"endpoints,omitempty"`
}

type slicePort struct {
	Name        string          `json:"name,omitempty"`
	Protocol    corev1.Protocol `json:"protocol,omitempty"`
	AppProtocol *string         `json:"appProtocol,omitempty"`
	Port        int32           `json:"port"`
}

type sliceEndpoint struct {
	Address     string `json:"address"`
	Ready       bool   `json:"ready,omitempty"`
	Serving     bool   `json:"serving,omitempty"`
	Terminating bool   `json:"terminating,omitempty"`
	Hostname    string `json:"hostname,omitempty"`
}

// It is plain: labels of a slice are orders to who reads slices, and ours are all it has.
var slicesOfEndpoints = form[*discoveryv1.EndpointSlice, sliceContent]{
	name: "EndpointSlice", bare: true, plain: true,
	empty:  func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} },
	list:   func() client.ObjectList { return &discoveryv1.EndpointSliceList{} },
	pack:   packSlice,
	check:  checkSlice,
	unpack: unpackSlice,
	put: func(next, want *discoveryv1.EndpointSlice) bool {
		replace := next.AddressType != want.AddressType
		next.AddressType, next.Endpoints, next.Ports = want.AddressType, want.Endpoints, want.Ports
		return replace
	},
}

func packSlice(s *discoveryv1.EndpointSlice) (sliceContent, string) {
	c := sliceContent{Service: s.Labels[discoveryv1.LabelServiceName], Type: s.AddressType}
	for _, p := range s.Ports {
		if p.Port == nil {
			return c, "it has a port without a number"
		}
		c.Ports = append(c.Ports, slicePort{ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, ""), p.AppProtocol, *p.Port})
	}
	for _, e := range s.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		ready := ptr.Deref(e.Conditions.Ready, true) // as whoever reads slices has to take it
		c.Endpoints = append(c.Endpoints, sliceEndpoint{
			Address: e.Addresses[0], Ready: ready, // only the first one counts
			Serving: ptr.Deref(e.Conditions.Serving, ready), Terminating: ptr.Deref(e.Conditions.Terminating, false), Hostname: ptr.Deref(e.Hostname, ""),
		})
	}
	return c, ""
}

func checkSlice(c *sliceContent) string {
	switch {
	case c.Service == "":
		return "service: it belongs to none; name the Service"
	case len(validation.IsDNS1123Label(c.Service)) > 0:
		return "service: " + quote(c.Service) + " is no name of a Service"
	case c.Type != discoveryv1.AddressTypeIPv4 && c.Type != discoveryv1.AddressTypeIPv6:
		return "type: addresses are IPv4 or IPv6; names do not travel"
	case len(c.Endpoints) == 0:
		return "endpoints: there are none; a slice without endpoints does not travel"
	case len(c.Endpoints) > maxEndpoints || len(c.Ports) > maxPorts:
		return fmt.Sprintf("%d endpoints and %d ports, at most %d and %d; use several slices", len(c.Endpoints), len(c.Ports), maxEndpoints, maxPorts)
	}
	for i, p := range c.Ports {
		if wrong := p.wrong(); wrong != "" {
			return fmt.Sprintf("ports[%d].%s", i, wrong)
		}
	}
	for i, e := range c.Endpoints {
		if wrong := e.wrong(c.Type); wrong != "" {
			return fmt.Sprintf("endpoints[%d].%s", i, wrong)
		}
	}
	return ""
}

func (p slicePort) wrong() string {
	switch {
	case p.Port < 1 || p.Port > 65535:
		return "port: ports are from 1 to 65535"
	case p.Protocol != "" && p.Protocol != corev1.ProtocolTCP && p.Protocol != corev1.ProtocolUDP && p.Protocol != corev1.ProtocolSCTP:
		return "protocol: TCP, UDP or SCTP"
	case len(p.Name) > maxPortName:
		return fmt.Sprintf("name: %d bytes, at most %d", len(p.Name), maxPortName)
	case len(ptr.Deref(p.AppProtocol, "")) > maxAppProtocol:
		return fmt.Sprintf("appProtocol: %d bytes, at most %d", len(*p.AppProtocol), maxAppProtocol)
	}
	return ""
}

func (e sliceEndpoint) wrong(of discoveryv1.AddressType) string {
	a, err := netip.ParseAddr(e.Address)
	switch {
	case err != nil || a.Zone() != "" || a.Is4In6() || a.String() != e.Address:
		return "address: " + quote(e.Address) + " is no address as it is usually written"
	case a.Is4() != (of == discoveryv1.AddressTypeIPv4):
		return "address: " + quote(e.Address) + " is not of the type " + string(of)
	case Special(a):
		return "address: " + quote(e.Address) + " is no address of one endpoint (loopback, link-local, multicast, unspecified or reserved); leave it out"
	case e.Hostname != "" && len(validation.IsDNS1123Label(e.Hostname)) > 0:
		return "hostname: " + quote(e.Hostname) + " is no name of a host"
	}
	return ""
}

// reserved are addresses that no endpoint has, beside those that netip knows: of this
// network itself, reserved or broadcast, and IPv4 in the clothes of IPv6.
var reserved = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("::/96")}

// Special says whether an address means the machine itself, its link, or many: never an
// endpoint of somebody else.
func Special(a netip.Addr) bool {
	if a = a.Unmap(); !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
		return true
	}
	for _, p := range reserved {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// unpackSlice labels a slice as ours, so that the endpoint controllers of the provider
// leave it alone. An address that is not the tenant's would send what the provider's pods
// say to others, or to what they must not reach (CVE-2021-25740).
func unpackSlice(c *sliceContent, rules Rules, s *discoveryv1.EndpointSlice) string {
	if rules.Allows == nil {
		return "endpoints[0].address: there is no network with this tenant, so that no address of its means anything here; leave EndpointSlices out until there is one"
	}
	s.AddressType = c.Type
	s.SetLabels(map[string]string{discoveryv1.LabelServiceName: c.Service, discoveryv1.LabelManagedBy: v1alpha1.GroupVersion.Group})
	for _, p := range c.Ports {
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP
		}
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, AppProtocol: p.AppProtocol, Port: &p.Port})
	}
	for i, e := range c.Endpoints {
		if a, err := netip.ParseAddr(e.Address); err != nil || !rules.Allows(a) {
			return fmt.Sprintf("endpoints[%d].address: %s is not one of this tenant's in the network between the clusters; send addresses of that only", i, quote(e.Address))
		}
		made := discoveryv1.Endpoint{Addresses: []string{e.Address}, Conditions: discoveryv1.EndpointConditions{Ready: &e.Ready, Serving: &e.Serving, Terminating: &e.Terminating}}
		if rules.Cut {
			made.Conditions.Ready, made.Conditions.Serving = new(false), new(false)
		}
		if e.Hostname != "" {
			made.Hostname = &e.Hostname
		}
		s.Endpoints = append(s.Endpoints, made)
	}
	return ""
}
