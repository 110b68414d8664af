package content

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// maxEndpoints is how many endpoints an EndpointSlice has at most.
const maxEndpoints = 1000

// sliceContent is what travels of an EndpointSlice: addresses of a Service that are not at
// the provider. It has no place for nodes, zones and references to pods.
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
	Address string `json:"address"`
	Ready   bool   `json:"ready,omitempty"`
}

var slicesOfEndpoints = form[*discoveryv1.EndpointSlice, sliceContent]{
	name: "EndpointSlice", bare: true,
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
		port := slicePort{AppProtocol: p.AppProtocol, Port: *p.Port}
		if p.Name != nil {
			port.Name = *p.Name
		}
		if p.Protocol != nil {
			port.Protocol = *p.Protocol
		}
		c.Ports = append(c.Ports, port)
	}
	for _, e := range s.Endpoints {
		if len(e.Addresses) > 0 { // only the first one counts
			c.Endpoints = append(c.Endpoints, sliceEndpoint{Address: e.Addresses[0], Ready: e.Conditions.Ready == nil || *e.Conditions.Ready})
		}
	}
	return c, ""
}

func checkSlice(c *sliceContent) string {
	switch {
	case c.Service == "":
		return "it belongs to no Service"
	case c.Type != discoveryv1.AddressTypeIPv4 && c.Type != discoveryv1.AddressTypeIPv6:
		return "its addresses are neither IPv4 nor IPv6"
	case len(c.Endpoints) > maxEndpoints || len(c.Ports) > maxPorts:
		return fmt.Sprintf("%d endpoints and %d ports, at most %d and %d", len(c.Endpoints), len(c.Ports), maxEndpoints, maxPorts)
	}
	for _, p := range c.Ports {
		if p.Port < 1 || p.Port > 65535 {
			return "ports are from 1 to 65535"
		}
	}
	for _, e := range c.Endpoints {
		a, err := netip.ParseAddr(e.Address)
		if err != nil || a.Zone() != "" || a.Is4In6() || a.Is4() != (c.Type == discoveryv1.AddressTypeIPv4) {
			return "the address " + quote(e.Address) + " is none of the type " + string(c.Type)
		}
	}
	return ""
}

func unpackSlice(c *sliceContent, rules Rules, s *discoveryv1.EndpointSlice) string {
	s.AddressType = c.Type
	s.SetLabels(joined(s.GetLabels(), map[string]string{discoveryv1.LabelServiceName: c.Service, discoveryv1.LabelManagedBy: v1alpha1.GroupVersion.Group}))
	for _, p := range c.Ports {
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP
		}
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, AppProtocol: p.AppProtocol, Port: &p.Port})
	}
	for _, e := range c.Endpoints {
		a, err := netip.ParseAddr(e.Address)
		if err != nil || !slices.ContainsFunc(rules.Ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
			return "the address " + quote(e.Address) + " is in no range that this tenant may announce"
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{e.Address}, Conditions: discoveryv1.EndpointConditions{Ready: &e.Ready}})
	}
	return ""
}
