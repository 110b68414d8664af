package reflection

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A Service may be at a provider alone, without a pod of its namespace there: a rule says All of
// it, or its annotation sends it, and the namespace is to be at that provider. Its EndpointSlices
// go with it, and nothing else of the namespace does.

// +kubebuilder:rbac:groups=pelago.dev,resources=namespacemaps,verbs=get;list;watch

// mapped says whether a namespace is to be at a provider, with pods or without.
func mapped(c client.Reader) spaceFinder {
	return func(ctx context.Context, peering, namespace string) (bool, error) {
		m := &v1alpha1.NamespaceMap{}
		if err := c.Get(ctx, mapKey(peering), m, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading the namespace map: %w", err)
		}
		_, is := m.Spec.Namespaces[namespace]
		return is, nil
	}
}

// alone says whether a Service should be at a provider where no pod of its namespace is.
func (r *consumer) alone(ctx context.Context, peering string, home v1alpha1.HomeObject) (want, error) {
	if is, err := mapped(r.client)(ctx, peering, home.Namespace); err != nil || !is {
		return want{}, err
	}
	kind, _ := kindOf(kindService)
	return r.chosen(ctx, peering, kind, home, &known{})
}

// alone asks for the Services of a namespace that need no pod at a provider, and for their slices.
func (w wakers) alone(ctx context.Context, peering, namespace string) []reconcile.Request {
	o := &v1alpha1.NamespaceOffloading{}
	if err := w.cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, o); err != nil {
		return nil // it is not offloaded any more: what is there is asked for by itself
	}
	list := metadataList(serviceKind)
	if err := w.cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is not there yet: its first events come
	}
	kind, _ := kindOf(kindService)
	var names []string
	var all []reconcile.Request
	for i := range list.Items {
		s := &list.Items[i]
		if policy, _ := v1alpha1.Reflected(o.Spec.Reflection, kindService, s); policy == v1alpha1.ReflectAll && !slices.Contains(kind.Never, s.Name) {
			names = append(names, s.Name)
			all = append(all, at(peering, v1alpha1.HomeObject{Kind: kindService, Namespace: namespace, Name: s.Name}))
		}
	}
	for _, home := range w.slicesOf(ctx, namespace, names) {
		all = append(all, at(peering, home))
	}
	return all
}

// slicesOf are the slices of some Services that travel, perhaps.
func (w wakers) slicesOf(ctx context.Context, namespace string, services []string) []v1alpha1.HomeObject {
	if !w.addresses || len(services) == 0 {
		return nil
	}
	of, err := labels.NewRequirement(discoveryv1.LabelServiceName, selection.In, services)
	if err != nil {
		return nil // a name that is no label: it has no slices
	}
	return w.slices(ctx, namespace, client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*of)})
}

// maps asks for what needs no pod of namespaces that are to be at a provider now, and for what is
// there of those that are not any more.
func (w wakers) maps() handler.EventHandler {
	spaces := func(obj client.Object) (peering string, namespaces map[string]v1alpha1.NamespaceMapping) {
		if obj == nil {
			return "", nil
		}
		peering, home := strings.CutPrefix(obj.GetNamespace(), v1alpha1.PeeringNamespacePrefix)
		if m, ok := obj.(*v1alpha1.NamespaceMap); ok && home && m.Name == v1alpha1.NamespaceMapName {
			return peering, m.Spec.Namespaces
		}
		return "", nil // a tenant's, for which this cluster is the provider
	}
	wake := func(ctx context.Context, before, after client.Object, q queue) {
		of, was := spaces(before)
		peering, is := spaces(after)
		peering = cmp.Or(peering, of)
		if !maps.Equal(was, is) {
			add(q, w.policies(ctx, peering, is))
		}
		for namespace := range is {
			if _, same := was[namespace]; !same {
				add(q, w.alone(ctx, peering, namespace))
			}
		}
		for namespace := range was {
			if _, same := is[namespace]; !same {
				add(q, w.there(ctx, peering, namespace))
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			wake(ctx, nil, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { wake(ctx, e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, e.Object, nil, q) },
	}
}

// mappedAt asks for what needs no pod of all namespaces that are to be at a provider.
func (w wakers) mappedAt(ctx context.Context, peering string) (all []reconcile.Request) {
	m := &v1alpha1.NamespaceMap{}
	if err := w.cache.Get(ctx, mapKey(peering), m, client.UnsafeDisableDeepCopy); err != nil {
		return nil // there is none, or the cache is not there yet: its first events come
	}
	for namespace := range m.Spec.Namespaces {
		all = append(all, w.alone(ctx, peering, namespace)...)
	}
	return all
}

// again asks, when a provider has its first virtual node, for Services and slices that are there and for what
// needs no pod: while it had none, nobody was asked for what changed.
func (w wakers) again(ctx context.Context, peering string) (all []reconcile.Request) {
	peer, ok := w.fleet.Peer(peering)
	nodes := &corev1.NodeList{}
	err := w.cache.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: peering}, client.UnsafeDisableDeepCopy)
	if !ok || err != nil || len(nodes.Items) > 1 {
		return nil // its connection asks, or one was there already
	}
	there := &v1alpha1.ShadowObjectList{}
	if err := peer.Reader().List(ctx, there); err == nil {
		for i := range there.Items {
			if kind := there.Items[i].Spec.Home.Kind; kind == kindService || kind == kindSlice {
				all = append(all, ofShadow(peering, &there.Items[i])...)
			}
		}
	}
	return append(all, w.mappedAt(ctx, peering)...)
}

func add(q queue, all []reconcile.Request) {
	for _, r := range all {
		q.Add(r)
	}
}

// relabelled says whether rules may mean something else for an object now.
func relabelled(before, after client.Object) bool {
	const key = v1alpha1.AnnotationReflect
	return before.GetAnnotations()[key] != after.GetAnnotations()[key] || !labels.Equals(before.GetLabels(), after.GetLabels())
}
