package peering

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/status"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=peerings,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=pelago.dev,resources=peerings/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// visit is one look at a Peering.
type visit struct {
	*v1alpha1.Peering
	now      time.Time
	secret   *corev1.Secret // of the credential; nil if there is none
	cred     *credential
	peer     *fleet.Peer
	identity *v1alpha1.Identity
	contact  time.Time
	stalled  bool
	over     bool   // the provider has ended it
	working  string // why work goes on, for Reconciling
	again    time.Duration
}

// soon asks for another look.
func (v *visit) soon(d time.Duration) {
	d = max(d, time.Millisecond)
	if v.again == 0 || d < v.again {
		v.again = d
	}
}

func (v *visit) yes(kind, reason, message string) {
	status.True(&v.Status.Conditions, v.Generation, kind, reason, message)
}

func (v *visit) no(kind, reason, message string) {
	status.False(&v.Status.Conditions, v.Generation, kind, reason, message)
}

// stall says that somebody has to act.
func (v *visit) stall(kind, reason, message string) {
	v.no(kind, reason, message)
	v.yes(v1alpha1.ConditionStalled, reason, message)
	v.stalled = true
}

func isTrue(p *v1alpha1.Peering, kind string) bool { return status.IsTrue(p.Status.Conditions, kind) }

// phase is a step of a consumer's peering. The next ones follow only if it says so.
type phase func(context.Context, *visit) (goOn bool, err error)

