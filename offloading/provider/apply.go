package provider

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

const (
	// soon is when something is tried again that others are about to finish.
	soon = 500 * time.Millisecond
	// busyAgain is when a pod is tried again for which there may be no room.
	busyAgain = time.Second
)

// clear takes our finalizer off pods and deletes pods.
func (r *reconciler) clear(ctx context.Context, p plan) error {
	for _, pod := range p.release {
		after := pod.DeepCopy()
		controllerutil.RemoveFinalizer(after, v1alpha1.FinalizerShadowPod)
		if err := r.client.Patch(ctx, after, locked(pod)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("taking the finalizer off the pod: %w", err)
		}
	}
	for _, d := range p.remove {
		uid, version := d.pod.UID, d.pod.ResourceVersion
		o := &client.DeleteOptions{GracePeriodSeconds: d.grace, Preconditions: &metav1.Preconditions{UID: &uid}}
		if d.pinned {
			o.Preconditions.ResourceVersion = &version
		}
		if err := r.client.Delete(ctx, d.pod, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the pod: %w", err)
		}
	}
	return nil
}

// create makes the pod, or says in the status why not.
func (r *reconciler) create(ctx context.Context, f facts, p plan, n *note) (plan, error) {
	key := client.ObjectKeyFromObject(f.shadow)
	api, coming := r.homeAPI(f, n)
	if coming {
		p.in(r.spread(busyAgain))
		return p, nil
	}
	switch err := r.ledger.reserve(f.terms, key, nil, f.made); {
	case errors.Is(err, ErrNotCounted), errors.Is(err, errBusy):
		p.in(r.spread(busyAgain))
		return p, nil
	case err != nil:
		return r.refused(f, p, n, v1alpha1.ReasonLimitExceeded, err.Error()), nil
	}
	pod := f.made.DeepCopy()
	if r.nameServers != nil {
		shadow.Resolve(pod, f.place.names, f.place.domain, r.nameServers()...)
	}
	shadow.ReachHome(pod, f.shadow.Spec.Home.Namespace, f.place.domain, api)
	if len(pod.Spec.EphemeralContainers)+len(f.leftOut) > 0 { // the API server takes them only later: then the pod has to follow, and says what it does not
		pod.Spec.EphemeralContainers = nil
		delete(pod.Annotations, v1alpha1.AnnotationApplied)
	}
	err := r.make(ctx, pod)
	if err == nil {
		n.made(pod.UID, f.now)
		r.metrics.created.Inc()
		if over := r.ledger.confirm(f.terms, key, f.made, pod); over != nil {
			// The API server's defaults have made it larger than what was checked.
			return r.takeBack(ctx, f, p, n, pod, v1alpha1.ReasonLimitExceeded, over.Error())
		}
		if fields := shadow.Lost(pod, f.made); len(fields) > 0 {
			return r.takeBack(ctx, f, p, n, pod, v1alpha1.ReasonNotAdmitted, lostMessage(fields))
		}
		n.whole = pod.UID
		return p, nil
	}
	conflict := apierrors.IsConflict(err) && !denies(err)
	if !answered(err) && !conflict { // it may be there: the place is held for a while
		p.refuse(f, v1alpha1.ReasonWaiting, outage(err))
		return p, fmt.Errorf("making the pod: %w", err)
	}
	r.ledger.cancel(f.tenant, key)
	if conflict { // of the API server with itself: many pods count in one quota
		p.refuse(f, v1alpha1.ReasonWaiting, outage(err))
		p.in(r.spread(busyAgain))
		return p, nil
	}
	return r.notCreated(ctx, f, p, n, err)
}

// make makes a pod, with its own limit.
func (r *reconciler) make(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, makeLimit)
	defer cancel()
	return r.client.Create(ctx, pod)
}

// lostMessage says why a pod is not run of which fields were dropped.
func lostMessage(fields []string) string {
	return "the provider's API server, which is older, does not know " + strings.Join(fields, ", ") + "; leave out what is named"
}

// takeBack removes a pod that was just made and is not what was asked for, and says why.
func (r *reconciler) takeBack(ctx context.Context, f facts, p plan, n *note, pod *corev1.Pod, reason, message string) (plan, error) {
	r.ledger.cancel(f.tenant, client.ObjectKeyFromObject(f.shadow))
	p.remove = []removal{{pod: pod}}
	return r.refused(f, p, n, reason, message), r.clear(ctx, p)
}

