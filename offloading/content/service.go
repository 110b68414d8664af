package content

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// maxPorts is how many ports a Service has at most: every one is rules on every node of
	// the provider, and a tenant has up to a thousand objects.
	maxPorts = 32
	// maxSelector is how many labels a selector names at most.
	maxSelector = 64
	// stickyFor is how long session affinity lasts if it is not said, in seconds.
	stickyFor = 10800
)

// serviceContent is what travels of a Service. What it does not have a place for are
// addresses, node ports, sources and classes: they are of home, or would take what is
// the provider's.
type serviceContent struct {
	// Type is what it is at home; the provider decides what it becomes.
	Type corev1.ServiceType `json:"type,omitempty"`
	// ExternalName is another name of what is meant; a Service of this type has nothing else.
	ExternalName string            `json:"externalName,omitempty"`
	Headless     bool              `json:"headless,omitempty"`
	Ports        []servicePort     `json:"ports,omitempty"`
	Selector     map[string]string `json:"selector,omitempty"`
	// Sticky is for how many seconds a client stays at one pod; not at all if 0.
	Sticky                   int32                  `json:"sticky,omitempty"`
	PublishNotReadyAddresses bool                   `json:"publishNotReadyAddresses,omitempty"`
	IPFamilyPolicy           *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`
	// IPFamilies are home's, of which the provider gives those that its cluster has.
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`
}

type servicePort struct {
	Name        string             `json:"name,omitempty"`
	Protocol    corev1.Protocol    `json:"protocol,omitempty"`
	AppProtocol *string            `json:"appProtocol,omitempty"`
	Port        int32              `json:"port"`
	TargetPort  intstr.IntOrString `json:"targetPort"`
}

var services = form[*corev1.Service, serviceContent]{
	name: "Service", never: []string{"kubernetes"}, // by which pods find the API server
	empty:  func() *corev1.Service { return &corev1.Service{} },
	list:   func() client.ObjectList { return &corev1.ServiceList{} },
	pack:   packService,
	check:  checkService,
	unpack: unpackService,
	lacks:  lacksOfService,
	put:    putService,
}

func packService(s *corev1.Service) (serviceContent, string) {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return serviceContent{Type: s.Spec.Type, ExternalName: s.Spec.ExternalName}, "" // all else means nothing then
	}
	c := serviceContent{Type: s.Spec.Type, Headless: s.Spec.ClusterIP == corev1.ClusterIPNone, Selector: s.Spec.Selector,
		PublishNotReadyAddresses: s.Spec.PublishNotReadyAddresses, IPFamilyPolicy: s.Spec.IPFamilyPolicy, IPFamilies: s.Spec.IPFamilies}
	for _, p := range s.Spec.Ports {
		c.Ports = append(c.Ports, servicePort{p.Name, p.Protocol, p.AppProtocol, p.Port, p.TargetPort})
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		c.Sticky = stickyFor
		if a := s.Spec.SessionAffinityConfig; a != nil && a.ClientIP != nil && a.ClientIP.TimeoutSeconds != nil {
			c.Sticky = *a.ClientIP.TimeoutSeconds
		}
	}
	return c, ""
}

// checkService leaves to the API server what it says better: names, protocols, clashes.
func checkService(c *serviceContent) string {
	switch c.Type {
	case "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
	case corev1.ServiceTypeExternalName:
		if only := (serviceContent{Type: c.Type, ExternalName: c.ExternalName}); !equality.Semantic.DeepEqual(*c, only) {
			return "a Service of the type ExternalName has an externalName alone"
		}
		if len(validation.IsDNS1123Subdomain(strings.TrimSuffix(c.ExternalName, "."))) > 0 {
			return "externalName: " + quote(c.ExternalName) + " is no name of DNS in lower case"
		}
		return ""
	default:
		return "the type " + quote(string(c.Type)) + " is unknown"
	}
	if c.ExternalName != "" {
		return "externalName is for Services of the type ExternalName"
	}
	switch {
	case len(c.Ports) > maxPorts:
		return fmt.Sprintf("%d ports, at most %d; use several Services", len(c.Ports), maxPorts)
	case len(c.Selector) > maxSelector:
		return fmt.Sprintf("a selector of %d labels, at most %d", len(c.Selector), maxSelector)
	case c.Headless && c.Type != "" && c.Type != corev1.ServiceTypeClusterIP:
		return "a headless Service has the type ClusterIP"
	case c.Sticky < 0 || c.Sticky > 86400:
		return "sticky is from 0 to 86400 seconds"
	}
	if wrong := checkFamilies(c.IPFamilies); wrong != "" {
		return "ipFamilies: " + wrong
	}
	for _, p := range c.Ports {
		if p.Port < 1 || p.Port > 65535 || p.TargetPort.Type == intstr.Int && (p.TargetPort.IntVal < 1 || p.TargetPort.IntVal > 65535) {
			return "ports are from 1 to 65535"
		}
	}
	return ""
}

