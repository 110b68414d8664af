// Package trust joins package access to programs that have a manager of controller-runtime: by its client
// questions are asked, and in its replicas authorities are followed. An agent has none.
package trust

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/access"
	"github.com/pelago-dev/pelago/internal/kube"
)

// Where API servers say whom they trust.
const (
	trustNamespace = metav1.NamespaceSystem
	trustName      = "extension-apiserver-authentication"
)

// Ask has a client ask what a gate wants to know; its scheme has authentication.k8s.io and
// authorization.k8s.io, both v1.
func Ask(c client.Client) access.Ask {
	return func(ctx context.Context, review kube.Object) error { return c.Create(ctx, review) }
}

// Follow returns the cluster's authorities, which follow their ConfigMap as long as
// mgr runs, in every replica. Reading it is the right of the Role
// extension-apiserver-authentication-reader in kube-system.
func Follow(mgr ctrl.Manager) (*access.Authorities, error) {
	a := &access.Authorities{}
	// A cache of its own: the manager's holds the ConfigMaps of Pelago's namespace only.
	one, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{trustNamespace: {}},
			Field:      fields.OneTermEqualSelector(metav1.ObjectNameField, trustName),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("following whom the cluster trusts: %w", err)
	}
	informer, err := one.GetInformer(context.Background(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("following whom the cluster trusts: %w", err)
	}
	logger := mgr.GetLogger().WithName("access")
	take := func(obj any) {
		if found, ok := obj.(*corev1.ConfigMap); ok && found.Name == trustName {
			if err := a.Set(found.Data); err != nil {
				logger.Error(err, "authorities of callers not read; those known stay")
			}
		}
	}
	following, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: take, UpdateFunc: func(_, now any) { take(now) },
	})
	if err != nil {
		return nil, fmt.Errorf("following whom the cluster trusts: %w", err)
	}
	// The API server remembers for minutes what a replica answers that knows nobody yet.
	if err := mgr.AddReadyzCheck("authorities", func(*http.Request) error {
		if !following.HasSynced() {
			return errors.New("whom the cluster trusts has not been read yet")
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("adding the check of whom the cluster trusts: %w", err)
	}
	if err := mgr.Add(everywhere{one}); err != nil {
		return nil, fmt.Errorf("following whom the cluster trusts: %w", err)
	}
	return a, nil
}

// everywhere is a cache that is filled in every replica: by itself a manager fills the
// caches it is given only when it leads.
type everywhere struct{ cache.Cache }

// NeedLeaderElection reports that a replica which waits for its turn follows too.
func (everywhere) NeedLeaderElection() bool { return false }
