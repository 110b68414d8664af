package consumer

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/offloading/admission"
)

// hoping is the index of pods that hope for another place: of those that are bound to a
// virtual node and not run there, and of those that are bound to none.
const (
	hoping        = "pelago.dev/consumer-hoping"
	hopingBound   = "bound"
	hopingUnbound = "unbound"
)

// choicePace is how soon pods are looked at after their choice may have changed, and
// over how long they are spread: offers change every few seconds.
const choicePace = 5 * time.Second

func indexHoping(obj client.Object) []string {
	pod, ok := obj.(*corev1.Pod)
	switch {
	case !ok:
		return nil
	case unscheduled(pod):
		return []string{hopingUnbound}
	case pod.Spec.NodeName != "" && pod.DeletionTimestamp.IsZero() && pod.Status.Reason != "" && !terminal(pod.Status.Phase) &&
		kube.Tolerates(pod) && replaceable(pod, pod.Labels[v1alpha1.LabelTenant]): // whose it is, is asked when it is looked at
		return []string{hopingBound}
	}
	return nil
}

// hoping wakes, a little later, pods that hope for another place.
func (w wakers) hoping(which string) handler.EventHandler {
	wake := func(ctx context.Context, q queue) {
		list := &corev1.PodList{}
		if err := w.cache.List(ctx, list, client.MatchingFields{hoping: which}, client.UnsafeDisableDeepCopy); err != nil {
			return // the cache is ending
		}
		for i := range list.Items {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, w.delay+rand.N(w.delay))
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q queue) { wake(ctx, q) },
		UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, q queue) { wake(ctx, q) },
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) { wake(ctx, q) },
	}
}

// choiceChanges passes what may change where pods could go: virtual nodes, what is
// offered behind them, refusals, and where the pods of a namespace may run.
func choiceChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return bearsOnChoice(e.Object) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return bearsOnChoice(e.Object) },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return (bearsOnChoice(e.ObjectOld) || bearsOnChoice(e.ObjectNew)) && choiceDiffers(e.ObjectOld, e.ObjectNew)
		},
	}
}

// bearsOnChoice says whether an object says anything of where pods of this cluster go.
func bearsOnChoice(obj client.Object) bool {
	switch o := obj.(type) {
	case *corev1.Node:
		return o.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode
	case *v1alpha1.NamespaceMap, *v1alpha1.ResourceOffer: // those in tenants' namespaces are of other clusters
		return strings.HasPrefix(o.GetNamespace(), v1alpha1.PeeringNamespacePrefix)
	}
	return true
}

// choiceDiffers says whether two states of an object say something else of it.
func choiceDiffers(old, next client.Object) bool {
	if (old.GetDeletionTimestamp() == nil) != (next.GetDeletionTimestamp() == nil) {
		return true
	}
	switch o := old.(type) {
	case *corev1.Node:
		n, ok := next.(*corev1.Node)
		return !ok || o.Spec.Unschedulable != n.Spec.Unschedulable || readyStatus(o) != readyStatus(n) ||
			!equality.Semantic.DeepEqual(o.Labels, n.Labels)
	case *v1alpha1.NamespaceMap:
		n, ok := next.(*v1alpha1.NamespaceMap)
		return !ok || !equality.Semantic.DeepEqual(o.Status.Refusals, n.Status.Refusals)
	}
	return old.GetGeneration() != next.GetGeneration()
}

// readyStatus is what a node's condition Ready says; nothing if there is none.
func readyStatus(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// unscheduledOnly passes pods that become unscheduled, or are when this program begins,
// and the going of those that may be remembered.
func unscheduledOnly() predicate.Predicate {
	is := func(obj client.Object) bool {
		pod, ok := obj.(*corev1.Pod)
		return ok && unscheduled(pod)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return is(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return is(e.ObjectNew) && !is(e.ObjectOld) },
		DeleteFunc: func(e event.DeleteEvent) bool {
			pod, ok := e.Object.(*corev1.Pod)
			return ok && ofJob(pod) && pod.Annotations[admission.AnnotationAvoids] != ""
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
