package v1alpha1

import (
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation"
)

// originOwner is what a word for an owner looks like.
var originOwner = regexp.MustCompile(`^[0-9a-f]{16}$`)

// OriginOf is what the labels of a mapped namespace say of where its pods were made, if that is a
// third cluster: what the namespace is called there, and the word for whose it is. Both are empty
// if they say nothing. If they are wrong, which ok says, nothing of them counts, and the namespace
// is not the tenant's own either.
func OriginOf(labels map[string]string) (namespace, owner string, ok bool) {
	namespace, named := labels[LabelOriginNamespace]
	owner, owned := labels[LabelOriginOwner]
	if !named && !owned {
		return "", "", true
	}
	if !IsOrigin(namespace, owner) {
		return "", "", false
	}
	return namespace, owner, true
}

// IsOrigin says whether these can be a namespace at a third cluster and the word for whose it is.
func IsOrigin(namespace, owner string) bool {
	return len(validation.IsDNS1123Label(namespace)) == 0 && originOwner.MatchString(owner)
}
