package reflection

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestUncalled tells of a Service that a provider's own pods are to call, and whose build knows no callers.
func TestUncalled(t *testing.T) {
	open := v1alpha1.NamespaceOffloadingSpec{Callers: v1alpha1.CallersProvider, Reflection: []v1alpha1.ReflectionRule{{Kind: kindService, Policy: v1alpha1.ReflectAll}}}
	closed := open
	closed.Callers = v1alpha1.CallersOwn
	alone := open
	alone.Reflection = nil
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "catalogue"}}
	sent := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "catalogue", Annotations: map[string]string{v1alpha1.AnnotationReflect: "true"}}}
	for _, c := range []struct {
		reason   string
		features []string
		says     v1alpha1.NamespaceOffloadingSpec
		kind     string
		obj      client.Object
		told     bool
	}{
		{"an older build with a network", []string{v1alpha1.FeatureNetwork}, open, kindService, service, true},
		{"also of what an annotation sends", []string{v1alpha1.FeatureNetwork}, alone, kindService, sent, true},
		{"a build that knows callers", []string{v1alpha1.FeatureNetwork, v1alpha1.FeatureCallers}, open, kindService, service, false},
		{"one without a network, where nobody calls", nil, open, kindService, service, false},
		{"nobody is let", []string{v1alpha1.FeatureNetwork}, closed, kindService, service, false},
		{"it goes with pods alone", []string{v1alpha1.FeatureNetwork}, alone, kindService, service, false},
		{"it is no Service", []string{v1alpha1.FeatureNetwork}, open, kindSlice, sent, false},
	} {
		got := uncalled(v1alpha1.ClusterInfo{Version: "1.0", Features: c.features}, c.says, c.kind, c.obj)
		if (got != "") != c.told || c.told && !strings.Contains(got, "Pelago 1.0, which does not know callers/v1") {
			t.Errorf("%s: told is %q", c.reason, got)
		}
	}
}

// TestUncalledIsToldOnce: the Service travels all the same, and its owner hears once that it is not called.
func TestUncalledIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.build(v1alpha1.FeatureOfKind(kindService), v1alpha1.FeatureNetwork)
	w.rules(v1alpha1.ReflectionRule{Kind: kindService, Policy: v1alpha1.ReflectAll})
	o := get(w, w.home, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})
	o.Spec.Callers = v1alpha1.CallersProvider
	w.update(o)
	w.create(service(w.home, "web"))
	w.pod("web")
	w.as(kindService, "web")
	w.as(kindService, "web")
	if get(w, w.remote, "web", &corev1.Service{}) == nil {
		t.Error("the Service has not travelled")
	}
	if told := w.told("does not know callers/v1"); told != 1 {
		t.Errorf("it was told %d times", told)
	}
}
