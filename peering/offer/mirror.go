package offer

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=resourceoffers,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=pelago.dev,resources=resourceoffers/status,verbs=patch

// keepCopy keeps the copy of a checked offer beside its request. What breaks a rule is
// not copied, and the last good copy stays until the provider takes its offer away.
// The copy changes at most once a second: otherwise the result is when to come again.
func (c *consumer) keepCopy(ctx context.Context, request *v1alpha1.ResourceRequest, there *unstructured.Unstructured, offer *received, peering string) (time.Duration, error) {
	key, now := client.ObjectKeyFromObject(request), c.clock.Now()
	wait := c.copies.wait(key, now)
	if there == nil || there.GetDeletionTimestamp() != nil {
		if wait > 0 {
			return wait, nil
		}
		return 0, c.dropCopy(ctx, request)
	}
	if offer == nil {
		return 0, nil
	}
	copied, err := c.readCopy(ctx, key)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return 0, fmt.Errorf("reading the copy of the offer: %w", err)
	}
	same := !missing && reflect.DeepEqual(copied.Object["spec"], any(offer.spec))
	switch {
	case same && decorated(request, copied):
		return 0, nil
	case wait > 0:
		return wait, nil
	}
	switch before := copied.DeepCopy(); {
	case missing:
		copied = newCopy(request, peering)
		copied.Object["spec"] = runtime.DeepCopyJSONValue(offer.spec)
		err = c.client.Create(ctx, copied)
	case !same:
		copied.Object["spec"] = runtime.DeepCopyJSONValue(offer.spec)
		err = c.client.Patch(ctx, copied, client.MergeFrom(before))
	default:
		err = nil
	}
	if err != nil {
		return 0, fmt.Errorf("copying the offer: %w", err)
	}
	c.copies.note(key, now)
	if err := c.decorate(ctx, request, copied); err != nil {
		return 0, err
	}
	c.known.Store(key, copied)
	return 0, nil
}

// readCopy reads the copy of an offer with all fields, also those that only a later build
// knows. The cache has no such ones, so it is asked first whether the copy is still as it
// was written last; only if not is the API server asked.
func (c *consumer) readCopy(ctx context.Context, key client.ObjectKey) (*unstructured.Unstructured, error) {
	if known, ok := c.known.Load(key); ok {
		cached := &v1alpha1.ResourceOffer{}
		last, ok := known.(*unstructured.Unstructured)
		if err := c.client.Get(ctx, key, cached); err == nil && ok && cached.UID == last.GetUID() && cached.ResourceVersion == last.GetResourceVersion() {
			return last.DeepCopy(), nil
		}
	}
	copied := kindOf("ResourceOffer")
	return copied, c.client.Get(ctx, key, copied)
}

// newCopy is an empty copy that goes with its request.
func newCopy(request *v1alpha1.ResourceRequest, peering string) *unstructured.Unstructured {
	u := kindOf("ResourceOffer")
	u.SetNamespace(request.Namespace)
	u.SetName(request.Name)
	u.SetLabels(map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelPeering: peering})
	controller := true
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceRequest",
		Name: request.Name, UID: request.UID, Controller: &controller,
	}})
	return u
}

// decorated says whether the copy says whether it is accepted.
func decorated(request *v1alpha1.ResourceRequest, copied *unstructured.Unstructured) bool {
	said := meta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionAccepted)
	has, _, _ := unstructured.NestedSlice(copied.Object, "status", "conditions")
	return slices.ContainsFunc(has, func(c any) bool {
		old, _ := c.(map[string]any)
		return old["type"] == said.Type && old["status"] == string(said.Status) && old["reason"] == said.Reason && old["message"] == said.Message
	})
}

// decorate writes into the copy whether it is accepted.
func (c *consumer) decorate(ctx context.Context, request *v1alpha1.ResourceRequest, copied *unstructured.Unstructured) error {
	if decorated(request, copied) {
		return nil
	}
	written := *meta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionAccepted)
	written.ObservedGeneration = copied.GetGeneration()
	condition, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&written)
	if err != nil {
		return fmt.Errorf("writing a condition: %w", err)
	}
	before := copied.DeepCopy()
	has, _, _ := unstructured.NestedSlice(copied.Object, "status", "conditions")
	others := slices.DeleteFunc(has, func(c any) bool { // a later build's stay
		old, _ := c.(map[string]any)
		return old["type"] == written.Type
	})
	if err := unstructured.SetNestedSlice(copied.Object, append(others, condition), "status", "conditions"); err != nil {
		return fmt.Errorf("writing a condition: %w", err)
	}
	if err := c.client.Status().Patch(ctx, copied, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the decision into the copy of the offer: %w", err)
	}
	return nil
}

// dropCopy removes the copy of an offer, if there is one.
func (c *consumer) dropCopy(ctx context.Context, request *v1alpha1.ResourceRequest) error {
	c.known.Delete(client.ObjectKeyFromObject(request))
	copied := &v1alpha1.ResourceOffer{}
	err := c.client.Get(ctx, client.ObjectKeyFromObject(request), copied)
	if err == nil {
		err = c.client.Delete(ctx, copied)
		c.copies.note(client.ObjectKeyFromObject(request), c.clock.Now())
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the copy of the offer: %w", err)
	}
	return nil
}
