package provider

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// Drainer removes what a tenant runs: its pods if it is drained, its ShadowPods with
// them if it ends.
type Drainer struct {
	// Client reads from the cache.
	Client client.Client
}

// Drain asks for the end of everything the tenant runs. What it has asked for may still
// be going when it returns.
func (d Drainer) Drain(ctx context.Context, tenant *v1alpha1.Tenant) error {
	if tenant.DeletionTimestamp != nil {
		if err := d.shadowPods(ctx, tenant); err != nil {
			return err
		}
	}
	return d.pods(ctx, tenant)
}

// shadowPods deletes the tenant's ShadowPods.
func (d Drainer) shadowPods(ctx context.Context, tenant *v1alpha1.Tenant) error {
	list := &v1alpha1.ShadowPodList{}
	if err := d.Client.List(ctx, list, client.InNamespace(v1alpha1.TenantNamespace(tenant.Name))); err != nil {
		return fmt.Errorf("listing shadow pods: %w", err)
	}
	for i := range list.Items {
		if err := d.remove(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// pods deletes the tenant's pods, in namespaces that are the tenant's.
func (d Drainer) pods(ctx context.Context, tenant *v1alpha1.Tenant) error {
	spaces := &corev1.NamespaceList{}
	if err := d.Client.List(ctx, spaces, client.MatchingLabels{v1alpha1.LabelTenant: tenant.Name}); err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	for _, n := range spaces.Items {
		if n.Labels[v1alpha1.LabelHomeNamespace] == "" {
			continue // not a mapped one
		}
		list := &corev1.PodList{}
		err := d.Client.List(ctx, list, client.InNamespace(n.Name),
			client.MatchingLabels{v1alpha1.LabelTenant: tenant.Name}, client.HasLabels{v1alpha1.LabelHomeUID})
		if err != nil {
			return fmt.Errorf("listing pods: %w", err)
		}
		for i := range list.Items {
			if over(&list.Items[i]) && tenant.DeletionTimestamp == nil {
				continue // it runs no more
			}
			if err := d.end(ctx, &list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// end deletes a pod, with its own grace if that is not too long; one that is being
// deleted with a longer one gets no more than others.
func (d Drainer) end(ctx context.Context, pod *corev1.Pod) error {
	const most = int64(shadow.LongestGrace / time.Second)
	own := cmp.Or(pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds)
	if own == nil || *own <= most {
		return d.remove(ctx, pod)
	}
	err := d.Client.Delete(ctx, pod, &client.DeleteOptions{GracePeriodSeconds: ptr.To(most), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s: %w", pod.Name, err)
	}
	return nil
}

// over says that a pod has ended and keeps nothing but its logs.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// remove deletes this very object, if nobody has asked for that yet.
func (d Drainer) remove(ctx context.Context, obj client.Object) error {
	if obj.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := obj.GetUID()
	if err := d.Client.Delete(ctx, obj, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s: %w", obj.GetName(), err)
	}
	return nil
}
