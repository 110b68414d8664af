package reflection

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/offloading/content"
)

// Budgets with maxUnavailable or shares travel as a number that is counted here: of how many pods there
// should be, only home's controllers know. The number is another one when home's own controller counts
// anew, and then the status of the budget is written, which asks for it. What that does not tell of is
// seen within a minute.

// counted is a budget as a provider is told it, nil if its number is not known yet: then what is there stays.
func (r *consumer) counted(ctx context.Context, peering string, b *policyv1.PodDisruptionBudget, f *facts) (client.Object, error) {
	if f.counted = content.Counted(b); !f.counted {
		return b, nil
	}
	elsewhere, err := r.elsewhere(ctx, peering, b)
	if err != nil {
		return nil, err
	}
	least, known := content.LeastThere(b, elsewhere)
	if !known {
		f.found = unread
		return nil, nil
	}
	return content.WithLeast(b, least), nil
}

// elsewhere counts the pods of a budget that are ready, but for those at a provider.
func (r *consumer) elsewhere(ctx context.Context, peering string, b *policyv1.PodDisruptionBudget) (count int32, err error) {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		selector = labels.Nothing() // which the API server would not take
	}
	list := &corev1.PodList{}
	if err := r.client.List(ctx, list, client.InNamespace(b.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the pods of a budget: %w", err)
	}
	on := map[string]bool{"": false}
	for i := range list.Items {
		pod := &list.Items[i]
		is, known := on[pod.Spec.NodeName]
		if !known {
			of, err := peeringOf(ctx, r.client, pod.Spec.NodeName)
			if err != nil {
				return 0, err
			}
			is = of == peering
			on[pod.Spec.NodeName] = is
		}
		_, evicted := b.Status.DisruptedPods[pod.Name]
		if !is && ready(pod) && !evicted {
			count++
		}
	}
	return count, nil
}

// ready says whether a pod counts for a budget.
func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}
