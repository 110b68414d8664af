package home

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Bounds of the settings of the network.
const (
	maxRanges    = 16 // of pods and external addresses together, as peers take no more
	maxPrefixes  = 256
	maxEndpoints = 8
	minPort      = 1024
	// MaxNetworkPort is the highest first port of tunnels. The ports of a thousand peerings are
	// below those that Kubernetes gives to NodePorts.
	MaxNetworkPort = 29000
	defaultPort    = 7100
	// What may be put on the Services in front of tunnels; a value has as many bytes.
	maxAnnotations     = 32
	maxAnnotationValue = 2048
)

func (m *mistakes) network(n Network) {
	for _, list := range []struct {
		field string
		texts []string
	}{
		{"pods", n.Pods}, {"services", n.Services}, {"external", n.External},
		{"pools", n.Pools}, {"reserved", n.Reserved}, {"asIs", n.AsIs}, {"mappable", n.Mappable},
	} {
		m.prefixes("network."+list.field, list.texts)
	}
	if count := len(n.Pods) + len(n.External); count > maxRanges {
		m.add("network.pods: with network.external there are %d, and peers take at most %d; join some", count, maxRanges)
	}
	for _, four := range []bool{true, false} {
		count := 0
		for _, text := range n.External {
			if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() == four {
				count++
			}
		}
		if count > 1 {
			m.add("network.external: there are %d of one family; give one of IPv4 and one of IPv6 at most", count)
		}
	}
	m.apart(n)
	if len(n.Endpoints) > maxEndpoints {
		m.add("network.endpoints: there are %d, at most %d; remove some", len(n.Endpoints), maxEndpoints)
	}
	for _, e := range n.Endpoints {
		if _, _, err := ParseEndpoint(e); err != nil {
			m.add("network.endpoints: %w", err)
		}
	}
	if n.Port < minPort || n.Port > MaxNetworkPort {
		m.add("network.port: %d is not between %d and %d", n.Port, minPort, MaxNetworkPort)
	}
	m.service(n)
}

// service checks what is said of the Services in front of tunnels.
func (m *mistakes) service(n Network) {
	switch n.Service {
	case "", corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
	default:
		m.add("network.service: %.50q is unknown; use LoadBalancer or NodePort, or leave it empty", n.Service)
	}
	const field = "network.serviceAnnotations"
	if len(n.ServiceAnnotations) > maxAnnotations {
		m.add("%s: there are %d, at most %d; remove some", field, len(n.ServiceAnnotations), maxAnnotations)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(n.ServiceAnnotations)) {
		domain, _, _ := strings.Cut(key, "/")
		switch why := validation.IsQualifiedName(strings.ToLower(key)); {
		case len(why) > 0:
			m.add("%s: %.80q is not the key of an annotation: %s", field, key, why[0])
		case domain == v1alpha1.GroupVersion.Group || strings.HasSuffix(domain, "."+v1alpha1.GroupVersion.Group):
			m.add("%s: %s belongs to Pelago; remove it", field, key)
		case len(n.ServiceAnnotations[key]) > maxAnnotationValue:
			m.add("%s: the value of %s has %d bytes, at most %d; shorten it", field, key, len(n.ServiceAnnotations[key]), maxAnnotationValue)
		}
	}
}

// prefixes checks one list.
func (m *mistakes) prefixes(field string, texts []string) {
	if len(texts) > maxPrefixes {
		m.add("%s: there are %d, at most %d; join some", field, len(texts), maxPrefixes)
		return
	}
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			m.add("%s: %.50q is not a range of addresses; write it like 10.42.0.0/16", field, text)
		case p.Addr().Is4In6():
			m.add("%s: %s is IPv4 in an IPv6 form; write it as IPv4", field, p)
		case p != p.Masked():
			m.add("%s: %s begins inside the range; write %s", field, p, p.Masked())
		case unroutable(p):
			m.add("%s: %s holds loopback, link-local, multicast or reserved addresses; choose a range without them", field, p)
		case field == "network.pods" && (p.Addr().Is4() && p.Bits() < 8 || p.Addr().Is6() && p.Bits() < 16):
			m.add("%s: %s is larger than peers take; give the ranges that pods really have", field, p)
		}
	}
}

// unroutable reports whether a range has addresses that mean something else than one host.
func unroutable(p netip.Prefix) bool {
	return slices.ContainsFunc([]string{
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "::/8", "fe80::/10", "ff00::/8",
	}, func(text string) bool { return p.Overlaps(netip.MustParsePrefix(text)) })
}

// apart checks that no address is published twice or is a service's.
func (m *mistakes) apart(n Network) {
	type named struct {
		field  string
		prefix netip.Prefix
	}
	var all []named
	for _, list := range []struct {
		field string
		texts []string
	}{{"network.pods", n.Pods}, {"network.services", n.Services}, {"network.external", n.External}} {
		for _, text := range list.texts {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				continue // said already
			}
			for _, other := range all {
				if p.Overlaps(other.prefix) {
					m.add("%s: %s overlaps %s of %s; each address has one meaning", list.field, p, other.prefix, other.field)
				}
			}
			all = append(all, named{list.field, p})
		}
	}
}

// ParseEndpoint reads HOST or HOST:PORT, of which HOST is a name or an address; an address of
// IPv6 is in brackets if there is a port. Port is 0 if there is none.
func ParseEndpoint(text string) (host string, port uint16, err error) {
	wrong := func(why string) (string, uint16, error) {
		return "", 0, fmt.Errorf("%.100q %s; give HOST or HOST:PORT, like 198.51.100.7:7100", text, why)
	}
	host = text
	if a, err := netip.ParseAddr(text); err == nil {
		host = a.String()
	} else if h, p, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return wrong("has no port from 1 to 65535")
		}
		host, port = h, uint16(n)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" || unroutable(netip.PrefixFrom(a, a.BitLen())) {
			return wrong("is no address that a peer can reach")
		}
		return host, port, nil
	}
	if len(validation.IsDNS1123Subdomain(host)) > 0 {
		return wrong("is neither a name nor an address")
	}
	return host, port, nil
}
