package reflection

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func ruleOf(kind string, policy v1alpha1.ReflectionPolicy, labels ...string) v1alpha1.ReflectionRule {
	r := v1alpha1.ReflectionRule{Kind: kind, Policy: policy}
	if len(labels) == 2 {
		r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{labels[0]: labels[1]}}
	}
	return r
}

// TestKeptHome: what its owner keeps home leaves the provider, and comes back.
func TestKeptHome(t *testing.T) {
	t.Parallel()
	w := newMaps(t)
	m := configMap(w.home, "app", map[string]string{"a": "1"})
	w.create(m)
	w.readsMaps("web", false, "app")
	w.both("app")
	if w.madeMap("app") == nil {
		t.Fatal("not made")
	}
	m.Annotations = map[string]string{v1alpha1.AnnotationReflect: "false"}
	w.update(m)
	w.both("app")
	if w.shadow("app") != nil || w.madeMap("app") != nil || w.told("keeps it home") != 2 {
		t.Error("it stays in spite of its annotation, or that is not said")
	}
	m.Annotations = nil
	w.update(m)
	o := &v1alpha1.NamespaceOffloading{ObjectMeta: objectMeta(w.home, v1alpha1.OffloadingName), Spec: v1alpha1.NamespaceOffloadingSpec{
		Reflection: []v1alpha1.ReflectionRule{ruleOf(kindConfigMap, v1alpha1.ReflectDeny)}}}
	w.create(o)
	w.both("app")
	if w.shadow("app") != nil || w.told("spec.reflection[0]") != 2 {
		t.Error("it travels in spite of a rule, or that is not said")
	}
	o.Spec.Reflection[0].Policy = v1alpha1.ReflectReferred
	w.update(o)
	w.both("app")
	if w.madeMap("app") == nil {
		t.Error("it does not come back")
	}
}
