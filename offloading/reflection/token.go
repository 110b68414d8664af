package reflection

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// The tokens of a pod travel as a Secret of its own that is nowhere at home: it is minted
// for a pod whose ShadowPod expects it, and minted again before it expires. Every token is
// bound to the home pod, so it is good for as long as that is there.

const (
	// maxTokenAge is the oldest that tokens get, as with a kubelet.
	maxTokenAge = 24 * time.Hour
	// minTokenAge is how long tokens are left alone, however soon they expire.
	minTokenAge = 10 * time.Second
)

// In namespaces whose NamespaceOffloading allows it, by a RoleBinding of its own:
//
// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,verbs=create,roleName=pelago-manager-tokens

// tokensOf is the UID of the pod whose tokens an object is; ok says whether it is such.
func tokensOf(home v1alpha1.HomeObject) (uid string, ok bool) {
	uid, ok = strings.CutPrefix(home.Name, v1alpha1.TokenSecretPrefix)
	return uid, ok && home.Kind == kindSecret
}

// renewal is when tokens are renewed that expire at a time: after four fifths of their
// life, as with a kubelet.
func renewal(now, expires time.Time) time.Time {
	return now.Add(max(min(expires.Sub(now)*4/5, maxTokenAge), minTokenAge))
}

// renewalOf is when the tokens of a ShadowObject are renewed: as is written on it, or
// remembered; at once if neither makes sense.
func renewalOf(there *v1alpha1.ShadowObject, known, now time.Time) time.Time {
	written, err := time.Parse(time.RFC3339, there.Annotations[v1alpha1.AnnotationRenew])
	if err != nil || written.After(now.Add(maxTokenAge)) || written.Before(known) {
		return known
	}
	return written
}

// allowed says whether tokens of a namespace travel.
func (r *consumer) allowed(ctx context.Context, namespace string) (bool, error) {
	o := &v1alpha1.NamespaceOffloading{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, o)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the namespace offloading: %w", err)
	}
	return o.Spec.ServiceAccountTokens == v1alpha1.TokensAllow, nil
}

// expected says whether a ShadowPod at a provider expects tokens; known is false while that
// cannot be said.
func expected(ctx context.Context, peer Peer, uid string) (expects, known bool) {
	s := &v1alpha1.ShadowPod{}
	err := peer.Reader().Get(ctx, client.ObjectKey{Namespace: peer.TenantNamespace(), Name: uid}, s)
	return err == nil && shadow.HasTokens(s), err == nil || apierrors.IsNotFound(err)
}

// tokens finds out whether the tokens of a pod are good, and mints new ones if not.
func (r *consumer) tokens(ctx context.Context, f *facts, pod *corev1.Pod, n *note) error {
	if f.there != nil {
		f.renew = renewalOf(f.there, n.renew, f.now)
		if f.fresh = f.renew.After(f.now) || f.there.DeletionTimestamp != nil; f.fresh {
			f.found = present
			return nil
		}
	}
	if f.early = n.minted.early(f.now); f.early > 0 {
		return nil
	}
	authority := &corev1.ConfigMap{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: shadow.AuthorityMap}, authority)
	switch {
	case err == nil:
	case apierrors.IsForbidden(err):
		f.barred = "read the ConfigMap " + shadow.AuthorityMap
		return nil
	case apierrors.IsNotFound(err): // it comes with the namespace, or a moment later
		return nil
	default:
		return plain("reading the authority of this cluster", err)
	}
	data := map[string][]byte{shadow.AuthorityKey: []byte(authority.Data[shadow.AuthorityKey])}
	f.renew = f.now.Add(maxTokenAge)
	for _, t := range shadow.Tokens(&pod.Spec) {
		token, expires, err := r.mint(ctx, pod, t)
		switch {
		case apierrors.IsForbidden(err): // the right comes with the NamespaceOffloading, or a moment later
			f.barred = "ask for tokens of the pod's ServiceAccount"
			return nil
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			f.found, f.wrong = present, fmt.Sprintf("there is no ServiceAccount %s any more", pod.Spec.ServiceAccountName)
			return nil
		case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			f.found, f.wrong = present, "this cluster's API server does not give the pod its token: "+code(err)
			return nil
		case err != nil:
			return plain("asking for a token of the service account", err)
		}
		data[t.Key] = []byte(token)
		if due := renewal(f.now, expires); due.Before(f.renew) {
			f.renew = due
		}
	}
	n.minted = n.minted.again(f.now)
	f.found = present
	f.text, f.wrong = content.EncodeTokens(data)
	return nil
}

// mint asks the API server for a token that is good for one pod while that is there.
func (r *consumer) mint(ctx context.Context, pod *corev1.Pod, t shadow.Token) (token string, expires time.Time, err error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &t.Seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if t.Audience != "" {
		request.Spec.Audiences = []string{t.Audience}
	}
	r.meter.tokens.Inc()
	account := &corev1.ServiceAccount{ObjectMeta: objectMeta(pod.Namespace, pod.Spec.ServiceAccountName)}
	err = r.client.SubResource("token").Create(ctx, account, request)
	return request.Status.Token, request.Status.ExpirationTimestamp.Time, err
}

// ofShadowPod asks for the tokens of a ShadowPod that a provider shows.
func ofShadowPod(peering string, obj client.Object) []reconcile.Request {
	s, ok := obj.(*v1alpha1.ShadowPod)
	if !ok || !shadow.HasTokens(s) {
		return nil
	}
	home := v1alpha1.HomeObject{Kind: kindSecret, Namespace: s.Spec.Home.Namespace, Name: v1alpha1.TokenSecret(s.Name)}
	if badName(home) != "" {
		return nil
	}
	return []reconcile.Request{at(peering, home)}
}

// runs says whether this provider has the ShadowPod whose tokens an object is, of the same
// namespace at home.
func (r *provider) runs(ctx context.Context, s *v1alpha1.ShadowObject, uid string) (bool, error) {
	for _, reader := range []client.Reader{r.client, r.live} { // the cache may be behind
		pod := &v1alpha1.ShadowPod{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: uid}, pod)
		if err == nil {
			return pod.Spec.Home.Namespace == s.Spec.Home.Namespace, nil
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
			return false, plain("reading the shadow pod", err)
		}
	}
	return false, nil
}

// misplaced says why an object is not made that is the tokens of a pod, or has the name or
// the type of one that is.
func misplaced(c claim, want client.Object) string {
	_, named := tokensOf(c.shadow.Spec.Home)
	switch {
	case named != content.HasTokens(want):
		return "a Secret named " + v1alpha1.TokenSecretPrefix + "UID has the type " + v1alpha1.TokenSecretType + ", and no other has; give yours another name or type"
	case named && !c.runs:
		return "there is no ShadowPod of this UID and namespace, and tokens are for pods that run here only"
	}
	return ""
}
