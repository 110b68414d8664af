package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// tokenIndex finds invitations in the cache by the hash of their token.
	tokenIndex = "tokenSHA256"
	// maxLive bounds the list that is read when the cache does not know a token.
	maxLive = 500
	// maxConflicts bounds how often an update is decided again because somebody else
	// was faster.
	maxConflicts = 5
)

// finder finds invitations by the hash of their token, without asking the API server.
type finder interface {
	find(ctx context.Context, tokenHash string) ([]v1alpha1.Invitation, error)
}

// indexed is the finder over a cache with tokenIndex.
type indexed struct{ cache client.Reader }

func (i indexed) find(ctx context.Context, tokenHash string) ([]v1alpha1.Invitation, error) {
	var found v1alpha1.InvitationList
	if err := i.cache.List(ctx, &found, client.MatchingFields{tokenIndex: tokenHash}); err != nil {
		return nil, fmt.Errorf("finding invitations: %w", err)
	}
	return found.Items, nil
}

func indexInvitations(indexer client.FieldIndexer) error {
	hash := func(obj client.Object) []string { return []string{obj.(*v1alpha1.Invitation).Spec.TokenSHA256} }
	// Nothing is called yet that would need more than the background.
	if err := indexer.IndexField(context.Background(), &v1alpha1.Invitation{}, tokenIndex, hash); err != nil {
		return fmt.Errorf("indexing invitations: %w", err)
	}
	return nil
}

// +kubebuilder:rbac:groups=pelago.dev,resources=invitations,verbs=get;list;watch,roleName=pelago-auth
// +kubebuilder:rbac:groups=pelago.dev,resources=invitations/status,verbs=patch,roleName=pelago-auth

// invited returns the invitation an applicant may use. The cache is asked first, and
// whoever is in it is never limited. What it does not know may be newer than it is,
// so the API server is asked too, but no more often than attempts may fail.
func (h *handshake) invited(ctx context.Context, a *applicant) (*v1alpha1.Invitation, error) {
	known, err := h.invitations.find(ctx, a.tokenHash)
	if err != nil {
		return nil, err
	}
	if found := usable(known, a, h.clock.Now()); found != nil {
		return found, nil
	}
	if !h.failures.AllowN(h.clock.Now(), 1) {
		return nil, tooMany()
	}
	var live v1alpha1.InvitationList
	if err := h.direct.List(ctx, &live, client.Limit(maxLive)); err != nil {
		return nil, fmt.Errorf("listing invitations: %w", err)
	}
	if found := usable(live.Items, a, h.clock.Now()); found != nil {
		return found, nil
	}
	return nil, refused()
}

// usable picks the invitation of the applicant's token that it may use, nil if there
// is none. It looks at all of them, whatever it finds.
func usable(invitations []v1alpha1.Invitation, a *applicant, now time.Time) *v1alpha1.Invitation {
	var found *v1alpha1.Invitation
	for i := range invitations {
		same := subtle.ConstantTimeCompare([]byte(invitations[i].Spec.TokenSHA256), []byte(a.tokenHash)) == 1
		open := openTo(&invitations[i], a, now)
		if same && open && found == nil {
			found = &invitations[i]
		}
	}
	return found
}

// openTo reports whether an invitation is nobody's yet and not expired, or is this
// applicant's already: the one who came in time may finish.
func openTo(i *v1alpha1.Invitation, a *applicant, now time.Time) bool {
	if !i.DeletionTimestamp.IsZero() {
		return false
	}
	if i.Status.BoundTo == nil {
		return now.Before(i.Spec.Expires.Time)
	}
	return boundTo(i, a)
}

func boundTo(i *v1alpha1.Invitation, a *applicant) bool {
	b := i.Status.BoundTo
	return b != nil && b.ClusterID == a.spec.Cluster.ID && b.PublicKeySHA256 == a.request.keyHash
}

// current is an invitation as it is now. The cache may not show yet that it is bound, or
// show a binding that was freed: a name or a Tenant of then decides nothing.
func (h *handshake) current(ctx context.Context, i *v1alpha1.Invitation, a *applicant) (*v1alpha1.Invitation, error) {
	now := &v1alpha1.Invitation{}
	err := h.direct.Get(ctx, client.ObjectKeyFromObject(i), now)
	switch {
	case apierrors.IsNotFound(err), err == nil && (now.UID != i.UID || !openTo(now, a, h.clock.Now())):
		return nil, refused()
	case err != nil:
		return nil, fmt.Errorf("reading invitation %s: %w", i.Name, err)
	}
	return now, nil
}

