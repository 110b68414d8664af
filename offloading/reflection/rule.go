package reflection

import (
	"context"
	"fmt"

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

// kept says why the owner of a namespace keeps an object home; "" if it may travel.
func kept(rules []v1alpha1.ReflectionRule, kind string, obj client.Object) string {
	if obj.GetAnnotations()[v1alpha1.AnnotationReflect] == "false" {
		return "its annotation " + v1alpha1.AnnotationReflect + " keeps it home"
	}
	for i, rule := range rules {
		if rule.Kind != kind {
			continue
		}
		selector := labels.Everything()
		if rule.Selector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(rule.Selector); err != nil {
				return fmt.Sprintf("spec.reflection[%d].selector of the NamespaceOffloading cannot be read; correct it", i)
			}
		}
		if !selector.Matches(labels.Set(obj.GetLabels())) {
			continue
		}
		if rule.Policy == v1alpha1.ReflectDeny {
			return fmt.Sprintf("spec.reflection[%d] of the NamespaceOffloading keeps it home", i)
		}
		return ""
	}
	return ""
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
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
		if e.ObjectOld.GetGeneration() == e.ObjectNew.GetGeneration() {
			return
		}
		nodes := &corev1.NodeList{}
		if err := w.cache.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}, client.UnsafeDisableDeepCopy); err != nil {
			return // the cache is ending
		}
		for i := range nodes.Items {
			for _, r := range w.ofNode(ctx, virtual(&nodes.Items[i]), nodes.Items[i].Name) {
				if _, home, ok := split(r); ok && home.Namespace == e.ObjectNew.GetNamespace() {
					q.Add(r)
				}
			}
		}
	}}
}
