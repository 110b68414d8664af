package home

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// ConfigKey is the key of the settings in the ConfigMap pelago-config.
const ConfigKey = "config.yaml"

// maxConfig bounds the text of the settings, in bytes.
const maxConfig = 256 << 10

// Parse reads settings in YAML, checks them and fills in defaults. The error holds
// every mistake found, a line each, with the field and the remedy.
func Parse(text string) (Config, error) {
	if len(text) > maxConfig {
		return Config{}, fmt.Errorf("the settings have %d bytes, at most %d are read; shorten them", len(text), maxConfig)
	}
	asJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return Config{}, fmt.Errorf("the settings are not YAML: %w", err)
	}
	var tree map[string]any
	if err := json.Unmarshal(asJSON, &tree); err != nil {
		return Config{}, errors.New("the settings are not a map of fields; begin with: cluster: {name: …}")
	}
	var m mistakes
	m.values(tree)
	if asJSON, err = json.Marshal(tree); err != nil {
		return Config{}, fmt.Errorf("reading the settings: %w", err)
	}
	var c Config
	unknown, err := strictjson.UnmarshalStrict(asJSON, &c)
	if err != nil {
		m.add("%s", typeMistake(err))
		return Config{}, m.err()
	}
	for _, u := range unknown {
		field, _ := strings.CutPrefix(u.Error(), "unknown field ")
		m.add("%s: there is no such field; correct its name or remove it", strings.Trim(field, `"`))
	}
	c.applyDefaults()
	m.config(c)
	if err := m.err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c *Config) applyDefaults() {
	if c.Identity.Type == "" {
		c.Identity.Type = v1alpha1.CredentialCertificate
	}
	if c.Identity.Lifetime.Duration == 0 {
		c.Identity.Lifetime.Duration = defaultLifetime
	}
	if c.Offer.Reserve == "" {
		c.Offer.Reserve = "0%"
	}
	if c.Offer.SchedulingTimeout.Duration == 0 {
		c.Offer.SchedulingTimeout.Duration = defaultSchedulingTimeout
	}
	if c.Network.Port == 0 {
		c.Network.Port = defaultPort
	}
}

// clone copies settings, so that a caller cannot change ours.
func (c Config) clone() Config {
	c.Cluster.Labels = maps.Clone(c.Cluster.Labels)
	rules := slices.Clone(c.Offer.Rules)
	for i, r := range rules {
		rules[i] = Rule{Consumers: slices.Clone(r.Consumers), Allow: slices.Clone(r.Allow), Deny: slices.Clone(r.Deny)}
	}
	c.Offer.Rules = rules
	if c.Offer.Price != nil {
		c.Offer.Price = c.Offer.Price.DeepCopy()
	}
	n := &c.Network
	for _, list := range []*[]string{&n.Pods, &n.Services, &n.External, &n.Pools, &n.Reserved, &n.AsIs, &n.Mappable, &n.Endpoints} {
		*list = slices.Clone(*list)
	}
	n.ServiceAnnotations = maps.Clone(n.ServiceAnnotations)
	c.Tenant = *c.Tenant.DeepCopy()
	return c
}

// values checks what the decoder could only complain of without naming the field:
// durations and amounts of resources. It takes out what is wrong, so that the rest is
// checked as well.
func (m *mistakes) values(tree map[string]any) {
	duration := func(value any) error {
		text, ok := value.(string)
		if !ok {
			return errors.New("is not a duration; write it like 10s, 30m or 720h")
		}
		if _, err := time.ParseDuration(text); err != nil {
			return fmt.Errorf("%.50q is not a duration; write it like 10s, 30m or 720h", text)
		}
		return nil
	}
	for _, path := range []string{"identity.lifetime", "offer.schedulingTimeout", "tenant.abandonAfter"} {
		m.value(tree, path, duration)
	}
	section, _ := tree["tenant"].(map[string]any)
	limits, _ := section["limits"].(map[string]any)
	resources, _ := limits["resources"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		text := fmt.Sprint(resources[name])
		if !plainAmount.MatchString(text) || !parses(text) {
			m.add("tenant.limits.resources.%s: %.50q is not an amount; write it like 500m, 4 or 16Gi", name, text)
			delete(resources, name)
		}
	}
}

// plainAmount are the amounts people write. Nothing else is given to the parser of
// quantities, which takes for ever on an exponent of many digits.
var plainAmount = regexp.MustCompile(`^-?[0-9]{1,18}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i)?$`)

func parses(text string) bool {
	_, err := resource.ParseQuantity(text)
	return err == nil
}

func (m *mistakes) value(tree map[string]any, path string, check func(any) error) {
	first, last, _ := strings.Cut(path, ".")
	section, _ := tree[first].(map[string]any)
	value, found := section[last]
	if !found || value == nil {
		return
	}
	if err := check(value); err != nil {
		m.add("%s: %s", path, err)
		delete(section, last)
	}
}

// typeMistake says in our words that a field holds another type than it should.
func typeMistake(err error) string {
	text := err.Error()
	_, rest, found := strings.Cut(text, "cannot unmarshal ")
	value, rest, found2 := strings.Cut(rest, " into Go struct field ")
	name, want, found3 := strings.Cut(rest, " of type ")
	if !found || !found2 || !found3 {
		return "the settings do not have the types they should: " + text
	}
	_, path, _ := strings.Cut(name, ".")
	switch {
	case strings.HasPrefix(want, "[]"):
		want = "a list"
	case strings.HasPrefix(want, "map["):
		want = "a map"
	case want == "string":
		want = `a string; put it in quotes if it looks like a number`
	case strings.HasPrefix(want, "int"):
		want = "a whole number"
	default:
		want = "a map of fields"
	}
	return fmt.Sprintf("%s: holds %s and must hold %s", path, value, want)
}

// Lifetimes and delays that hold where the settings name none.
const (
	defaultLifetime          = 720 * time.Hour
	defaultSchedulingTimeout = 10 * time.Second
)

// equal compares settings by what they say.
func equal(a, b Config) bool {
	left, errA := json.Marshal(a)
	right, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(left) == string(right)
}
