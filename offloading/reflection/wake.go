package reflection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// byObject finds pods by KIND/NAMESPACE/NAME of the objects they refer to, byNode by
	// their node, byLife by their node too, but only those that have not ended. Only pods are
	// in them that are bound and tolerate our taint.
	byObject = "pelago.dev/refers-to"
	byNode   = "pelago.dev/reflected-node"
	byLife   = "pelago.dev/reflected-life"
)

// indices are the indices of pods.
var indices = map[string]client.IndexerFunc{
	byObject: func(obj client.Object) []string {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return nil
		}
		var keys []string
		for _, r := range references(pod) {
			keys = append(keys, keyOf(v1alpha1.HomeObject{Kind: r.kind, Namespace: pod.Namespace, Name: r.name}))
		}
		return keys
	},
	byNode: func(obj client.Object) []string {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" && tolerates(pod) {
			return []string{pod.Spec.NodeName}
		}
		return nil
	},
	byLife: func(obj client.Object) []string {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" && tolerates(pod) && !over(pod) {
			return []string{pod.Spec.NodeName}
		}
		return nil
	},
}

// keyOf is an object's key in the index byObject.
func keyOf(home v1alpha1.HomeObject) string {
	return home.Kind + "/" + home.Namespace + "/" + home.Name
}

// podFinder lists the bound pods that refer to an object. They must not be changed.
type podFinder func(ctx context.Context, home v1alpha1.HomeObject) ([]corev1.Pod, error)

// indexedPods finds pods by the index.
func indexedPods(c client.Reader) podFinder {
	return func(ctx context.Context, home v1alpha1.HomeObject) ([]corev1.Pod, error) {
		list := &corev1.PodList{}
		err := c.List(ctx, list, client.InNamespace(home.Namespace), client.MatchingFields{byObject: keyOf(home)}, client.UnsafeDisableDeepCopy)
		return list.Items, err
	}
}

func tolerates(pod *corev1.Pod) bool {
	for _, t := range pod.Spec.Tolerations {
		if t.Key == v1alpha1.TaintVirtualNode {
			return true
		}
	}
	return false
}

// over says that a pod has ended and needs nothing any more.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// peeringOf is the peering of a virtual node, "" of every other.
func peeringOf(ctx context.Context, c client.Reader, name string) (string, error) {
	node := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, node); apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("reading the node: %w", err)
	}
	return virtual(node), nil
}

func virtual(node client.Object) string {
	if node.GetLabels()[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode {
		return ""
	}
	return node.GetLabels()[v1alpha1.LabelPeering]
}

// wakers turn what happens at home into requests. They read from the cache only.
type wakers struct {
	cache  client.Reader
	fleet  Fleet
	spaces spaceFinder
	waits  *waits
	// addresses: some mean something elsewhere, so EndpointSlices travel.
	addresses bool
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// at is the request for an object and a provider: PEERING/NAMESPACE and KIND/NAME.
func at(peering string, home v1alpha1.HomeObject) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: peering + "/" + home.Namespace, Name: home.Kind + "/" + home.Name}}
}

// split is the provider and the object of a request.
func split(req reconcile.Request) (peering string, home v1alpha1.HomeObject, ok bool) {
	peering, home.Namespace, ok = strings.Cut(req.Namespace, "/")
	if !ok {
		return "", home, false
	}
	home.Kind, home.Name, ok = strings.Cut(req.Name, "/")
	return peering, home, ok
}

func requests(peering string, pod *corev1.Pod) []reconcile.Request {
	var all []reconcile.Request
	for _, r := range references(pod) {
		all = append(all, at(peering, v1alpha1.HomeObject{Kind: r.kind, Namespace: pod.Namespace, Name: r.name}))
	}
	return all
}

