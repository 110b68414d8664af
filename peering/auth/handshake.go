package auth

import (
	"context"
	"errors"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

// handshake turns an applicant into a Tenant with a credential. Every step stores its
// result before the next one begins and finds it when it is repeated.
type handshake struct {
	home        Home
	direct      client.WithWatch
	invitations finder
	issuers     map[v1alpha1.CredentialType]issuer
	clock       clock.Clock
	failures    *rate.Limiter
	attempts    attempts
	pauses      pauses // between two credentials of one Identity
	recorder    events.EventRecorder
	metrics     *metrics
}

// reply is what an applicant gets.
type reply struct {
	Status v1alpha1.IdentityStatus `json:"status"`
	Token  string                  `json:"token,omitempty"`
}

// run goes through all steps. A refusal is returned as an error.
func (h *handshake) run(ctx context.Context, a *applicant) (*reply, error) {
	i, err := h.invited(ctx, a)
	if err != nil {
		return nil, err
	}
	if !h.attempts.allow(i.UID, h.clock.Now()) {
		return nil, later(tooManyPause, "too many attempts with this invitation at the moment; try again later")
	}
	got, err := h.enter(ctx, i, a)
	if err != nil {
		return nil, h.limited(err)
	}
	return got, nil
}

// limited counts an attempt that was refused for good, and answers tooMany when there
// are too many of them.
func (h *handshake) limited(err error) error {
	if final(err) && !h.failures.AllowN(h.clock.Now(), 1) {
		return tooMany()
	}
	return err
}

// enter takes an invited applicant from its invitation to its credential. What can be
// refused is refused before the invitation is bound: it stays good for another try.
func (h *handshake) enter(ctx context.Context, i *v1alpha1.Invitation, a *applicant) (*reply, error) {
	info := h.home.Info()
	if len(info.Features) == 0 {
		return nil, waiting("no manager of this cluster leads yet")
	}
	if err := compatible(info, a); err != nil {
		return nil, err
	}
	if _, _, _, err := apiServer(h.home, i.Spec.InBand != nil); err != nil {
		return nil, waiting("%v", err)
	}
	i, err := h.current(ctx, i, a)
	if err != nil {
		return nil, err
	}
	name, t, err := h.seat(ctx, i, a)
	if err != nil && i.Status.Tenant == nameFor(i, a) {
		// An attempt that bound it to a name which another cluster has now did not come to free it.
		return nil, h.free(ctx, i, a, newTenant(i.Status.Tenant, i, a, h.home), err)
	}
	if err != nil {
		return nil, err
	}
	if t != nil {
		if said := nameRefusal(t); said != nil {
			return nil, h.free(ctx, i, a, t, said)
		}
	}
	i, first, err := h.bind(ctx, i, a, name)
	if err != nil {
		return nil, err
	}
	if t == nil {
		if t, err = h.tenant(ctx, name, i, a); err != nil {
			return nil, h.free(ctx, i, a, newTenant(name, i, a, h.home), err)
		}
	}
	if err := h.record(ctx, i, a, t); err != nil {
		return nil, err
	}
	h.welcome(ctx, first, i, t)
	if err := h.settled(ctx, t); err != nil {
		return nil, h.free(ctx, i, a, t, err)
	}
	id, err := h.identity(ctx, t, a)
	if err != nil {
		return nil, err
	}
	return h.credential(ctx, t, id, a)
}

// welcome tells that an invitation has been used, once.
func (h *handshake) welcome(ctx context.Context, first bool, i *v1alpha1.Invitation, t *v1alpha1.Tenant) {
	if !first {
		h.metrics.invitations.WithLabelValues("repeated").Inc()
		return
	}
	h.metrics.invitations.WithLabelValues("used").Inc()
	log.FromContext(ctx).Info("invitation used", "invitation", i.Name, "tenant", t.Name, "clusterID", t.Spec.ClusterID)
	h.recorder.Eventf(i, t, corev1.EventTypeNormal, "InvitationUsed", "Bind", "tenant %s came of it", t.Name)
	h.recorder.Eventf(t, i, corev1.EventTypeNormal, "InvitationUsed", "Bind", "came of invitation %s", i.Name)
}

// credential issues what the Identity asks for, unless that has been done and the
// credential is still young, and stores the answer before it is given.
func (h *handshake) credential(ctx context.Context, t *v1alpha1.Tenant, id *v1alpha1.Identity, a *applicant) (*reply, error) {
	kind := credentialType(t)
	if young(id, a, h.clock.Now()) {
		answer, err := h.answer(ctx, t, id, nil)
		return answer, err
	}
	asked, err := parseRequest(id.Spec.Request, a.user())
	if err != nil || asked.keyHash != a.request.keyHash {
		return nil, refused()
	}
	// One that is lost is made anew: a token is not stored. Another Identity of the same name need not wait.
	key := types.NamespacedName{Namespace: id.Namespace, Name: string(id.UID)}
	if wait := h.pauses.take(key, h.clock.Now()); wait > 0 {
		return nil, later(wait, "the credential before is only seconds old")
	}
	got, err := h.issuers[kind].issue(ctx, order{tenant: t, request: asked, lifetime: lifetimeOf(h.home)})
	if err != nil {
		h.pauses.forget(key) // nothing was made
		return nil, h.unsigned(ctx, id, err)
	}
	h.metrics.issued.WithLabelValues(string(kind), causeInvitation).Inc()
	answer, err := h.answer(ctx, t, id, func(s *v1alpha1.IdentityStatus, generation int64) {
		store(s, generation, kind, asked, got)
	})
	if err != nil {
		h.pauses.forget(key) // nobody has it: who asks again need not wait
		return nil, err
	}
	answer.Token = got.token
	log.FromContext(ctx).Info("credential issued", "tenant", t.Name, "type", kind, "notAfter", got.notAfter)
	h.recorder.Eventf(id, t, corev1.EventTypeNormal, v1alpha1.ReasonIssued, "Issue", "first credential, valid until %s", stamp(got.notAfter))
	return answer, nil
}

// answer writes the Identity's status and returns it.
func (h *handshake) answer(ctx context.Context, t *v1alpha1.Tenant, id *v1alpha1.Identity, change func(*v1alpha1.IdentityStatus, int64)) (*reply, error) {
	var missing error
	stored, err := h.updateIdentity(ctx, id, func(id *v1alpha1.Identity) {
		missing = describe(&id.Status, h.home, t)
		if change != nil {
			change(&id.Status, id.Generation)
		}
	})
	if err != nil {
		return nil, err
	}
	if missing != nil {
		return nil, waiting("%v", missing)
	}
	return &reply{Status: stored.Status}, nil
}

// unsigned notes in the Identity that the cluster makes no credential, and lets the
// applicant try again.
func (h *handshake) unsigned(ctx context.Context, id *v1alpha1.Identity, cause error) error {
	switch {
	case errors.Is(cause, errGone):
		return waiting("another request for the same credential has just been answered")
	case !errors.Is(cause, errSigning):
		return cause
	}
	var was bool
	_, err := h.updateIdentity(ctx, id, func(id *v1alpha1.Identity) {
		was = failedSigning(id)
		status.False(&id.Status.Conditions, id.Generation, v1alpha1.ConditionIssued, v1alpha1.ReasonSigningFailed, plain(cause).Error())
	})
	if err != nil {
		return err
	}
	if !was {
		log.FromContext(ctx).Error(plain(cause), "credential not issued", "namespace", id.Namespace)
		h.recorder.Eventf(id, nil, corev1.EventTypeWarning, v1alpha1.ReasonSigningFailed, "Issue", "%v", plain(cause))
	}
	return waiting("%v", plain(cause))
}
