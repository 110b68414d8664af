package vnode

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func inPeeringNamespace(obj client.Object) bool {
	return strings.HasPrefix(obj.GetNamespace(), v1alpha1.PeeringNamespacePrefix)
}

func isVirtual(obj client.Object) bool {
	return obj.GetLabels()[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode
}

func ownLabels() map[string]string { return map[string]string{v1alpha1.LabelManagedBy: component} }

// ofNode maps a virtual node to its request.
func ofNode(_ context.Context, obj client.Object) []reconcile.Request {
	peering, request := obj.GetLabels()[v1alpha1.LabelPeering], obj.GetLabels()[v1alpha1.LabelRequest]
	if !isVirtual(obj) || peering == "" || request == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(peering), Name: request}}}
}

// nodeMatters passes virtual nodes, and those that were until now.
func nodeMatters() predicate.Predicate {
	virtual := predicate.NewPredicateFuncs(isVirtual)
	return predicate.Or[client.Object](virtual, predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return isVirtual(e.ObjectOld) },
	})
}

// ofPod maps a pod to the request of its node, if that is being drained.
func ofPod(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			return nil
		}
		node := &corev1.Node{}
		if err := c.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); err != nil || !draining(node) {
			return nil // the drain looks again by itself
		}
		return ofNode(ctx, node)
	})
}

// leaves passes pods that go.
func leaves() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}

// ofPeering maps a Peering to the requests to it.
func ofPeering(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return requestsIn(ctx, c, v1alpha1.PeeringNamespace(obj.GetName()))
	})
}

// requestsOf is the same for a change of the connection.
func requestsOf(c client.Reader) func(peering string) []reconcile.Request {
	return func(peering string) []reconcile.Request {
		return requestsIn(context.Background(), c, v1alpha1.PeeringNamespace(peering))
	}
}

func requestsIn(ctx context.Context, c client.Reader, namespace string) []reconcile.Request {
	return requestsWhere(ctx, c, func(*v1alpha1.ResourceRequest) bool { return true }, client.InNamespace(namespace))
}

// ofList maps the list for admission to the requests whose nodes wait for it.
func ofList(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return requestsWhere(ctx, c, func(q *v1alpha1.ResourceRequest) bool {
			return inPeeringNamespace(q) && held(q) && q.Status.Node == ""
		})
	})
}

func requestsWhere(ctx context.Context, c client.Reader, keep func(*v1alpha1.ResourceRequest) bool, options ...client.ListOption) []reconcile.Request {
	list := &v1alpha1.ResourceRequestList{}
	if err := c.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil // from the cache: it fails only while the program ends
	}
	var out []reconcile.Request
	for i := range list.Items {
		if keep(&list.Items[i]) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// peeringMatters passes what a node depends on.
func peeringMatters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, ok1 := e.ObjectOld.(*v1alpha1.Peering)
		now, ok2 := e.ObjectNew.(*v1alpha1.Peering)
		return ok1 && ok2 && (old.Generation != now.Generation || old.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() ||
			!maps.Equal(old.Annotations, now.Annotations) || !equality.Semantic.DeepEqual(old.Status.Remote, now.Status.Remote))
	}}
}

// unanswered maps a namespace to its pods that may lack their answer.
func unanswered(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) (out []reconcile.Request) {
		list := &corev1.PodList{}
		if err := c.List(ctx, list, client.InNamespace(obj.GetName()), client.UnsafeDisableDeepCopy); err != nil {
			return nil // from the cache: it fails only while the program ends
		}
		for i := range list.Items {
			if needsAnswer(&list.Items[i]) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return out
	})
}

// comesHome passes namespaces that are not offloaded any more.
func comesHome() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetLabels()[v1alpha1.LabelOffloaded] == "true" && e.ObjectNew.GetLabels()[v1alpha1.LabelOffloaded] != "true"
		},
	}
}

// isList passes the list for admission.
func isList(namespace string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(obj client.Object) bool {
		return obj.GetNamespace() == namespace && obj.GetName() == v1alpha1.AdmissionName
	})
}

// onlyNew passes what has come, and what has become a virtual node.
func onlyNew() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return !isVirtual(e.ObjectOld) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// comesOrGoes passes nodes that come, go, or become or cease to be virtual.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return isVirtual(e.ObjectOld) != isVirtual(e.ObjectNew) }}
}

// finalizersChange passes requests whose node begins or ends to be wanted.
func finalizersChange() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
	}}
}

// waitingChange passes pods that wait to be bound to the node they are aimed at, and
// those that did until now.
func waitingChange() predicate.Predicate {
	waits := func(obj client.Object) bool {
		pod, ok := obj.(*corev1.Pod)
		return ok && pod.Spec.NodeName == "" && pod.DeletionTimestamp.IsZero() && aimedAt(pod) != ""
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return waits(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return waits(e.ObjectOld) != waits(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return waits(e.Object) },
	}
}
