package reflection

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// sweepEvery is how often a mapped namespace is swept.
	sweepEvery = 10 * time.Minute
	// sweepPage is how many Secrets are listed at once, without their content, and
	// sweepPages how many lists one sweep reads.
	sweepPage, sweepPages = 500, 20
)

// sweeper removes Secrets whose ShadowObject went while nobody looked. Its requests are
// mapped namespaces.
type sweeper struct {
	client client.Client
	live   client.Reader
}

// Reconcile sweeps one namespace.
func (r *sweeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	n := &corev1.Namespace{}
	if err := r.client.Get(ctx, req.NamespacedName, n); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	tenant := mappedFor(n)
	if tenant == "" || n.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	for range sweepPages {
		next := list.Continue
		list = &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
		err := r.live.List(ctx, list, client.InNamespace(n.Name), client.Limit(sweepPage), client.Continue(next),
			client.MatchingLabels{v1alpha1.LabelManagedBy: manager, v1alpha1.LabelTenant: tenant})
		if apierrors.IsForbidden(err) { // the right comes with the namespace, or a moment later
			return ctrl.Result{RequeueAfter: spread(time.Minute)}, nil
		}
		if err != nil {
			return ctrl.Result{}, plain("listing secrets", err)
		}
		for i := range list.Items {
			if err := r.check(ctx, tenant, n.Labels[v1alpha1.LabelHomeNamespace], &list.Items[i]); err != nil {
				return ctrl.Result{}, err
			}
		}
		if list.Continue == "" {
			break
		}
	}
	return ctrl.Result{RequeueAfter: spread(sweepEvery)}, nil
}

// check removes a Secret that has no ShadowObject.
func (r *sweeper) check(ctx context.Context, tenant, home string, secret *metav1.PartialObjectMetadata) error {
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(tenant),
		Name: v1alpha1.ShadowObjectName(v1alpha1.HomeObject{Kind: kindSecret, Namespace: home, Name: secret.Name})}
	for _, reader := range []client.Reader{r.client, r.live} {
		s := &metav1.PartialObjectMetadata{}
		s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ShadowObject"))
		err := reader.Get(ctx, key, s)
		if err == nil && s.DeletionTimestamp == nil {
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("looking for the shadow object of a secret: %w", err)
		}
	}
	err := r.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})
	return plain("removing a secret without a shadow object", client.IgnoreNotFound(err))
}
