package peering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=resourcerequests,verbs=delete

const (
	// goodbyeEvery is how often is looked whether the provider has let go.
	goodbyeEvery = 100 * time.Millisecond
	// goodbyeRetry is how soon a goodbye is repeated that failed on the way.
	goodbyeRetry = 500 * time.Millisecond
	// goodbyeSlow is how often when that lasts.
	goodbyeSlow = time.Second
	// goodbyeSoon is how long it may last.
	goodbyeSoon = 10 * time.Second
	// refusedFor and refusedTries are how long, and how often at least, a goodbye is refused until
	// that is taken for an answer: an API server that has just started refuses everybody (403)
	// until it has read who has which rights.
	refusedFor   = time.Minute
	refusedTries = 5
	// refusedEvery is how often it is said until then.
	refusedEvery = 2 * time.Second
)

// farewell ends what this cluster has of a provider: the provider is told and lets
// go, or a tombstone keeps telling it; then everything here goes.
func (r *reconciler) farewell(ctx context.Context, v *visit) error {
	v.working = v1alpha1.ReasonTerminating
	if v.cred != nil && v.cred.UID != string(v.UID) {
		v.cred = nil // of a Peering before this one
	}
	if v.cred == nil && v.secret != nil && len(v.secret.Data[keyCertificate])+len(v.secret.Data[keyToken]) > 0 {
		r.event(v.Peering, corev1.EventTypeWarning, v1alpha1.ReasonInvalid, "Unpeer",
			"the provider cannot be told, for the Secret with the credential is damaged or of an earlier Peering of this name; its owner has to run pelago unpeer there")
	}
	if v.cred != nil && !v.cred.Farewell {
		c := *v.cred
		c.Farewell = true
		if err := r.save(ctx, v, &c); err != nil {
			return err
		}
	}
	if left, err := r.drainRequests(ctx, v); err != nil || left > 0 {
		return err
	}
	// In band the namespace holds the way to the provider.
	early := inBand(v.Spec.Consume, v.cred)
	if early && (v.cred == nil || !v.cred.Told) {
		if done, err := r.part(ctx, v); !done || err != nil {
			return err
		}
		if v.cred != nil { // what follows may fail, and takes the tunnel away
			c := *v.cred
			c.Told = true
			if err := r.save(ctx, v, &c); err != nil {
				return err
			}
		}
	}
	cleared, err := r.clearNamespace(ctx, v)
	if err != nil {
		return err
	}
	if !early {
		if done, err := r.part(ctx, v); !done || err != nil {
			return err
		}
	}
	r.fleet.Remove(v.Name)
	if err := r.removeSecrets(ctx, v); err != nil {
		return err
	}
	if !cleared && !forced(v.Peering) {
		v.no(v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, "waiting until the requests in "+v1alpha1.PeeringNamespace(v.Name)+" are gone")
		v.soon(goodbyeEvery)
		return nil
	}
	controllerutil.RemoveFinalizer(v.Peering, v1alpha1.FinalizerConsume)
	r.memory.parted(v.UID)
	v.clearConsumer()
	v.working = ""
	if v.Spec.Consume != nil && v.DeletionTimestamp.IsZero() {
		v.soon(time.Millisecond) // it was taken out and put back: begin anew
	}
	return nil
}

// part tells the provider goodbye, or leaves that to a tombstone. There may be nobody to tell.
func (r *reconciler) part(ctx context.Context, v *visit) (bool, error) {
	switch {
	case v.cred == nil || !v.cred.issued():
		return true, nil
	case v.cred.over(v.now):
		if r.lastWord(ctx, v) != nil {
			r.event(v.Peering, corev1.EventTypeWarning, v1alpha1.ReasonExpired, "Unpeer",
				"the provider cannot be told, for the credential has expired; its owner has to run pelago unpeer there")
		}
		return true, nil
	case forced(v.Peering) && inBand(v.Spec.Consume, v.cred):
		if r.lastWord(ctx, v) != nil {
			r.event(v.Peering, corev1.EventTypeWarning, v1alpha1.ReasonPeerUnreachable, "Unpeer",
				"the provider could not be told, and cannot be any more, as the tunnel to it ends; its owner has to run pelago unpeer there")
		}
		return true, nil
	case forced(v.Peering):
		return true, r.bury(ctx, v)
	}
	return r.goodbye(ctx, v)
}