// homeAPI is where a pod that is about to be made reaches home's API server, if it has tokens
// of home, and whether that is to be waited for.
func (r *reconciler) homeAPI(f facts, n *note) (at netip.AddrPort, coming bool) {
	if r.homes == nil || !shadow.HasTokens(f.shadow) {
		return at, false
	}
	n.awaits = true
	r.memory.set(client.ObjectKeyFromObject(f.shadow), *n) // before it is asked, so that no answer goes by unseen
	at, coming = r.homes.HomeAPI(f.tenant)
	n.awaits = coming
	return at, coming
}

// answered says that an error is the API server's decision not to make a pod.
func answered(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsNotFound(err) || apierrors.IsRequestEntityTooLargeError(err) || denies(err)
}

// denies says whether an error is the word of an admission webhook or policy, or of a quota. They choose
// its code: one that says Conflict, or that something has failed, has decided as well.
func denies(err error) bool { return kube.DenialIn(err.Error()) != nil }

// failedWebhook is how an API server names a webhook that it cannot ask.
var failedWebhook = regexp.MustCompile(`failed calling webhook "([A-Za-z0-9][A-Za-z0-9._/-]{0,252})"`)

// outage is what is told of a pod that the API server has not made and not denied: steady, as it is tried
// again and again, and without addresses of this cluster's.
func outage(err error) string {
	if by := failedWebhook.FindStringSubmatch(err.Error()); by != nil {
		return "the provider's API server makes no pod while its admission webhook " + by[1] + " fails; its owner has to mend or remove that"
	}
	message := "the provider's API server has not made the pod, which is tried again"
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		message += ": " + string(reason)
	}
	return message
}

// notCreated turns the API server's answer into a reason.
func (r *reconciler) notCreated(ctx context.Context, f facts, p plan, n *note, err error) (plan, error) {
	switch {
	case denies(err):
	case apierrors.IsAlreadyExists(err):
		return r.taken(ctx, f, p, n)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		p.refuse(f, v1alpha1.ReasonNamespaceMissing, "the namespace mapped for "+f.shadow.Spec.Home.Namespace+" is ending")
		p.in(r.spread(busyAgain))
		return p, nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "error looking up service account"), kube.Uncounted(err):
		// A new namespace gets its service account, and a quota of the owner's its count, a moment later.
		p.refuse(f, v1alpha1.ReasonNamespaceMissing, "the namespace mapped for "+f.shadow.Spec.Home.Namespace+" is being prepared")
		p.in(r.spread(soon))
		return p, nil
	}
	return r.refused(f, p, n, v1alpha1.ReasonNotAdmitted, err.Error()), nil
}

// taken finds out who has the pod's name: this ShadowPod itself, if the cache is behind,
// an earlier pod of the same name, or a stranger.
func (r *reconciler) taken(ctx context.Context, f facts, p plan, n *note) (plan, error) {
	pod := &corev1.Pod{}
	switch err := r.live.Get(ctx, client.ObjectKeyFromObject(f.made), pod); {
	case apierrors.IsNotFound(err):
		p.in(r.spread(soon))
		return p, nil
	case err != nil:
		return p, fmt.Errorf("reading the pod that has the name: %w", err)
	}
	if isFor(pod, f.tenant, f.shadow.Name) {
		if n.pod != pod.UID {
			n.pod, n.seen = pod.UID, false
		}
		p.in(r.spread(soon))
		return p, nil
	}
	return r.refused(f, p, n, v1alpha1.ReasonNameTaken, takenBy(pod, f.tenant)), nil
}

// takenBy says who has the name of a pod.
func takenBy(pod *corev1.Pod, tenant string) string {
	if pod.Labels[v1alpha1.LabelTenant] == tenant && pod.Labels[v1alpha1.LabelHomeUID] != "" {
		return "an earlier pod of the name " + pod.Name + " has not ended yet"
	}
	return "a pod of the provider's has the name " + pod.Name
}

// refused says why the pod was not made, and tries again later.
func (r *reconciler) refused(f facts, p plan, n *note, reason, message string) plan {
	n.tried, n.triedOf = f.now, f.shadow.Generation
	p.refuse(f, reason, message)
	p.in(r.spread(refusedAgain))
	return p
}

