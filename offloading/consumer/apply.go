package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

const (
	// remoteLimit bounds what one reconcile does at a provider.
	remoteLimit = 15 * time.Second
	// refusedRetry is when a provider that refused us is asked again, about.
	refusedRetry = 30 * time.Second
	// uncountedRetry is the same while the provider does not count yet what we have there.
	uncountedRetry = time.Second
)

// errDenied says that the provider does not let this cluster write.
var errDenied = errors.New("the provider refuses this cluster")

// errUncounted says that the provider's quota has no count yet: the quota controller
// learns of a kind half a minute after it was defined, and refuses it until then.
var errUncounted = errors.New("the provider does not count shadow pods yet")

// errBusy says that as many pods wait for the provider as may: this one is called when it has its turn.
var errBusy = errors.New("others wait for this provider")

// apply does what was decided, and says when to look again. What home is told comes before what waits for
// the provider, as far as that can be.
func (r *reconciler) apply(ctx context.Context, f *facts, peer Peer, p plan) (time.Duration, error) {
	if p.gone {
		switch there, err := r.there(ctx, f, peer); {
		case errors.Is(err, errBusy):
			return 0, nil
		case err != nil || there:
			return behind, err // the mirror will know
		}
	}
	if err := r.welcome(ctx, f, &p); err != nil {
		return 0, err
	}
	if err := r.status(ctx, f, p); err != nil {
		return 0, err
	}
	p.again = soonest(p.again, r.attend(f, p))
	absent, err := r.remote(ctx, f, peer, &p)
	switch {
	case errors.Is(err, errBusy):
		return p.again, nil
	case errors.Is(err, errDenied) && f.shadow == nil:
		return spread(deniedRetry(f.now, f.pod.CreationTimestamp.Time)), nil
	case errors.Is(err, errDenied):
		return spread(refusedRetry), nil
	case errors.Is(err, errUncounted):
		return spread(uncountedRetry), nil
	case err != nil:
		return 0, err
	}
	if p.end && absent { // it is gone there, which is not asked again
		r.ledger.saw(client.ObjectKeyFromObject(f.pod), f.pod.UID, f.peering)
		last := bury(*f, plan{})
		if err := r.status(ctx, f, last); err != nil {
			return 0, err
		}
		p.bury, p.again = last.bury, last.again
	}
	if p.bury {
		if p.left { // of the namespace: in one that ends no event is made
			r.events.Eventf(f.closing, f.pod, corev1.EventTypeWarning, "OffloadingLeft", "Offload",
				"pod %s is removed though %s has not ended it, and may run there on: see whether the manager of Pelago runs there", f.pod.Name, f.peering)
		}
		if err := r.bury(ctx, f); err != nil {
			return 0, err
		}
	}
	if p.home != nil {
		return r.send(ctx, f, p.home)
	}
	return r.warn(ctx, f, p)
}

// welcome forgets that pods of a pod's owner were sent home, or has it looked at again when
// that is due.
func (r *reconciler) welcome(ctx context.Context, f *facts, p *plan) error {
	tried := time.Time{}
	switch {
	case p.welcome:
		if err := r.refusals.forget(ctx, f); err != nil {
			return err
		}
	case !p.begins:
		return nil
	default:
		if known, err := r.refusals.known(ctx, f); err != nil || !known {
			return err
		}
		tried, p.again = f.now, soonest(p.again, trial)
	}
	r.ledger.tries(client.ObjectKeyFromObject(f.pod), f.pod.UID, tried)
	return nil
}

// there asks the provider itself whether it has the ShadowPod.
func (r *reconciler) there(ctx context.Context, f *facts, peer Peer) (bool, error) {
	if !r.turns.Take(f.peering, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.pod)}) {
		return false, errBusy
	}
	defer r.turns.Give(f.peering)
	ctx, cancel := context.WithTimeout(ctx, remoteLimit)
	defer cancel()
	list := &v1alpha1.ShadowPodList{}
	err := peer.Client().List(ctx, list, client.InNamespace(peer.TenantNamespace()),
		client.MatchingFields{"metadata.name": string(f.pod.UID)}, client.Limit(1))
	if err != nil {
		return false, fmt.Errorf("looking for the shadow pod: %w", err)
	}
	return len(list.Items) > 0, nil
}

