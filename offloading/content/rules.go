package content

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Rules is what the provider's owner allows a tenant. The zero value is what holds where
// the owner has said nothing.
type Rules struct {
	// Deny are kinds of which nothing is taken.
	Deny []string
	// NodePorts and LoadBalancers let Services of these types be what they are.
	NodePorts, LoadBalancers bool
	// IngressHosts are the domains for which Ingresses are taken: each stands for itself
	// and all names below it. IngressClass is the class of every one.
	IngressHosts []string
	IngressClass string
	// NoSecrets are Secrets that are known not to be there where the object belongs.
	NoSecrets []string
	// Families are those that the provider's cluster has for Services, the first one first;
	// none if that is not known.
	Families []corev1.IPFamily
	// Budgets lets PodDisruptionBudgets be taken: any of them can hold up drains for ever.
	Budgets bool
	// Allows says whether an address is the tenant's in the network between the clusters,
	// so that EndpointSlices may have it. None may if nil: there is no network.
	Allows func(netip.Addr) bool
	// Called says that the provider's own pods may call the tenant's Services.
	Called bool
	// Spaces are the namespaces here of the tenant's, by their names at home.
	Spaces map[string]string
	// Domain is what the provider's cluster is called in its own DNS; cluster.local if empty.
	Domain string
	// Closed are the directions that a NetworkPolicy of the provider's owner closes where the object
	// belongs: NetworkPolicies add up, and none of a tenant's may open what he has closed.
	Closed []networkingv1.PolicyType
	// Through are the prefixes by which this cluster sees what is the tenant's through the network.
	// Gateways say who may reach whom there, so NetworkPolicies let all of it pass.
	Through []netip.Prefix
	// NameServers are where the tenant's pods ask for names; ClusterNames says that it is the
	// cluster's own DNS instead.
	NameServers  []netip.Addr
	ClusterNames bool
	// Cut says that nothing comes through the tunnel between the clusters: no endpoint of an
	// EndpointSlice is ready.
	Cut bool
}

// RulesOf are the rules that the terms of a tenant make.
func RulesOf(t v1alpha1.TenantTerms) Rules {
	var r Rules
	if t.Reflection != nil {
		r.Deny = t.Reflection.Deny
	}
	if t.Services != nil {
		r.NodePorts, r.LoadBalancers = t.Services.NodePorts, t.Services.LoadBalancers
	}
	if t.Ingress != nil {
		r.IngressClass, r.IngressHosts = t.Ingress.Class, t.Ingress.Hosts
	}
	r.Called = t.Callers != nil || t.Reachability == v1alpha1.ReachFull
	r.Budgets = t.DisruptionBudgets != nil && *t.DisruptionBudgets
	return r
}
