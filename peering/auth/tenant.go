package auth

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=tenants,verbs=list;watch;create,roleName=pelago-auth

// seat reads all Tenants, from the API server, and decides which is the applicant's.
func (h *handshake) seat(ctx context.Context, i *v1alpha1.Invitation, a *applicant) (string, *v1alpha1.Tenant, error) {
	var all v1alpha1.TenantList
	if err := h.direct.List(ctx, &all); err != nil {
		return "", nil, fmt.Errorf("listing tenants: %w", err)
	}
	return place(all.Items, i, a)
}

// tenant makes the applicant's Tenant. Two replicas may make Tenants of one cluster or
// one user under two names at the same time: each looks again after it has made its
// own, so at least one of them sees the other and goes no further. The owner takes
// the wrong one away: this program may delete none.
func (h *handshake) tenant(ctx context.Context, name string, i *v1alpha1.Invitation, a *applicant) (*v1alpha1.Tenant, error) {
	err := h.direct.Create(ctx, newTenant(name, i, a, h.home))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating tenant %s: %w", name, err)
	}
	_, found, err := h.seat(ctx, i, a)
	if err != nil {
		return nil, err
	}
	if found == nil { // made by somebody else and gone again
		return nil, waiting("tenant %s is changing", name)
	}
	return found, nil
}

// newTenant is the Tenant of an applicant on the terms of its invitation.
func newTenant(name string, i *v1alpha1.Invitation, a *applicant, home Home) *v1alpha1.Tenant {
	config := home.Config()
	credential := config.Identity.Type
	if credential == "" {
		credential = v1alpha1.CredentialCertificate
	}
	return &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{v1alpha1.LabelManagedBy: component},
			Annotations: map[string]string{v1alpha1.AnnotationInvitation: string(i.UID)},
		},
		Spec: v1alpha1.TenantSpec{
			ClusterID:      a.spec.Cluster.ID,
			PeeringUID:     a.spec.PeeringUID,
			CredentialType: credential,
			InBand:         i.Spec.InBand != nil,
			TenantTerms:    terms(i.Spec.Tenant, config.Tenant),
		},
	}
}

// settled waits until the manager has given the Tenant its namespace and its rights.
func (h *handshake) settled(ctx context.Context, t *v1alpha1.Tenant) error {
	if ready(t) {
		return nil
	}
	if said := nameRefusal(t); said != nil {
		return said
	}
	last := "its manager has not seen it"
	_, err := await(ctx, h.direct, h.clock, t, &v1alpha1.TenantList{}, nil, func(now *v1alpha1.Tenant) (bool, error) {
		if now.UID != t.UID || !now.DeletionTimestamp.IsZero() {
			return false, errGone
		}
		if said := nameRefusal(now); said != nil {
			return false, said
		}
		last = missing(now)
		return ready(now), nil
	})
	switch {
	case errors.Is(err, errGone):
		return refused()
	case errors.Is(err, errLate):
		return waiting("tenant %s is not ready: %s", t.Name, last)
	}
	return err
}

// nameRefusal is the manager's refusal of a Tenant's name, nil if there is none.
func nameRefusal(t *v1alpha1.Tenant) error {
	for _, kind := range needed {
		c := meta.FindStatusCondition(t.Status.Conditions, kind)
		if c != nil && c.ObservedGeneration == t.Generation && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonNameRefused {
			return nameRefused("%s", c.Message)
		}
	}
	return nil
}

// needed are the conditions of a Tenant without which a credential is worth nothing.
var needed = []string{v1alpha1.ConditionNamespaceReady, v1alpha1.ConditionRightsReady}

func ready(t *v1alpha1.Tenant) bool { return missing(t) == "" }

// missing says what a Tenant of this generation still lacks.
func missing(t *v1alpha1.Tenant) string {
	for _, kind := range needed {
		c := meta.FindStatusCondition(t.Status.Conditions, kind)
		switch {
		case c == nil || c.ObservedGeneration != t.Generation:
			return "waiting for " + kind
		case c.Status != metav1.ConditionTrue:
			return kind + " is " + string(c.Status) + ", " + c.Reason
		}
	}
	return ""
}
