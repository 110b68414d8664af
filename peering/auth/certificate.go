package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// certificates makes client certificates with the cluster's own signer: it asks for
// one, checks what is stored, approves it, and checks what came of it.
type certificates struct {
	client client.WithWatch
	clock  clock.Clock

	mu   sync.Mutex
	self string // our own user name, once known
}

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;watch;create;delete,roleName=pelago-auth
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update,roleName=pelago-auth
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kube-apiserver-client,verbs=approve,roleName=pelago-auth

// issue makes a certificate. The name of the signing request follows from what is
// asked for whom: a second attempt goes on where the first one ended.
func (c *certificates) issue(ctx context.Context, o order) (credential, error) {
	self, err := c.whoAmI(ctx)
	if err != nil {
		return credential{}, err
	}
	want := expected{
		name:     signingRequestName(o),
		request:  o.request,
		seconds:  int32(o.lifetime / time.Second),
		username: self,
	}
	csr, err := c.ask(ctx, o, want)
	if err != nil {
		return credential{}, err
	}
	signed, err := c.approved(ctx, csr, want)
	if err != nil {
		return credential{}, c.discard(ctx, csr, err)
	}
	got, err := checkCertificate(signed.Status.Certificate, o, c.clock.Now())
	if err != nil {
		return credential{}, c.discard(ctx, csr, fmt.Errorf("%w: %w", errSigning, err))
	}
	if err := c.remove(ctx, csr); err != nil {
		return credential{}, err
	}
	return got, nil
}

// signingRequestName is the same for the same request of the same Tenant.
func signingRequestName(o order) string {
	sum := sha256.Sum256([]byte(string(o.tenant.UID) + " " + o.request.sha256))
	return "pelago-" + hex.EncodeToString(sum[:16])
}

// whoAmI asks the API server for our own user name, once.
func (c *certificates) whoAmI(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.self != "" {
		return c.self, nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.client.Create(ctx, review); err != nil {
		return "", fmt.Errorf("asking for our own name: %w", err)
	}
	c.self = review.Status.UserInfo.Username
	return c.self, nil
}

// ask returns the signing request, made now or by an earlier attempt.
func (c *certificates) ask(ctx context.Context, o order, want expected) (*certificatesv1.CertificateSigningRequest, error) {
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			Name:   want.name,
			Labels: map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: o.tenant.Name},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           []byte(o.request.text),
			SignerName:        certificatesv1.KubeAPIServerClientSignerName,
			ExpirationSeconds: ptr.To(want.seconds),
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	err := c.client.Create(ctx, csr)
	if apierrors.IsAlreadyExists(err) {
		err = c.client.Get(ctx, client.ObjectKeyFromObject(csr), csr)
	}
	if err != nil {
		return nil, fmt.Errorf("creating signing request %s: %w", want.name, orGone(err))
	}
	return csr, nil
}

// approved checks the stored request, approves it and waits for the certificate.
func (c *certificates) approved(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, want expected) (*certificatesv1.CertificateSigningRequest, error) {
	for range maxConflicts {
		if err := check(csr, want); err != nil {
			return nil, fmt.Errorf("%w: signing request %s is not as it was asked for: %w", errSigning, want.name, err)
		}
		if len(csr.Status.Certificate) > 0 {
			return csr, nil
		}
		if hasApproval(csr) {
			return c.signed(ctx, csr, want)
		}
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
			Reason: "PelagoInvitation", Message: "Pelago asked for it on behalf of an invited cluster.",
		})
		// The update carries the version that was checked.
		err := c.client.SubResource("approval").Update(ctx, csr)
		if err != nil && !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("approving signing request %s: %w", want.name, orGone(err))
		}
		if err != nil {
			fresh := &certificatesv1.CertificateSigningRequest{}
			if err := c.client.Get(ctx, client.ObjectKeyFromObject(csr), fresh); err != nil {
				return nil, fmt.Errorf("reading signing request %s: %w", want.name, orGone(err))
			}
			csr = fresh
		}
	}
	return nil, fmt.Errorf("approving signing request %s: others keep changing it", want.name)
}

// orGone is errGone if an object that was there is not found: another attempt with the
// same request has come to its end and has taken it away.
func orGone(err error) error {
	if apierrors.IsNotFound(err) {
		return errGone
	}
	return err
}

// signed waits for the certificate.
func (c *certificates) signed(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, want expected) (*certificatesv1.CertificateSigningRequest, error) {
	there := func(ctx context.Context) error {
		return orGone(c.client.Get(ctx, client.ObjectKeyFromObject(csr), &certificatesv1.CertificateSigningRequest{}))
	}
	found, err := await(ctx, c.client, c.clock, csr, &certificatesv1.CertificateSigningRequestList{}, there,
		func(now *certificatesv1.CertificateSigningRequest) (bool, error) {
			if now.UID != csr.UID {
				return false, errGone
			}
			if err := check(now, want); err != nil {
				return false, fmt.Errorf("%w: signing request %s: %w", errSigning, want.name, err)
			}
			return len(now.Status.Certificate) > 0, nil
		})
	if errors.Is(err, errLate) {
		return nil, fmt.Errorf("%w: its signer %s has not answered within %s; if it has none, set identity.type to %s: %w",
			errSigning, certificatesv1.KubeAPIServerClientSignerName, awaitLimit, v1alpha1.CredentialToken, err)
	}
	if err != nil {
		return nil, fmt.Errorf("waiting for signing request %s: %w", want.name, err)
	}
	return found, nil
}

// discard removes a signing request that can come to no good end, so that the next
// attempt begins anew. One that is only late stays: the next attempt finds it. So
// does one that somebody else made.
func (c *certificates) discard(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, cause error) error {
	if !errors.Is(cause, errSigning) || errors.Is(cause, errLate) || errors.Is(cause, errForeign) {
		return cause
	}
	return errors.Join(cause, c.remove(ctx, csr))
}

// remove deletes exactly this signing request.
func (c *certificates) remove(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	err := c.client.Delete(ctx, csr, client.Preconditions{UID: &csr.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting signing request %s: %w", csr.Name, err)
	}
	return nil
}
