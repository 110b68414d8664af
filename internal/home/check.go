package home

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Bounds of settings.
const (
	maxLabels    = 64
	maxRules     = 256
	maxNames     = 256
	minLifetime  = 10 * time.Minute
	maxLifetime  = 8760 * time.Hour
	minAbandon   = 10 * time.Minute
	minSchedule  = time.Second
	maxSchedule  = 24 * time.Hour
	maxCALength  = 64 << 10
	maxShownText = 50
	maxShareText = 64
)

// topology are the only label keys of Kubernetes' own domains that may travel.
var topology = []string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone"}

var (
	amountPattern   = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,6})?$`)
	currencyPattern = regexp.MustCompile(`^[A-Z]{3}$`)
	sharePattern    = regexp.MustCompile(`^\+?([0-9]+\.?[0-9]*|\.[0-9]+)$`)
	idPattern       = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// mistakes collects what is wrong with settings.
type mistakes []error

func (m *mistakes) add(format string, args ...any) { *m = append(*m, fmt.Errorf(format, args...)) }

func (m mistakes) err() error { return errors.Join(m...) }

// config checks settings that have their defaults.
func (m *mistakes) config(c Config) {
	if err := v1alpha1.CheckClusterName(c.Cluster.Name); err != nil {
		m.add("cluster.name: %w", err)
	}
	m.labels(c.Cluster.Labels)
	m.address("apiServer.url", c.APIServer.URL, "https")
	m.address("apiServer.proxyURL", c.APIServer.ProxyURL, "http", "https")
	m.ca(c.APIServer.CA)
	m.address("auth.url", c.Auth.URL, "https")
	if u, err := url.Parse(c.Auth.URL); err == nil && strings.Trim(u.Path, "/") != "" {
		m.add("auth.url: has a path; give https://HOST:PORT only")
	}
	switch c.Identity.Type {
	case v1alpha1.CredentialCertificate, v1alpha1.CredentialToken:
	default:
		m.add("identity.type: %.50q is unknown; use %s or %s", c.Identity.Type, v1alpha1.CredentialCertificate, v1alpha1.CredentialToken)
	}
	m.between("identity.lifetime", c.Identity.Lifetime.Duration, minLifetime, maxLifetime)
	m.offer(c.Offer)
	m.network(c.Network)
	m.terms(c.Tenant)
}

func (m *mistakes) labels(labels map[string]string) {
	if len(labels) > maxLabels {
		m.add("cluster.labels: there are %d, at most %d; remove some", len(labels), maxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if why := validation.IsQualifiedName(key); len(why) > 0 {
			m.add("cluster.labels: %.80q is not a label key: %s", key, why[0])
			continue
		}
		if reservedKey(key) {
			m.add("cluster.labels: %s belongs to Kubernetes; of its keys only %s may be used", key, strings.Join(topology, " and "))
		}
		if why := validation.IsValidLabelValue(labels[key]); len(why) > 0 {
			m.add("cluster.labels: the value of %s is not a label value: %s", key, why[0])
		}
	}
}

// reservedKey reports whether a label key belongs to Kubernetes itself.
func reservedKey(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	if !found || slices.Contains(topology, key) {
		return false
	}
	for _, theirs := range []string{"kubernetes.io", "k8s.io"} {
		if domain == theirs || strings.HasSuffix(domain, "."+theirs) {
			return true
		}
	}
	return false
}

// address checks a URL; empty is fine.
func (m *mistakes) address(field, text string, schemes ...string) {
	if text == "" {
		return
	}
	want := strings.Join(schemes, " or ") + "://HOST:PORT"
	u, err := url.Parse(text)
	switch {
	case err != nil || !slices.Contains(schemes, u.Scheme) || u.Hostname() == "":
		m.add("%s: is not an address; give it as %s", field, want)
	case u.User != nil:
		m.add("%s: holds a user or password, which everybody could read; give it as %s", field, want)
	case u.RawQuery != "" || u.Fragment != "":
		m.add("%s: has a query or fragment; give it as %s", field, want)
	case u.Port() != "":
		if port, err := strconv.Atoi(u.Port()); err != nil || port < 1 || port > 65535 {
			m.add("%s: the port is not between 1 and 65535", field)
		}
	}
}

func (m *mistakes) ca(text string) {
	if text == "" {
		return
	}
	if len(text) > maxCALength {
		m.add("apiServer.ca: has %d bytes, at most %d; give only the authority of the API server", len(text), maxCALength)
		return
	}
	count := 0
	for rest := []byte(text); ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			m.add("apiServer.ca: holds a PEM block of another type than CERTIFICATE; never put keys here")
			return
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			m.add("apiServer.ca: certificate %d cannot be read; copy it again", count+1)
			return
		}
		count++
	}
	if count == 0 {
		m.add("apiServer.ca: holds no certificate; give it in PEM, beginning with -----BEGIN CERTIFICATE-----")
	}
	if n := len(bare(text)); n > maxCALength { // lines of another length
		m.add("apiServer.ca: has %d bytes as peers get it, at most %d; give only the authority of the API server", n, maxCALength)
	}
}

func (m *mistakes) between(field string, d, least, most time.Duration) {
	if d < least || d > most {
		m.add("%s: %s is not between %s and %s", field, d, shortDuration(least), shortDuration(most))
	}
}

// shortDuration leaves out the zero minutes and seconds that Duration.String writes.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (m *mistakes) offer(o Offer) {
	if _, err := ParsePercent(o.Reserve); err != nil {
		m.add("offer.reserve: %w", err)
	}
	m.between("offer.schedulingTimeout", o.SchedulingTimeout.Duration, minSchedule, maxSchedule)
	if len(o.Rules) > maxRules {
		m.add("offer.rules: there are %d, at most %d; join some", len(o.Rules), maxRules)
	}
	for i, rule := range o.Rules {
		field := fmt.Sprintf("offer.rules[%d]", i)
		if len(rule.Allow) == 0 && len(rule.Deny) == 0 {
			m.add("%s: says neither allow nor deny; add one or remove the rule", field)
		}
		m.names(field+".consumers", rule.Consumers, checkConsumer)
		m.names(field+".allow", rule.Allow, checkResource)
		m.names(field+".deny", rule.Deny, checkResource)
	}
	if p := o.Price; p != nil {
		if !amountPattern.MatchString(p.Amount) {
			m.add("offer.price.amount: %.50q is not a price; use at most 12 digits and 6 decimals, like \"0.25\"", p.Amount)
		}
		if !currencyPattern.MatchString(p.Currency) {
			m.add("offer.price.currency: %.50q is not a currency; use its three letters, like EUR", p.Currency)
		}
		if p.Period != "Hour" && p.Period != "Month" {
			m.add("offer.price.period: %.50q is unknown; use Hour or Month", p.Period)
		}
	}
}

// names checks the items of one list of a rule.
func (m *mistakes) names(field string, items []string, check func(string) string) {
	if len(items) > maxNames {
		m.add("%s: there are %d, at most %d; make several rules", field, len(items), maxNames)
	}
	for _, item := range items {
		if why := check(item); why != "" {
			m.add("%s: %.80q %s", field, item, why)
		}
	}
}

func checkConsumer(item string) string {
	if idPattern.MatchString(item) || v1alpha1.CheckClusterName(item) == nil {
		return ""
	}
	return "is neither the name of a tenant nor the id of a cluster; correct it"
}

func checkResource(item string) string {
	if item == "*" || len(validation.IsQualifiedName(item)) == 0 {
		return ""
	}
	return `is not a resource; use names like cpu, memory or example.com/gpu, or "*"`
}

// terms checks the terms of new tenants; what is not set gets its default there.
func (m *mistakes) terms(t v1alpha1.TenantTerms) {
	oneOf(m, "tenant.state", t.State, v1alpha1.TenantActive, v1alpha1.TenantCordoned, v1alpha1.TenantDrained)
	oneOf(m, "tenant.podSecurity", t.PodSecurity, v1alpha1.PodSecurityPrivileged, v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted)
	oneOf(m, "tenant.reachability", t.Reachability, v1alpha1.Reachabilities()...)
	if t.Callers != nil {
		if s, err := metav1.LabelSelectorAsSelector(t.Callers); err != nil || s.Empty() {
			m.add("tenant.callers: names no labels, or others than there can be; write it like matchLabels: {uses: rome}")
		}
	}
	if t.AbandonAfter != nil && t.AbandonAfter.Duration < minAbandon {
		m.add("tenant.abandonAfter: %s is too short; give at least %s", t.AbandonAfter.Duration, shortDuration(minAbandon))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Objects)) {
		if t.Objects[name] < 0 {
			m.add("tenant.objects.%s: is below zero; give how many there may be", name)
		}
	}
	if t.Limits == nil {
		return
	}
	oneOf(m, "tenant.limits.enforcement", t.Limits.Enforcement, v1alpha1.EnforcementNone, v1alpha1.EnforcementSoft, v1alpha1.EnforcementHard)
	if n := t.Limits.Namespaces; n != nil && *n < 0 {
		m.add("tenant.limits.namespaces: is below zero; give how many there may be")
	}
	for _, name := range slices.Sorted(maps.Keys(t.Limits.Resources)) {
		amount := t.Limits.Resources[name]
		if amount.Sign() < 0 {
			m.add("tenant.limits.resources.%s: is below zero; give the most there may be", name)
		}
	}
}

// oneOf checks a choice; empty is the default.
func oneOf[T ~string](m *mistakes, field string, value T, allowed ...T) {
	if value == "" || slices.Contains(allowed, value) {
		return
	}
	var names []string
	for _, a := range allowed {
		names = append(names, string(a))
	}
	m.add("%s: %.50q is unknown; use %s", field, value, strings.Join(names, ", "))
}

// ParsePercent reads a share such as "10%" or "2.5%" and returns it, exactly, as a fraction
// from 0 to 1. All that read a share use it, so that none refuses what another one takes.
func ParsePercent(text string) (*big.Rat, error) {
	number, found := strings.CutSuffix(strings.TrimSpace(text), "%")
	if found && len(number) <= maxShareText && sharePattern.MatchString(number) {
		hundred := big.NewRat(100, 1)
		if value, ok := new(big.Rat).SetString(number); ok && value.Cmp(hundred) <= 0 {
			return value.Quo(value, hundred), nil
		}
	}
	return nil, fmt.Errorf("%.*q is not a share; give it like 10%%, from 0%% to 100%%", maxShownText, text)
}
