package peering

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=tenants,verbs=get;list;watch;patch;delete

// provideAgain is how often an ending Tenant is looked at should its event be lost.
const provideAgain = 2 * time.Second

// provider mirrors the Tenant of a peering that provides, and ends it with the
// Peering or with spec.provide.
func (r *reconciler) provider(ctx context.Context, v *visit) error {
	if !controllerutil.ContainsFinalizer(v.Peering, v1alpha1.FinalizerProvide) {
		for _, kind := range providerConditions {
			meta.RemoveStatusCondition(&v.Status.Conditions, kind)
		}
		return nil
	}
	if !v.DeletionTimestamp.IsZero() || v.Spec.Provide == nil {
		return r.evict(ctx, v)
	}
	t := &v1alpha1.Tenant{}
	err := r.client.Get(ctx, client.ObjectKey{Name: v.Spec.Provide.Tenant}, t)
	switch {
	case apierrors.IsNotFound(err):
		v.no(v1alpha1.ConditionTenantReady, v1alpha1.ReasonWaiting, "there is no Tenant "+v.Spec.Provide.Tenant+"; its cluster has not used an invitation, or it is over: pelago unpeer "+v.Name)
		meta.RemoveStatusCondition(&v.Status.Conditions, v1alpha1.ConditionConsumerAlive)
		return nil
	case err != nil:
		return fmt.Errorf("reading the tenant: %w", err)
	case t.Spec.ClusterID != v.Spec.ClusterID:
		v.no(v1alpha1.ConditionTenantReady, v1alpha1.ReasonInvalid, "spec.provide.tenant: Tenant "+t.Name+" is of another cluster than spec.clusterID")
		meta.RemoveStatusCondition(&v.Status.Conditions, v1alpha1.ConditionConsumerAlive)
		return nil
	}
	v.mirror(t, v1alpha1.ConditionReady, v1alpha1.ConditionTenantReady)
	v.mirror(t, v1alpha1.ConditionConsumerAlive, v1alpha1.ConditionConsumerAlive)
	if v.Spec.Consume == nil && t.Status.Cluster != nil {
		v.Status.Remote = t.Status.Cluster.DeepCopy()
		v.Status.Features = both(r.home.Info().Features, v.Status.Remote.Features)
	}
	if t.Status.LastContact != nil && t.Status.LastContact.After(v.contact) {
		v.contact = t.Status.LastContact.Time
	}
	return nil
}

// mirror takes over a condition of the Tenant.
func (v *visit) mirror(t *v1alpha1.Tenant, from, to string) {
	c := meta.FindStatusCondition(t.Status.Conditions, from)
	if c == nil {
		if to == v1alpha1.ConditionTenantReady {
			v.no(to, v1alpha1.ReasonPending, "waiting for Tenant "+t.Name)
			return
		}
		meta.RemoveStatusCondition(&v.Status.Conditions, to)
		return
	}
	mirrored := metav1.Condition{Type: to, Status: c.Status, Reason: c.Reason, Message: c.Message, ObservedGeneration: v.Generation}
	meta.SetStatusCondition(&v.Status.Conditions, mirrored)
}

// evict deletes the Tenants of the remote cluster and waits until they are gone. The
// Tenant's own end is bounded, so this is too.
func (r *reconciler) evict(ctx context.Context, v *visit) error {
	list := &v1alpha1.TenantList{}
	if err := r.live.List(ctx, list); err != nil {
		return fmt.Errorf("listing tenants: %w", err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(t v1alpha1.Tenant) bool { return t.Spec.ClusterID != v.Spec.ClusterID })
	if len(list.Items) == 0 {
		controllerutil.RemoveFinalizer(v.Peering, v1alpha1.FinalizerProvide)
		return nil
	}
	// In this order: the finalizer goes before the Tenant does, and the next one comes after that.
	if ends, err := r.ending(ctx, v); err != nil || !ends {
		v.soon(provideAgain)
		return err
	}
	left := ""
	for i := range list.Items {
		left = list.Items[i].Name
		if err := r.evictOne(ctx, v, &list.Items[i]); err != nil {
			return err
		}
	}
	v.working = v1alpha1.ReasonTerminating
	v.no(v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, "waiting until Tenant "+left+" is gone")
	v.soon(provideAgain)
	return nil
}

// ending says whether there are Tenants to evict, past the cache: it may show the end of a
// peering when the next one of the same cluster has begun.
func (r *reconciler) ending(ctx context.Context, v *visit) (bool, error) {
	p := &v1alpha1.Peering{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(v.Peering), p); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return p.UID == v.UID && controllerutil.ContainsFinalizer(p, v1alpha1.FinalizerProvide) &&
		(p.DeletionTimestamp != nil || p.Spec.Provide == nil), nil
}

func (r *reconciler) evictOne(ctx context.Context, v *visit, t *v1alpha1.Tenant) error {
	if forced(v.Peering) && !forced(t) {
		before := t.DeepCopy()
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, v1alpha1.AnnotationForce, "true")
		if err := r.client.Patch(ctx, t, client.MergeFrom(before)); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("forcing the end of tenant %s: %w", t.Name, err)
		}
	}
	if t.DeletionTimestamp != nil {
		return nil
	}
	return r.remove(ctx, t)
}

// forced says whether an object's owner gives up on the other side.
func forced(obj client.Object) bool { return obj.GetAnnotations()[v1alpha1.AnnotationForce] == "true" }
