package dns

import (
	"strings"

	wire "github.com/miekg/dns"
)

// domainOf is a domain with its default.
func domainOf(domain string) string {
	if domain = strings.Trim(domain, "."); domain == "" || !fits(domain) {
		domain = defaultDomain
	}
	return wire.Fqdn(strings.ToLower(domain))
}

// fits says whether a name can be sent.
func fits(name string) bool {
	_, err := wire.PackDomainName(wire.Fqdn(name), make([]byte, 255), 0, nil, false)
	return err == nil
}

// below returns the labels of a name before a domain, if it is that or below.
func below(name, domain string) (rest []string, ok bool) {
	labels, of := wire.SplitDomainName(name), wire.SplitDomainName(domain)
	n := len(labels) - len(of)
	if n < 0 {
		return nil, false
	}
	for i := range of {
		if !strings.EqualFold(labels[n+i], of[i]) {
			return nil, false
		}
	}
	return labels[:n], true
}

// join makes a name.
func join(labels []string, more ...string) string {
	all := append(labels[:len(labels):len(labels)], more...)
	return wire.Fqdn(strings.Join(all, "."))
}
