package network

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A tenant and a provider between which this cluster lies may have a direct path too. A tenant lets
// nobody write in its cluster: its end is in the NetworkConfig that is this cluster's word to it,
// which it reads in any case, and it answers in the status of that.

// tenantEnd begins the name of a tenant's end among those that are named after their Peerings. No
// Peering is named so.
const tenantEnd = "tenant/"

// endKey is the key by which whoever writes an end is told of it.
func endKey(end string) string {
	if tenant, is := strings.CutPrefix(end, tenantEnd); is {
		return providerKey(tenant)
	}
	return consumerKey(end)
}

// endName is the name by which this cluster's owner knows who is at an end.
func endName(end string) string { return strings.TrimPrefix(end, tenantEnd) }

// stand is, of a pair of pairs between which there may be a path behind this cluster, the tenant, the
// provider, and the word by which the provider knows the tenant's pods; "" if there may be none.
func stand(a, b *pair) (tenant, provider *pair, owner string) {
	tenant, provider = a, b
	if a.consumes {
		tenant, provider = b, a
	}
	if !between(tenant, provider) || !directBehind(tenant) || !directBehind(provider) {
		return nil, nil, ""
	}
	for space := range tenant.hosts {
		if !provider.spaces[space] {
			continue
		}
		word := provider.owners[space]
		// What the tenant's NetworkPolicies say of its pods there this cluster's gateways alone know.
		if word == "" || owner != "" && word != owner || tenant.guarded[space] {
			return nil, nil, ""
		}
		owner = word
	}
	for space, word := range provider.owners {
		if word == owner && !tenant.hosts[space] {
			return nil, nil, "" // it is somebody else's as well
		}
	}
	return tenant, provider, owner
}

// directBehind says whether a tenant or a provider may have such a path, as far as this cluster is to say.
func directBehind(p *pair) bool {
	return p.wanted && p.direct && p.ableBehind != no && p.reach != v1alpha1.ReachNone && !p.shut
}

// joinBehind finds the couples of a tenant and a provider.
func (d *decision) joinBehind(f *facts) {
	for i, a := range f.pairs {
		for _, b := range f.pairs[i+1:] {
			tenant, provider, owner := stand(a, b)
			if owner == "" {
				continue
			}
			toTenant, toProvider := d.told(tenant, provider), d.told(provider, tenant)
			if len(toTenant) == 0 || len(toProvider) == 0 {
				continue
			}
			d.couples = append(d.couples, couple{
				name: pathName(f.id, string(tenant.uid), string(provider.uid)), peerings: [2]string{tenantEnd + tenant.peer, provider.peering},
				prefixes: [2][]string{texts(toTenant), texts(toProvider)}, owner: owner,
				talks: talks(f.agents, tenant.key, provider.key), unsure: tenant.ableBehind == unknown || provider.ableBehind == unknown,
			})
		}
	}
}

// owners are the words by which providers know the pods of tenants of this cluster's, by the
// namespaces of the peerings and those here.
func owners(all []v1alpha1.NamespaceMap) map[string]map[string]string {
	words := map[string]map[string]string{}
	for i := range all {
		for namespace, m := range all[i].Spec.Namespaces {
			if m.OriginOwner == "" {
				continue
			}
			if words[all[i].Namespace] == nil {
				words[all[i].Namespace] = map[string]string{}
			}
			words[all[i].Namespace][namespace] = m.OriginOwner
		}
	}
	return words
}

// hearTenants takes over what tenants say of their ends, by their names among ends, and returns what they
// are to be told, if that is known.
func (p *paths) hearTenants(ends map[string]map[string]end, now time.Time) (wishes map[string]map[string]wish, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ends == nil {
		p.ends = map[string]map[string]end{}
	}
	maps.DeleteFunc(p.ends, func(name string, _ map[string]end) bool { return strings.HasPrefix(name, tenantEnd) })
	maps.Copy(p.ends, ends)
	p.decide(now)
	return p.wishes, p.known
}

