package namespace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A namespace that is here for a tenant goes onward, to a provider of this cluster's, only
// while the tenant says so, and no further than that one.

// origin is where the pods of a namespace were made, a word for whose it is, and the domain there;
// the zero value means here.
type origin struct{ namespace, owner, domain string }

// ownerOf is the word by which a provider knows a tenant of this cluster's: it is the same
// for all namespaces of that one, and says nothing else.
func ownerOf(tenant types.UID) string {
	sum := sha256.Sum256([]byte(tenant))
	return hex.EncodeToString(sum[:])[:16]
}

// wrongOrigin says what is wrong with the origin that a consumer gives; "" if nothing is.
func wrongOrigin(m v1alpha1.NamespaceMapping) string {
	if m.Domain != "" && !v1alpha1.IsDomain(m.Domain) {
		return "domain is not a name of the DNS of at most 63 characters"
	}
	if m.OriginNamespace == "" && m.OriginOwner == "" || v1alpha1.IsOrigin(m.OriginNamespace, m.OriginOwner) {
		return ""
	}
	return "originNamespace and originOwner are not the name of a namespace and a word of 16 hexadecimal digits"
}

// entryLabels are the labels of a mapped namespace that an entry decides on: all of them
// go when it ceases to ask for them.
var entryLabels = []string{v1alpha1.LabelOnward, v1alpha1.LabelOriginNamespace, v1alpha1.LabelOriginOwner, v1alpha1.LabelHomeDomain}

// labelsOf is what an entry makes of these labels. What was made elsewhere never goes onward.
func labelsOf(m v1alpha1.NamespaceMapping) map[string]string {
	labels := map[string]string{}
	switch {
	case m.OriginNamespace != "" || m.OriginOwner != "":
		labels[v1alpha1.LabelOriginNamespace], labels[v1alpha1.LabelOriginOwner] = m.OriginNamespace, m.OriginOwner
	case m.Onward == v1alpha1.OnwardAllow:
		labels[v1alpha1.LabelOnward] = "true"
	}
	if m.Domain != "" {
		labels[v1alpha1.LabelHomeDomain] = m.Domain
	}
	return labels
}

// stale says whether a namespace has one of these labels that it is not to have.
func stale(have, want map[string]string) bool {
	return slices.ContainsFunc(entryLabels, func(key string) bool {
		_, has := have[key]
		_, wanted := want[key]
		return has && !wanted
	})
}

// without is the entry that leaves a namespace which is not wanted any more with what it is,
// and takes the consent away.
func without(n *corev1.Namespace) v1alpha1.NamespaceMapping {
	return v1alpha1.NamespaceMapping{OriginNamespace: n.Labels[v1alpha1.LabelOriginNamespace], OriginOwner: n.Labels[v1alpha1.LabelOriginOwner], Domain: v1alpha1.Unusual(n.Labels[v1alpha1.LabelHomeDomain])}
}

// here says whose a namespace of this cluster is, and why it is never offloaded, "" if it may be.
func (r *offloader) here(ctx context.Context, n *corev1.Namespace) (from origin, refused string, err error) {
	name := n.Labels[v1alpha1.LabelTenant]
	if refused := refusedHere(n, r.system); refused != "" || name == "" {
		return origin{}, refused, nil
	}
	tenant, err := read(ctx, r.client, "", name, &v1alpha1.Tenant{})
	if err == nil && tenant == nil {
		// What follows ends pods, so it must be true now, not when the cache was filled.
		tenant, err = read(ctx, r.live, "", name, &v1alpha1.Tenant{})
	}
	switch {
	case err != nil:
		return origin{}, "", err
	case tenant == nil || tenant.DeletionTimestamp != nil:
		return origin{}, "namespace " + n.Name + " is run here for the tenant " + name + ", which is being removed; delete this object", nil
	}
	return origin{n.Labels[v1alpha1.LabelHomeNamespace], ownerOf(tenant.UID), v1alpha1.Unusual(n.Labels[v1alpha1.LabelHomeDomain])}, "", nil
}

