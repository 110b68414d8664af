package reflection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=namespaceoffloadings,verbs=get;list;watch

// sendsAll says whether a rule may send objects of a kind that nothing refers to.
func sendsAll(rules []v1alpha1.ReflectionRule, kind string) bool {
	return slices.ContainsFunc(rules, func(r v1alpha1.ReflectionRule) bool { return r.Kind == kind && r.Policy == v1alpha1.ReflectAll })
}

// keepsAll says whether the first rule of a kind keeps all of it home.
func keepsAll(rules []v1alpha1.ReflectionRule, kind string) bool {
	i := slices.IndexFunc(rules, func(r v1alpha1.ReflectionRule) bool { return r.Kind == kind })
	return i >= 0 && rules[i].Policy == v1alpha1.ReflectDeny && rules[i].Selector == nil
}

// rules are those of a namespace at home.
func (r *consumer) rules(ctx context.Context, namespace string) ([]v1alpha1.ReflectionRule, error) {
	says, err := r.says(ctx, namespace)
	return says.Reflection, err
}

// says is what the owner of a namespace says of its offloading, nothing if he says nothing.
func (r *consumer) says(ctx context.Context, namespace string) (v1alpha1.NamespaceOffloadingSpec, error) {
	o := &v1alpha1.NamespaceOffloading{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, o)
	if err != nil && !apierrors.IsNotFound(err) {
		return v1alpha1.NamespaceOffloadingSpec{}, fmt.Errorf("reading the namespace offloading: %w", err)
	}
	return o.Spec, nil
}

// offloadings asks for all that travels of a namespace whose rules have changed.
func (w wakers) offloadings() handler.EventHandler {
	wake := func(ctx context.Context, namespace string, more []v1alpha1.HomeObject, q queue) {
		nodes := &corev1.NodeList{}
		if err := w.cache.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}, client.UnsafeDisableDeepCopy); err != nil {
			return // the cache is ending
		}
		for i := range nodes.Items {
			peering := virtual(&nodes.Items[i])
			for _, r := range slices.Concat(w.ofNode(ctx, peering, nodes.Items[i].Name), w.there(ctx, peering, namespace), w.alone(ctx, peering, namespace)) {
				if _, home, ok := split(r); ok && home.Namespace == namespace {
					q.Add(r)
				}
			}
			for _, home := range more {
				q.Add(at(peering, home))
			}
		}
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() {
				wake(ctx, e.ObjectNew.GetNamespace(), nil, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { // nothing of it stays
			wake(ctx, e.Object.GetNamespace(), w.objects(ctx, e.Object.GetNamespace()), q)
		},
	}
}
