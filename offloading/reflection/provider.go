package reflection

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/internal/status"
	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/offloading/content"
)

// provider makes the objects that consumers want. Its requests are ShadowObjects, read one at a time: no cache holds their content.
type provider struct {
	client client.Client
	live   client.Reader
	clock  clock.PassiveClock
	// allowed says which addresses are whose; nil while there is no network.
	allowed Allowed
	tunnels Tunnels // likewise
	// nameServers are where tenants' pods ask for names; the cluster's own DNS if nil.
	nameServers func() []netip.Addr
	// domain is what this cluster is called in its own DNS; cluster.local if empty.
	domain string
	meter  *meter
	notes  *notes[made]
	pace   *pacer // of the watcher
	// heavy is held while one in parts is looked at: a whole one takes much memory.
	heavy sync.Mutex
	// retries are those of its requests.
	retries throttle.Rests
}

// made is what is remembered of one ShadowObject.
type made struct {
	looked time.Time
	// kind and ref are of its object, which is there or may be.
	kind string
	ref  *v1alpha1.ObjectRef
	// left is the object as it was left, if nobody but us has a reason to write it.
	left version
	// judged is the version of the ShadowObject by which it was, and the circumstances; empty if there is more to judge by.
	// Home is its namespace there.
	judged, home string
	// service is the one that it looked for, of a slice.
	service types.NamespacedName
	// refused counts refusals of the API server in a row.
	refused int
	// waits counts the looks in a row at which it had no address yet.
	waits int
	// paid is when its parts may be read, if they have to wait.
	paid time.Time
	// broken counts the looks in a row at which not all parts of it were there.
	broken int
	// bare counts the looks in a row at which a Secret was missing that it names.
	bare int
	// ends counts the looks in a row at which the one before it was still ending.
	ends int
}

// knownAgain is when a slice is looked at again that nobody can judge yet.
const knownAgain = 5 * time.Second

// defaultServiceCIDR is the one that the API server makes of what it was started with. Others have
// addresses of the same families.
const defaultServiceCIDR = "kubernetes"

// longestRetry is the most that is waited after the API server has refused an object.
const longestRetry = 5 * time.Minute

// +kubebuilder:rbac:groups=pelago.dev,resources=shadowobjects,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=shadowobjects/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=tenants;namespacemaps,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,verbs=get;list;watch
//
// In namespaces that are mapped for tenants, by a RoleBinding made with them:
//
// +kubebuilder:rbac:groups="",resources=secrets;configmaps;services,verbs=get;list;create;patch;delete,roleName=pelago-manager-mapped
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;create;patch;delete,roleName=pelago-manager-mapped
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses;networkpolicies,verbs=get;list;create;patch;delete,roleName=pelago-manager-mapped
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;create;patch;delete,roleName=pelago-manager-mapped