// status writes the home pod's status if it is to be another one, and tells of what is
// new about it.
func (r *reconciler) status(ctx context.Context, f *facts, p plan) error {
	before := f.pod.Status
	if p.status != nil {
		if written, err := r.write(ctx, f, *p.status); err != nil || !written {
			return err
		}
	}
	r.tell(f, p, before)
	return nil
}

// write writes the home pod's status. It says whether that pod is there.
func (r *reconciler) write(ctx context.Context, f *facts, next corev1.PodStatus) (bool, error) {
	patch, err := patchOf(f.pod, next, f.noted())
	if err != nil {
		return false, err
	}
	written := f.pod.DeepCopy()
	err = r.client.Status().Patch(ctx, written, patch)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || another(err) {
		return false, nil // the pod of this UID is gone, and its going brings us back
	}
	if err != nil {
		return false, fmt.Errorf("writing the pod's status: %w", err)
	}
	if got := written.Status; next.Resources != nil || len(next.AllocatedResources) > 0 { // one of before Kubernetes 1.36 keeps neither
		r.sizeless.Store(got.Resources == nil && len(got.AllocatedResources) == 0)
	}
	if terminal(next.Phase) {
		r.ledger.ended(client.ObjectKeyFromObject(f.pod), f.pod.UID, f.peering)
	}
	if all := addressesOf(&next); all != addressesOf(&f.pod.Status) {
		r.ledger.addresses(client.ObjectKeyFromObject(f.pod), f.pod.UID, all, versionOf(written))
	}
	r.ledger.writes(client.ObjectKeyFromObject(f.pod), f.pod.UID, versionOf(written), r.clock.Now())
	f.pod.Status, f.pod.ResourceVersion = next, written.ResourceVersion
	return true, nil
}

// tell makes events of what the status did not say before: that the pod is refused, or a
// change of it. Refusals are said within what the provider may cause, and none of them again
// that was said lately: a provider may find ever new reasons, or the same ones in turn.
func (r *reconciler) tell(f *facts, p plan, before corev1.PodStatus) {
	key := client.ObjectKeyFromObject(f.pod)
	if p.refused != nil && before.Reason != p.refused.reason && !r.ledger.of(key, f.pod.UID).lately(p.refused.reason, f.now) && r.budget.Take(f.peering, f.now) {
		r.ledger.refuses(key, f.pod.UID, p.refused.reason, f.now)
		r.events.Eventf(f.pod, nil, corev1.EventTypeWarning, "OffloadingRefused", "Offload", "%s: %s: %s", f.peering, p.refused.reason, p.refused.message)
	}
	if no := p.rejected; no != nil && r.ledger.rejects(key, f.pod.UID, no.of, marked(&before) == no.message) {
		r.events.Eventf(f.pod, nil, corev1.EventTypeWarning, v1alpha1.ReasonChangeRefused, "Change",
			"%s runs this pod without a change of it: %s; %s", f.peering, no.message, no.remedy)
	}
}

// another says whether the API server did not write because the pod has another UID.
func another(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// remote writes at the provider. It says whether there is no ShadowPod to end. A
// refusal of the provider's API server becomes a part of the plan.
func (r *reconciler) remote(ctx context.Context, f *facts, peer Peer, p *plan) (absent bool, err error) {
	if p.create == nil && p.change == nil && p.grace == nil && !p.end {
		return false, nil
	}
	if !r.turns.Take(f.peering, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.pod)}) {
		return false, errBusy
	}
	defer r.turns.Give(f.peering)
	remote, cancel := context.WithTimeout(ctx, remoteLimit)
	defer cancel()
	if p.create != nil {
		return false, r.create(ctx, remote, f, peer, p)
	}
	for _, want := range []*v1alpha1.ShadowPod{p.change, p.grace} {
		if want == nil {
			continue
		}
		if err := r.change(ctx, remote, f, peer, want, want == p.grace); apierrors.IsNotFound(err) {
			return p.end, nil
		} else if err != nil && !(want == p.grace && p.end && errors.Is(err, errDenied)) { // the end matters more
			return false, err
		}
	}
	if !p.end {
		return false, nil
	}
	r.meter.calls.WithLabelValues("delete").Inc()
	err = peer.Client().Delete(remote, &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: peer.TenantNamespace(), Name: string(f.pod.UID)},
	})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case denied(err):
		return false, errDenied
	case err != nil:
		return false, fmt.Errorf("deleting the shadow pod: %w", err)
	}
	return false, nil
}

// errFull says that another ShadowPod could not be watched.
var errFull = errors.New("this cluster has as many pods at that provider as it keeps, and no more can run there; delete some, or peer with another provider")

