package addon

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Values is what manifests are filled with. An add-on whose value is missing
// refuses to render and says which.
type Values struct {
	// DNSAddresses are the addresses of the DNS Service, one per family of the
	// cluster, the primary family first.
	DNSAddresses []netip.Addr
	// Domain is what the cluster is called in its own DNS.
	Domain string
	// PodRanges and ServiceRanges are the cluster's, one per family.
	PodRanges, ServiceRanges []netip.Prefix
	// LoadBalancer holds ranges of addresses such as 198.18.0.200-198.18.0.250.
	LoadBalancer []string
	// Nodes is the number of nodes.
	Nodes int

	// MetricsCA, MetricsCert and MetricsKey are PEM texts: the certificate and
	// key that metrics-server serves with, valid for the DNS name MetricsName,
	// and the authority the API server checks it by.
	MetricsCA, MetricsCert, MetricsKey []byte
	// MemberlistKey is a secret that MetalLB's speakers encrypt their
	// membership with: 16 bytes or more, the same for a cluster's whole life
	// (a running speaker does not notice a new one).
	MemberlistKey []byte
}

// MetricsName is the DNS name that the API server knows metrics-server by.
const MetricsName = "metrics-server.kube-system.svc"

func checkDNS(v Values) error {
	if len(v.DNSAddresses) < 1 || len(v.DNSAddresses) > 2 {
		return fmt.Errorf("DNSAddresses has %d addresses; give one per family", len(v.DNSAddresses))
	}
	if v.Domain == "" {
		return errors.New("no Domain; give the cluster's domain in its own DNS, such as cluster.local")
	}
	if len(v.DNSAddresses) == 2 && v.DNSAddresses[0].Is4() == v.DNSAddresses[1].Is4() {
		return errors.New("DNSAddresses are both of one family; give one per family")
	}
	return nil
}

func checkMetrics(v Values) error {
	for _, pem := range []struct {
		name string
		text []byte
	}{{"MetricsCA", v.MetricsCA}, {"MetricsCert", v.MetricsCert}, {"MetricsKey", v.MetricsKey}} {
		if !strings.HasPrefix(string(pem.text), "-----BEGIN ") {
			return fmt.Errorf("%s is not a PEM text; give a certificate for %s, its key and its authority", pem.name, MetricsName)
		}
	}
	return nil
}

func checkLoadBalancer(v Values) error {
	if len(v.MemberlistKey) < 16 {
		return fmt.Errorf("MemberlistKey has %d bytes; give at least 16", len(v.MemberlistKey))
	}
	if len(v.LoadBalancer) == 0 {
		return errors.New("LoadBalancer is empty; give a range of addresses per family")
	}
	for _, r := range v.LoadBalancer {
		first, last, _ := strings.Cut(r, "-")
		from, err1 := netip.ParseAddr(first)
		to, err2 := netip.ParseAddr(last)
		if err1 != nil || err2 != nil || from.Is4() != to.Is4() || to.Less(from) {
			return fmt.Errorf("LoadBalancer range %q is not FIRST-LAST", r)
		}
	}
	return nil
}

func checkPodRanges(v Values) error {
	if !v.podRange(true).IsValid() && !v.podRange(false).IsValid() {
		return errors.New("PodRanges is empty; give one range per family")
	}
	return nil
}

// podRange is the first pod range of a family, or the zero Prefix.
func (v Values) podRange(four bool) netip.Prefix {
	for _, r := range v.PodRanges {
		if r.IsValid() && r.Addr().Is4() == four {
			return r
		}
	}
	return netip.Prefix{}
}

// PodRange4 and PodRange6 are for the templates: text, or empty.
func (v Values) PodRange4() string { return prefixText(v.podRange(true)) }

// PodRange6 is the IPv6 counterpart of PodRange4.
func (v Values) PodRange6() string { return prefixText(v.podRange(false)) }

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

// family names an address's family as Services do.
func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

func encode(text []byte) string { return base64.StdEncoding.EncodeToString(text) }
