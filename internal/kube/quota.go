package kube

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Uncounted says that an API server did not make an object for it has not counted yet what there is of its
// kind: a ResourceQuota is new, or the kinds that it counts are. It passes by itself, mostly within
// seconds, so it is no refusal.
func Uncounted(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "status unknown for quota")
}
