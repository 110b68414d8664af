package peering

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiluuid "k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update;delete,namespace=pelago-system

// read loads the credential, if there is one.
func (r *reconciler) read(ctx context.Context, v *visit) error {
	s := &corev1.Secret{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: v1alpha1.CredentialSecret(v.Name)}, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the credential: %w", err)
	}
	v.secret = s
	if v.cred, err = load(s); err != nil {
		v.cred = nil
		return nil // key says what is wrong; a farewell does without
	}
	return nil
}

// key makes the key before anything asks for a credential with it, so that all
// attempts are made with the same.
func (r *reconciler) key(ctx context.Context, v *visit) (bool, error) {
	switch {
	case v.cred != nil && v.cred.UID == string(v.UID):
		return true, nil
	case v.secret != nil && v.cred == nil:
		v.stall(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvalid, fmt.Sprintf(
			"Secret %s/%s is damaged; pelago unpeer %s --force and peer again", r.namespace, v.secret.Name, v.Name))
		return false, nil
	case v.secret != nil && v.secret.Labels[v1alpha1.LabelPeering] != v.Name:
		v.stall(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvalid, fmt.Sprintf(
			"Secret %s/%s is not Pelago's; remove it or choose another name for the peering", r.namespace, v.secret.Name))
		return false, nil
	case v.cred != nil && v.cred.issued():
		// A credential of an earlier Peering is all that is left of it: it goes only for
		// an invitation to another one.
		_, missing, err := r.token(ctx, v)
		if err != nil {
			return false, err
		}
		if missing != "" {
			v.stall(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvitationMissing, fmt.Sprintf(
				"Secret %s/%s holds the credential of an earlier Peering of this name, and a Peering that is made again, as by a restore, is another one: "+
					"pelago unpeer %s --force, have the provider's owner run pelago unpeer there, and peer again with a new invitation", r.namespace, v.secret.Name, v.Name))
			return false, nil
		}
	}
	key, request, err := newKey(r.rand, string(utiluuid.NewUUID()))
	if err != nil {
		return false, err
	}
	// A connection that there is shows what an earlier peering came to.
	r.fleet.Remove(v.Name)
	c := &credential{UID: string(v.UID), Key: key, Request: request, Invitation: v.Spec.Consume.TokenSecret}
	return true, r.save(ctx, v, c)
}

// save stores a credential in one write.
func (r *reconciler) save(ctx context.Context, v *visit, c *credential) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: v1alpha1.CredentialSecret(v.Name)}}
	if v.secret != nil {
		s = v.secret.DeepCopy()
	}
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[v1alpha1.LabelManagedBy], s.Labels[v1alpha1.LabelPeering] = component, v.Name
	s.Type, s.Data = corev1.SecretTypeOpaque, c.store()
	var err error
	if v.secret == nil {
		err = r.client.Create(ctx, s)
	} else {
		err = r.client.Update(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("storing the credential: %w", err)
	}
	v.secret, v.cred = s, c
	return nil
}

// introduce gets the first credential for the invitation's token.
func (r *reconciler) introduce(ctx context.Context, v *visit) (bool, error) {
	if v.cred.issued() {
		return true, r.discardToken(ctx, v)
	}
	token, missing, err := r.token(ctx, v)
	if err != nil {
		return false, err
	}
	if missing != "" {
		v.stall(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvitationMissing, missing)
		return false, nil
	}
	consume, at, why := r.called(v)
	if why != "" {
		v.no(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonTunnelDown, why)
		v.soon(tunnelAgain)
		return false, nil
	}
	began := r.memory.begin(v.UID, v.now)
	if wait := r.memory.pause(v.UID, r.subject(v, token), v.now); wait > 0 {
		v.soon(wait) // the condition still says why
		v.stalled = isTrue(v.Peering, v1alpha1.ConditionStalled)
		return false, nil
	}
	answer, refusal := r.introduceOnce(ctx, introduction{
		consume: consume, at: at, token: token,
		spec: v1alpha1.IdentitySpec{Cluster: r.home.Info(), PeeringUID: v.cred.peeringUID(), Request: string(v.cred.Request)},
		want: expected{
			clusterID: v.Spec.ClusterID, user: v.cred.user(),
			key: v.cred.Key, request: v.cred.Request, now: r.clock.Now(),
		},
	})
	if refusal != nil {
		r.notIntroduced(v, refusal, token)
		return false, nil
	}
	r.memory.succeeded(v.UID)
	c := *v.cred
	answer.into(&c)
	c.inside(v.Spec.Consume)
	c.Used = v1alpha1.TokenHash(token)
	if err := r.save(ctx, v, &c); err != nil {
		return false, err
	}
	r.meter.handshake.Observe(r.clock.Since(began).Seconds())
	info := answer.cluster
	v.Status.Remote = &info
	return true, r.discardToken(ctx, v)
}