// goodbye deletes the Identity at the provider and says whether that has been taken
// note of: it is gone, or this cluster has no right left to see it, and that lasts if it is not why.
func (r *reconciler) goodbye(ctx context.Context, v *visit) (bool, error) {
	if err := r.fleet.Set(ctx, r.connection(v.Name, v.Spec.Consume, v.cred)); err != nil {
		r.event(v.Peering, corev1.EventTypeWarning, v1alpha1.ReasonInvalid, "Unpeer", "the provider cannot be told: "+err.Error())
		return true, nil
	}
	peer, ok := r.fleet.Peer(v.Name)
	if !ok {
		v.soon(goodbyeEvery)
		return false, nil
	}
	// A provider that shows too much answers, and has to be left all the more.
	if state := peer.State(); !state.Reachable && state.Reason != v1alpha1.ReasonTooMany {
		r.memory.unrefused(v.UID)
		v.unheard(state.Reason == v1alpha1.ReasonPending, state.Since)
		return false, nil
	}
	identity := &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: peer.TenantNamespace(), Name: v1alpha1.IdentityName}}
	err := peer.Client().Get(ctx, client.ObjectKeyFromObject(identity), identity)
	if err == nil && identity.DeletionTimestamp == nil {
		err = peer.Client().Delete(ctx, identity)
	}
	if turnedAway(err) {
		return r.refused(v, err), nil
	}
	r.memory.unrefused(v.UID)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		_, err := r.remote(ctx, v, fmt.Errorf("saying goodbye: %w", err))
		v.unheard(false, v.now)
		v.soon(goodbyeRetry)
		return false, err
	}
	r.memory.tell(v.UID)
	if inBand(v.Spec.Consume, v.cred) {
		return true, nil // the tunnel goes with the tenant, and nothing more is heard
	}
	v.no(v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, "the provider has been told and is removing what is this cluster's there")
	every := goodbyeEvery
	if d := identity.DeletionTimestamp; d != nil && v.now.Sub(d.Time) > goodbyeSoon {
		every = goodbyeSlow
	}
	v.soon(every)
	return false, nil
}

// turnedAway says whether the provider answers a goodbye by refusing who says it.
func turnedAway(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// unknown is what is told to people of a goodbye that was refused for good.
func unknown(err error) string {
	what := "the provider refuses this cluster's identity"
	if apierrors.IsUnauthorized(err) {
		what = "the provider does not know this cluster's credential any more"
	}
	return what + "; if its Tenant is still there, its owner has to remove it"
}

// refused says whether a refused goodbye is over: the provider takes the rights away once it knows,
// and otherwise refuses for good only if that lasts.
func (r *reconciler) refused(v *visit, err error) bool {
	told, lasting := r.memory.refuse(v.UID, v.now)
	if told {
		return true
	}
	if lasting {
		r.event(v.Peering, corev1.EventTypeWarning, v1alpha1.ReasonForbidden, "Unpeer", unknown(err))
		return true
	}
	v.no(v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, fmt.Sprintf(
		"the provider refuses to hear this cluster's goodbye; should it still do so after a minute, this goes on without; to go without now: pelago unpeer %s --force (annotation %s=true)",
		v.Name, v1alpha1.AnnotationForce))
	v.soon(refusedEvery)
	return false
}

// unheard says that the provider has not been told yet, and how to go without.
func (v *visit) unheard(pending bool, since time.Time) {
	message := "connecting to the provider to say goodbye"
	if !pending {
		message = fmt.Sprintf("the provider has not answered since %s and could not be told; to go without: pelago unpeer %s --force (annotation %s=true)",
			since.UTC().Format(time.RFC3339), v.Name, v1alpha1.AnnotationForce)
	}
	v.no(v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, message)
	v.soon(5 * time.Second)
}

// clearNamespace removes the requests and their namespace, and says whether that is
// done: the namespace is being deleted and holds nothing of this peering. Kubernetes
// itself waits five seconds before it takes an empty namespace away, which nobody
// here has to wait for.
func (r *reconciler) clearNamespace(ctx context.Context, v *visit) (bool, error) {
	n := &corev1.Namespace{}
	err := r.client.Get(ctx, client.ObjectKey{Name: v1alpha1.PeeringNamespace(v.Name)}, n)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the namespace of the requests: %w", err)
	}
	if !ours(n, v.Name) {
		return true, nil
	}
	if n.DeletionTimestamp == nil {
		if err := r.remove(ctx, n); err != nil {
			return false, err
		}
	}
	left, err := r.releaseRequests(ctx, n.Name)
	return left == 0, err
}