// Reconcile looks at one ShadowObject.
func (r *provider) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	tenant, ok := strings.CutPrefix(req.Namespace, v1alpha1.TenantNamespacePrefix)
	if !ok {
		return ctrl.Result{}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	n, now := r.notes.get(req.NamespacedName), r.clock.Now()
	if wait := readEvery - now.Sub(n.looked); wait > 0 && wait <= readEvery {
		return r.retries.Rest(req, wait), nil
	}
	defer func() { err = plain("looking at the shadow object", err) }()
	m, err := r.shown(bounded, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if m == nil {
		return ctrl.Result{}, r.gone(bounded, req, tenant, n)
	}
	under, err := r.circumstances(bounded, req.Namespace, tenant)
	if err != nil {
		return ctrl.Result{}, err
	}
	if same, err := r.unchanged(bounded, m, tenant, under, n); err != nil {
		return ctrl.Result{}, err
	} else if same {
		n.looked = now
		r.notes.set(req.NamespacedName, n)
		return ctrl.Result{RequeueAfter: spread(lookEvery)}, nil
	}
	return r.look(ctx, bounded, req, tenant, under, n)
}

// look reads a ShadowObject, under known circumstances, and does what it wants. The answer is written however
// long that took.
func (r *provider) look(ctx, bounded context.Context, req ctrl.Request, tenant, under string, n made) (res ctrl.Result, err error) {
	s := &v1alpha1.ShadowObject{}
	switch err := r.live.Get(bounded, req.NamespacedName, s); {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, r.gone(bounded, req, tenant, n)
	case err != nil:
		return ctrl.Result{}, err
	}
	if n.kind = s.Spec.Home.Kind; n.ref == nil {
		n.ref = s.Status.Ref
	}
	if s.DeletionTimestamp != nil {
		return ctrl.Result{}, r.gone(bounded, req, tenant, n)
	}
	n.looked, n.judged = r.clock.Now(), ""
	done, wait := r.turn(tenant, s, &n)
	if wait > 0 {
		r.notes.set(req.NamespacedName, n)
		return r.retries.Rest(req, wait), nil
	}
	defer done()
	before := status.IsTrue(s.Status.Conditions, v1alpha1.ConditionAccepted)
	whole, err := r.join(bounded, s) // before its status is written, which is of what was read
	if err != nil {
		return ctrl.Result{}, err
	}
	w, ready := status.Begin(r.client, s), false
	defer func() {
		if version := w.Version(); ready && version != "" && err == nil {
			n.judged, n.home = version+under, s.Spec.Home.Namespace
		}
		r.notes.set(req.NamespacedName, n)
	}()
	defer w.Commit(ctx, &res, &err)
	defer done() // before that, however long it takes
	c, err := r.gather(bounded, s, tenant, &n)
	if err != nil || c == nil {
		return ctrl.Result{}, err
	}
	c.broken = !whole
	if c.unknown {
		return ctrl.Result{RequeueAfter: knownAgain}, nil
	}
	d := judge(*c)
	if c.unseen && !d.create { // what there is goes
		if err := r.see(bounded, c); err != nil {
			return ctrl.Result{}, err
		}
		d = judge(*c)
	}
	again, err := r.apply(bounded, c, &d, &n)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.report(s, d, &n, before)
	_, tokens := tokensOf(s.Spec.Home) // depend on a pod
	ready = d.reason == v1alpha1.ReasonReady && c.kind.Referred && !tokens
	again = r.located(s, c, d, &n, again)
	if n.broken++; whole {
		n.broken = 0
	}
	if n.broken > 0 {
		again = min(again, soon<<min(n.broken, 20))
	}
	if n.bare > 0 {
		again = min(again, soon<<min(n.bare, 20))
	}
	if n.ends++; !d.ends {
		n.ends = 0
	}
	if n.ends > 0 {
		again = min(again, soon<<min(n.ends, 20))
	}
	return ctrl.Result{RequeueAfter: spread(again)}, nil
}

// gone removes what was made for a ShadowObject that is not there any more.
func (r *provider) gone(ctx context.Context, req ctrl.Request, tenant string, n made) error {
	if n.ref != nil {
		if err := r.remove(ctx, tenant, n.kind, n.ref, n.left); err != nil {
			return err
		}
	}
	r.notes.forget(req.NamespacedName)
	return nil
}

// gather reads what concerns a ShadowObject; nil if its tenant is gone or ending, which
// takes everything away.
func (r *provider) gather(ctx context.Context, s *v1alpha1.ShadowObject, tenant string, n *made) (*claim, error) {
	t := &v1alpha1.Tenant{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: tenant}, t); apierrors.IsNotFound(err) || err == nil && t.DeletionTimestamp != nil {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the tenant: %w", err)
	}
	c := &claim{shadow: s, tenant: tenant, past: n.ref}
	c.kind, _ = kindOf(s.Spec.Home.Kind)
	c.rules = content.RulesOf(t.Spec.TenantTerms)
	if r.allowed != nil {
		c.rules.Allows = func(a netip.Addr) bool { return r.allowed.Allows(tenant, a) }
	}
	if badHome(s) != "" {
		return c, nil
	}
	if c.kind.Name == kindSlice || c.kind.Name == kindPolicy {
		r.notes.set(client.ObjectKeyFromObject(s), *n) // before it is asked, so that no change goes by unseen
		if c.unknown = r.allowed != nil && !r.allowed.Known(); c.unknown {
			return c, nil // what is there stays
		}
		c.rules.Cut = r.tunnels != nil && cut(r.tunnels.TenantAlive(tenant))
	}
	var err error
	if uid, ok := tokensOf(s.Spec.Home); ok {
		if c.runs, err = r.runs(ctx, s, uid); err != nil {
			return nil, err
		}
	}
	if c.place, err = r.place(ctx, s, tenant); err != nil || c.place.name == "" {
		return c, err
	}
	if c.kind.Name == kindService {
		if c.rules.Families, err = r.families(ctx); err != nil {
			return nil, err
		}
		if c.rules.Domain = r.domain; strings.Contains(s.Spec.Object, string(corev1.ServiceTypeExternalName)) {
			if err = r.tenantSpaces(ctx, c); err != nil {
				return nil, err
			}
		}
	}
	if c.kind.Name == kindPolicy {
		if err = r.surroundings(ctx, c); err != nil {
			return nil, err
		}
	}
	if c.kind.Name == kindIngress {
		if err = r.secrets(ctx, c, n); err != nil {
			return nil, err
		}
	}
	if c.kind.Name == kindSlice {
		if c.service, err = r.serviceOf(ctx, c, n); err != nil {
			return nil, err
		}
	}
	target := &v1alpha1.ObjectRef{Namespace: c.place.name, Name: s.Spec.Home.Name}
	if same(n.ref, target) {
		c.past = nil
	}
	if c.unseen = n.ref == nil; c.unseen { // making it says whether there is one
		return c, nil
	}
	return c, r.see(ctx, c)
}

