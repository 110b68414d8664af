package content

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// maxRules is how many rules an Ingress has at most, maxPaths how many paths each.
	maxRules = 100
	maxPaths = 100
	// maxPath is the most bytes of a path.
	maxPath = 1024
)

// pathForm is what a path is made of: controllers put it into their configuration, where
// spaces, quotes, braces and semicolons would be orders (CVE-2021-25745).
var pathForm = regexp.MustCompile(`^/[A-Za-z0-9._~/-]*$`)

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
	empty:   func() *networkingv1.Ingress { return &networkingv1.Ingress{} },
	list:    func() client.ObjectList { return &networkingv1.IngressList{} },
	pack:    packIngress,
	differs: reread,
	check:   checkIngress,
	unpack:  unpackIngress,
	lacks: func(c *ingressContent, rules Rules) (reason, message string) {
		for i, t := range c.TLS {
			if slices.Contains(rules.NoSecrets, t.Secret) {
				return v1alpha1.ReasonSecretMissing, fmt.Sprintf("tls[%d].secret: there is no Secret %s here; let it travel", i, quote(t.Secret))
			}
		}
		return "", ""
	},
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
	for n, r := range i.Spec.Rules {
		rule := ingressRule{Host: r.Host}
		if r.HTTP == nil {
			return c, "its rule for " + quote(r.Host) + " has no paths, which means a default backend; give it paths"
		}
		for m, p := range r.HTTP.Paths {
			if p.Backend.Service == nil {
				return c, "a backend is no Service; only Services travel"
			}
			path := ingressPath{Path: p.Path, Service: p.Backend.Service.Name, Port: p.Backend.Service.Port.Number, PortName: p.Backend.Service.Port.Name}
			switch {
			case own(p) && !pathForm.MatchString(p.Path):
				return c, fmt.Sprintf("rules[%d].paths[%d].path: %s with the pathType ImplementationSpecific means what each controller likes; "+
					"it goes as a Prefix where it is a / and then letters, digits and . _ ~ / - only: write it so, or give it the pathType Exact or Prefix", n, m, quote(p.Path))
			case own(p):
				path.PathType = networkingv1.PathTypePrefix
			case p.PathType != nil:
				path.PathType = *p.PathType
			}
			rule.Paths = append(rule.Paths, path)
		}
		c.Rules = append(c.Rules, rule)
	}
	return c, ""
}

// own says whether a path means what its controller likes. The one at a provider is another one, and is
// not left to make of it what it will: a plain path goes as a prefix, as which nearly all take it.
func own(p networkingv1.HTTPIngressPath) bool {
	return p.PathType != nil && *p.PathType == networkingv1.PathTypeImplementationSpecific
}

// reread says which paths mean something else over there, perhaps.
func reread(i *networkingv1.Ingress) string {
	n, first := 0, ""
	for _, r := range i.Spec.Rules {
		if r.HTTP == nil {
			continue
		}
		for _, p := range r.HTTP.Paths {
			if own(p) {
				n, first = n+1, cmp.Or(first, p.Path)
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of its paths, the first one %s, have the pathType ImplementationSpecific and are of the pathType Prefix there; write Prefix or Exact at home, too, to have the same on both sides", n, quote(first))
}

func checkIngress(c *ingressContent) string {
	switch {
	case len(c.Rules) == 0:
		return "it has no rules"
	case len(c.Rules) > maxRules || len(c.TLS) > maxRules:
		return fmt.Sprintf("%d rules and %d entries of TLS, at most %d each; use several Ingresses", len(c.Rules), len(c.TLS), maxRules)
	}
	for i, r := range c.Rules {
		if wrong := r.wrong(); wrong != "" {
			return fmt.Sprintf("rules[%d]%s", i, wrong)
		}
	}
	for i, t := range c.TLS {
		if wrong := t.wrong(); wrong != "" {
			return fmt.Sprintf("tls[%d]%s", i, wrong)
		}
	}
	return ""
}

// wrong says which field of a rule is wrong, and why.
func (r ingressRule) wrong() string {
	switch {
	case r.Host == "":
		return ".host: without one it would serve all hosts of the provider; name the host"
	case !isHost(r.Host):
		return ".host: " + quote(r.Host) + " is no name of a host in lower case"
	case len(r.Paths) == 0 || len(r.Paths) > maxPaths:
		return fmt.Sprintf(": %d paths; from 1 to %d", len(r.Paths), maxPaths)
	}
	for i, p := range r.Paths {
		if wrong := p.wrong(); wrong != "" {
			return fmt.Sprintf(".paths[%d]%s", i, wrong)
		}
	}
	return ""
}

// wrong says which field of a path is wrong, and why. The API server lets some of it pass,
// as the API has regular expressions and controllers with words of their own.
func (p ingressPath) wrong() string {
	switch {
	case p.PathType != networkingv1.PathTypeExact && p.PathType != networkingv1.PathTypePrefix:
		return ".pathType: " + quote(string(p.PathType)) + " means what each controller likes; Exact and Prefix travel"
	case len(p.Path) > maxPath:
		return fmt.Sprintf(".path: %d bytes, at most %d", len(p.Path), maxPath)
	case !pathForm.MatchString(p.Path):
		return ".path: " + quote(p.Path) + " is not a / and then letters, digits and . _ ~ / - only"
	case len(validation.IsDNS1123Label(p.Service)) > 0:
		return ".service: " + quote(p.Service) + " is no name of a Service"
	case (p.Port == 0) == (p.PortName == ""):
		return ": either port or portName is given"
	case p.Port < 0 || p.Port > 65535:
		return ".port: from 1 to 65535"
	case p.PortName != "" && len(validation.IsValidPortName(p.PortName)) > 0:
		return ".portName: " + quote(p.PortName) + " is no name of a port"
	}
	return ""
}

// wrong says which field of an entry of TLS is wrong, and why.
func (t ingressTLS) wrong() string {
	if len(t.Hosts) == 0 || len(t.Hosts) > maxRules {
		return fmt.Sprintf(": %d hosts; from 1 to %d", len(t.Hosts), maxRules)
	}
	for i, host := range t.Hosts {
		if !isHost(host) {
			return fmt.Sprintf(".hosts[%d]: %s is no name of a host in lower case", i, quote(host))
		}
	}
	if t.Secret != "" && len(validation.IsDNS1123Subdomain(t.Secret)) > 0 {
		return ".secret: " + quote(t.Secret) + " is no name of a Secret"
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

// isHost says whether a text is the name of a host, or a wildcard for hosts.
func isHost(host string) bool {
	return len(validation.IsDNS1123Subdomain(strings.TrimPrefix(host, "*."))) == 0
}

// under says whether a host, or a wildcard for hosts, is one of the domains or below one.
func under(host string, domains []string) bool {
	name := strings.TrimPrefix(host, "*.")
	return isHost(host) && slices.ContainsFunc(domains, func(domain string) bool {
		return strings.HasSuffix(name, "."+domain) || name == domain
	})
}