// tenantsSay are the ends of tenants, of those paths that they have been told of.
func (f *facts) tenantsSay() map[string]map[string]end {
	all := map[string]map[string]end{}
	for _, p := range f.pairs {
		if p.consumes || !p.wanted || p.provider == nil {
			continue
		}
		ends := map[string]end{}
		for _, said := range p.provider.Paths() {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&said.Status)
			if err != nil {
				continue
			}
			ends[said.Name] = receivedPath(map[string]any{"status": fields})
		}
		all[tenantEnd+p.peer] = ends
	}
	return all
}

// consumerPaths are what a tenant is to be told of its paths: what it has been told, as long as nothing is known.
func (f *facts) consumerPaths(p *pair) (all []v1alpha1.ConsumerPath) {
	have := map[string]v1alpha1.ConsumerPath{}
	if p.provider != nil {
		if !f.wishesKnown {
			return p.provider.Spec.ConsumerPaths
		}
		for _, path := range p.provider.Spec.ConsumerPaths {
			have[path.Name] = path
		}
	}
	wishes := f.wishes[tenantEnd+p.peer]
	for _, name := range slices.Sorted(maps.Keys(wishes)) {
		before, there := have[name]
		switch w := wishes[name]; {
		case !w.asIs:
			all = append(all, v1alpha1.ConsumerPath{Name: name, NetworkPathSpec: w.spec(fieldsOfPath(before, there), f.now)})
		case there:
			all = append(all, before)
		}
	}
	return all
}

// fieldsOfPath are the fields of what a tenant has been told, as of an object elsewhere.
func fieldsOfPath(p v1alpha1.ConsumerPath, there bool) map[string]any {
	if !there {
		return nil
	}
	var endpoints []any
	for _, e := range p.Endpoints {
		endpoints = append(endpoints, e)
	}
	return map[string]any{"publicKey": p.PublicKey, "endpoints": endpoints, "until": p.Until.UTC().Format(time.RFC3339)}
}

var pathNameText = regexp.MustCompile(`^[0-9a-f]{16}$`)

// receivedConsumerPaths checks what a provider says of paths to this cluster. They are judged later, like those
// of tenants.
func receivedConsumerPaths(fields map[string]any) ([]v1alpha1.ConsumerPath, error) {
	const field = "consumerPaths"
	if fields[field] == nil {
		return nil, nil
	}
	items, ok := fields[field].([]any)
	if !ok || len(items) > v1alpha1.MaxNetworkPaths {
		return nil, fmt.Errorf("spec.%s: is no list of at most %d", field, v1alpha1.MaxNetworkPaths)
	}
	var all []v1alpha1.ConsumerPath
	for i, item := range items {
		said, _ := item.(map[string]any)
		p, err := receivedConsumerPath(said)
		if err == nil && slices.ContainsFunc(all, func(o v1alpha1.ConsumerPath) bool { return o.Name == p.Name }) {
			err = fmt.Errorf("name: %s is there twice", p.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("spec.%s[%d].%w", field, i, err)
		}
		all = append(all, p)
	}
	return all, nil
}

func receivedConsumerPath(said map[string]any) (p v1alpha1.ConsumerPath, err error) {
	if p.Name, _ = said["name"].(string); !pathNameText.MatchString(p.Name) {
		return p, fmt.Errorf("name: is no number of a path")
	}
	if p.Prefixes, err = receivedList(said, "path.prefixes", v1alpha1.MaxNetworkPathPrefixes, maxRange); err != nil {
		return p, err
	}
	if len(p.Prefixes) == 0 {
		return p, fmt.Errorf("path.prefixes: there is none")
	}
	if p.PublicKey, err = receivedKey(said, "path.publicKey"); err != nil {
		return p, err
	}
	if p.Endpoints, err = receivedList(said, "path.endpoints", maxTheirs, maxHost); err != nil {
		return p, err
	}
	for _, e := range p.Endpoints {
		if !endpoint(e) {
			return p, fmt.Errorf("path.endpoints: %.80q is not HOST:PORT", e)
		}
	}
	text, _ := said["until"].(string)
	until, err := time.Parse(time.RFC3339, text)
	if until = until.UTC().Truncate(time.Second); err != nil || len(text) > maxTime || until.Year() < 2000 || until.Year() > 9999 {
		return p, fmt.Errorf("until: is no time")
	}
	p.Until = metav1.NewTime(until)
	return p, nil
}