func unpackService(c *serviceContent, rules Rules, s *corev1.Service) string {
	if c.Type == corev1.ServiceTypeExternalName {
		if rules.IngressClass != "" {
			return "Services of the type ExternalName are not taken of a Tenant with spec.ingress: an Ingress would lead strangers to whatever the name means; use the name itself"
		}
		if rules.Called {
			return "Services of the type ExternalName are not taken of a Tenant with spec.callers or the reachability full: pods of the provider's own that call it would be led to whatever the name means; use the name itself"
		}
		here, wrong := rules.alias(c.ExternalName)
		s.Spec = corev1.ServiceSpec{Type: c.Type, ExternalName: here, SessionAffinity: corev1.ServiceAffinityNone}
		return wrong
	}
	s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: c.Selector, SessionAffinity: corev1.ServiceAffinityNone,
		PublishNotReadyAddresses: c.PublishNotReadyAddresses}
	s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = families(c.IPFamilies, c.IPFamilyPolicy, c.among(rules.Families))
	if c.Type == corev1.ServiceTypeNodePort && rules.NodePorts || c.Type == corev1.ServiceTypeLoadBalancer && rules.LoadBalancers {
		s.Spec.Type = c.Type
		if rules.Allows != nil {
			// Who comes from outside to a node without a pod leaves it as that node, and nodes are let
			// through to nobody's home: so each node gives them pods of its own, which home's never are.
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
	}
	if c.Headless {
		s.Spec.ClusterIP = corev1.ClusterIPNone
	}
	for _, p := range c.Ports {
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP // as the API server does
		}
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: p.TargetPort})
	}
	if c.Sticky > 0 {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &c.Sticky}}
	}
	return ""
}

// lacksOfService says that a Service is another one here: of another family, which it is reached
// by from fewer pods, or else of another type than it asks for.
func lacksOfService(c *serviceContent, rules Rules) (reason, message string) {
	if message := lacksFamilies(c, rules); message != "" {
		return v1alpha1.ReasonFamilyMissing, message
	}
	field := map[corev1.ServiceType]string{corev1.ServiceTypeNodePort: "nodePorts", corev1.ServiceTypeLoadBalancer: "loadBalancers"}[c.Type]
	if field == "" || c.Type == corev1.ServiceTypeNodePort && rules.NodePorts || c.Type == corev1.ServiceTypeLoadBalancer && rules.LoadBalancers {
		return "", ""
	}
	return v1alpha1.ReasonTypeNotAllowed, fmt.Sprintf("it is a ClusterIP here and no %s; the provider's owner allows that with spec.services.%s of the Tenant", c.Type, field)
}

// putService keeps what the provider's API server and load balancers have given. A
// Service becomes headless, another name, ceases to be, or loses its first family only by being made anew.
func putService(next, want *corev1.Service) bool {
	alias := next.Spec.Type == corev1.ServiceTypeExternalName
	next.Spec.ExternalName = want.Spec.ExternalName
	given := map[servicePortKey]int32{}
	for _, p := range next.Spec.Ports {
		given[servicePortKey{p.Protocol, p.Port}] = p.NodePort
	}
	had, wanted := next.Spec.ClusterIP == corev1.ClusterIPNone, want.Spec.ClusterIP == corev1.ClusterIPNone
	next.Spec.Ports = append([]corev1.ServicePort(nil), want.Spec.Ports...)
	if want.Spec.Type != corev1.ServiceTypeClusterIP {
		for i := range next.Spec.Ports {
			p := &next.Spec.Ports[i]
			p.NodePort = given[servicePortKey{p.Protocol, p.Port}]
		}
	}
	next.Spec.Type, next.Spec.Selector = want.Spec.Type, want.Spec.Selector
	next.Spec.SessionAffinity, next.Spec.SessionAffinityConfig = want.Spec.SessionAffinity, want.Spec.SessionAffinityConfig
	next.Spec.PublishNotReadyAddresses = want.Spec.PublishNotReadyAddresses
	if want.Spec.ExternalTrafficPolicy != "" {
		next.Spec.ExternalTrafficPolicy = want.Spec.ExternalTrafficPolicy
	}
	anew := putFamilies(next, want)
	return anew || had != wanted || alias != (want.Spec.Type == corev1.ServiceTypeExternalName)
}

type servicePortKey struct {
	protocol corev1.Protocol
	port     int32
}
