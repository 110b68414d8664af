package reflection

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

// NetworkPolicies travel for the network plugin of the provider, between whose pods there is no
// gateway. Home says which of its namespaces a selector means, the provider what these are called
// there, and what of the tenant's comes through the network.

// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch

// named is an object as a provider may be told it: of a NetworkPolicy, with the names of namespaces
// that are there.
func (r *consumer) named(ctx context.Context, peering string, obj client.Object) (client.Object, error) {
	p, ok := obj.(*networkingv1.NetworkPolicy)
	if !ok {
		return obj, nil
	}
	m := &v1alpha1.NamespaceMap{}
	if err := r.client.Get(ctx, mapKey(peering), m, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the namespace map: %w", err)
	}
	spaces := map[string]map[string]string{}
	for name := range m.Spec.Namespaces {
		n := &corev1.Namespace{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, n); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("reading the namespace %s: %w", name, err)
		}
		spaces[name] = n.Labels
	}
	return content.ResolvePolicy(p, spaces), nil
}

// policies asks for the NetworkPolicies of namespaces that are to be at a provider.
func (w wakers) policies(ctx context.Context, peering string, spaces map[string]v1alpha1.NamespaceMapping) (all []reconcile.Request) {
	for namespace := range spaces {
		list := metadataList(policyKind)
		if err := w.cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache is not there yet: its first events come
		}
		for i := range list.Items {
			all = append(all, at(peering, v1alpha1.HomeObject{Kind: kindPolicy, Namespace: namespace, Name: list.Items[i].Name}))
		}
	}
	return all
}

// named asks for NetworkPolicies when the labels of a namespace change by which they may select it, at
// each provider where it is to be.
func (w wakers) named() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
		if labels.Equals(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
			return
		}
		list := &v1alpha1.NamespaceMapList{}
		if err := w.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return // the cache is ending
		}
		for i := range list.Items {
			m := &list.Items[i]
			if _, there := m.Spec.Namespaces[e.ObjectNew.GetName()]; !there {
				continue
			}
			if peering := consumed(m); peering != "" {
				add(q, w.policies(ctx, peering, m.Spec.Namespaces))
			}
		}
	}}
}

// consumed is the peering in which this cluster is the consumer of a NamespaceMap, "" if it is none.
func consumed(m *v1alpha1.NamespaceMap) string {
	peering, home := strings.CutPrefix(m.Namespace, v1alpha1.PeeringNamespacePrefix)
	if !home || m.Name != v1alpha1.NamespaceMapName {
		return ""
	}
	return peering
}

// tenantSpaces reads which namespaces here are the tenant's.
func (r *provider) tenantSpaces(ctx context.Context, c *claim) error {
	m := &v1alpha1.NamespaceMap{}
	key := client.ObjectKey{Namespace: c.shadow.Namespace, Name: v1alpha1.NamespaceMapName}
	if err := r.client.Get(ctx, key, m, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the namespace map: %w", err)
	}
	c.rules.Spaces = map[string]string{}
	for _, home := range slices.Sorted(maps.Keys(m.Status.Namespaces)) {
		mapped := m.Status.Namespaces[home]
		if mapped.Phase == v1alpha1.MappingRefused || mapped.Name == "" {
			continue
		}
		ours, err := r.space(ctx, mapped.Name, c.tenant, home)
		if err != nil {
			return err
		}
		if ours {
			c.rules.Spaces[home] = mapped.Name
		}
	}
	return nil
}

// surroundings reads what NetworkPolicies of a tenant depend on here.
func (r *provider) surroundings(ctx context.Context, c *claim) error {
	if err := r.tenantSpaces(ctx, c); err != nil {
		return err
	}
	if c.rules.ClusterNames = r.nameServers == nil; r.nameServers != nil {
		c.rules.NameServers = r.nameServers()
	}
	if r.allowed != nil {
		c.rules.Through = r.allowed.TenantViews(c.tenant)
	}
	// The tenant's own may be many and large, so that only the others are read. The cache of the other side has the names.
	list := metadataList(policyKind)
	if err := r.client.List(ctx, list, client.InNamespace(c.place.name), client.UnsafeDisableDeepCopy); err != nil {
		return plain("listing the NetworkPolicies of the namespace", err)
	}
	for i := range list.Items {
		if madeFor(&list.Items[i], c.tenant) {
			continue
		}
		p := &networkingv1.NetworkPolicy{}
		switch err := r.live.Get(ctx, client.ObjectKeyFromObject(&list.Items[i]), p); {
		case apierrors.IsForbidden(err):
			return nil // making one says the same
		case client.IgnoreNotFound(err) != nil:
			return plain("reading a NetworkPolicy of the namespace", err)
		case err == nil:
			c.rules.Closed = append(c.rules.Closed, content.Closes(p)...)
		}
	}
	return nil
}
