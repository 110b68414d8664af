package internet

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
)

const (
	maxPorts     = 999
	maxName      = 50
	maxInterface = 15
)

var (
	clusterName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	interfaceName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	wanName       = regexp.MustCompile(`^w[0-9]+-[0-9]+$`)
)

// mistakes collects everything wrong with a Config.
type mistakes struct{ errs []error }

func (m *mistakes) add(field, format string, args ...any) {
	m.errs = append(m.errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
}

// Validate returns every mistake, joined; each names its field and the remedy.
func (c Config) Validate() error {
	var m mistakes
	if len(c.Ports) > maxPorts {
		m.add("ports", "there are %d; at most %d are possible", len(c.Ports), maxPorts)
	}
	c.validateHost(&m)
	clusters, interfaces := map[string]bool{}, map[string]bool{c.Host.Interface: true}
	for i, p := range c.Ports {
		at := fmt.Sprintf("ports[%d]", i)
		if len(p.Cluster) > maxName || !clusterName.MatchString(p.Cluster) {
			m.add(at+".cluster", "%q is not a name of at most %d lower-case letters, digits and inner hyphens", p.Cluster, maxName)
		}
		if clusters[p.Cluster] {
			m.add(at+".cluster", "%q has a port already; give each cluster one", p.Cluster)
		}
		clusters[p.Cluster] = true
		validateInterface(&m, at+".interface", p.Interface)
		if p.Interface != "" && interfaces[p.Interface] {
			m.add(at+".interface", "%q is taken; give each port an interface of its own", p.Interface)
		}
		interfaces[p.Interface] = true
		p.validatePrefixes(&m, at)
	}
	c.validateOverlap(&m)
	c.validateLinks(&m, clusters)
	return errors.Join(m.errs...)
}

func (c Config) validateHost(m *mistakes) {
	if c.Host.Interface == "" {
		if len(c.Host.Prefixes) > 0 {
			m.add("host.interface", "is missing; name it, or leave out host.prefixes")
		}
		return
	}
	validateInterface(m, "host.interface", c.Host.Interface)
	if len(c.Host.Prefixes) == 0 {
		m.add("host.prefixes", "is empty; list the addresses of the host")
	}
	validatePrefixes(m, "host.prefixes", c.Host.Prefixes)
}

func validateInterface(m *mistakes, field, name string) {
	switch {
	case len(name) > maxInterface || !interfaceName.MatchString(name):
		m.add(field, "%q is not a name of at most %d letters, digits, '_', '.' and '-'", name, maxInterface)
	case name == "lo" || wanName.MatchString(name):
		m.add(field, "%q is reserved; choose another name", name)
	}
}

func validatePrefixes(m *mistakes, field string, prefixes []netip.Prefix) {
	for i, p := range prefixes {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case !p.IsValid():
			m.add(at, "is not a prefix; write it like 198.18.0.0/24")
		case p.Addr().Is4In6():
			m.add(at, "%s is IPv4 written as IPv6; write it as IPv4", p)
		case p != p.Masked():
			m.add(at, "%s has bits outside its mask; write %s", p, p.Masked())
		case p.Bits() == 0:
			m.add(at, "%s is everything; name the networks", p)
		}
	}
}

func (p Port) validatePrefixes(m *mistakes, at string) {
	if len(p.Prefixes) == 0 {
		m.add(at+".prefixes", "is empty; list what the cluster is addressed by")
	}
	validatePrefixes(m, at+".prefixes", p.Prefixes)
	validatePrefixes(m, at+".private", p.Private)
	for i, g := range p.Gateway {
		if !g.IsValid() || g.Is4In6() || g.IsUnspecified() || g.IsMulticast() {
			m.add(fmt.Sprintf("%s.gateway[%d]", at, i), "is not the address of one machine; name the NAT box")
		}
		if slices.ContainsFunc(p.Gateway[:i], func(o netip.Addr) bool { return o.Is4() == g.Is4() }) {
			m.add(fmt.Sprintf("%s.gateway[%d]", at, i), "is a second one of its family; keep one")
		}
	}
	for i, n := range p.Private {
		if n.IsValid() && !p.via(n).IsValid() {
			m.add(fmt.Sprintf("%s.private[%d]", at, i), "%s has no gateway of its family; add one to %s.gateway", n, at)
		}
	}
}

// via returns the next hop to a private prefix, invalid if there is none.
func (p Port) via(private netip.Prefix) netip.Addr {
	for _, g := range p.Gateway {
		if g.Is4() == private.Addr().Is4() {
			return g
		}
	}
	return netip.Addr{}
}

// validateOverlap refuses prefixes that would make the owner of an address
// unclear. A prefix of the host may contain those of ports, as the longer wins.
func (c Config) validateOverlap(m *mistakes) {
	type owned struct {
		field  string
		prefix netip.Prefix
	}
	var seen []owned
	for i, port := range c.Ports {
		for j, p := range port.Prefixes {
			seen = append(seen, owned{fmt.Sprintf("ports[%d].prefixes[%d]", i, j), p})
		}
		for j, p := range port.Private {
			seen = append(seen, owned{fmt.Sprintf("ports[%d].private[%d]", i, j), p})
		}
	}
	for i, a := range seen {
		for _, b := range seen[:i] {
			if a.prefix.Overlaps(b.prefix) {
				m.add(a.field, "%s overlaps %s of %s; keep them apart", a.prefix, b.prefix, b.field)
			}
		}
		for j, h := range c.Host.Prefixes {
			if a.prefix.Overlaps(h) && a.prefix.Bits() <= h.Bits() {
				m.add(a.field, "%s contains %s of host.prefixes[%d]; keep the host outside", a.prefix, h, j)
			}
		}
	}
}

func (c Config) validateLinks(m *mistakes, clusters map[string]bool) {
	for i, l := range c.Links {
		at := fmt.Sprintf("links[%d]", i)
		if !clusters[l.A] {
			m.add(at+".a", "there is no cluster %q; name one of the ports", l.A)
		}
		if !clusters[l.B] {
			m.add(at+".b", "there is no cluster %q; name one of the ports", l.B)
		}
		switch {
		case l.A == l.B:
			m.add(at, "joins %q with itself; name two clusters", l.A)
		case l.A > l.B:
			m.add(at, "has a=%q, b=%q; put the names in alphabetical order", l.A, l.B)
		case slices.ContainsFunc(c.Links[:i], func(o Link) bool { return o.A == l.A && o.B == l.B }):
			m.add(at, "is a second link between %q and %q; keep one", l.A, l.B)
		}
		if l.Delay < 0 || l.Delay > MaxDelay {
			m.add(at+".delay", "%s is outside 0s to %s; choose one within", l.Delay, MaxDelay)
		}
		if !(l.Loss >= 0 && l.Loss <= 1) {
			m.add(at+".loss", "%v is outside 0 to 1; 0.1 is one packet in ten", l.Loss)
		}
		if l.Rate != 0 && (l.Rate < MinRate || l.Rate > MaxRate) {
			m.add(at+".rate", "%d is outside %d to %d bit/s; choose one within, or 0 for unlimited", l.Rate, int64(MinRate), int64(MaxRate))
		}
	}
}
