package home

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Config is the key "config.yaml" of the ConfigMap pelago-config.
type Config struct {
	// Cluster is who this cluster is.
	Cluster Cluster `json:"cluster"`
	// APIServer is how consumers reach this cluster's API server.
	APIServer APIServer `json:"apiServer,omitempty"`
	// Auth is how consumers reach the authentication endpoint.
	Auth Auth `json:"auth,omitempty"`
	// Identity is how consumers prove who they are.
	Identity Identity `json:"identity,omitempty"`
	// Offer is what consumers are offered.
	Offer Offer `json:"offer,omitempty"`
	// Network is by which addresses this cluster and its peers see each other.
	Network Network `json:"network,omitempty"`
	// Tenant holds the terms of new tenants that their invitation does not set.
	Tenant v1alpha1.TenantTerms `json:"tenant,omitempty"`
}

// Cluster is who a cluster is.
type Cluster struct {
	// Name by which other clusters know this one.
	Name string `json:"name"`
	// Labels that travel with every offer, e.g. topology.kubernetes.io/region: eu-south.
	Labels map[string]string `json:"labels,omitempty"`
}

// APIServer is an address with the authority that signed its certificate.
type APIServer struct {
	// URL, https://HOST:PORT. Required to provide.
	URL string `json:"url,omitempty"`
	// CA in PEM; if empty, the authority that service accounts of this cluster trust.
	CA string `json:"ca,omitempty"`
	// ProxyURL is an HTTP proxy through which consumers reach URL.
	ProxyURL string `json:"proxyURL,omitempty"`
}

// Auth is the authentication endpoint.
type Auth struct {
	// URL to hand out, https://HOST:PORT; if empty, that of the Service pelago-auth.
	URL string `json:"url,omitempty"`
}

// Identity is how credentials are made.
type Identity struct {
	// Type: Certificate (default) or ServiceAccountToken.
	Type v1alpha1.CredentialType `json:"type,omitempty"`
	// Lifetime of a credential, 10m to 8760h; 720h if zero. It is renewed at two thirds.
	Lifetime metav1.Duration `json:"lifetime,omitempty"`
}

// Offer is what consumers are offered.
type Offer struct {
	// Reserve is the share of this cluster's capacity that is never offered, 0% to 100%.
	Reserve string `json:"reserve,omitempty"`
	// Rules filter what is offered to whom. All that match apply.
	Rules []Rule `json:"rules,omitempty"`
	// Price of everything offered.
	Price *v1alpha1.Price `json:"price,omitempty"`
	// SchedulingTimeout is how long a consumer's pod may stay unschedulable here; 10s if zero.
	SchedulingTimeout metav1.Duration `json:"schedulingTimeout,omitempty"`
}

// Rule says which resources some consumers may be offered.
type Rule struct {
	// Consumers it is about, by tenant name or cluster id; everyone if empty.
	Consumers []string `json:"consumers,omitempty"`
	// Allow, if not empty, is all they may be offered. "*" is everything.
	Allow []string `json:"allow,omitempty"`
	// Deny is what they are never offered. "*" is everything.
	Deny []string `json:"deny,omitempty"`
}

// Network is by which addresses this cluster and its peers see each other. All of it may be
// empty: what is needed is found then.
type Network struct {
	// Pods are the ranges of the pods here, as peers are told them.
	Pods []string `json:"pods,omitempty"`
	// Services are the ranges of the services here.
	Services []string `json:"services,omitempty"`
	// External are the ranges that stand for what is no pod here, at most one of each family.
	External []string `json:"external,omitempty"`
	// Pools are what views are cut from when a range of a peer cannot be its own.
	Pools []string `json:"pools,omitempty"`
	// Reserved are networks that no view may cover.
	Reserved []string `json:"reserved,omitempty"`
	// AsIs are networks that are not private, in which a peer's range may be its own view.
	AsIs []string `json:"asIs,omitempty"`
	// Mappable are the networks of which IPMappings may give addresses to peers; none if empty.
	Mappable []string `json:"mappable,omitempty"`
	// Endpoints, HOST or HOST:PORT, are where peers reach the gateways here, in place of the
	// addresses of nodes.
	Endpoints []string `json:"endpoints,omitempty"`
	// Port is the UDP port of the first peering's tunnel, those of others follow; 7100 if 0.
	Port int32 `json:"port,omitempty"`
	// Service, LoadBalancer or NodePort, is the type of a Service in front of each tunnel, by
	// which peers reach it in place of the addresses of nodes. If empty there is none.
	Service corev1.ServiceType `json:"service,omitempty"`
	// ServiceAnnotations are put on these Services.
	ServiceAnnotations map[string]string `json:"serviceAnnotations,omitempty"`
}