// drainRequests deletes the requests and counts those that still have a virtual node:
// their pods end before the provider is told goodbye, for which the connection is needed.
// Whoever keeps the nodes sees to it that this ends.
func (r *reconciler) drainRequests(ctx context.Context, v *visit) (int, error) {
	namespace := v1alpha1.PeeringNamespace(v.Name)
	list := &v1alpha1.ResourceRequestList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("listing requests: %w", err)
	}
	left := 0
	var errs []error
	for i := range list.Items {
		q := &list.Items[i]
		if !slices.Contains(q.Finalizers, v1alpha1.FinalizerNode) {
			continue
		}
		left++
		if q.DeletionTimestamp == nil {
			errs = append(errs, r.remove(ctx, q))
		}
	}
	if left == 0 {
		return 0, nil
	}
	if v.cred != nil && v.cred.issued() && !v.cred.over(v.now) {
		// After a restart there is none. A malformed one is found out by the goodbye.
		if err := r.fleet.Set(ctx, r.connection(v.Name, v.Spec.Consume, v.cred)); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("no connection while draining", "error", err.Error())
		}
	}
	v.no(v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, fmt.Sprintf(
		"waiting until the virtual nodes of %d requests in %s are drained and gone; to give up their pods: pelago unpeer %s --force", left, namespace, v.Name))
	v.soon(goodbyeSlow) // the requests tell earlier
	return left, errors.Join(errs...)
}

// releaseRequests deletes the requests and takes our finalizer off: the provider
// removes its copies with the tenant. It returns how many there were.
func (r *reconciler) releaseRequests(ctx context.Context, namespace string) (int, error) {
	list := &v1alpha1.ResourceRequestList{}
	if err := r.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("listing requests: %w", err)
	}
	var errs []error
	for i := range list.Items {
		q := &list.Items[i]
		if q.DeletionTimestamp == nil {
			if err := r.remove(ctx, q); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if !slices.Contains(q.Finalizers, v1alpha1.FinalizerWithdraw) {
			continue
		}
		before := q.DeepCopy()
		controllerutil.RemoveFinalizer(q, v1alpha1.FinalizerWithdraw)
		before.ResourceVersion, q.ResourceVersion = "", ""
		if err := r.client.Patch(ctx, q, client.MergeFrom(before)); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("releasing request %s: %w", q.Name, err))
		}
	}
	return len(list.Items), errors.Join(errs...)
}

// removeSecrets removes the token, if it was never used, and then the credential.
func (r *reconciler) removeSecrets(ctx context.Context, v *visit) error {
	if v.cred == nil {
		v.cred = &credential{}
	}
	if err := r.discardToken(ctx, v); err != nil {
		return err
	}
	if v.secret == nil || v.secret.Labels[v1alpha1.LabelPeering] != v.Name {
		return nil
	}
	return r.remove(ctx, v.secret)
}