// pods asks for what pods refer to that are bound, change that, end or are gone.
func (w wakers) pods() handler.EventHandler {
	add := func(ctx context.Context, obj client.Object, q queue) {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" || !tolerates(pod) {
			return
		}
		if peering, err := peeringOf(ctx, w.cache, pod.Spec.NodeName); err == nil && peering != "" {
			needs := requests(peering, pod)
			w.waits.begin(pod, needs) // before any is read
			for _, r := range append(needs, w.turned(ctx, peering, pod.Namespace)...) {
				q.Add(r)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			old, ok := e.ObjectOld.(*corev1.Pod)
			pod, ok2 := e.ObjectNew.(*corev1.Pod)
			if ok && ok2 && (old.UID != pod.UID || old.Spec.NodeName != pod.Spec.NodeName || over(old) != over(pod) || !slices.Equal(references(old), references(pod))) {
				add(ctx, pod, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, q) },
	}
}

// nodes asks for what the pods of a virtual node refer to that appears or goes.
func (w wakers) nodes() handler.EventHandler {
	wake := func(ctx context.Context, node client.Object, q queue) {
		if peering := virtual(node); peering != "" {
			add(q, w.ofNode(ctx, peering, node.GetName()))
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			wake(ctx, e.Object, q)
			add(q, w.again(ctx, virtual(e.Object)))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if virtual(e.ObjectOld) != virtual(e.ObjectNew) {
				wake(ctx, e.ObjectOld, q)
				wake(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, e.Object, q) },
	}
}

func (w wakers) ofNode(ctx context.Context, peering, node string) []reconcile.Request {
	list := &corev1.PodList{}
	if err := w.cache.List(ctx, list, client.MatchingFields{byNode: node}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is ending
	}
	var all []reconcile.Request
	spaces := map[string]bool{}
	for i := range list.Items {
		all = append(all, requests(peering, &list.Items[i])...)
		spaces[list.Items[i].Namespace] = true
	}
	for namespace := range spaces {
		for _, home := range w.objects(ctx, namespace) {
			all = append(all, at(peering, home))
		}
	}
	return all
}

// ofPeer asks, when a provider begins to answer, for what is there and what should be.
func (w wakers) ofPeer(peering string) []reconcile.Request {
	ctx := context.Background()
	peer, ok := w.fleet.Peer(peering)
	if !ok || !peer.State().Reachable {
		return nil
	}
	wanted := map[reconcile.Request]bool{}
	there := &v1alpha1.ShadowObjectList{}
	if err := peer.Reader().List(ctx, there); err == nil {
		for i := range there.Items {
			for _, r := range ofShadow(peering, &there.Items[i]) {
				wanted[r] = true
			}
		}
	}
	nodes := &corev1.NodeList{}
	err := w.cache.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: peering}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache is ending
	}
	for i := range nodes.Items {
		for _, r := range w.ofNode(ctx, peering, nodes.Items[i].Name) {
			wanted[r] = true
		}
	}
	for _, r := range w.mappedAt(ctx, peering) {
		wanted[r] = true
	}
	all := make([]reconcile.Request, 0, len(wanted))
	for r := range wanted {
		all = append(all, r)
	}
	return all
}

// ofShadow is the object of a ShadowObject that a provider shows.
func ofShadow(peering string, obj client.Object) []reconcile.Request {
	s, ok := obj.(*v1alpha1.ShadowObject)
	if !ok {
		return nil
	}
	whole, _ := v1alpha1.ShadowObjectOf(s.Name)
	if _, travels := kindOf(s.Spec.Home.Kind); !travels || whole != v1alpha1.ShadowObjectName(s.Spec.Home) || badName(s.Spec.Home) != "" {
		return nil
	}
	return []reconcile.Request{at(peering, s.Spec.Home)}
}

// badName says what is wrong with the names of an object at home.
func badName(home v1alpha1.HomeObject) string {
	switch {
	case len(validation.IsDNS1123Label(home.Namespace)) > 0:
		return "spec.home.namespace is not the name of a namespace"
	case len(validation.IsDNS1123Subdomain(home.Name)) > 0:
		return "spec.home.name is not the name of an object"
	}
	return ""
}