// bind makes an invitation the applicant's, for a Tenant of this name. Of all who try,
// one wins; first says whether it was this call. One applicant who comes under several
// names at once gets one Tenant: the name is written with the binding.
func (h *handshake) bind(ctx context.Context, i *v1alpha1.Invitation, a *applicant, name string) (bound *v1alpha1.Invitation, first bool, err error) {
	bound, err = h.updateInvitation(ctx, i, a, func(i *v1alpha1.Invitation) {
		if first = i.Status.BoundTo == nil; first {
			i.Status.BoundTo = &v1alpha1.Binding{
				ClusterID: a.spec.Cluster.ID, PublicKeySHA256: a.request.keyHash, Time: metav1.NewTime(h.clock.Now()),
			}
		}
		if i.Status.Tenant == "" {
			i.Status.Tenant = name
		}
	})
	if err == nil && bound.Status.Tenant != name {
		err = nameRefused("the invitation is in use under the name %s; come by that name again, or ask for a new invitation", bound.Status.Tenant)
	}
	return bound, first && err == nil, err
}

// record notes in an invitation which Tenant came of it.
func (h *handshake) record(ctx context.Context, i *v1alpha1.Invitation, a *applicant, t *v1alpha1.Tenant) error {
	_, err := h.updateInvitation(ctx, i, a, func(i *v1alpha1.Invitation) {
		i.Status.Tenant, i.Status.TenantUID = t.Name, string(t.UID)
	})
	return err
}

// free makes an invitation good for another try if the name of its Tenant was refused:
// by the manager, then the Tenant goes, or because another cluster's has it since. One whose Tenant has an Identity has been used. It
// returns cause, whatever comes of it: the next try frees it if this one cannot.
func (h *handshake) free(ctx context.Context, i *v1alpha1.Invitation, a *applicant, t *v1alpha1.Tenant, cause error) error {
	var no *refusal
	if !errors.As(cause, &no) || no.reason != v1alpha1.ReasonNameRefused || t.Status.Cluster != nil {
		return cause
	}
	id := &v1alpha1.Identity{}
	err := h.direct.Get(ctx, client.ObjectKey{Namespace: v1alpha1.TenantNamespace(t.Name), Name: v1alpha1.IdentityName}, id)
	switch {
	case err == nil && id.Spec.PeeringUID == t.Spec.PeeringUID:
		return cause
	case err == nil, apierrors.IsNotFound(err):
		// Read again: what is given may be older than what this attempt has written.
		current := &v1alpha1.Invitation{}
		if err = h.direct.Get(ctx, client.ObjectKeyFromObject(i), current); err == nil {
			_, err = h.updateInvitation(ctx, current, a, func(i *v1alpha1.Invitation) { i.Status = v1alpha1.InvitationStatus{} })
		}
	}
	if err != nil {
		log.FromContext(ctx).V(1).Info("invitation not freed", "invitation", i.Name, "cause", plain(err).Error())
	}
	return cause
}

// updateInvitation changes the status of an invitation as long as it is open to the
// applicant. When somebody else was faster it reads again and decides again.
func (h *handshake) updateInvitation(ctx context.Context, i *v1alpha1.Invitation, a *applicant, change func(*v1alpha1.Invitation)) (*v1alpha1.Invitation, error) {
	current := i.DeepCopy()
	for range maxConflicts {
		if !openTo(current, a, h.clock.Now()) {
			return nil, refused()
		}
		before := current.DeepCopy()
		change(current)
		if equality.Semantic.DeepEqual(before.Status, current.Status) {
			return current, nil
		}
		err := h.direct.Status().Patch(ctx, current, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		switch {
		case err == nil:
			return current, nil
		case apierrors.IsNotFound(err):
			return nil, refused()
		case !apierrors.IsConflict(err):
			return nil, fmt.Errorf("updating invitation %s: %w", i.Name, err)
		}
		current = &v1alpha1.Invitation{}
		if err := h.direct.Get(ctx, client.ObjectKeyFromObject(i), current); apierrors.IsNotFound(err) {
			return nil, refused()
		} else if err != nil {
			return nil, fmt.Errorf("reading invitation %s: %w", i.Name, err)
		}
	}
	return nil, waiting("others are using the same invitation at the moment")
}
