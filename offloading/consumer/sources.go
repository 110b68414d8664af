package consumer

import (
	"cmp"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// onNode is the index of pods by the node they are bound to. The name is our own: other
// rooms may have an index of the same field.
const onNode = "pelago.dev/consumer-node"

func indexByNode(obj client.Object) []string {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}
	}
	return nil
}

// places knows the virtual nodes, so that the pods of all other nodes cost nothing.
type places struct {
	mu    sync.RWMutex
	nodes map[string]string // the peering of each
}

func (p *places) peering(node string) (string, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	peering, ok := p.nodes[node]
	return peering, ok
}

func (p *places) set(node *corev1.Node) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode || node.Labels[v1alpha1.LabelPeering] == "" {
		delete(p.nodes, node.Name)
		return false
	}
	p.nodes[node.Name] = node.Labels[v1alpha1.LabelPeering]
	return true
}

func (p *places) remove(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.nodes, node)
}

// wakers turn what happens into requests. They read from the cache only.
type wakers struct {
	cache  client.Reader
	places *places
	delay  time.Duration // see choicePace
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// pods wakes the pods of virtual nodes.
func (w wakers) pods() handler.EventHandler {
	add := func(obj client.Object, q queue) {
		if pod, ok := obj.(*corev1.Pod); ok {
			if _, virtual := w.places.peering(pod.Spec.NodeName); virtual {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
			}
		}
	}
	forget := func(obj client.Object, q queue) { // its node may have gone first
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" && kube.Tolerates(pod) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
			return
		}
		add(obj, q)
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { forget(e.Object, q) },
	}
}

// nodes learns of virtual nodes, and wakes their pods when they differ in what matters.
func (w wakers) nodes(differ func(old, node *corev1.Node) bool) handler.EventHandler {
	wake := func(ctx context.Context, node *corev1.Node, q queue) {
		for _, r := range w.podsOf(ctx, client.MatchingFields{onNode: node.Name}) {
			q.Add(r)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if node, ok := e.Object.(*corev1.Node); ok && w.places.set(node) {
				wake(ctx, node, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			old, ok := e.ObjectOld.(*corev1.Node)
			node, ok2 := e.ObjectNew.(*corev1.Node)
			if ok && ok2 && w.places.set(node) && differ(old, node) {
				wake(ctx, node, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { w.places.remove(e.Object.GetName()) },
	}
}

// differ says whether two states of a node matter to what its pods are told, or to what
// becomes of them.
func differ(old, node *corev1.Node) bool {
	for _, l := range []string{v1alpha1.LabelType, v1alpha1.LabelPeering, v1alpha1.LabelRequest} {
		if old.Labels[l] != node.Labels[l] {
			return true
		}
	}
	return address(old) != address(node) || !equality.Semantic.DeepEqual(old.DeletionTimestamp, node.DeletionTimestamp)
}

// ofNamespace wakes the pods of a namespace, by its own name or that of what is in it.
func (w wakers) ofNamespace(ctx context.Context, obj client.Object) []reconcile.Request {
	return w.podsOf(ctx, client.InNamespace(cmp.Or(obj.GetNamespace(), obj.GetName())))
}

// shadowsOfNamespace is the same for what runs at providers.
func (w wakers) shadowsOfNamespace(ctx context.Context, obj client.Object) []reconcile.Request {
	return w.each(ctx, client.InNamespace(cmp.Or(obj.GetNamespace(), obj.GetName())), shadowOf, "")
}

// ofPeering wakes the pods that run at a peering's provider.
func (w wakers) ofPeering(ctx context.Context, obj client.Object) []reconcile.Request {
	return w.ofPeer(ctx, obj.GetName())
}

func (w wakers) ofPeer(ctx context.Context, peering string) []reconcile.Request {
	w.places.mu.RLock()
	var nodes []string
	for node, of := range w.places.nodes {
		if of == peering {
			nodes = append(nodes, node)
		}
	}
	w.places.mu.RUnlock()
	var all []reconcile.Request
	for _, node := range nodes {
		all = append(all, w.podsOf(ctx, client.MatchingFields{onNode: node})...)
	}
	return all
}

// podsOf lists pods that are bound to virtual nodes.
func (w wakers) podsOf(ctx context.Context, which client.ListOption) []reconcile.Request {
	return w.each(ctx, which, homePod, "")
}

// each lists what has to be looked at because of pods that are bound to virtual nodes,
// to those of one peering if that is not empty.
func (w wakers) each(ctx context.Context, which client.ListOption, what target, only string) []reconcile.Request {
	list := &corev1.PodList{}
	if err := w.cache.List(ctx, list, which, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is ending
	}
	var all []reconcile.Request
	for i := range list.Items {
		if peering, virtual := w.places.peering(list.Items[i].Spec.NodeName); virtual && (only == "" || only == peering) {
			all = append(all, what(peering, &list.Items[i]))
		}
	}
	return all
}

// homeOf is the home pod of a ShadowPod.
func homeOf(_ string, obj client.Object) []reconcile.Request {
	s, ok := obj.(*v1alpha1.ShadowPod)
	if !ok || s.Spec.Home.Name == "" || s.Spec.Home.Namespace == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: s.Spec.Home.Namespace, Name: s.Spec.Home.Name}}}
}

// gone asks, when a home pod is gone, what is left of it at the provider; at all of
// them if its node is gone too.
func (w wakers) gone() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			return
		}
		if peering, virtual := w.places.peering(pod.Spec.NodeName); virtual {
			q.Add(shadowAt(peering, string(pod.UID)))
			return
		}
		if !kube.Tolerates(pod) {
			return
		}
		peerings := &v1alpha1.PeeringList{}
		if err := w.cache.List(ctx, peerings, client.UnsafeDisableDeepCopy); err != nil {
			return
		}
		for i := range peerings.Items {
			q.Add(shadowAt(peerings.Items[i].Name, string(pod.UID)))
		}
	}}
}

// shadowAt is a request of orphans.
func shadowAt(peering, uid string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: peering, Name: uid}}
}

// endingOnly passes what begins to end or is gone.
func endingOnly() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
		},
	}
}

// offloadedOrEnding passes namespaces that begin or cease to be offloaded, and those
// that end.
func offloadedOrEnding() predicate.Predicate {
	return predicate.Or(endingOnly(), predicate.Predicate(predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetLabels()[v1alpha1.LabelOffloaded] != e.ObjectNew.GetLabels()[v1alpha1.LabelOffloaded]
		},
	}))
}