// notIntroduced says why, and when it is tried again. What somebody has to mend is
// tried again too, if seldom: he may do so at the provider, as one who keeps both
// sides in files and applies this one first.
func (r *reconciler) notIntroduced(v *visit, why *refusal, token string) {
	again := func(least, most, asked time.Duration) {
		v.soon(r.memory.failed(v.UID, r.subject(v, token), r.clock.Now(), least, most, asked, r.jitter()))
	}
	if why.stalled {
		v.stall(v1alpha1.ConditionIdentityReady, why.reason, why.message)
		again(lookAgainMin, lookAgainMax, 0)
		return
	}
	v.no(v1alpha1.ConditionIdentityReady, why.reason, why.message)
	again(introduceMin, introduceMax, why.after)
}

// subject is what an introduction is made of: when somebody changes that, it is tried
// at once.
func (r *reconciler) subject(v *visit, token string) string {
	return fmt.Sprintf("%d %s %s", v.Generation, r.home.Info().Name, attempt(v.Spec.Consume, token))
}

// attempt names a token at an endpoint without saying the token.
func attempt(c *v1alpha1.Consume, token string) string {
	return fingerprint([]byte(c.AuthURL + " " + tunnelKey(c) + c.CASHA256 + " " + v1alpha1.TokenHash(token)))
}

func tunnelKey(c *v1alpha1.Consume) string {
	if c.InBand == nil {
		return ""
	}
	return c.InBand.PublicKey + " "
}

// token reads the invitation's token. If it cannot be had, missing says what to do.
func (r *reconciler) token(ctx context.Context, v *visit) (token, missing string, err error) {
	name := v.Spec.Consume.TokenSecret
	if name == "" {
		return "", "spec.consume.tokenSecret: name the Secret with the token of an invitation (pelago generate peer-command at the provider)", nil
	}
	s := &corev1.Secret{}
	err = r.live.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: name}, s)
	if apierrors.IsNotFound(err) {
		return "", fmt.Sprintf("spec.consume.tokenSecret: there is no Secret %s/%s; make it with the token of an invitation in key token", r.namespace, name), nil
	}
	if err != nil {
		return "", "", fmt.Errorf("reading the invitation's token: %w", err)
	}
	token = strings.TrimSpace(string(s.Data[keyToken]))
	if !invitationSecret(s) || checkToken(token) != nil {
		return "", fmt.Sprintf("spec.consume.tokenSecret: Secret %s/%s does not hold an invitation's token in key token and nothing else", r.namespace, name), nil
	}
	return token, "", nil
}

// invitationSecret says whether a Secret may be taken for an invitation: whoever may
// write Peerings must not get Pelago to send or delete other Secrets of its namespace, as that of a
// resource reader, which has a token beside what it is used with.
func invitationSecret(s *corev1.Secret) bool {
	if s.Type != corev1.SecretTypeOpaque || s.Labels[v1alpha1.LabelTombstone] != "" || s.Labels[v1alpha1.LabelManagedBy] == component {
		return false
	}
	return s.Name != v1alpha1.AuthTLSName && len(s.Data) == 1 && len(s.Data[keyToken]) > 0
}

// discardToken removes the Secret with the token that has been used.
func (r *reconciler) discardToken(ctx context.Context, v *visit) error {
	name := v.cred.Invitation
	if v.Spec.Consume != nil && v.Spec.Consume.TokenSecret != "" {
		name = v.Spec.Consume.TokenSecret
	}
	if name == "" {
		return nil
	}
	s := &corev1.Secret{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: name}, s); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading the used token: %w", err)
	}
	if !invitationSecret(s) || !v.spent(s) {
		return nil
	}
	return r.remove(ctx, s)
}

// spent says whether the Secret with the name of the used one is that, or at least this
// Peering's, and not one that was made for another Peering since.
func (v *visit) spent(s *corev1.Secret) bool {
	used := v.cred.Used
	return used == "" || v1alpha1.TokenHash(strings.TrimSpace(string(s.Data[keyToken]))) == used || s.Labels[v1alpha1.LabelPeering] == v.Name
}

// remove deletes an object as it was read; one that is gone is fine.
func (r *reconciler) remove(ctx context.Context, obj client.Object) error {
	uid := obj.GetUID()
	err := r.client.Delete(ctx, obj, client.Preconditions{UID: &uid})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s: %w", obj.GetName(), err)
	}
	return nil
}

// expired stops a peering whose credential has ended, by a clock that somebody may still correct.
func (v *visit) expired(now time.Time) bool {
	if now.Before(v.cred.NotAfter) {
		return false
	}
	v.stall(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonExpired, fmt.Sprintf(
		"the credential ended at %s and can no longer be renewed; pelago unpeer %s --force, have the provider's owner run pelago unpeer there, and peer again with a new invitation",
		v.cred.NotAfter.UTC().Format(time.RFC3339), v.Name))
	v.soon(renewAgain)
	return true
}
