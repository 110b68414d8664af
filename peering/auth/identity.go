package auth

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=identities,verbs=get;list;watch;create;patch,roleName=pelago-auth
// +kubebuilder:rbac:groups=pelago.dev,resources=identities/status,verbs=patch,roleName=pelago-auth

// identity returns the applicant's Identity in the tenant namespace, made now or by
// an earlier attempt. Once the consumer has renewed, the key of the invitation is
// worth nothing here any more.
func (h *handshake) identity(ctx context.Context, t *v1alpha1.Tenant, a *applicant) (*v1alpha1.Identity, error) {
	for range maxConflicts {
		found := newIdentity(t, a)
		err := h.direct.Get(ctx, client.ObjectKeyFromObject(found), found)
		if apierrors.IsNotFound(err) {
			found = newIdentity(t, a)
			if err = h.direct.Create(ctx, found); err == nil {
				return found, nil
			}
		}
		switch {
		case apierrors.IsAlreadyExists(err):
			continue
		case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return nil, waiting("namespace %s is not there", found.Namespace)
		case err != nil:
			return nil, fmt.Errorf("getting identity %s/%s: %w", found.Namespace, found.Name, err)
		case !same(found, a):
			return nil, refused()
		case young(found, a, h.clock.Now()) || equality.Semantic.DeepEqual(found.Spec, a.spec):
			return found, nil
		}
		before := found.DeepCopy()
		found.Spec = a.spec
		err = h.direct.Patch(ctx, found, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			return found, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("updating identity %s/%s: %w", found.Namespace, found.Name, err)
		}
	}
	return nil, waiting("the identity is changing")
}

func newIdentity(t *v1alpha1.Tenant, a *applicant) *v1alpha1.Identity {
	return &v1alpha1.Identity{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  v1alpha1.TenantNamespace(t.Name),
			Name:       v1alpha1.IdentityName,
			Labels:     map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: t.Name},
			Finalizers: []string{v1alpha1.FinalizerGoodbye},
		},
		Spec: a.spec,
	}
}

// same reports whether an Identity is the applicant's and still has the key that its
// invitation is bound to.
func same(id *v1alpha1.Identity, a *applicant) bool {
	if !id.DeletionTimestamp.IsZero() || id.Spec.PeeringUID != a.spec.PeeringUID || id.Spec.Cluster.ID != a.spec.Cluster.ID ||
		status.IsTrue(id.Status.Conditions, v1alpha1.ConditionRevoked) {
		return false
	}
	has, err := parseRequest(id.Spec.Request, a.user())
	return err == nil && has.keyHash == a.request.keyHash
}

// young reports whether an Identity holds a certificate for the applicant's key that
// need not be renewed yet.
func young(id *v1alpha1.Identity, a *applicant, now time.Time) bool {
	s := &id.Status
	if s.CredentialType != v1alpha1.CredentialCertificate || s.NotBefore == nil || s.NotAfter == nil || s.RequestSHA256 != hashOf(id.Spec.Request) {
		return false
	}
	life := s.NotAfter.Sub(s.NotBefore.Time)
	if !now.Before(s.NotBefore.Add(life * 2 / 3)) {
		return false
	}
	block, _ := pem.Decode([]byte(s.Certificate))
	if block == nil {
		return false
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false
	}
	hash, err := keyHash(leaf.PublicKey)
	return err == nil && hash == a.request.keyHash
}

// updateIdentity changes the status of an Identity and returns it as stored. When
// somebody else was faster it reads again and changes that.
func (h *handshake) updateIdentity(ctx context.Context, id *v1alpha1.Identity, change func(*v1alpha1.Identity)) (*v1alpha1.Identity, error) {
	current := id.DeepCopy()
	for range maxConflicts {
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
			return nil, fmt.Errorf("updating identity %s/%s: %w", id.Namespace, id.Name, err)
		}
		current = &v1alpha1.Identity{}
		err = h.direct.Get(ctx, client.ObjectKeyFromObject(id), current)
		switch {
		case apierrors.IsNotFound(err), err == nil && (current.UID != id.UID || !current.DeletionTimestamp.IsZero()):
			return nil, refused()
		case err != nil:
			return nil, fmt.Errorf("reading identity %s/%s: %w", id.Namespace, id.Name, err)
		}
	}
	return nil, waiting("the identity is changing")
}

// apiServer is where consumers find this cluster's API server; in band by the name that its
// certificate has inside, and by this cluster's own authority.
func apiServer(home Home, inBand bool) (url, ca, proxy string, err error) {
	if inBand {
		ca, err = home.RootCA()
		return v1alpha1.InBandServer, ca, "", err
	}
	return home.APIServer()
}

// describe writes who and where this cluster is, for a Tenant.
func describe(s *v1alpha1.IdentityStatus, home Home, t *v1alpha1.Tenant) error {
	url, ca, proxy, err := apiServer(home, t.Spec.InBand)
	if err != nil {
		return err
	}
	if info := home.Info(); len(info.Features) > 0 { // or a manager of before leads: what is there stays
		s.Cluster = &info
	}
	s.ServerURL, s.ServerCA, s.ProxyURL = url, ca, proxy
	s.TenantNamespace = v1alpha1.TenantNamespace(t.Name)
	return nil
}

// store writes a credential that was issued for a request; a token is not stored.
func store(s *v1alpha1.IdentityStatus, generation int64, kind v1alpha1.CredentialType, asked *request, got credential) {
	s.CredentialType, s.RequestSHA256, s.Certificate = kind, asked.sha256, got.certificate
	s.NotBefore, s.NotAfter = ptr.To(metav1.NewTime(got.notBefore)), ptr.To(metav1.NewTime(got.notAfter))
	status.True(&s.Conditions, generation, v1alpha1.ConditionIssued, v1alpha1.ReasonIssued, "")
}

func failedSigning(id *v1alpha1.Identity) bool {
	c := meta.FindStatusCondition(id.Status.Conditions, v1alpha1.ConditionIssued)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonSigningFailed
}

// credentialType of a Tenant, with the default of its kind.
func credentialType(t *v1alpha1.Tenant) v1alpha1.CredentialType {
	if t.Spec.CredentialType == "" {
		return v1alpha1.CredentialCertificate
	}
	return t.Spec.CredentialType
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
