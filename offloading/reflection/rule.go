package reflection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=namespaceoffloadings,verbs=get;list;watch

// ruled is what the owner of a namespace has decided about an object: All if its annotation
// says so and no rule keeps it home, else the policy of the first rule of its kind that matches
// it, "" without one; and if that is Deny, why.
func ruled(rules []v1alpha1.ReflectionRule, kind string, obj client.Object) (policy v1alpha1.ReflectionPolicy, kept string) {
	policy, kept = byRule(rules, kind, obj)
	if policy != v1alpha1.ReflectDeny && obj.GetAnnotations()[v1alpha1.AnnotationReflect] == "true" {
		return v1alpha1.ReflectAll, ""
	}
	return policy, kept
}

// byRule is the same without what sends an object by hand.
func byRule(rules []v1alpha1.ReflectionRule, kind string, obj client.Object) (policy v1alpha1.ReflectionPolicy, kept string) {
	if obj.GetAnnotations()[v1alpha1.AnnotationReflect] == "false" {
		return v1alpha1.ReflectDeny, "its annotation " + v1alpha1.AnnotationReflect + " keeps it home"
	}
	for i, rule := range rules {
		if rule.Kind != kind {
			continue
		}
		selector := labels.Everything()
		if rule.Selector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(rule.Selector); err != nil {
				return v1alpha1.ReflectDeny, fmt.Sprintf("spec.reflection[%d].selector of the NamespaceOffloading cannot be read; correct it", i)
			}
		}
		if !selector.Matches(labels.Set(obj.GetLabels())) {
			continue
		}
		if rule.Policy == v1alpha1.ReflectDeny {
			return v1alpha1.ReflectDeny, fmt.Sprintf("spec.reflection[%d] of the NamespaceOffloading keeps it home", i)
		}
		return rule.Policy, ""
	}
	return "", ""
}

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
	o := &v1alpha1.NamespaceOffloading{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, o)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the namespace offloading: %w", err)
	}
	return o.Spec.Reflection, nil
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
