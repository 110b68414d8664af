package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// defaultLifetime of a credential, and the least the API server gives.
	defaultLifetime = 720 * time.Hour
	minLifetime     = 10 * time.Minute
)

// issuer makes credentials for a Tenant's user. It can be asked again for the same
// order after a failure at any point.
type issuer interface {
	issue(ctx context.Context, o order) (credential, error)
}

// order is a credential that is asked for. The request has been checked.
type order struct {
	tenant   *v1alpha1.Tenant
	request  *request
	lifetime time.Duration
}

// credential is what a consumer proves its identity with: a certificate or a token.
type credential struct {
	certificate string
	token       string
	notBefore   time.Time
	notAfter    time.Time
}

// errSigning is in every error that means the cluster did not make the credential,
// rather than that it could not be asked.
var errSigning = errors.New("the cluster gives no credential")

// lifetimeOf is the lifetime the settings ask for, in what the API server can give.
func lifetimeOf(home Home) time.Duration {
	set := home.Config().Identity.Lifetime.Duration
	switch {
	case set <= 0:
		return defaultLifetime
	case set < minLifetime:
		return minLifetime
	}
	return set.Truncate(time.Second)
}

// tokens makes bound tokens of the service account in the tenant namespace, for
// clusters whose API server signs no client certificates. The right to do so is
// given in each tenant namespace when it is made.
type tokens struct {
	client client.Client
	clock  clock.PassiveClock
}

func (t *tokens) issue(ctx context.Context, o order) (credential, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.TenantNamespace(o.tenant.Name), Name: v1alpha1.IdentityName,
	}}
	asked := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(o.lifetime / time.Second)),
	}}
	now := t.clock.Now()
	err := t.client.SubResource("token").Create(ctx, account, asked)
	switch {
	case apierrors.IsNotFound(err):
		return credential{}, fmt.Errorf("%w: there is no service account %s/%s", errSigning, account.Namespace, account.Name)
	case err != nil:
		return credential{}, fmt.Errorf("requesting a token for %s/%s: %w", account.Namespace, account.Name, err)
	case asked.Status.Token == "" || !asked.Status.ExpirationTimestamp.After(now):
		return credential{}, fmt.Errorf("%w: its token is empty or has expired", errSigning)
	}
	return credential{token: asked.Status.Token, notBefore: now, notAfter: asked.Status.ExpirationTimestamp.Time}, nil
}
