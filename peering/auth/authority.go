package auth

import (
	"io"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/serving"
)

// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=pelago-auth-tls,verbs=get;update,roleName=pelago-auth,namespace=pelago-system

// newAuthority is the certificate authority of the endpoint, which invitations pin, and
// the certificate it serves with.
func newAuthority(direct client.Client, key client.ObjectKey, now clock.Clock, random io.Reader) *serving.Authority {
	return serving.NewAuthority(serving.AuthorityOptions{
		Client: direct, Secret: key, Clock: now, Rand: random,
		Subject: "Pelago authentication endpoint", Names: []string{v1alpha1.AuthService},
		Voids: ", which voids all open invitations",
	})
}
