package auth

import (
	"cmp"
	"slices"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// compatible refuses clusters that this one cannot peer with, whatever their invitation.
func compatible(home v1alpha1.ClusterInfo, a *applicant) error {
	c := a.spec.Cluster
	switch {
	case c.ID == home.ID:
		return invalid("spec.cluster.id: a cluster cannot peer with itself; run the line on the consumer")
	case !slices.Contains(c.Features, v1alpha1.FeaturePeering):
		return unsupported("%s runs Pelago %s and needs %s, which %s with Pelago %s does not know; upgrade %s",
			home.Name, versionOf(home), v1alpha1.FeaturePeering, c.Name, versionOf(c), c.Name)
	}
	return nil
}

func versionOf(c v1alpha1.ClusterInfo) string {
	if c.Version == "" {
		return "of unknown version"
	}
	return c.Version
}

// place decides from all Tenants there are which one is the applicant's: its name and,
// if it is there already, the Tenant itself. A Tenant is its own only if it came of
// the same invitation, which is bound to its key: whoever holds another token cannot
// claim it, even by saying the same ids.
func place(tenants []v1alpha1.Tenant, i *v1alpha1.Invitation, a *applicant) (string, *v1alpha1.Tenant, error) {
	var mine *v1alpha1.Tenant
	name := nameFor(i, a)
	for n := range tenants {
		if own(&tenants[n], i, a) {
			mine = &tenants[n]
		}
	}
	if i.Status.TenantUID != "" && (mine == nil || string(mine.UID) != i.Status.TenantUID) {
		return "", nil, refused() // its Tenant is gone: the invitation is void
	}
	// One that was refused is nobody's: another name, or another try, begins when it is gone.
	if mine != nil && nameRefusal(mine) != nil && i.Status.TenantUID == "" && (!mine.DeletionTimestamp.IsZero() || mine.Name != name) {
		return "", nil, waiting("the refused tenant %s is still being removed", mine.Name)
	}
	if mine != nil && !mine.DeletionTimestamp.IsZero() {
		return "", nil, refused()
	}
	for n := range tenants {
		if t := &tenants[n]; mine == nil || t.UID != mine.UID {
			if t.Annotations[v1alpha1.AnnotationInvitation] == string(i.UID) && t.Spec.ClusterID == a.spec.Cluster.ID && nameRefusal(t) != nil {
				return "", nil, waiting("the refused tenant %s is still being removed", t.Name)
			}
			if err := clash(t, name, mine != nil, a); err != nil {
				return "", nil, err
			}
		}
	}
	if mine != nil {
		return mine.Name, mine, nil
	}
	if err := v1alpha1.CheckClusterName(name); err != nil {
		return "", nil, nameRefused("%v: %s", err, nameRemedy)
	}
	return name, nil, nil
}

// nameFor is the name of the Tenant that an applicant asks for.
func nameFor(i *v1alpha1.Invitation, a *applicant) string {
	return cmp.Or(i.Spec.Consumer, a.spec.Cluster.Name)
}

const nameRemedy = "pelago generate peer-command --consumer NAME at the provider, or pelago install --cluster-name NAME at the consumer"

func own(t *v1alpha1.Tenant, i *v1alpha1.Invitation, a *applicant) bool {
	return i.UID != "" && t.Annotations[v1alpha1.AnnotationInvitation] == string(i.UID) &&
		t.Spec.ClusterID == a.spec.Cluster.ID && t.Spec.PeeringUID == a.spec.PeeringUID
}

// clash says why an applicant cannot be beside a Tenant that is not its own. The name
// counts as long as it has none.
func clash(t *v1alpha1.Tenant, name string, named bool, a *applicant) error {
	ending := !t.DeletionTimestamp.IsZero()
	switch {
	case t.Spec.ClusterID == a.spec.Cluster.ID && ending:
		return waiting("the earlier peering as %s is still being removed", t.Name)
	case t.Spec.ClusterID == a.spec.Cluster.ID && nameRefusal(t) != nil && t.Status.Cluster == nil && t.Annotations[v1alpha1.AnnotationInvitation] != "": // it is turned away
		return waiting("the refused tenant %s goes a minute after it was told so; at once if the owner here runs: kubectl delete tenant %[1]s", t.Name)
	case t.Spec.ClusterID == a.spec.Cluster.ID:
		return duplicate("already peered as %s; unpeer first, or have the owner here end what is left of an earlier peering: pelago unpeer %[1]s", t.Name)
	case t.Spec.PeeringUID == a.spec.PeeringUID:
		return duplicate("spec.peeringUID: another tenant has it; delete the Peering at the consumer and make it again")
	case !named && t.Name == name && ending:
		return waiting("an earlier tenant named %s is still being removed", name)
	case !named && t.Name == name:
		return nameRefused("the name %s is taken by another cluster; choose another: %s", name, nameRemedy)
	}
	return nil
}

// terms are those of an invitation over the defaults of the settings, field by field.
func terms(invitation *v1alpha1.TenantTerms, defaults v1alpha1.TenantTerms) v1alpha1.TenantTerms {
	merged := *defaults.DeepCopy()
	merged.State = cmp.Or(merged.State, v1alpha1.TenantActive)
	merged.PodSecurity = cmp.Or(merged.PodSecurity, v1alpha1.PodSecurityBaseline)
	if invitation == nil {
		return merged
	}
	own := invitation.DeepCopy()
	if own.State != "" {
		merged.State = own.State
	}
	if own.Limits != nil {
		merged.Limits = own.Limits
	}
	if own.PodSecurity != "" {
		merged.PodSecurity = own.PodSecurity
	}
	if len(own.NamespaceNames) > 0 {
		merged.NamespaceNames = own.NamespaceNames
	}
	if own.Reflection != nil {
		merged.Reflection = own.Reflection
	}
	if own.Services != nil {
		merged.Services = own.Services
	}
	if own.Ingress != nil {
		merged.Ingress = own.Ingress
	}
	if own.DisruptionBudgets != nil {
		merged.DisruptionBudgets = own.DisruptionBudgets
	}
	if own.Reachability != "" {
		merged.Reachability = own.Reachability
	}
	if own.Callers != nil {
		merged.Callers = own.Callers
	}
	merged.DirectPaths = merged.DirectPaths || own.DirectPaths
	merged.Translate = merged.Translate || own.Translate
	if own.AbandonAfter != nil {
		merged.AbandonAfter = own.AbandonAfter
	}
	for resource, most := range own.Objects {
		if merged.Objects == nil {
			merged.Objects = map[string]int32{}
		}
		merged.Objects[resource] = most
	}
	return merged
}
