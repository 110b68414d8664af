package reflection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/offloading/content"
)

// Services, Ingresses, PodDisruptionBudgets and NetworkPolicies travel all together: those of a namespace
// while a pod of it is bound to the provider, and Services also without one if they are sent. Only their metadata is in the cache. The Secrets
// that an Ingress names for TLS do not go with it: they travel as others do, if a pod refers to
// them or a rule sends them, as who may write an Ingress may not have every Secret sent.

// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch

// spaceFinder says whether a pod of a namespace is bound to a provider and has not ended.
type spaceFinder func(ctx context.Context, peering, namespace string) (bool, error)

// indexedSpaces finds out by the index.
func indexedSpaces(c client.Reader) spaceFinder {
	return func(ctx context.Context, peering, namespace string) (bool, error) {
		nodes := &corev1.NodeList{}
		err := c.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: peering}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return false, fmt.Errorf("listing virtual nodes: %w", err)
		}
		for i := range nodes.Items {
			pods := &corev1.PodList{} // one is enough: this is asked for every pod
			err := c.List(ctx, pods, client.InNamespace(namespace), client.MatchingFields{byLife: nodes.Items[i].Name}, client.Limit(1), client.UnsafeDisableDeepCopy)
			if err != nil {
				return false, fmt.Errorf("listing pods of the namespace: %w", err)
			}
			if len(pods.Items) > 0 {
				return true, nil
			}
		}
		return false, nil
	}
}

// want is whether an object should be at a provider, and why.
type want struct {
	is   bool
	pods []*corev1.Pod // that refer to it
	// ruled: only a rule says so.
	ruled bool
	// found, of one that should not, is what is known of it at home. Nothing, and it stays
	// for the grace; absent, or present and denied, and it goes.
	found found
}

// wanted says whether an object should be at a provider.
func (r *consumer) wanted(ctx context.Context, peering string, home v1alpha1.HomeObject, n *note) (want, error) {
	kind, _ := kindOf(home.Kind)
	if !kind.Referred {
		return r.together(ctx, peering, kind, home)
	}
	pods, err := r.referring(ctx, peering, home)
	if _, ok := tokensOf(home); ok && err == nil {
		allowed, err := r.allowed(ctx, home.Namespace)
		return want{is: allowed && len(pods) > 0, pods: pods}, err
	}
	if err != nil || len(pods) > 0 {
		return want{is: len(pods) > 0, pods: pods}, err
	}
	in, err := r.spaces(ctx, peering, home.Namespace)
	if err != nil || !in {
		return want{}, err
	}
	return r.chosen(ctx, peering, kind, home, &n.known)
}

// together is the same of the kinds that travel all together, of which Services and their slices may
// travel alone.
func (r *consumer) together(ctx context.Context, peering string, kind content.Kind, home v1alpha1.HomeObject) (want, error) {
	in, err := r.spaces(ctx, peering, home.Namespace)
	switch {
	case err != nil || slices.Contains(kind.Never, home.Name):
		return want{}, err
	case kind.Name == kindSlice:
		return r.sliceWanted(ctx, peering, home, in)
	case kind.Name == kindService && !in:
		return r.alone(ctx, peering, home)
	}
	return want{is: in}, nil
}

// objects are those of a namespace that travel all together.
func (w wakers) objects(ctx context.Context, namespace string) []v1alpha1.HomeObject {
	var all []v1alpha1.HomeObject
	for kind, gvk := range map[string]schema.GroupVersionKind{kindService: serviceKind, kindBudget: budgetKind, kindIngress: ingressKind, kindPolicy: policyKind} {
		list := metadataList(gvk)
		if err := w.cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			continue // the cache is not there yet: its first events come
		}
		_ = apimeta.EachListItem(list, func(o runtime.Object) error {
			if m, err := apimeta.Accessor(o); err == nil {
				all = append(all, v1alpha1.HomeObject{Kind: kind, Namespace: namespace, Name: m.GetName()})
			}
			return nil
		})
	}
	if w.addresses {
		all = append(all, w.slices(ctx, namespace)...)
	}
	return all
}

// turned asks for the objects of a namespace that are at a provider though no pod of it is
// any more, or are not though one is: for the first and the last pod, that is. A pod waits for NetworkPolicies,
// so these are looked at for each.
func (w wakers) turned(ctx context.Context, peering, namespace string) []reconcile.Request {
	peer, ok := w.fleet.Peer(peering)
	if !ok {
		return nil
	}
	in, err := w.spaces(ctx, peering, namespace)
	if err != nil {
		return nil
	}
	var all []reconcile.Request
	if !in {
		all = w.there(ctx, peering, namespace)
	}
	kept := fleet.Kept(ctx) // for all of them, in a handler of events; the look at one asks again
	for _, home := range w.objects(ctx, namespace) {
		key := client.ObjectKey{Namespace: peer.TenantNamespace(), Name: v1alpha1.ShadowObjectName(home)}
		if there := peer.Reader().Get(kept, key, &v1alpha1.ShadowObject{}) == nil; there != in || in && home.Kind == kindPolicy {
			all = append(all, at(peering, home))
		}
	}
	return all
}

// ofHome asks for an object of a kind that travels all together when it changes, at every
// provider; and for the slices of a Service that rules may mean otherwise now.
func (w wakers) ofHome(kind string) handler.EventHandler {
	wake := func(ctx context.Context, obj client.Object, slices bool, q queue) {
		n := &corev1.Namespace{}
		if err := w.cache.Get(ctx, client.ObjectKey{Name: obj.GetNamespace()}, n); err != nil || !leaves(n) {
			return // when that changes, pods come
		}
		nodes := &corev1.NodeList{}
		if err := w.cache.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}, client.UnsafeDisableDeepCopy); err != nil {
			return // the cache is ending
		}
		all := []v1alpha1.HomeObject{{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}}
		if slices && kind == kindService {
			all = append(all, w.slicesOf(ctx, obj.GetNamespace(), []string{obj.GetName()})...)
		}
		for i := range nodes.Items {
			for _, home := range all {
				q.Add(at(virtual(&nodes.Items[i]), home))
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, false, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				wake(ctx, e.ObjectNew, relabelled(e.ObjectOld, e.ObjectNew), q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, e.Object, false, q) },
	}
}

var (
	ingressKind = networkingv1.SchemeGroupVersion.WithKind("IngressList")
	serviceKind = corev1.SchemeGroupVersion.WithKind("ServiceList")
	policyKind  = networkingv1.SchemeGroupVersion.WithKind("NetworkPolicyList")
	budgetKind  = policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudgetList")
)

func metadataList(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	return list
}
