package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// isMapped says whether a namespace has a place at a peering's provider, or is to have
// one. Without a NamespaceMap, which comes and goes with the peering, nothing is known
// and what runs goes on. Nor does the lack of an entry prove anything by itself: a map
// that was lost is put together again entry by entry. What ends a mapping is stored in
// the NamespaceOffloading before the entry is taken out.
func isMapped(ctx context.Context, reader client.Reader, peering, namespace string) (bool, error) {
	m := &v1alpha1.NamespaceMap{}
	err := reader.Get(ctx, mapKey(peering), m)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the namespace map: %w", err)
	}
	if _, ok := m.Spec.Namespaces[namespace]; ok {
		return true, nil
	}
	o := &v1alpha1.NamespaceOffloading{}
	err = reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the namespace offloading: %w", err)
	}
	return !isLeft(o, peering), nil
}

// isLeft says whether an offloading leaves a cluster, or has left it.
func isLeft(o *v1alpha1.NamespaceOffloading, peering string) bool {
	return slices.ContainsFunc(o.Status.Clusters, func(c v1alpha1.ClusterOffloading) bool {
		return c.Name == peering && meta.IsStatusConditionFalse(c.Conditions, v1alpha1.ConditionOffloadingRequired)
	})
}

// leavesOrEnds passes offloadings that begin or cease to leave a cluster, and those that
// end. The cache may show that only after it shows the NamespaceMap.
func leavesOrEnds() predicate.Predicate {
	left := func(obj client.Object) (names []string) {
		if o, ok := obj.(*v1alpha1.NamespaceOffloading); ok {
			for _, c := range o.Status.Clusters {
				if isLeft(o, c.Name) {
					names = append(names, c.Name)
				}
			}
		}
		return names
	}
	return predicate.Or(endingOnly(), predicate.Predicate(predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return !slices.Equal(left(e.ObjectOld), left(e.ObjectNew)) },
	}))
}

// belongs says whether a home pod that lives is the provider's to run. It is not when
// the mapping of its namespace has ended: pods that have to leave had their time before
// that. Pods of DaemonSets, which nobody asks to leave, are not from the moment at which
// their namespace is not offloaded: then the room of virtual nodes answers for them.
func belongs(ctx context.Context, reader client.Reader, peering string, pod *corev1.Pod) (bool, error) {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		namespace := &corev1.Namespace{}
		err := reader.Get(ctx, client.ObjectKey{Name: pod.Namespace}, namespace)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading the namespace: %w", err)
		}
		if err == nil && namespace.Labels[v1alpha1.LabelOffloaded] != "true" {
			return false, nil
		}
	}
	return isMapped(ctx, reader, peering, pod.Namespace)
}

// target names what has to be looked at because of a pod at a peering's provider.
type target func(peering string, pod *corev1.Pod) reconcile.Request

// homePod is a request of the controller of offloaded pods.
func homePod(_ string, pod *corev1.Pod) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
}

// shadowOf is a request of the controller of orphans.
func shadowOf(peering string, pod *corev1.Pod) reconcile.Request {
	return shadowAt(peering, string(pod.UID))
}

// mappings wakes what is of namespaces whose mapping at a provider comes or goes.
func (w wakers) mappings(what target) handler.EventHandler {
	wake := func(ctx context.Context, obj client.Object, before, after map[string]v1alpha1.NamespaceMapping, q queue) {
		peering, ours := strings.CutPrefix(obj.GetNamespace(), v1alpha1.PeeringNamespacePrefix)
		if !ours {
			return // that of a tenant
		}
		for _, sides := range [][2]map[string]v1alpha1.NamespaceMapping{{before, after}, {after, before}} {
			for namespace := range sides[0] {
				if _, both := sides[1][namespace]; both {
					continue
				}
				for _, r := range w.each(ctx, client.InNamespace(namespace), what, peering) {
					q.Add(r)
				}
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if m, ok := e.Object.(*v1alpha1.NamespaceMap); ok {
				wake(ctx, m, nil, m.Spec.Namespaces, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			old, ok := e.ObjectOld.(*v1alpha1.NamespaceMap)
			m, ok2 := e.ObjectNew.(*v1alpha1.NamespaceMap)
			if ok && ok2 {
				wake(ctx, m, old.Spec.Namespaces, m.Spec.Namespaces, q)
			}
		},
	}
}
