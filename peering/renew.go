package peering

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// renewAgain is how often a renewal that has no answer yet is looked at; its answer
	// comes by the watch.
	renewAgain = time.Minute
	// longest is the longest wait for a look, so that a clock that was set does no harm.
	longest = time.Hour
)

// renew replaces the credential at two thirds of its life. A failure is no reason to
// stop: what is there is valid for another third.
func (r *reconciler) renew(ctx context.Context, v *visit) (bool, error) {
	if wait := v.cred.renewAfter().Sub(v.now); wait > 0 {
		v.soon(min(wait, longest))
		return true, nil
	}
	v.soon(min(renewAgain, max(v.cred.NotAfter.Sub(v.now), time.Second)))
	var rest time.Duration
	r.memory.of(v.UID, func(m *recollection) { rest = m.renewed.Add(seldom).Sub(v.now) })
	if rest > 0 || v.identity == nil {
		return true, nil
	}
	if v.cred.kind() == v1alpha1.CredentialToken {
		return true, r.renewToken(ctx, v)
	}
	return true, r.renewCertificate(ctx, v)
}

// renewing says that a renewal goes on; the credential is still good.
func (v *visit) renewing(message string) {
	if isTrue(v.Peering, v1alpha1.ConditionIdentityReady) {
		v.yes(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonRenewing, message)
	}
}

// renewCertificate makes a key and stores it, asks with it, and stores key and
// certificate together when they are there.
func (r *reconciler) renewCertificate(ctx context.Context, v *visit) error {
	if userOf(v.cred.NextRequest) != v.cred.user() { // none, or one of an earlier build, for a user of its own
		key, request, err := newKey(r.rand, v.cred.peeringUID())
		if err != nil {
			return err
		}
		c := *v.cred
		c.NextKey, c.NextRequest = key, request
		if err := r.save(ctx, v, &c); err != nil {
			return err
		}
	}
	if v.identity.Spec.Request != string(v.cred.NextRequest) {
		v.renewing("asking the provider for a new certificate")
		if err := r.patchIdentity(ctx, v, map[string]any{"request": string(v.cred.NextRequest)}); err != nil {
			r.later(ctx, v, err)
		}
		return nil
	}
	if v.identity.Status.RequestSHA256 != fingerprint(v.cred.NextRequest) {
		v.renewing("waiting for the provider's new certificate" + reproach(v.identity))
		return nil
	}
	// Where the provider is does not matter here: follow looks at that.
	a, err := checkIssued(&v.identity.Status, "", expected{
		user: v.cred.user(), key: v.cred.NextKey, request: v.cred.NextRequest, now: v.now,
	})
	if err != nil {
		v.renewing("the provider's new certificate is not usable: " + err.Error() + reproach(v.identity))
		return nil
	}
	if v.identity.Status.TenantNamespace != v.cred.TenantNamespace {
		v.renewing("the provider's new certificate is for another tenant namespace")
		return nil
	}
	c := *v.cred
	c.Certificate, c.Token, c.NotBefore, c.NotAfter = a.certificate, a.token, a.notBefore, a.notAfter
	c.Key, c.Request, c.NextKey, c.NextRequest = v.cred.NextKey, v.cred.NextRequest, nil, nil
	return r.renewed(ctx, v, &c)
}

// reproach is what the provider says against a request.
func reproach(i *v1alpha1.Identity) string {
	c := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionIssued)
	if c == nil || c.Status != metav1.ConditionFalse {
		return ""
	}
	return "; it says: " + printable(c.Message)
}

// renewToken asks the provider's API server for a token by the one there is.
func (r *reconciler) renewToken(ctx context.Context, v *visit) error {
	asked := tokenLife(v.cred)
	seconds := int64(asked.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v.cred.TenantNamespace, Name: v1alpha1.IdentityName}}
	if err := v.peer.Client().SubResource("token").Create(ctx, account, request); err != nil {
		v.renewing("the provider did not give a new token; trying again")
		r.later(ctx, v, fmt.Errorf("asking for a new token: %w", err))
		return nil
	}
	from, end, ok := tokenTimes(request, asked, v.now)
	if !ok || checkToken(request.Status.Token) != nil {
		v.renewing("the provider's new token is not usable")
		return nil
	}
	c := *v.cred
	c.Token, c.NotBefore, c.NotAfter = request.Status.Token, from, end
	return r.renewed(ctx, v, &c)
}

// leastToken is the shortest life an API server gives a token.
const leastToken = 10 * time.Minute

// tokenLife is the life to ask for: that of the token there is, in whole minutes.
func tokenLife(c *credential) time.Duration {
	return max(leastToken, c.NotAfter.Sub(c.NotBefore).Round(time.Minute))
}

// tokenTimes is when a new token begins and ends, by the clock of the provider: by
// this cluster's it would live shorter each time if this clock is fast. The provider
// may give less than was asked for. It is not ok if that is less than minLife.
func tokenTimes(given *authenticationv1.TokenRequest, asked time.Duration, now time.Time) (from, end time.Time, ok bool) {
	life := asked
	if s := given.Spec.ExpirationSeconds; s != nil && *s < int64(asked.Seconds()) {
		life = time.Duration(max(0, *s)) * time.Second
	}
	end = given.Status.ExpirationTimestamp.Time
	return end.Add(-life), end, life >= minLife && end.Sub(now) >= minLife
}

// renewed stores a new credential; the connection follows at the next look.
func (r *reconciler) renewed(ctx context.Context, v *visit, c *credential) error {
	if err := r.save(ctx, v, c); err != nil {
		return err
	}
	r.memory.of(v.UID, func(m *recollection) { m.renewed = v.now })
	v.Status.Credential = c.status()
	v.renewing("")
	v.soon(time.Millisecond)
	r.event(v.Peering, corev1.EventTypeNormal, "CredentialRenewed", "Renew", "the credential is valid until "+c.NotAfter.UTC().Format(time.RFC3339))
	return nil
}
