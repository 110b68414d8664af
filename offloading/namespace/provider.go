package namespace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/internal/status"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=namespacemaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=namespacemaps/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=tenants,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// provider makes the namespaces that a tenant wants, and removes them.
type provider struct {
	client client.Client
	live   client.Reader // past the cache
	clock  clock.PassiveClock
	events events.EventRecorder
	system string

	writes   pace  // for a tenant
	unwanted times // since when a namespace is not wanted, or a map is missing
}

// Reconcile looks at one tenant's NamespaceMap.
func (r *provider) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	name, ok := strings.CutPrefix(req.Namespace, v1alpha1.TenantNamespacePrefix)
	if !ok || req.Name != v1alpha1.NamespaceMapName {
		return ctrl.Result{}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, reconcileLimit)
	defer cancel()
	tenant, err := read(bounded, r.client, "", name, &v1alpha1.Tenant{})
	if err != nil {
		return ctrl.Result{}, err
	}
	if tenant == nil || tenant.DeletionTimestamp != nil {
		r.writes.forget(name)
		r.unwanted.forget(missingKey(name))
		return ctrl.Result{}, nil // the tenant's end takes all this away
	}
	if wait := r.writes.wait(name, r.clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	f, err := r.gather(bounded, tenant)
	if err != nil {
		return ctrl.Result{}, err
	}
	d := arrange(f)
	if f.desired == nil {
		_, err := r.carryOut(bounded, f, d)
		return ctrl.Result{RequeueAfter: d.again}, err
	}
	before := f.desired.DeepCopy()
	w := status.Begin(r.client, f.desired)
	defer w.Commit(ctx, &res, &err)
	wrote, err := r.carryOut(bounded, f, d)
	d.report(f.desired)
	if wrote || statusDiffers(before, f.desired) {
		r.writes.note(name, r.clock.Now())
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	r.announce(tenant, before, f.desired)
	return ctrl.Result{RequeueAfter: d.again}, nil
}

// missingKey is how the absence of a tenant's map is remembered; no namespace is
// called so.
func missingKey(tenant string) string { return "/" + tenant }

// gather reads what a decision needs.
func (r *provider) gather(ctx context.Context, tenant *v1alpha1.Tenant) (*estate, error) {
	f := &estate{now: r.clock.Now(), tenant: tenant, system: r.system,
		existing: map[string]*corev1.Namespace{}, bindings: map[string]*rbacv1.RoleBinding{}, own: map[string]*rbacv1.RoleBinding{}, leaving: map[string]departure{}}
	space := v1alpha1.TenantNamespace(tenant.Name)
	m, err := read(ctx, r.client, space, v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{})
	if err != nil {
		return nil, err
	}
	if m == nil || m.DeletionTimestamp != nil {
		f.missingSince = r.unwanted.first(missingKey(tenant.Name), f.now)
	} else {
		f.desired = m
		r.unwanted.forget(missingKey(tenant.Name))
	}
	given, err := read(ctx, r.client, space, v1alpha1.ConsumerRole, &rbacv1.RoleBinding{})
	if err != nil {
		return nil, err
	}
	if given != nil && len(given.Subjects) == 1 && given.DeletionTimestamp == nil {
		f.subject = &given.Subjects[0]
	}
	labels := client.MatchingLabels{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: tenant.Name}
	namespaces := &corev1.NamespaceList{}
	if err := r.client.List(ctx, namespaces, labels, client.HasLabels{v1alpha1.LabelHomeNamespace}); err != nil {
		return nil, fmt.Errorf("listing the tenant's namespaces: %w", err)
	}
	for i := range namespaces.Items {
		if n := &namespaces.Items[i]; !reserved(n.Name, r.system) {
			f.existing[n.Name] = n
			f.ours = append(f.ours, n)
		}
	}
	slices.SortFunc(f.ours, func(a, b *corev1.Namespace) int { return strings.Compare(a.Name, b.Name) })
	bindings := &rbacv1.RoleBindingList{}
	if err := r.client.List(ctx, bindings, labels); err != nil {
		return nil, fmt.Errorf("listing the tenant's role bindings: %w", err)
	}
	for i := range bindings.Items {
		switch b := &bindings.Items[i]; b.Name {
		case v1alpha1.ConsumerPodsRole:
			f.bindings[b.Namespace] = b
		case managerBinding:
			f.own[b.Namespace] = b
		}
	}
	if err := r.gatherForeign(ctx, f); err != nil {
		return nil, err
	}
	if f.onward, err = r.goesOnward(ctx); err != nil {
		return nil, err
	}
	return f, r.gatherLeaving(ctx, f)
}

// gatherForeign reads the namespaces that have a name the tenant wants.
func (r *provider) gatherForeign(ctx context.Context, f *estate) error {
	for home, m := range f.entries() {
		name, no := remoteName(home, m, f.tenant, f.system)
		if no != (verdict{}) || f.existing[name] != nil {
			continue
		}
		n, err := read(ctx, r.client, "", name, &corev1.Namespace{})
		if err != nil {
			return err
		}
		if n != nil {
			f.existing[name] = n
		}
	}
	return nil
}

// gatherLeaving reads how far namespaces are that are not wanted any more.
func (r *provider) gatherLeaving(ctx context.Context, f *estate) error {
	claimed := f.claims()
	for _, n := range f.ours {
		if claimed[n.Name] != "" {
			r.unwanted.forget(n.Name)
			continue
		}
		if n.DeletionTimestamp != nil {
			r.unwanted.forget(n.Name)
			continue
		}
		d := departure{since: r.unwanted.first(n.Name, f.now)}
		pods := &corev1.PodList{}
		if err := r.client.List(ctx, pods, client.InNamespace(n.Name), client.HasLabels{v1alpha1.LabelHomeUID}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing pods in %s: %w", n.Name, err)
		}
		d.pods = len(pods.Items)
		if d.pods == 0 || f.now.Sub(d.since) >= patience {
			claims := &corev1.PersistentVolumeClaimList{}
			if err := r.live.List(ctx, claims, client.InNamespace(n.Name), client.Limit(1)); err != nil {
				return fmt.Errorf("listing volume claims in %s: %w", n.Name, err)
			}
			d.claims = len(claims.Items) > 0
		}
		f.leaving[n.Name] = d
	}
	return nil
}

// carryOut does what was decided, and says whether anything was written. What does not
// succeed for one namespace holds up no other.
func (r *provider) carryOut(ctx context.Context, f *estate, d *arrangement) (bool, error) {
	var failed []error
	for _, s := range d.steps {
		err := r.step(ctx, f, d, s)
		switch {
		case err == nil:
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), leaving(err):
			d.pending(s.home, s.name, "the namespace is changing")
			d.in(soon)
		case errors.Is(err, errUnnamed):
			d.pending(s.home, s.name, errUnnamed.Error())
			failed = append(failed, err)
		default:
			told := "the provider's cluster did not take it; it is tried again"
			if denial := kube.DenialOf(err); denial != nil {
				told = "the provider's cluster did not take it, by its " + denial.By() + "; ask its owner; it is tried again"
			}
			d.pending(s.home, s.name, told)
			failed = append(failed, err)
		}
		if s.remove && err == nil {
			r.unwanted.forget(s.name)
		}
	}
	return len(d.steps) > 0, errors.Join(failed...)
}

