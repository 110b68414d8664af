package network

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/policy"
)

func (n *Network) registerRuler(mgr ctrl.Manager) error {
	far := &unstructured.Unstructured{}
	far.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NetworkRules"))
	if err := n.options.Fleet.WatchWithin(far, ruleBounds); err != nil {
		return fmt.Errorf("watching at providers: %w", err)
	}
	r := newRuler(n, mgr)
	return ctrl.NewControllerManagedBy(mgr).Named("network-rules").
		Watches(&networkingv1.NetworkPolicy{}, r.of(func(o client.Object, at types.NamespacedName) bool { return at.Namespace == o.GetNamespace() }),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.IPMapping{}, r.of(func(o client.Object, at types.NamespacedName) bool { return at.Namespace == o.GetNamespace() })).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.scoped), builder.WithPredicates(podChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.guarded), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.guarded), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.NamespaceMap{}, toMapped(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.NetworkConfig{}, r.of(inPeering), builder.WithPredicates(ownConfig())).
		Watches(&v1alpha1.Peering{}, r.of(func(o client.Object, at types.NamespacedName) bool { return at.Name == o.GetName() }), builder.WithPredicates(remoteChanged())).
		Watches(&v1alpha1.NetworkRules{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request { return ruledBy(o) })).
		WatchesRawSource(n.options.Fleet.StateSource(func(peering string) []reconcile.Request {
			return r.all(context.Background(), func(at types.NamespacedName) bool { return at.Name == peering })
		})).
		WatchesRawSource(n.options.Fleet.Source(far, func(peering string, o client.Object) []reconcile.Request { return ruleRequest(namespaceOf(o), peering) })).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: &r.retries}).
		Complete(r)
}

func newRuler(n *Network, mgr ctrl.Manager) *ruler {
	return &ruler{
		client: mgr.GetClient(), clock: n.options.Clock, fleet: n.options.Fleet, events: mgr.GetEventRecorder(component), patience: remoteLimit,
		looked: map[types.NamespacedName]time.Time{}, told: map[types.NamespacedName]said{}, bound: map[types.NamespacedName]policy.Scope{},
		scenes: scenes{shared: true},
	}
}

func ruleRequest(namespace, peering string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: peering}}}
}

// ruledBy is the request for NetworkRules here, none for those of tenants.
func ruledBy(o client.Object) []reconcile.Request {
	if peering, ok := strings.CutPrefix(o.GetNamespace(), v1alpha1.PeeringNamespacePrefix); ok {
		return ruleRequest(namespaceOf(o), peering)
	}
	return nil
}

func inPeering(o client.Object, at types.NamespacedName) bool {
	return o.GetNamespace() == v1alpha1.PeeringNamespace(at.Name)
}

// all are the namespaces that are offloaded, each with each of the peerings it is offloaded to, and
// those for which there are rules.
func (r *ruler) all(ctx context.Context, is func(types.NamespacedName) bool) (requests []reconcile.Request) {
	found := map[types.NamespacedName]bool{}
	mapped, rules := &v1alpha1.NamespaceMapList{}, &v1alpha1.NetworkRulesList{}
	for _, list := range []client.ObjectList{mapped, rules} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("a cache cannot be read", "error", err.Error())
		}
	}
	for i := range mapped.Items {
		if peering, ok := strings.CutPrefix(mapped.Items[i].Namespace, v1alpha1.PeeringNamespacePrefix); ok {
			for namespace := range mapped.Items[i].Spec.Namespaces {
				found[types.NamespacedName{Namespace: namespace, Name: peering}] = true
			}
		}
	}
	for i := range rules.Items {
		for _, request := range ruledBy(&rules.Items[i]) {
			found[request.NamespacedName] = true
		}
	}
	for at := range found {
		if is(at) {
			requests = append(requests, reconcile.Request{NamespacedName: at})
		}
	}
	return requests
}

// of asks for those offloaded namespaces that an object concerns.
func (r *ruler) of(concerns func(client.Object, types.NamespacedName) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.all(ctx, func(at types.NamespacedName) bool { return concerns(o, at) })
	})
}

// scoped asks for the namespaces with policies that may be about a pod. Of one that changes both states are asked
// about; where the labels of its namespace change, too, all are asked for then.
func (r *ruler) scoped(ctx context.Context, pod client.Object) (requests []reconcile.Request) {
	r.scenes.change()
	space := &corev1.Namespace{}
	err := r.client.Get(ctx, client.ObjectKey{Name: pod.GetNamespace()}, space, client.UnsafeDisableDeepCopy)
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, scope := range r.bound {
		if err != nil || scope.Holds(pod.GetNamespace(), space.Labels, pod.GetLabels()) { // unknown labels may be any
			requests = append(requests, reconcile.Request{NamespacedName: at})
		}
	}
	return requests
}

// guarded asks for all namespaces that have policies: these may be about pods of any namespace, at any node.
func (r *ruler) guarded(context.Context, client.Object) (requests []reconcile.Request) {
	r.scenes.change()
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := range r.bound {
		requests = append(requests, reconcile.Request{NamespacedName: at})
	}
	return requests
}

// toMapped asks for the namespaces of a NamespaceMap here: of both states, when it changes.
func toMapped() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) (requests []reconcile.Request) {
		m, ok := o.(*v1alpha1.NamespaceMap)
		peering, own := strings.CutPrefix(o.GetNamespace(), v1alpha1.PeeringNamespacePrefix)
		if !ok || !own {
			return nil
		}
		for _, namespace := range slices.Sorted(maps.Keys(m.Spec.Namespaces)) {
			requests = append(requests, ruleRequest(namespace, peering)...)
		}
		return requests
	})
}

// podChanged passes what policies see of pods.
func podChanged() predicate.Predicate {
	sees := func(o client.Object) bool {
		p, ok := o.(*corev1.Pod)
		return ok && networked(p)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return sees(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return sees(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, ok := e.ObjectOld.(*corev1.Pod)
			is, ok2 := e.ObjectNew.(*corev1.Pod)
			return !ok || !ok2 || was.UID != is.UID || networked(was) != networked(is) ||
				networked(is) && (!maps.Equal(was.Labels, is.Labels) || was.Spec.NodeName != is.Spec.NodeName || !slices.Equal(was.Status.PodIPs, is.Status.PodIPs))
		},
	}
}

// ownConfig passes what is published here.
func ownConfig() predicate.Predicate {
	return predicate.And(predicate.GenerationChangedPredicate{}, predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetName() == v1alpha1.NetworkConsumer && strings.HasPrefix(o.GetNamespace(), v1alpha1.PeeringNamespacePrefix)
	}))
}

// remoteChanged passes what providers say of themselves.
func remoteChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.Peering)
		is, ok2 := e.ObjectNew.(*v1alpha1.Peering)
		return !ok || !ok2 || !equality.Semantic.DeepEqual(was.Status.Remote, is.Status.Remote)
	}}
}