// see reads the object in the place, if there is one.
func (r *provider) see(ctx context.Context, c *claim) error {
	c.unseen = false
	have := c.kind.New()
	switch err := r.live.Get(ctx, client.ObjectKey{Namespace: c.place.name, Name: c.shadow.Spec.Home.Name}, have); {
	case err == nil:
		c.have = have
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // making it says the same
	default:
		return plain("reading the object", err)
	}
	return nil
}

// families are those of this cluster's Services, as its API server was told them; none if it does
// not say.
func (r *provider) families(ctx context.Context) (all []corev1.IPFamily, err error) {
	own := &networkingv1.ServiceCIDR{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: defaultServiceCIDR}, own); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the ranges of Services: %w", err)
	}
	for _, text := range own.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() {
			all = append(all, corev1.IPv4Protocol)
		} else if err == nil {
			all = append(all, corev1.IPv6Protocol)
		}
	}
	return all, nil
}

// apply does what was decided, and says when to look again. What the API server refuses
// becomes what is said.
func (r *provider) apply(ctx context.Context, c *claim, d *deed, n *made) (time.Duration, error) {
	if d.remove != nil {
		known := n.left
		if c.have != nil && versionOf(c.have).of == *d.remove { // and was judged
			known = versionOf(c.have)
		}
		if err := r.remove(ctx, c.tenant, c.kind.Name, d.remove, known); err != nil {
			return 0, err
		}
		n.ref = nil
	}
	n.left = version{}
	if d.want == nil {
		if c.place.name != "" && !(c.broken && d.reason == v1alpha1.ReasonWaiting) { // it is not ours, or not there any more
			n.ref = nil
		}
		return lookEvery, nil
	}
	n.ref = &v1alpha1.ObjectRef{Namespace: d.want.GetNamespace(), Name: d.want.GetName()}
	is, err := r.write(ctx, c, d)
	if c.unseen && refused(err) {
		if err := r.see(ctx, c); err != nil {
			return 0, err
		}
		if c.have != nil {
			*d = judge(*c)
			return r.apply(ctx, c, d, n)
		}
	}
	switch {
	case err == nil:
		if n.refused = 0; c.kind.Referred { // the others have controllers, which write their status
			n.left = versionOf(is)
		}
		return lookEvery, nil
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		d.reason, d.message = v1alpha1.ReasonPending, "the object is changing at the provider"
		return soon, nil
	case kube.Uncounted(err): // which passes within seconds, as a rule
		d.reason, d.message = v1alpha1.ReasonPending, "the provider has not counted yet what its quota counts"
		return n.later(), nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		d.reason, d.message = v1alpha1.ReasonNotAdmitted, "the provider's API server does not take the object: "+denier(err)
		return n.later(), nil
	}
	return 0, plain("writing the object", err)
}

