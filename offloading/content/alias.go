package content

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// homeDomain is what every home is called in what travels, whatever its own DNS calls it.
const homeDomain = v1alpha1.DefaultDomain

// Named is an object of a cluster of that domain as it travels: an ExternalName in this domain is there
// one in homeDomain. obj is not changed.
func Named(obj client.Object, domain string) client.Object {
	s, ok := obj.(*corev1.Service)
	if !ok || s.Spec.Type != corev1.ServiceTypeExternalName || v1alpha1.Unusual(domain) == "" {
		return obj
	}
	rest, home := below(strings.TrimSuffix(s.Spec.ExternalName, "."), v1alpha1.Unusual(domain))
	if !home || !strings.HasSuffix(rest, ".svc") { // a host beside the cluster's own names stays one of the world
		return obj
	}
	s = s.DeepCopy()
	s.Spec.ExternalName = rest + "." + homeDomain
	return s
}

// alias is what an ExternalName of home's is called here. A name in home's domain is a Service of the
// tenant's here, and never something of the provider's own that has the same name; all others are the world's.
func (r Rules) alias(name string) (here, wrong string) {
	name = strings.TrimSuffix(name, ".")
	domain := cmp.Or(strings.Trim(strings.ToLower(r.Domain), "."), v1alpha1.DefaultDomain)
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
