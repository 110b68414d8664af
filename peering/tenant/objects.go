package tenant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// quotaName is the name of the ResourceQuota in a tenant namespace.
const quotaName = "pelago-objects"

// objectSlack is how many objects a quota may count that were never stored.
const objectSlack = 4

// objectBounds are the most objects of each resource in a tenant namespace that the
// tenant's spec.objects says nothing about. No pod ever runs there. The few secrets,
// config maps and service accounts are what clusters put into every namespace. What
// Pelago needs one of has room for [objectSlack] more: an API server counts an object
// before it stores it, and one that dies in between is counted for minutes.
var objectBounds = map[string]int32{
	"identities.pelago.dev":       1 + objectSlack,
	"resourcerequests.pelago.dev": 16,
	"resourceoffers.pelago.dev":   16 + objectSlack,
	"namespacemaps.pelago.dev":    1 + objectSlack,
	"shadowpods.pelago.dev":       5000,
	"shadowobjects.pelago.dev":    1000,
	"networkconfigs.pelago.dev":   2 + objectSlack,
	"networkrules.pelago.dev":     128,
	"networkpaths.pelago.dev":     v1alpha1.MaxNetworkPaths + objectSlack,
	"leases.coordination.k8s.io":  1 + objectSlack,
	"configmaps":                  8,
	"secrets":                     8,
	"serviceaccounts":             8,
	"pods":                        0,
	"replicationcontrollers":      0,
	"services":                    0,
	"persistentvolumeclaims":      0,
	"deployments.apps":            0,
	"replicasets.apps":            0,
	"statefulsets.apps":           0,
	"daemonsets.apps":             0,
	"jobs.batch":                  0,
	"cronjobs.batch":              0,
	"ingresses.networking.k8s.io": 0,
}

// objectNeeds are the fewest objects of each resource that Pelago itself needs in a
// tenant namespace. Clusters add a service account to every namespace.
var objectNeeds = map[string]int32{
	"identities.pelago.dev":                  1,
	"leases.coordination.k8s.io":             1,
	"resourcequotas":                         1,
	"rolebindings.rbac.authorization.k8s.io": 4,
	"serviceaccounts":                        2,
}

// objectMost are the most objects that a consumer reads of a resource: one more, and it would
// not take what else there is.
var objectMost = map[string]int32{
	"identities.pelago.dev":       v1alpha1.MaxTenantObjects,
	"resourcerequests.pelago.dev": v1alpha1.MaxTenantObjects,
	"resourceoffers.pelago.dev":   v1alpha1.MaxTenantObjects,
	"namespacemaps.pelago.dev":    v1alpha1.MaxTenantObjects,
	"shadowpods.pelago.dev":       v1alpha1.MaxShadowPods,
	"shadowobjects.pelago.dev":    v1alpha1.MaxShadowObjects,
	"networkconfigs.pelago.dev":   v1alpha1.MaxNetworkConfigs,
	"networkrules.pelago.dev":     v1alpha1.MaxNetworkRuleSet,
	"networkpaths.pelago.dev":     4 * v1alpha1.MaxNetworkPaths,
}

// capped names the entries of spec.objects that are cut to what a consumer reads, and what to
// do about them; "" if there are none.
func capped(t *v1alpha1.Tenant) string {
	var told []string
	for _, name := range slices.Sorted(maps.Keys(t.Spec.Objects)) {
		if most, is := objectMost[name]; is && t.Spec.Objects[name] > most {
			told = append(told, fmt.Sprintf("spec.objects[%s] is %d, and consumers read at most %d, which holds; set it to %d or less", name, t.Spec.Objects[name], most, most))
		}
	}
	return strings.Join(told, "; ")
}

// ownKind reports whether a resource is named as one of Pelago's.
func ownKind(resource string) bool {
	return strings.HasSuffix(resource, "."+v1alpha1.GroupVersion.Group)
}

// inNamespace is the metadata of what belongs to a tenant in its namespace.
func inNamespace(t *v1alpha1.Tenant, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: v1alpha1.TenantNamespace(t.Name), Labels: childLabels(t)}
}

func childLabels(t *v1alpha1.Tenant) map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: t.Name}
}

// owner ties what is cluster-scoped to this very Tenant, so that a later one of the
// same name does not take it over.
func owner(t *v1alpha1.Tenant) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "Tenant", Name: t.Name, UID: t.UID, Controller: new(true),
	}}
}

// tenantNamespace is the namespace in which the consumer writes what it wants.
func tenantNamespace(t *v1alpha1.Tenant) *corev1.Namespace {
	labels := childLabels(t)
	// No pod ever runs here: the strictest level, whatever the tenant's own pods may.
	labels["pod-security.kubernetes.io/enforce"] = string(v1alpha1.PodSecurityRestricted)
	labels["pod-security.kubernetes.io/enforce-version"] = "latest"
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.TenantNamespace(t.Name), Labels: labels, OwnerReferences: owner(t),
	}}
}

// quota bounds how many objects there can be in a tenant namespace, never more than a
// consumer reads. The error names the entry of spec.objects that is wrong.
func quota(t *v1alpha1.Tenant) (*corev1.ResourceQuota, error) {
	bounds := maps.Clone(objectBounds)
	for _, name := range slices.Sorted(maps.Keys(t.Spec.Objects)) {
		bound := t.Spec.Objects[name]
		switch {
		case bound < 0:
			return nil, fmt.Errorf("spec.objects[%s] is %d; set it to 0 or more", name, bound)
		case strings.HasPrefix(name, "count/"):
			return nil, fmt.Errorf("spec.objects[%s] has the prefix count/; leave it out", name)
		case strings.Contains(name, "/") || len(validation.IsQualifiedName("count/"+name)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0:
			return nil, fmt.Errorf("spec.objects[%.60q] is not a resource; write secrets or resourcerequests.pelago.dev", name)
		case bound < objectNeeds[name]:
			return nil, fmt.Errorf("spec.objects[%s] is %d, and Pelago itself needs %d; set it to %d or more, or leave it out", name, bound, objectNeeds[name], objectNeeds[name])
		}
		if _, known := objectBounds[name]; ownKind(name) && !known {
			return nil, fmt.Errorf("spec.objects[%.60s] is not a resource of a tenant namespace; write resourcerequests.pelago.dev, resourceoffers.pelago.dev, namespacemaps.pelago.dev, shadowpods.pelago.dev, shadowobjects.pelago.dev, networkconfigs.pelago.dev, networkrules.pelago.dev, networkpaths.pelago.dev or identities.pelago.dev", name)
		}
		if most, is := objectMost[name]; is {
			bound = min(bound, most)
		}
		bounds[name] = bound
	}
	hard := corev1.ResourceList{}
	for name, bound := range bounds {
		hard[corev1.ResourceName("count/"+name)] = *resource.NewQuantity(int64(bound), resource.DecimalSI)
	}
	return &corev1.ResourceQuota{ObjectMeta: inNamespace(t, quotaName), Spec: corev1.ResourceQuotaSpec{Hard: hard}}, nil
}

// lease is what the consumer renews while it lives. It is made here so that the
// consumer needs no right to make leases.
func lease(t *v1alpha1.Tenant) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: inNamespace(t, v1alpha1.IdentityName)}
}

// account is whose tokens the consumer proves itself with, if not by certificate.
func account(t *v1alpha1.Tenant) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: inNamespace(t, v1alpha1.IdentityName), AutomountServiceAccountToken: new(false)}
}

// contains reports whether all of want is in have.
func contains(have, want map[string]string) bool {
	for key, value := range want {
		if have[key] != value {
			return false
		}
	}
	return true
}