// refusedHere says why a namespace of this cluster is never offloaded, "" if it may be, as
// far as its own labels say.
func refusedHere(n *corev1.Namespace, system string) string {
	tenant, home := n.Labels[v1alpha1.LabelTenant], n.Labels[v1alpha1.LabelHomeNamespace]
	switch {
	case reserved(n.Name, system):
		return "namespace " + n.Name + " is the cluster's or Pelago's own and is never offloaded; delete this object, and run what is to be offloaded in a namespace of its own"
	case tenant == "" && home == "":
		return ""
	case tenant == "": // taken away from it, or kept when it ended: what is in it may be the tenant's still
		return "namespace " + n.Name + " was run here for a tenant, and has the label " + v1alpha1.LabelHomeNamespace + " still; if all that is in it is yours now, take that off, or delete this object"
	case n.Labels[v1alpha1.LabelManagedBy] != component || len(validation.IsDNS1123Label(home)) > 0:
		return "namespace " + n.Name + " says that it is the tenant " + tenant + "'s, and is not as Pelago makes these; take the labels " + v1alpha1.LabelTenant + " and " + v1alpha1.LabelHomeNamespace + " off, or delete this object"
	case n.Labels[v1alpha1.LabelOriginNamespace] != "" || n.Labels[v1alpha1.LabelOriginOwner] != "":
		return "namespace " + n.Name + " is run here for the tenant " + tenant + ", which has it of a tenant of its own; such pods go no further; delete this object"
	case n.Labels[v1alpha1.LabelOnward] != "true":
		return fmt.Sprintf("namespace %s is run here for the tenant %s, which does not let its pods go onward; ask its owner to run there: pelago offload namespace %s --onward (spec.onward: Allow in the NamespaceOffloading), or delete this object",
			n.Name, tenant, home)
	}
	return ""
}

// knowsOnward says whether a peering's provider reads what entries say of going onward. As
// long as it says nothing of itself, what was asked of it before holds.
func knowsOnward(p *v1alpha1.Peering, entry *v1alpha1.NamespaceMapping) bool {
	if p.Status.Remote == nil {
		return entry != nil && (entry.Onward != "" || entry.OriginNamespace != "")
	}
	return slices.Contains(p.Status.Remote.Features, v1alpha1.FeatureOnward)
}

// knowsDomains says the same of what home is called in its own DNS.
func knowsDomains(p *v1alpha1.Peering, entry *v1alpha1.NamespaceMapping) bool {
	if p.Status.Remote == nil {
		return entry != nil && entry.Domain != ""
	}
	return slices.Contains(p.Status.Remote.Features, v1alpha1.FeatureDomains)
}

// lacks says whether a cluster cannot be used that otherwise would be, as its build would take
// what was made elsewhere for this cluster's own.
func (f *facts) lacks(c *cluster) bool {
	return !f.over() && c.live && f.chosen(c) && f.from != (origin{}) && !c.onward
}

// chosen says whether the selector picks a cluster. One that cannot be used changes nothing.
func (f *facts) chosen(c *cluster) bool {
	return c.selected || f.wrong != nil && c.entry != nil
}

// lacking is what the status says of such a cluster.
func lacking(c *cluster) string {
	return "the Pelago of " + c.name + " is older than this one, and does not know " + v1alpha1.FeatureOnward +
		": pods of a tenant's namespace do not go there until its owner upgrades it"
}

// over says that the offloading is to end everywhere.
func (f *facts) over() bool { return f.ending != nil || f.refused != "" }

// goesOnward names the namespaces here that may run at providers of this cluster's.
func (r *provider) goesOnward(ctx context.Context) (map[string]bool, error) {
	list := &v1alpha1.NamespaceMapList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespace maps: %w", err)
	}
	found := map[string]bool{}
	for i := range list.Items {
		if m := &list.Items[i]; inPeeringNamespace(m) && m.Name == v1alpha1.NamespaceMapName {
			for name := range m.Spec.Namespaces {
				found[name] = true
			}
		}
	}
	return found, nil
}
