package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// begin is how to come to the first thing of a noun.
var begin = map[string]string{
	"peering": "to begin, run the line that a provider gives you (pelago peer), or invite a cluster: pelago generate peer-command",
	"tenant":  "a cluster becomes one when it uses an invitation: pelago generate peer-command",
}

// errUnknown is wrapped by errors about names that mean nothing here.
var errUnknown = errors.New("unknown")

// called is a thing with the words people may use for it.
type called struct{ name, id, display string }

// pick finds the one that word means: its name first, then its cluster id, then what
// the remote cluster calls itself. It returns its index.
func pick(noun, word string, things []called) (int, error) {
	if i := slices.IndexFunc(things, func(t called) bool { return t.name == word }); i >= 0 {
		return i, nil
	}
	if i := slices.IndexFunc(things, func(t called) bool { return t.id == word }); i >= 0 {
		return i, nil
	}
	var found []int
	var names []string
	for i, t := range things {
		if t.display == word {
			found = append(found, i)
		}
		names = append(names, t.name)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var each []string
		for _, i := range found {
			each = append(each, fmt.Sprintf("%s (cluster %s)", things[i].name, things[i].id))
		}
		return 0, fmt.Errorf("several clusters call themselves %s: %s; use one of these names", word, strings.Join(each, ", "))
	case len(names) == 0:
		return 0, fmt.Errorf("there is no %s %q here, and no other; %s%w", noun, word, begin[noun], quiet)
	}
	slices.Sort(names)
	return 0, fmt.Errorf("there is no %s %q here; there is %s%w", noun, word, strings.Join(slices.Compact(names), ", "), quiet)
}

// quiet marks an error as errUnknown without a word.
var quiet error = silent{}

type silent struct{}

func (silent) Error() string   { return "" }
func (silent) Is(e error) bool { return e == errUnknown }

func peeringWords(list []v1alpha1.Peering) []called {
	words := make([]called, len(list))
	for i, p := range list {
		words[i] = called{name: p.Name, id: p.Spec.ClusterID}
		if p.Status.Remote != nil {
			words[i].display = p.Status.Remote.Name
		}
	}
	return words
}

func tenantWords(list []v1alpha1.Tenant) []called {
	words := make([]called, len(list))
	for i, t := range list {
		words[i] = called{name: t.Name, id: t.Spec.ClusterID}
		if t.Status.Cluster != nil {
			words[i].display = t.Status.Cluster.Name
		}
	}
	return words
}

// peering finds the Peering that a word means.
func (c *Cluster) peering(ctx context.Context, word string) (*v1alpha1.Peering, error) {
	var list v1alpha1.PeeringList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, describe(fmt.Errorf("listing peerings: %w", err), c)
	}
	i, err := pick("peering", word, peeringWords(list.Items))
	if err != nil {
		return nil, err
	}
	return &list.Items[i], nil
}

// tenantNames is what providers call this cluster, by the name of the peering.
func tenantNames(peerings []v1alpha1.Peering) map[string]string {
	names := map[string]string{}
	for i := range peerings {
		names[peerings[i].Name] = chain.TenantOf(&peerings[i])
	}
	return names
}

// tenantNames is what providers call this cluster, as far as that can be read: it only
// completes lines to copy.
func (c *Cluster) tenantNames(ctx context.Context) map[string]string {
	var list v1alpha1.PeeringList
	if c.Client.List(ctx, &list) != nil {
		return nil
	}
	return tenantNames(list.Items)
}

// tenant finds the Tenant that a word means.
func (c *Cluster) tenant(ctx context.Context, word string) (*v1alpha1.Tenant, error) {
	var list v1alpha1.TenantList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, describe(fmt.Errorf("listing tenants: %w", err), c)
	}
	i, err := pick("tenant", word, tenantWords(list.Items))
	if err != nil {
		return nil, err
	}
	return &list.Items[i], nil
}

// inSystem is the key of an object in Pelago's namespace.
func inSystem(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: name}
}