// spread makes a duration up to a quarter longer.
func (r *reconciler) spread(d time.Duration) time.Duration {
	return d + time.Duration(r.jitter()*float64(d)/4)
}

// change makes the pod follow its ShadowPod, as far as a running pod can.
func (r *reconciler) change(ctx context.Context, f facts, p plan, n *note) (plan, error) {
	n.changed = f.now
	now := &corev1.Pod{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(f.pod), now); err != nil {
		return p, client.IgnoreNotFound(err)
	}
	if now.UID != f.pod.UID || now.DeletionTimestamp != nil {
		return p, nil // the cache will tell
	}
	problems, err := r.follow(ctx, f, now)
	if errors.Is(err, errBusy) || errors.Is(err, ErrNotCounted) {
		p.in(r.spread(busyAgain))
		return p, nil
	}
	if err != nil || len(problems) == 0 {
		return p, err
	}
	message := "the pod stays as it is in part: " + strings.Join(problems, "; ")
	accept(&p.status, f, metav1.ConditionTrue, v1alpha1.ReasonRunning, message)
	p.status.ObservedGeneration = f.shadow.Generation
	return p, nil
}

// follow changes a pod that was read past the cache. It returns what cannot be changed.
func (r *reconciler) follow(ctx context.Context, f facts, now *corev1.Pod) (problems []string, err error) {
	changes := shadow.Compare(now, f.made)
	problems = slices.Concat(f.leftOut, changes.Impossible)
	note := func(what string, err error) error {
		if err != nil && answered(err) {
			problems = append(problems, what+": "+err.Error())
			return nil
		}
		return err
	}
	if err := r.ephemeral(ctx, now, changes.Ephemeral, note); err != nil {
		return nil, fmt.Errorf("adding ephemeral containers: %w", err)
	}
	if changes.Resize {
		if err := note("resources", r.resize(ctx, f, now)); err != nil {
			return nil, err
		}
	}
	before := now.DeepCopy()
	if changes.Pod {
		shadow.Apply(now, f.made)
	}
	if now.Annotations == nil {
		now.Annotations = map[string]string{}
	}
	if now.Annotations[v1alpha1.AnnotationApplied] = f.hash; len(problems) > 0 {
		now.Annotations[v1alpha1.AnnotationApplied] = before.Annotations[v1alpha1.AnnotationApplied]
	}
	if err := note("metadata and images", r.client.Patch(ctx, now, locked(before))); err != nil {
		return nil, fmt.Errorf("changing the pod: %w", err)
	}
	return problems, nil
}

// ephemeral adds ephemeral containers to a pod: all at once, and if that is refused each by itself, so that
// one that is refused keeps no other one out. It notes those.
func (r *reconciler) ephemeral(ctx context.Context, now *corev1.Pod, more []corev1.EphemeralContainer, note func(what string, err error) error) error {
	add := func(some []corev1.EphemeralContainer) error {
		before := now.DeepCopy()
		now.Spec.EphemeralContainers = append(now.Spec.EphemeralContainers, some...)
		err := r.client.SubResource("ephemeralcontainers").Patch(ctx, now, locked(before))
		if err != nil {
			*now = *before
		}
		return err
	}
	if len(more) > 1 {
		if err := add(more); err == nil || !answered(err) {
			return err
		}
	}
	for i := range more {
		if err := note(fmt.Sprintf("ephemeral container %q", more[i].Name), add(more[i:i+1])); err != nil {
			return err
		}
	}
	return nil
}

// resize changes the resources of a running pod, within the tenant's limits.
func (r *reconciler) resize(ctx context.Context, f facts, now *corev1.Pod) error {
	before := now.DeepCopy()
	shadow.ApplyResize(now, f.made)
	key := client.ObjectKeyFromObject(f.shadow)
	if err := r.ledger.reserve(f.terms, key, before, now); err != nil {
		*now = *before
		if errors.Is(err, errBusy) || errors.Is(err, ErrNotCounted) {
			return err
		}
		return apierrors.NewForbidden(corev1.Resource("pods"), now.Name, err)
	}
	if err := r.client.SubResource("resize").Patch(ctx, now, locked(before)); err != nil {
		r.ledger.cancel(f.tenant, key)
		*now = *before
		return err
	}
	return nil
}
