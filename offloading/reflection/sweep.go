package reflection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

const (
	// sweepEvery is how often a mapped namespace is swept, and sweepSoon when all of a tenant
	// are at its instance: once in that time at most, whatever it does meanwhile.
	sweepEvery, sweepSoon = 10 * time.Minute, 30 * time.Second
	// sweepPage is how many objects are listed at once, without their content, and
	// sweepPages how many lists one sweep reads.
	sweepPage, sweepPages = 500, 20
)

// sweeper removes objects whose ShadowObject went while nobody looked. Its requests are
// mapped namespaces, by their names, and all of a tenant, by the namespace of that.
type sweeper struct {
	client client.Client
	live   client.Reader
}

// sweepLater asks for what comes by a channel, in a while.
var sweepLater = handler.TypedFuncs[reconcile.Request, reconcile.Request]{
	GenericFunc: func(_ context.Context, e event.TypedGenericEvent[reconcile.Request], q queue) {
		q.AddAfter(e.Object, sweepSoon)
	},
}

// Reconcile sweeps one namespace, or those of a tenant.
func (r *sweeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.Namespace == "" {
		return r.one(ctx, req)
	}
	tenant, ok := strings.CutPrefix(req.Namespace, v1alpha1.TenantNamespacePrefix)
	if !ok {
		return ctrl.Result{}, nil
	}
	list := &corev1.NamespaceList{}
	if err := r.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelTenant: tenant}, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the namespaces of a tenant: %w", err)
	}
	var errs []error
	for i := range list.Items {
		_, err := r.one(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		errs = append(errs, err)
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// one sweeps one namespace.
func (r *sweeper) one(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
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
	for _, name := range carried {
		kind, _ := kindOf(name)
		if again, err := r.sweep(ctx, n, tenant, kind); err != nil || again > 0 {
			return ctrl.Result{RequeueAfter: spread(again)}, err
		}
	}
	return ctrl.Result{RequeueAfter: spread(sweepEvery)}, nil
}

// sweep looks at all objects of one kind in a namespace. It returns when to look again if
// it could not.
func (r *sweeper) sweep(ctx context.Context, n *corev1.Namespace, tenant string, kind content.Kind) (time.Duration, error) {
	err := eachMade(ctx, r.client, r.live, n.Name, tenant, kind, sweepPages, func(made *metav1.PartialObjectMetadata) error {
		home := v1alpha1.HomeObject{Kind: kind.Name, Namespace: n.Labels[v1alpha1.LabelHomeNamespace], Name: made.Name}
		return r.check(ctx, tenant, home, made)
	})
	if apierrors.IsForbidden(err) { // the right comes with the namespace, or a moment later
		return time.Minute, nil
	}
	return 0, err
}

// eachMade goes through the objects of one kind in a namespace that were made for a tenant, without their content,
// in so many lists at most. That the list is forbidden is told by the error.
func eachMade(ctx context.Context, c client.Client, live client.Reader, namespace, tenant string, kind content.Kind, pages int, do func(*metav1.PartialObjectMetadata) error) error {
	gvk, err := c.GroupVersionKindFor(kind.NewList())
	if err != nil {
		return fmt.Errorf("finding the kind of lists of %s: %w", kind.Name, err)
	}
	list := &metav1.PartialObjectMetadataList{}
	for range pages {
		next := list.Continue
		list = &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		err := live.List(ctx, list, client.InNamespace(namespace), client.Limit(sweepPage), client.Continue(next),
			client.MatchingLabels{v1alpha1.LabelManagedBy: manager, v1alpha1.LabelTenant: tenant})
		if apierrors.IsForbidden(err) {
			return err
		}
		if err != nil {
			return plain("listing objects", err)
		}
		for i := range list.Items {
			if copied(&list.Items[i]) {
				continue
			}
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
		if list.Continue == "" {
			break
		}
	}
	return nil
}

// check removes an object that has no ShadowObject.
func (r *sweeper) check(ctx context.Context, tenant string, home v1alpha1.HomeObject, made *metav1.PartialObjectMetadata) error {
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(tenant), Name: v1alpha1.ShadowObjectName(home)}
	for _, reader := range []client.Reader{r.client, r.live} {
		s := &metav1.PartialObjectMetadata{}
		s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ShadowObject"))
		err := reader.Get(ctx, key, s)
		if err == nil && s.DeletionTimestamp == nil {
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("looking for the shadow object of an object: %w", err)
		}
	}
	err := r.client.Delete(ctx, made, client.Preconditions{UID: &made.UID})
	return plain("removing an object without a shadow object", client.IgnoreNotFound(err))
}
