package tenant

import (
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// What a consumer may do in its tenant namespace and, by pelago-consumer-pods, in the
// namespaces mapped for it. The table Rights says the same to
// programs; a test keeps the two equal.
//
// +kubebuilder:rbac:groups=pelago.dev,resources=identities,resourceNames=consumer,verbs=get;list;watch;patch;delete,roleName=pelago-consumer
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=consumer,verbs=patch,roleName=pelago-consumer
// +kubebuilder:rbac:groups=pelago.dev,resources=resourcerequests,verbs=get;list;watch;create;patch;delete,roleName=pelago-consumer
// +kubebuilder:rbac:groups=pelago.dev,resources=resourceoffers,verbs=list;watch,roleName=pelago-consumer
// +kubebuilder:rbac:groups=stats.pelago.dev,resources=podstats,verbs=list,roleName=pelago-consumer
// +kubebuilder:rbac:groups=pelago.dev,resources=namespacemaps,verbs=get;list;watch;create;patch;delete,roleName=pelago-consumer
// +kubebuilder:rbac:groups=pelago.dev,resources=shadowpods,verbs=list;watch;create;patch;delete,roleName=pelago-consumer
// +kubebuilder:rbac:groups=pelago.dev,resources=shadowobjects,verbs=list;watch;create;patch;delete,roleName=pelago-consumer
// +kubebuilder:rbac:groups=pelago.dev,resources=networkconfigs,verbs=list;watch,roleName=pelago-consumer
// +kubebuilder:rbac:groups=pelago.dev,resources=networkconfigs,resourceNames=consumer,verbs=patch,roleName=pelago-consumer
// +kubebuilder:rbac:groups=pelago.dev,resources=networkconfigs/status,resourceNames=provider,verbs=patch,roleName=pelago-consumer
// +kubebuilder:rbac:groups=pelago.dev,resources=networkrules,verbs=list;watch;create;patch;delete,roleName=pelago-consumer
// +kubebuilder:rbac:groups=pelago.dev,resources=networkpaths,verbs=list;watch;create;patch;delete,roleName=pelago-consumer
//
// +kubebuilder:rbac:groups="",resources=pods/log,verbs=get,roleName=pelago-consumer-pods
// +kubebuilder:rbac:groups="",resources=pods/exec;pods/attach;pods/portforward,verbs=get;create,roleName=pelago-consumer-pods
//
// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,resourceNames=consumer,verbs=create,roleName=pelago-consumer-token
//
// +kubebuilder:rbac:groups=pelago.dev,resources=identities,resourceNames=consumer,verbs=get;list;watch;delete,roleName=pelago-farewell

// What the manager needs to give these rights: it may bind these roles and no other.
//
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=pelago-consumer;pelago-consumer-pods;pelago-consumer-token;pelago-farewell,verbs=bind
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=flowcontrol.apiserver.k8s.io,resources=flowschemas,verbs=get;list;watch;create;patch;delete

// Rights returns the rules of every ClusterRole that a consumer can be bound to, by
// the role's name. They hold in its tenant namespace only, those of ConsumerPodsRole
// only in the namespaces mapped for it.
func Rights() map[string][]rbacv1.PolicyRule {
	pelago, consumer := []string{v1alpha1.GroupVersion.Group}, []string{v1alpha1.IdentityName}
	return map[string][]rbacv1.PolicyRule{
		v1alpha1.ConsumerRole: {
			{APIGroups: pelago, Resources: []string{"identities"}, ResourceNames: consumer, Verbs: []string{"get", "list", "watch", "patch", "delete"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: consumer, Verbs: []string{"patch"}},
			{APIGroups: pelago, Resources: []string{"resourcerequests"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
			{APIGroups: pelago, Resources: []string{"resourceoffers"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{"stats.pelago.dev"}, Resources: []string{"podstats"}, Verbs: []string{"list"}},
			{APIGroups: pelago, Resources: []string{"namespacemaps"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
			{APIGroups: pelago, Resources: []string{"shadowpods"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
			{APIGroups: pelago, Resources: []string{"shadowobjects"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
			{APIGroups: pelago, Resources: []string{"networkconfigs"}, Verbs: []string{"list", "watch"}},
			{APIGroups: pelago, Resources: []string{"networkconfigs"}, ResourceNames: []string{v1alpha1.NetworkConsumer}, Verbs: []string{"patch"}},
			{APIGroups: pelago, Resources: []string{"networkconfigs/status"}, ResourceNames: []string{v1alpha1.NetworkProvider}, Verbs: []string{"patch"}},
			{APIGroups: pelago, Resources: []string{"networkrules"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
			{APIGroups: pelago, Resources: []string{"networkpaths"}, Verbs: []string{"list", "watch", "create", "patch", "delete"}},
		},
		v1alpha1.ConsumerPodsRole: {
			{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"}, Verbs: []string{"get", "create"}},
		},
		v1alpha1.ConsumerTokenRole: {
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: consumer, Verbs: []string{"create"}},
		},
		v1alpha1.FarewellRole: {
			{APIGroups: pelago, Resources: []string{"identities"}, ResourceNames: consumer, Verbs: []string{"get", "list", "watch", "delete"}},
		},
	}
}

// authTokenBinding is the RoleBinding that lets the authentication endpoint make
// tokens of the consumer's service account.
const authTokenBinding = "pelago-auth-token"

// flowPrecedence is ahead of the cluster's own schemas for service accounts, behind
// those for the cluster's parts.
const flowPrecedence = 120

// subject is the tenant's user, or its service account if it proves itself by token.
func subject(t *v1alpha1.Tenant) rbacv1.Subject {
	if t.Spec.CredentialType == v1alpha1.CredentialToken {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.TenantNamespace(t.Name), Name: v1alpha1.IdentityName}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: v1alpha1.UserPrefix + t.Spec.PeeringUID}
}

// bindings are the RoleBindings of a tenant that lives, in the tenant namespace.
// system is Pelago's own namespace.
func bindings(t *v1alpha1.Tenant, system string) []*rbacv1.RoleBinding {
	list := []*rbacv1.RoleBinding{binding(t, v1alpha1.ConsumerRole, v1alpha1.ConsumerRole, subject(t))}
	if t.Spec.CredentialType == v1alpha1.CredentialToken {
		auth := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: v1alpha1.AuthService}
		list = append(list,
			binding(t, v1alpha1.ConsumerTokenRole, v1alpha1.ConsumerTokenRole, subject(t)),
			binding(t, authTokenBinding, v1alpha1.ConsumerTokenRole, auth))
	}
	return list
}

// farewell is the RoleBinding of a tenant that has been ended.
func farewell(t *v1alpha1.Tenant) *rbacv1.RoleBinding {
	return binding(t, v1alpha1.FarewellRole, v1alpha1.FarewellRole, subject(t))
}

func binding(t *v1alpha1.Tenant, name, role string, who rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: inNamespace(t, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{who},
	}
}

// flowName is the name of a tenant's FlowSchema.
func flowName(tenant string) string { return v1alpha1.TenantNamespacePrefix + tenant }

// flow puts all requests of a tenant's user into a queue of its own.
func flow(t *v1alpha1.Tenant) *flowcontrolv1.FlowSchema {
	who := flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: v1alpha1.UserPrefix + t.Spec.PeeringUID}}
	if t.Spec.CredentialType == v1alpha1.CredentialToken {
		who = flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{
			Namespace: v1alpha1.TenantNamespace(t.Name), Name: v1alpha1.IdentityName}}
	}
	all := []string{"*"}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: flowName(t.Name), Labels: childLabels(t), OwnerReferences: owner(t)},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: v1alpha1.PriorityLevel},
			MatchingPrecedence:         flowPrecedence,
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{who},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: all, APIGroups: all, Resources: all, Namespaces: all, ClusterScope: true,
				}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
			}},
		},
	}
}

// rightsPlan is what makes the rights of a tenant exactly those wanted.
type rightsPlan struct {
	apply  []*rbacv1.RoleBinding
	remove []*rbacv1.RoleBinding
}

// planRights compares the RoleBindings of ours in a tenant namespace with those
// wanted. A role that a binding refers to cannot be changed, so such a binding is
// removed as well as applied; what was made for another state goes.
func planRights(have []rbacv1.RoleBinding, want []*rbacv1.RoleBinding) rightsPlan {
	var plan rightsPlan
	for _, w := range want {
		i := slices.IndexFunc(have, func(h rbacv1.RoleBinding) bool { return h.Name == w.Name })
		switch {
		case i < 0:
			plan.apply = append(plan.apply, w)
		case have[i].RoleRef != w.RoleRef:
			plan.remove = append(plan.remove, &have[i])
			plan.apply = append(plan.apply, w)
		case !equality.Semantic.DeepEqual(have[i].Subjects, w.Subjects) || !contains(have[i].Labels, w.Labels):
			plan.apply = append(plan.apply, w)
		}
	}
	for i := range have {
		wanted := slices.ContainsFunc(want, func(w *rbacv1.RoleBinding) bool { return w.Name == have[i].Name })
		if !wanted {
			plan.remove = append(plan.remove, &have[i])
		}
	}
	return plan
}