// later is when to try again what the API server did not take, the later the more often that was so.
func (n *made) later() time.Duration {
	wait := min(soon<<min(n.refused, 20), longestRetry)
	n.refused++
	return wait
}

// refused says that the API server does not make an object, which may be because there is one.
func refused(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

// write makes or changes the object, and returns it as it is then.
func (r *provider) write(ctx context.Context, c *claim, d *deed) (client.Object, error) {
	if d.replace {
		r.meter.made.WithLabelValues("delete").Inc()
		err := r.client.Delete(ctx, c.have, exactly(c.have))
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
	}
	switch {
	case d.create:
		r.meter.made.WithLabelValues("create").Inc()
		return d.want, r.client.Create(ctx, d.want)
	case d.patch:
		r.meter.made.WithLabelValues("patch").Inc()
		return d.next, r.client.Patch(ctx, d.next, client.MergeFromWithOptions(c.have, client.MergeFromWithOptimisticLock{}))
	}
	return c.have, nil
}

// exactly lets a deletion happen only if the object is as it was read.
func exactly(o client.Object) client.Preconditions {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return client.Preconditions{UID: &uid, ResourceVersion: &version}
}

// remove deletes an object that was made for a tenant, if it is that still. It is not read if it
// is as it is known to have been.
func (r *provider) remove(ctx context.Context, tenant, kindName string, ref *v1alpha1.ObjectRef, known version) error {
	kind, ok := kindOf(kindName)
	if !ok {
		return nil // none was made
	}
	ours, err := r.space(ctx, ref.Namespace, tenant, "")
	if err != nil || !ours {
		return err // it goes with its namespace, or is somebody else's now
	}
	have := kind.New()
	if known.of == *ref {
		have.SetNamespace(ref.Namespace)
		have.SetName(ref.Name)
		r.meter.made.WithLabelValues("delete").Inc()
		err := r.client.Delete(ctx, have, client.Preconditions{UID: &known.uid, ResourceVersion: &known.version})
		if !apierrors.IsConflict(err) {
			return plain("removing the object", client.IgnoreNotFound(err))
		}
		have = kind.New()
	}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, have); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return plain("reading the object to remove", err)
	}
	if !madeFor(have, tenant) {
		return nil
	}
	r.meter.made.WithLabelValues("delete").Inc()
	err = r.client.Delete(ctx, have, exactly(have))
	return plain("removing the object", client.IgnoreNotFound(err))
}

// located writes by which addresses others reach the object, and says when to look again:
// soon at first while a controller is to give it one.
func (r *provider) located(s *v1alpha1.ShadowObject, c *claim, d deed, n *made, again time.Duration) time.Duration {
	s.Status.Addresses = nil
	if d.reason != v1alpha1.ReasonReady || !content.Addressed(d.want) {
		n.waits = 0
		return again
	}
	if c.have != nil && !d.replace {
		s.Status.Addresses = content.Addresses(c.have)
	}
	if len(s.Status.Addresses) > 0 {
		n.waits = 0
		return again
	}
	wait := min(soon<<min(n.waits, 20), again)
	n.waits++
	return wait
}

// report writes the answer into the status.
func (r *provider) report(s *v1alpha1.ShadowObject, d deed, n *made, before bool) {
	s.Status.ObservedGeneration, s.Status.Ref = s.Generation, n.ref
	conditions := &s.Status.Conditions
	switch {
	case d.reason != v1alpha1.ReasonReady:
	case d.lacks != "":
		status.True(conditions, s.Generation, v1alpha1.ConditionAccepted, d.lacks, d.lacking)
		return
	default:
		status.True(conditions, s.Generation, v1alpha1.ConditionAccepted, d.reason, "")
		return
	}
	was := apimeta.FindStatusCondition(*conditions, v1alpha1.ConditionAccepted)
	if before || was == nil || was.Reason != d.reason {
		r.meter.refused.WithLabelValues(d.reason).Inc()
	}
	status.False(conditions, s.Generation, v1alpha1.ConditionAccepted, d.reason, d.message)
}
