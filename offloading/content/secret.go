package content

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// secretContent is what travels of a Secret. It must not be printed.
type secretContent struct {
	Type corev1.SecretType `json:"type"`
	Data map[string][]byte `json:"data,omitempty"`
}

// String hides the content from whoever prints it.
func (c secretContent) String() string { return "content of a Secret" }

// GoString is String.
func (c secretContent) GoString() string { return c.String() }

// plainTypes are the types of Kubernetes' own that pods use and no controller acts on.
// Tokens of service accounts and of bootstrapping nodes are credentials of the cluster in
// which they are made, and types that do not exist yet may be as well.
var plainTypes = []corev1.SecretType{corev1.SecretTypeOpaque, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg,
	corev1.SecretTypeBasicAuth, corev1.SecretTypeSSHAuth, corev1.SecretTypeTLS}

var secrets = form[*corev1.Secret, secretContent]{
	name: "Secret", referred: true, plain: true, long: true, secret: true,
	empty: func() *corev1.Secret { return &corev1.Secret{} },
	list:  func() client.ObjectList { return &corev1.SecretList{} },
	pack: func(s *corev1.Secret) (secretContent, string) {
		if s.Type == v1alpha1.TokenSecretType {
			return secretContent{}, "Secrets of the type " + v1alpha1.TokenSecretType + " are made by Pelago only"
		}
		return secretContent{Type: s.Type, Data: s.Data}, ""
	},
	check: func(c *secretContent) string {
		if wrong := wrongType(c.Type); wrong != "" {
			return wrong
		}
		var size sizer
		for key, value := range c.Data {
			size.add("data", key, len(value))
		}
		return size.wrong("Secrets")
	},
	unpack: func(c *secretContent, _ Rules, s *corev1.Secret) string {
		s.Type, s.Data = c.Type, c.Data
		return ""
	},
	put: func(next, want *corev1.Secret) bool {
		replace := next.Type != want.Type || next.Immutable != nil && *next.Immutable
		next.Type, next.Data, next.Immutable = want.Type, want.Data, nil
		return replace
	},
}

// EncodeTokens is the text that carries the tokens of a pod; wrong, if not empty, is why it
// does not travel.
func EncodeTokens(data map[string][]byte) (text, wrong string) {
	e := envelope[secretContent]{Content: secretContent{Type: v1alpha1.TokenSecretType, Data: data}}
	if wrong := secrets.check(&e.Content); wrong != "" {
		return "", wrong
	}
	return e.text(MaxText)
}

// HasTokens says whether an object is the Secret with the tokens of a pod.
func HasTokens(obj client.Object) bool {
	s, ok := obj.(*corev1.Secret)
	return ok && s.Type == v1alpha1.TokenSecretType
}

// wrongType says why Secrets of a type do not travel.
func wrongType(t corev1.SecretType) string {
	domain, _, prefixed := strings.Cut(string(t), "/")
	own := prefixed && slices.ContainsFunc(ownDomains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
	switch {
	case t == "":
		return "it has no type; Opaque is the common one"
	case own && t != v1alpha1.TokenSecretType && !slices.Contains(plainTypes, t):
		return fmt.Sprintf("Secrets of the type %s do not travel: they are credentials of the cluster they were made in", quote(string(t)))
	}
	return ""
}

// sizer sums up the data of an object, and finds the first mistake in it.
type sizer struct {
	bytes, keys int
	bad         string
}

func (s *sizer) add(where, key string, value int) {
	s.keys++
	s.bytes += value
	if s.bad == "" && len(validation.IsConfigMapKey(key)) > 0 {
		s.bad = where + " has a key that is not made of letters, digits, dashes, dots and underscores"
	}
}

func (s *sizer) wrong(kind string) string {
	if s.bytes > MaxContent {
		return fmt.Sprintf("its data has %d bytes, at most %d; split it into several %s", s.bytes, MaxContent, kind)
	}
	if s.keys > maxKeys {
		return fmt.Sprintf("its data has %d keys, at most %d; split it into several %s", s.keys, maxKeys, kind)
	}
	return s.bad
}
