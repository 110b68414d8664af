package offer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=tenants/status,verbs=patch

// say keeps the Tenant's condition of the external reader true, and tells of changes by
// an event. It is all that this package writes of a Tenant.
func (p *provider) say(ctx context.Context, f facts) error {
	if !f.heard || !f.tenant.DeletionTimestamp.IsZero() {
		return nil
	}
	tenant := f.tenant.DeepCopy()
	conditions := &tenant.Status.Conditions
	was := meta.FindStatusCondition(f.tenant.Status.Conditions, v1alpha1.ConditionReaderAnswering)
	changed := false
	if f.read.External == nil {
		changed = meta.RemoveStatusCondition(conditions, v1alpha1.ConditionReaderAnswering)
	} else {
		c := *f.read.External
		c.ObservedGeneration, c.LastTransitionTime = tenant.Generation, metav1.NewTime(f.now)
		if was != nil {
			c.ObservedGeneration = was.ObservedGeneration // a newer one is not worth a write
		}
		changed = meta.SetStatusCondition(conditions, c)
	}
	if !changed {
		return nil
	}
	lock := client.MergeFromWithOptions(f.tenant, client.MergeFromWithOptimisticLock{})
	if err := p.client.Status().Patch(ctx, tenant, lock); apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // somebody else wrote; the next look, soon while the reader fails, says it
	} else if err != nil {
		return fmt.Errorf("writing what the resource reader does into tenant %s: %w", tenant.Name, err)
	}
	p.tellReader(tenant, was, f.read.External)
	return nil
}

// tellReader is the event of a change of the condition.
func (p *provider) tellReader(t *v1alpha1.Tenant, was, is *metav1.Condition) {
	switch {
	case is == nil, was != nil && was.Status == is.Status && was.Reason == is.Reason:
	case is.Reason == v1alpha1.ReasonReady && was == nil: // as it should be, from the start
	case is.Reason == v1alpha1.ReasonReady:
		p.events.Eventf(t, nil, corev1.EventTypeNormal, is.Type, "Negotiate", "the resource reader answers again")
	default:
		p.events.Eventf(t, nil, corev1.EventTypeWarning, is.Reason, "Negotiate", "%s", is.Message)
	}
}