// create makes the ShadowPod.
func (r *reconciler) create(ctx, remote context.Context, f *facts, peer Peer, p *plan) error {
	if peer.Full(p.create) {
		return r.turnedDown(ctx, f, p, v1alpha1.ReasonLimitExceeded, errFull)
	}
	s := p.create.DeepCopy()
	s.Namespace = peer.TenantNamespace()
	if !f.at.Tokens {
		r.ledger.asksBare(client.ObjectKeyFromObject(f.pod), f.pod.UID, f.peering)
	}
	r.meter.calls.WithLabelValues("create").Inc()
	err := peer.Client().Create(remote, s)
	denial := kube.DenialOf(err)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		r.ledger.created(client.ObjectKeyFromObject(f.pod), f.pod.UID, f.peering, f.now)
		if err == nil && f.at.Tokens {
			r.ledger.change(client.ObjectKeyFromObject(f.pod), f.pod.UID, func(e *entry) { e.bare = false })
		}
		return nil
	case denial != nil:
		return r.turnedDown(ctx, f, p, denial.Reason(), err)
	case turnsDown(err):
		return r.turnedDown(ctx, f, p, v1alpha1.ReasonNotAdmitted, err)
	case kube.Uncounted(err):
		return errUncounted
	case denied(err):
		told := stays(*f, v1alpha1.ReasonForbidden, "the provider does not let this cluster create shadow pods: "+err.Error())
		told.refused = nil // that is no answer to this pod
		if err := r.status(ctx, f, told); err != nil {
			return err
		}
		return errDenied
	}
	return fmt.Errorf("creating the shadow pod: %w", err)
}

// turnedDown goes on as if the provider had refused the pod.
func (r *reconciler) turnedDown(ctx context.Context, f *facts, p *plan, reason string, err error) error {
	*p = refuse(*f, f.pod.Status, reason, err.Error())
	if retry := spread(refusedRetry); p.again == 0 || retry < p.again {
		p.again = retry
	}
	return r.status(ctx, f, *p)
}

// change writes what differs in a ShadowPod's spec.
func (r *reconciler) change(ctx, remote context.Context, f *facts, peer Peer, want *v1alpha1.ShadowPod, grace bool) error {
	base, next := f.shadow.DeepCopy(), f.shadow.DeepCopy()
	base.Spec.Pod = "" // the mirror does not keep it
	if grace {
		next.Spec.Pod = ""
		next.Spec.GracePeriodSeconds = want.Spec.GracePeriodSeconds
	} else {
		next.Spec.Labels, next.Spec.Annotations, next.Spec.Pod = want.Spec.Labels, want.Spec.Annotations, want.Spec.Pod
		delete(next.Annotations, v1alpha1.AnnotationApplied) // an earlier build wrote it, of what was
	}
	r.meter.calls.WithLabelValues("patch").Inc()
	err := peer.Client().Patch(remote, next, client.MergeFrom(base))
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return err
	case !grace && (apierrors.IsForbidden(err) || turnsDown(err)):
		if err := r.reject(ctx, f, want, err); err != nil {
			return err
		}
		return errDenied // what runs goes on as it is
	case denied(err), turnsDown(err):
		return errDenied
	}
	return fmt.Errorf("changing the shadow pod: %w", err)
}

// bury removes the home pod of this UID.
func (r *reconciler) bury(ctx context.Context, f *facts) error {
	r.ledger.buries(client.ObjectKeyFromObject(f.pod), f.pod.UID, f.peering, f.now)
	err := r.client.Delete(ctx, f.pod.DeepCopy(), client.GracePeriodSeconds(0), client.Preconditions{UID: &f.pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("removing the pod: %w", err)
	}
	return nil
}

// denied says whether a provider refuses this identity, or has no place for it.
func denied(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// turnsDown says whether a provider's API server finds fault with what it was sent.
func turnsDown(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsBadRequest(err)
}

// deniedRetry is when a provider that let us send no pod is asked again for one that was
// made at a time: after as long again as it has waited, within bounds. Rights may come a
// moment after what they are for, and a pod of which nothing is there yet waits for them.
func deniedRetry(now, made time.Time) time.Duration {
	return min(max(now.Sub(made), uncountedRetry), refusedRetry)
}

// spread is about d, so that not all come at once.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// after is a result that looks again in a while, never if that is 0.
func after(d time.Duration) ctrl.Result { return ctrl.Result{RequeueAfter: d} }