// Reconcile brings one Peering further.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	p := &v1alpha1.Peering{}
	if err := r.client.Get(ctx, req.NamespacedName, p); err != nil {
		if apierrors.IsNotFound(err) {
			r.fleet.Remove(req.Name)
			r.meter.forget(req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, err
	}
	before := p.DeepCopy()
	defer func() { r.announce(before, p, err) }()
	w := status.Begin(r.client, p)
	defer w.Commit(ctx, &res, &err)
	if hold(p) {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	v := &visit{Peering: p, now: r.clock.Now()}
	errs := []error{r.consumer(ctx, v), r.provider(ctx, v)}
	if r.sum(v); !v.DeletionTimestamp.IsZero() && len(p.Finalizers) == 0 {
		r.memory.forget(p.UID)
		r.meter.forget(p.Name)
	}
	if err := calm(errors.Join(errs...), v); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: v.again}, nil
}

// calm turns a conflict into another look.
func calm(err error, v *visit) error {
	if err != nil && (apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) {
		v.soon(50 * time.Millisecond)
		return nil
	}
	return err
}

// hold adds the finalizers of what is wanted, and says whether one was missing. They
// are stored before anything happens elsewhere.
func hold(p *v1alpha1.Peering) bool {
	if !p.DeletionTimestamp.IsZero() {
		return false
	}
	added := false
	if p.Spec.Consume != nil {
		added = controllerutil.AddFinalizer(p, v1alpha1.FinalizerConsume) || added
	}
	if p.Spec.Provide != nil {
		added = controllerutil.AddFinalizer(p, v1alpha1.FinalizerProvide) || added
	}
	return added
}

// consumer runs the phases of a peering that consumes, or its farewell.
func (r *reconciler) consumer(ctx context.Context, v *visit) error {
	if !controllerutil.ContainsFinalizer(v.Peering, v1alpha1.FinalizerConsume) {
		v.clearConsumer()
		return nil
	}
	if err := r.read(ctx, v); err != nil {
		return err
	}
	if !v.DeletionTimestamp.IsZero() || v.Spec.Consume == nil || v.cred != nil && v.cred.Farewell {
		return r.farewell(ctx, v)
	}
	for _, p := range []phase{r.validate, r.key, r.introduce, r.connect} {
		if goOn, err := p(ctx, v); err != nil || !goOn {
			return err
		}
	}
	goOn, err := r.present(ctx, v)
	if v.over {
		return err
	}
	// Renewal and heartbeat go on whatever is wrong: without them the peering dies.
	errs := []error{err}
	for _, p := range []phase{r.renew, r.beat} {
		_, err := p(ctx, v)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil || !goOn || !isTrue(v.Peering, v1alpha1.ConditionReachable) {
		return err
	}
	for _, p := range []phase{r.compare, r.request} {
		if goOn, err := p(ctx, v); err != nil || !goOn {
			return err
		}
	}
	return nil
}

// clearConsumer forgets what a peering that does not consume has nothing to say of.
func (v *visit) clearConsumer() {
	for _, kind := range consumerConditions {
		meta.RemoveStatusCondition(&v.Status.Conditions, kind)
	}
	v.Status.Credential, v.Status.ServerURL, v.Status.TenantNamespace = nil, "", ""
}

var consumerConditions = []string{
	v1alpha1.ConditionIdentityReady, v1alpha1.ConditionReachable, v1alpha1.ConditionCompatible, v1alpha1.ConditionResourcesAccepted,
}

var providerConditions = []string{v1alpha1.ConditionTenantReady, v1alpha1.ConditionConsumerAlive}

// sum derives roles and Ready from the conditions of the roles there are.
func (r *reconciler) sum(v *visit) {
	v.Status.ObservedGeneration = v.Generation
	var need []string
	ready := map[v1alpha1.Role]bool{}
	v.Status.Roles = nil
	role := func(role v1alpha1.Role, conditions []string) {
		v.Status.Roles = append(v.Status.Roles, role)
		ready[role] = true
		for _, kind := range conditions {
			optional := kind == v1alpha1.ConditionResourcesAccepted || kind == v1alpha1.ConditionConsumerAlive
			if optional && meta.FindStatusCondition(v.Status.Conditions, kind) == nil {
				continue
			}
			need = append(need, kind)
			ready[role] = ready[role] && isTrue(v.Peering, kind)
		}
	}
	if v.Spec.Consume != nil {
		role(v1alpha1.RoleConsumer, consumerConditions)
	}
	if v.Spec.Provide != nil {
		role(v1alpha1.RoleProvider, providerConditions)
	}
	r.remember(v)
	v.conclude(need)
	r.meter.show(v.Peering, ready, v.contact)
}

// conclude sets Ready, Reconciling and Stalled. What ends has set Ready by itself.
func (v *visit) conclude(need []string) {
	if v.DeletionTimestamp.IsZero() && v.working != v1alpha1.ReasonTerminating && v.working != v1alpha1.ReasonEndedByProvider {
		status.Derive(&v.Status.Conditions, v.Generation, v1alpha1.ConditionReady, v1alpha1.ReasonPending, need...)
	}
	if v.stalled {
		s := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionStalled)
		v.no(v1alpha1.ConditionReady, s.Reason, s.Message)
		meta.RemoveStatusCondition(&v.Status.Conditions, v1alpha1.ConditionReconciling)
		return
	}
	meta.RemoveStatusCondition(&v.Status.Conditions, v1alpha1.ConditionStalled)
	c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue {
		meta.RemoveStatusCondition(&v.Status.Conditions, v1alpha1.ConditionReconciling)
		return
	}
	v.yes(v1alpha1.ConditionReconciling, c.Reason, c.Message)
}

// contactEvery is how often lastContact is written while all is well.
const contactEvery = 5 * time.Minute

// remember keeps lastContact true to the minute: seldom while the contact lasts, at
// once when it ends.
func (r *reconciler) remember(v *visit) {
	if v.contact.IsZero() {
		return
	}
	stored := v.Status.LastContact
	if stored != nil && stored.After(v.now) {
		stored = nil // by a clock that was ahead
	}
	lasting := !v.contact.Before(v.now)
	if stored != nil && (!v.contact.Truncate(time.Minute).After(stored.Time) || lasting && v.now.Sub(stored.Time) < contactEvery) {
		return
	}
	at := metav1.NewTime(v.contact.Truncate(time.Minute))
	v.Status.LastContact = &at
}

// announce tells people of transitions.
func (r *reconciler) announce(before, after *v1alpha1.Peering, err error) {
	if err != nil || r.events == nil {
		return
	}
	turned := func(kind string, to metav1.ConditionStatus) bool {
		a := meta.FindStatusCondition(after.Status.Conditions, kind)
		b := meta.FindStatusCondition(before.Status.Conditions, kind)
		return a != nil && a.Status == to && (b == nil || b.Status != to)
	}
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReachable)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReachable)
	switch {
	case is == nil:
	case is.Status == metav1.ConditionFalse && was != nil && was.Status == metav1.ConditionTrue:
		r.event(after, corev1.EventTypeWarning, "PeerUnreachable", "Watch", is.Message)
	case is.Status == metav1.ConditionTrue && was != nil && was.Reason == v1alpha1.ReasonPeerUnreachable:
		r.event(after, corev1.EventTypeNormal, "PeerReachable", "Watch", "the provider answers again")
	}
	consumes := slices.Contains(after.Status.Roles, v1alpha1.RoleConsumer)
	if consumes && turned(v1alpha1.ConditionIdentityReady, metav1.ConditionTrue) &&
		meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReachable) == nil {
		r.event(after, corev1.EventTypeNormal, "Peered", "Introduce", "the provider has issued a credential")
	}
	if turned(v1alpha1.ConditionStalled, metav1.ConditionTrue) {
		c := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionStalled)
		r.event(after, corev1.EventTypeWarning, c.Reason, "Introduce", c.Message)
	}
}

// event records something for people. It never holds a secret.
func (r *reconciler) event(p client.Object, kind, reason, action, note string) {
	if r.events != nil {
		r.events.Eventf(p, nil, kind, reason, action, "%s", note)
	}
}
