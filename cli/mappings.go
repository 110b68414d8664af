package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// mappings reads what is given to namespaces from outside of the pod network. An installation
// that has no such kind yet has none.
func (c *Cluster) mappings(ctx context.Context, s *snapshot) error {
	var list v1alpha1.IPMappingList
	if err := c.Client.List(ctx, &list); err != nil && !notServed(err) && !apierrors.IsForbidden(err) {
		return describe(fmt.Errorf("listing mappings: %w", err), c)
	}
	s.mapped = list.Items
	return nil
}

// judgeMappings tells of mappings that nobody elsewhere reaches. One of which nothing was said yet
// waits.
func (s *snapshot) judgeMappings(r *Report) {
	for i := range s.mapped {
		o := &s.mapped[i]
		object := "mapping " + o.Namespace + "/" + o.Name
		ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case o.DeletionTimestamp != nil, meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReady) && ready.ObservedGeneration == o.Generation:
		case ready == nil || ready.ObservedGeneration != o.Generation:
			r.Pending = append(r.Pending, Problem{Object: object, Reason: v1alpha1.ReasonPending, Message: "nobody has said yet how it is",
				Remedy: "wait a moment; if it stays so, see whether " + managerDeployment + " runs, with its network on"})
		case ready.Reason == v1alpha1.ReasonWaiting:
			r.Pending = append(r.Pending, Problem{Object: object, Reason: ready.Reason, Message: ready.Message})
		default:
			r.Problems = append(r.Problems, Problem{Object: object, Reason: ready.Reason, Message: ready.Message})
		}
	}
}