// errUnnamed says why a tenant has no namespace at the level that it is to have.
var errUnnamed = errors.New("the Tenant's podSecurity is privileged, and tenants.privileged of the values of the provider's Pelago does not name it; ask its owner")

// unnamed says whether a namespace was refused for its level of Pod Security, and not by something
// of the owner's.
func (f *estate) unnamed(err error) bool {
	denial := kube.DenialOf(err)
	return f.tenant.Spec.PodSecurity == v1alpha1.PodSecurityPrivileged && apierrors.IsForbidden(err) && (denial == nil || denial.ByPolicy(levelPolicy))
}

// levelPolicy is the policy of the chart that keeps the manager from privileged namespaces.
const levelPolicy = "pelago-manager-security"

// step makes one namespace as it should be. One whose level is refused keeps what it has.
func (r *provider) step(ctx context.Context, f *estate, d *arrangement, s step) error {
	n := f.existing[s.name]
	switch {
	case s.create:
		err := r.client.Create(ctx, mappedNamespace(s.name, s.home, s.entry, f.tenant))
		if f.unnamed(err) {
			err = fmt.Errorf("%w: %w", errUnnamed, err)
		}
		if err != nil {
			return fmt.Errorf("creating namespace "+s.name+": %w", err)
		}
	case s.relabel:
		err := r.relabel(ctx, f, s)
		if f.unnamed(err) && !s.keepLevel {
			s.keepLevel = true
			d.keepsLevel(s.home)
			err = r.relabel(ctx, f, s)
		}
		if err != nil {
			return fmt.Errorf("labelling namespace "+s.name+": %w", err)
		}
	}
	if err := r.arm(ctx, f, s); err != nil {
		return err
	}
	if s.unbind || s.rebind {
		b := f.bindings[s.name]
		if err := r.client.Delete(ctx, b, client.Preconditions{UID: &b.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("taking the tenant's rights in "+s.name+": %w", err)
		}
	}
	if s.bind {
		if err := apply(ctx, r.client, podsBinding(s.name, f.tenant, *f.subject)); err != nil {
			return err
		}
	}
	if s.remove {
		err := r.client.Delete(ctx, n, client.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting namespace "+s.name+": %w", err)
		}
	}
	return nil
}

// relabel gives a namespace the labels that it should have.
func (r *provider) relabel(ctx context.Context, f *estate, s step) error {
	n := f.existing[s.name]
	after, want := n.DeepCopy(), mappedNamespace(s.name, s.home, s.entry, f.tenant).Labels
	for _, key := range entryLabels {
		delete(after.Labels, key)
	}
	if s.keepLevel {
		maps.DeleteFunc(want, func(key, _ string) bool { return strings.HasPrefix(key, "pod-security.kubernetes.io/") })
	}
	if maps.Copy(after.Labels, want); maps.Equal(after.Labels, n.Labels) {
		return nil
	}
	return r.client.Patch(ctx, after, client.MergeFromWithOptions(n, client.MergeFromWithOptimisticLock{}))
}

// arm gives the manager its own rights in a mapped namespace. They end with the namespace, or when
// it is the tenant's no more.
func (r *provider) arm(ctx context.Context, f *estate, s step) error {
	if s.rearm || s.disarm {
		b := f.own[s.name]
		if err := r.client.Delete(ctx, b, client.Preconditions{UID: &b.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("taking the manager's rights in "+s.name+": %w", err)
		}
	}
	if s.arm {
		return apply(ctx, r.client, mappedBinding(s.name, f.tenant, r.system))
	}
	return nil
}

// announce makes events, on the Tenant, of namespaces that are kept.
func (r *provider) announce(tenant *v1alpha1.Tenant, before, after *v1alpha1.NamespaceMap) {
	for home, n := range after.Status.Namespaces {
		if n.Phase == v1alpha1.MappingKept && before.Status.Namespaces[home].Phase != v1alpha1.MappingKept {
			r.events.Eventf(tenant, nil, corev1.EventTypeWarning, v1alpha1.ReasonVolumesKept, "Remove", "namespace %s is not wanted any more: %s", n.Name, n.Message)
		}
	}
}
