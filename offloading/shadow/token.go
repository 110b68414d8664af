package shadow

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// AuthorityMap is the ConfigMap of every namespace with the authority of its cluster's
	// API server, in AuthorityKey; the Secret of a pod's tokens has that key too.
	AuthorityMap = "kube-root-ca.crt"
	// AuthorityKey is the key of the authority.
	AuthorityKey = "ca.crt"
	// defaultLifetime is how long a token is asked for if its projection does not say.
	defaultLifetime = 3600
	// extended is for how long the API server asks for the automatic volumes: it gives such
	// a token a year, so that programs that read it once go on. What leaves the cluster gets
	// the hour that it is said to have.
	extended = 3607
)

// Token is a token of its service account that a pod expects in a volume.
type Token struct {
	// Key in the Secret of the pod's tokens.
	Key string
	// Audience that it is for; the API server if empty.
	Audience string
	// Seconds that it is good for.
	Seconds int64
}

// Tokens are the tokens that a pod expects, in the order of its volumes.
func Tokens(spec *corev1.PodSpec) []Token {
	var all []Token
	for _, v := range spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			t := source.ServiceAccountToken
			if t == nil {
				continue
			}
			seconds := int64(defaultLifetime)
			if t.ExpirationSeconds != nil && *t.ExpirationSeconds != extended {
				seconds = *t.ExpirationSeconds
			}
			all = append(all, Token{Key: tokenKey(len(all)), Audience: t.Audience, Seconds: seconds})
		}
	}
	return all
}

// HasTokens says whether a ShadowPod was forged with tokens of home.
func HasTokens(s *v1alpha1.ShadowPod) bool { return s.Annotations[v1alpha1.AnnotationTokens] == "true" }

// IsBare says whether home has noted on a pod that it was sent without tokens.
func IsBare(pod *corev1.Pod) bool { return pod.Annotations[v1alpha1.AnnotationTokens] == "false" }

func tokenKey(i int) string { return fmt.Sprintf("token-%d", i) }

// noTokensOf refuses a pod that runs here for a tenant with tokens of its home: these are for
// the provider that its namespace there allowed them for, and no other.
func (w *walk) noTokensOf(pod *corev1.Pod) {
	if i := homeTokens(pod); i >= 0 {
		w.refuse(fmt.Sprintf("spec.volumes[%d]", i), "tokens of the cluster where the pod was made go no further than here; let the pod run here, or without tokens")
	}
}

// HasHomeTokens says whether a pod that runs here for a tenant has tokens of its home. Such a pod
// goes onward to nobody: Forge refuses it.
func HasHomeTokens(pod *corev1.Pod) bool { return homeTokens(pod) >= 0 }

// homeTokens is the position of the first volume with tokens of a tenant's pod, -1 if there is none.
func homeTokens(pod *corev1.Pod) int {
	first := pod.Labels[v1alpha1.LabelHomeUID]
	return slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return first != "" && v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.Secret != nil && s.Secret.Name == v1alpha1.TokenSecret(first)
		})
	})
}

// translateVolumes drops the automatic volumes with API credentials; if tokens travel, it
// makes all volumes with tokens read them, and the authority, from the Secret of the pod.
func translateVolumes(w *walk, path string, volumes *[]corev1.Volume) {
	*volumes = without(*volumes, func(v corev1.Volume) bool { return w.access[v.Name] })
	if !w.at.Tokens {
		return
	}
	n := 0
	for i := range *volumes {
		if p := (*volumes)[i].Projected; p != nil && slices.ContainsFunc(p.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			for j := range p.Sources {
				w.tokenSource(&p.Sources[j], &n)
			}
		}
	}
	if n > maxTokens {
		w.refuse(path, fmt.Sprintf("%d tokens of service accounts, at most %d; leave some out", n, maxTokens))
	}
}

// tokenSource makes one source of a volume with tokens read the Secret of the pod; n counts
// the tokens so far.
func (w *walk) tokenSource(source *corev1.VolumeProjection, n *int) {
	secret := &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: v1alpha1.TokenSecret(w.uid)}}
	switch t, m := source.ServiceAccountToken, source.ConfigMap; {
	case t != nil:
		secret.Items = []corev1.KeyToPath{{Key: tokenKey(*n), Path: t.Path}}
		*n++
	case m != nil && m.Name == AuthorityMap:
		if secret.Items, secret.Optional = m.Items, m.Optional; len(m.Items) == 0 {
			secret.Items = []corev1.KeyToPath{{Key: AuthorityKey, Path: AuthorityKey}}
		}
	default:
		return
	}
	*source = corev1.VolumeProjection{Secret: secret}
}
