package content

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxRules is how many rules an Ingress has at most, maxPaths how many paths each.
	maxRules = 100
	maxPaths = 100
)

// ingressContent is what travels of an Ingress: rules for hosts, to Services of its
// namespace. It has no place for what serves every host, for other backends, and for a
// class; annotations do not travel at all, as controllers take orders from them.
type ingressContent struct {
	TLS   []ingressTLS  `json:"tls,omitempty"`
	Rules []ingressRule `json:"rules,omitempty"`
}

type ingressTLS struct {
	Hosts  []string `json:"hosts,omitempty"`
	Secret string   `json:"secret,omitempty"`
}

type ingressRule struct {
	Host  string        `json:"host"`
	Paths []ingressPath `json:"paths,omitempty"`
}

type ingressPath struct {
	Path     string                `json:"path,omitempty"`
	PathType networkingv1.PathType `json:"pathType"`
	Service  string                `json:"service"`
	// Port is the number of the Service's port, PortName its name; one of them is given.
	Port     int32  `json:"port,omitempty"`
	PortName string `json:"portName,omitempty"`
}

var ingresses = form[*networkingv1.Ingress, ingressContent]{
	name: "Ingress", bare: true,
	empty:  func() *networkingv1.Ingress { return &networkingv1.Ingress{} },
	list:   func() client.ObjectList { return &networkingv1.IngressList{} },
	pack:   packIngress,
	check:  checkIngress,
	unpack: unpackIngress,
	put: func(next, want *networkingv1.Ingress) bool {
		next.Spec = want.Spec
		return false
	},
}

func packIngress(i *networkingv1.Ingress) (ingressContent, string) {
	var c ingressContent
	if i.Spec.DefaultBackend != nil {
		return c, "it has a default backend, which would serve all hosts of the provider; give it rules with hosts"
	}
	for _, t := range i.Spec.TLS {
		c.TLS = append(c.TLS, ingressTLS{Hosts: t.Hosts, Secret: t.SecretName})
	}
	for _, r := range i.Spec.Rules {
		rule := ingressRule{Host: r.Host}
		if r.HTTP == nil {
			return c, "its rule for " + quote(r.Host) + " has no paths, which means a default backend; give it paths"
		}
		for _, p := range r.HTTP.Paths {
			if p.Backend.Service == nil {
				return c, "a backend is no Service; only Services travel"
			}
			path := ingressPath{Path: p.Path, Service: p.Backend.Service.Name, Port: p.Backend.Service.Port.Number, PortName: p.Backend.Service.Port.Name}
			if p.PathType != nil {
				path.PathType = *p.PathType
			}
			rule.Paths = append(rule.Paths, path)
		}
		c.Rules = append(c.Rules, rule)
	}
	return c, ""
}

func checkIngress(c *ingressContent) string {
	switch {
	case len(c.Rules) == 0:
		return "it has no rules"
	case len(c.Rules) > maxRules || len(c.TLS) > maxRules:
		return fmt.Sprintf("%d rules and %d entries of TLS, at most %d each; use several Ingresses", len(c.Rules), len(c.TLS), maxRules)
	}
	for _, r := range c.Rules {
		switch {
		case r.Host == "":
			return "a rule without a host would serve all hosts of the provider; name the host"
		case len(r.Paths) == 0 || len(r.Paths) > maxPaths:
			return fmt.Sprintf("a rule with %d paths; from 1 to %d", len(r.Paths), maxPaths)
		}
	}
	for _, t := range c.TLS {
		if len(t.Hosts) == 0 || len(t.Hosts) > maxRules {
			return fmt.Sprintf("an entry of TLS with %d hosts; from 1 to %d", len(t.Hosts), maxRules)
		}
	}
	return ""
}

func unpackIngress(c *ingressContent, rules Rules, i *networkingv1.Ingress) string {
	if rules.IngressClass == "" {
		return "the provider takes no Ingresses of this tenant; its owner allows them with spec.ingress of the Tenant"
	}
	i.Spec.IngressClassName = &rules.IngressClass
	for _, t := range c.TLS {
		for _, host := range t.Hosts {
			if !under(host, rules.IngressHosts) {
				return "the host " + quote(host) + " is not under one that the provider allows this tenant"
			}
		}
		i.Spec.TLS = append(i.Spec.TLS, networkingv1.IngressTLS{Hosts: t.Hosts, SecretName: t.Secret})
	}
	for _, r := range c.Rules {
		if !under(r.Host, rules.IngressHosts) {
			return "the host " + quote(r.Host) + " is not under one that the provider allows this tenant"
		}
		http := &networkingv1.HTTPIngressRuleValue{}
		for _, p := range r.Paths {
			http.Paths = append(http.Paths, networkingv1.HTTPIngressPath{Path: p.Path, PathType: &p.PathType, Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: p.Service, Port: networkingv1.ServiceBackendPort{Number: p.Port, Name: p.PortName}}}})
		}
		i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: r.Host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: http}})
	}
	return ""
}

// under says whether a host, or a wildcard for hosts, is one of the domains or below one.
func under(host string, domains []string) bool {
	name := strings.TrimPrefix(host, "*.")
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return false
	}
	return slices.ContainsFunc(domains, func(domain string) bool {
		return strings.HasSuffix(name, "."+domain) || name == domain
	})
}
