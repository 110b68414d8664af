package peering

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/internal/status"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=pelago.dev,resources=resourcerequests,verbs=get;list;watch;create;patch

// request keeps the namespace of the requests and the default request, and says
// whether any offer has been accepted.
func (r *reconciler) request(ctx context.Context, v *visit) (bool, error) {
	if goOn, err := r.namespaceOf(ctx, v); !goOn || err != nil {
		return false, err
	}
	if wanted := v.Spec.Consume.DefaultRequest; wanted == nil || *wanted {
		if err := r.defaultRequest(ctx, v); err != nil {
			return false, err
		}
	}
	list := &v1alpha1.ResourceRequestList{}
	if err := r.client.List(ctx, list, client.InNamespace(v1alpha1.PeeringNamespace(v.Name))); err != nil {
		return false, fmt.Errorf("listing requests: %w", err)
	}
	v.accepted(list.Items)
	return true, nil
}

// namespaceOf makes the namespace of the requests. One that is not ours is left alone.
func (r *reconciler) namespaceOf(ctx context.Context, v *visit) (bool, error) {
	n := &corev1.Namespace{}
	err := r.client.Get(ctx, client.ObjectKey{Name: v1alpha1.PeeringNamespace(v.Name)}, n)
	switch {
	case apierrors.IsNotFound(err):
		n = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:   v1alpha1.PeeringNamespace(v.Name),
			Labels: map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelPeering: v.Name},
		}}
		if err := r.client.Create(ctx, n); err != nil {
			v.barred("namespace "+n.Name, err)
			return false, fmt.Errorf("making the namespace of the requests: %w", err)
		}
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading the namespace of the requests: %w", err)
	case !ours(n, v.Name):
		v.stall(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonInvalid, fmt.Sprintf(
			"namespace %s is there and not Pelago's; remove it, or unpeer and choose another name", n.Name))
		return false, nil
	case n.DeletionTimestamp != nil:
		v.no(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonWaiting, "waiting until the old namespace "+n.Name+" is gone")
		v.soon(time.Second)
		return false, nil
	}
	return true, nil
}

// barred says that this cluster itself does not let something in, and what to do; it is tried again.
func (v *visit) barred(what string, err error) {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return
	}
	message := "this cluster does not take " + what + ": " + printable(err.Error())
	if denial := kube.DenialOf(err); denial != nil {
		message += "; " + denial.Remedy()
	}
	v.no(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonWaiting, message)
}

// ours says whether a namespace was made for a Peering of this name.
func ours(n *corev1.Namespace, peering string) bool {
	return n.Labels[v1alpha1.LabelManagedBy] != "" && n.Labels[v1alpha1.LabelPeering] == peering
}

// defaultRequest keeps the request of the Peering's owner. Acceptance and decision
// are left to people.
func (r *reconciler) defaultRequest(ctx context.Context, v *visit) error {
	key := client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(v.Name), Name: v1alpha1.DefaultRequestName}
	request := &v1alpha1.ResourceRequest{}
	err := r.client.Get(ctx, key, request)
	if apierrors.IsNotFound(err) {
		request = &v1alpha1.ResourceRequest{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: key.Name,
				Labels: map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelPeering: v.Name},
			},
			Spec: v1alpha1.ResourceRequestSpec{Resources: v.Spec.Consume.Resources},
		}
		if err := r.client.Create(ctx, request); err != nil {
			v.barred("the request for resources", err)
			return fmt.Errorf("making the default request: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the default request: %w", err)
	}
	if request.DeletionTimestamp != nil || equality.Semantic.DeepEqual(request.Spec.Resources, v.Spec.Consume.Resources) {
		return nil
	}
	before := request.DeepCopy()
	request.Spec.Resources = v.Spec.Consume.Resources
	if err := r.client.Patch(ctx, request, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing the default request: %w", err)
	}
	return nil
}

// accepted sums up the requests: one accepted offer is enough, and a peering without
// requests has nothing to accept.
func (v *visit) accepted(requests []v1alpha1.ResourceRequest) {
	var worst *metav1.Condition
	for i := range requests {
		q := &requests[i]
		if q.DeletionTimestamp != nil {
			continue
		}
		if status.IsTrue(q.Status.Conditions, v1alpha1.ConditionAccepted) {
			v.yes(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonAccepted, "")
			return
		}
		c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.ConditionAccepted)
		for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionOffered} { // why there is no word on it yet
			if c == nil {
				c = meta.FindStatusCondition(q.Status.Conditions, kind)
			}
		}
		if c == nil || c.Message == "" {
			c = &metav1.Condition{Reason: v1alpha1.ReasonPending, Message: "waiting for an offer"}
		}
		if worst == nil || q.Name == v1alpha1.DefaultRequestName {
			worst = &metav1.Condition{Reason: c.Reason, Message: fmt.Sprintf("request %s: %s", q.Name, c.Message)}
		}
	}
	if worst == nil {
		meta.RemoveStatusCondition(&v.Status.Conditions, v1alpha1.ConditionResourcesAccepted)
		return
	}
	v.no(v1alpha1.ConditionResourcesAccepted, worst.Reason, worst.Message)
}
