package v1alpha1

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultDomain is what nearly every cluster is called in its own DNS.
const DefaultDomain = "cluster.local"

// IsDomain says whether this can be what a cluster is called in its own DNS. It has to fit into a
// label, so it has at most 63 characters.
func IsDomain(domain string) bool {
	return len(domain) <= validation.LabelValueMaxLength && len(validation.IsDNS1123Subdomain(domain)) == 0
}

// Unusual is such a domain as it is exchanged, in small letters and without a dot at the end:
// "" if it is DefaultDomain, unknown, or cannot be exchanged.
func Unusual(domain string) string {
	domain = strings.ToLower(strings.TrimSuffix(domain, "."))
	if domain == DefaultDomain || !IsDomain(domain) {
		return ""
	}
	return domain
}

// DomainOf is a domain that a label or an annotation says, DefaultDomain if that says none.
func DomainOf(said string) string {
	if said == "" || !IsDomain(said) {
		return DefaultDomain
	}
	return said
}
