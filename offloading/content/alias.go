package content

import (
	"cmp"
	"fmt"
	"strings"
)

// homeDomain is what every home is called in the DNS that its pods have at providers.
const homeDomain = "cluster.local"

// alias is what an ExternalName of home's is called here. A name in home's domain is a Service of the
// tenant's here, and never something of the provider's own that has the same name; all others are the world's.
func (r Rules) alias(name string) (here, wrong string) {
	name = strings.TrimSuffix(name, ".")
	domain := cmp.Or(strings.Trim(strings.ToLower(r.Domain), "."), homeDomain)
	rest, home := below(name, homeDomain)
	if !home {
		if _, own := below(name, domain); own {
			return "", "externalName: " + quote(name) + " is a name of the provider's own cluster"
		}
		return name, ""
	}
	labels := strings.Split(rest, ".")
	n := len(labels)
	if n < 3 || labels[n-1] != "svc" {
		return "", "externalName: " + quote(name) + " means no Service; say NAME.NAMESPACE.svc." + homeDomain
	}
	mapped := r.Spaces[labels[n-2]]
	if mapped == "" {
		return "", fmt.Sprintf("externalName: the namespace %s is not offloaded to this provider, so that no name of it means anything here; offload it here too", quote(labels[n-2]))
	}
	return strings.Join(append(labels[:n-2:n-2], mapped, "svc", domain), "."), ""
}

// below is what of a name stands before a domain, if it is that or below.
func below(name, domain string) (rest string, ok bool) {
	if name == domain {
		return "", true
	}
	return strings.CutSuffix(name, "."+domain)
}
