package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Reflected is what the owner of a namespace has decided about an object of a kind: All if its
// annotation says so and no rule keeps it home, else the policy of the first rule of its kind that
// matches it, "" without one; and if that is Deny, why.
func Reflected(rules []ReflectionRule, kind string, obj metav1.Object) (policy ReflectionPolicy, kept string) {
	policy, kept = byRule(rules, kind, obj)
	if policy != ReflectDeny && obj.GetAnnotations()[AnnotationReflect] == "true" {
		return ReflectAll, ""
	}
	return policy, kept
}

// byRule is the same without what sends an object by hand.
func byRule(rules []ReflectionRule, kind string, obj metav1.Object) (policy ReflectionPolicy, kept string) {
	if obj.GetAnnotations()[AnnotationReflect] == "false" {
		return ReflectDeny, "its annotation " + AnnotationReflect + " keeps it home"
	}
	for i, rule := range rules {
		if rule.Kind != kind {
			continue
		}
		selector := labels.Everything()
		if rule.Selector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(rule.Selector); err != nil {
				return ReflectDeny, fmt.Sprintf("spec.reflection[%d].selector of the NamespaceOffloading cannot be read; correct it", i)
			}
		}
		if !selector.Matches(labels.Set(obj.GetLabels())) {
			continue
		}
		if rule.Policy == ReflectDeny {
			return ReflectDeny, fmt.Sprintf("spec.reflection[%d] of the NamespaceOffloading keeps it home", i)
		}
		return rule.Policy, ""
	}
	return "", ""
}
