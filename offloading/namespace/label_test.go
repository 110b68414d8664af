package namespace

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestLabelOffloads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := &labelled{client: w.client}
	look := func(value any) *v1alpha1.NamespaceOffloading {
		t.Helper()
		w.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.home}}, "metadata", map[string]any{"labels": map[string]any{v1alpha1.LabelOffload: value}})
		for range 2 {
			if _, err := l.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: w.home}}); err != nil {
				t.Fatal(err)
			}
		}
		return w.offloading()
	}
	if look("yes") != nil {
		t.Error("only true offloads")
	}
	if o := look("true"); o == nil || o.Spec.NamespaceMappingStrategy != v1alpha1.MappingDefaultName || o.Spec.PodOffloadingStrategy != v1alpha1.PodsLocalAndRemote {
		t.Fatalf("%v", o)
	}
	if look(nil) != nil {
		t.Error("the label's goes with the label")
	}
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	look("true")
	if look(nil) == nil {
		t.Error("what people wrote is theirs")
	}
}

// TestLabelOfReserved: a namespace that is never offloaded, and has the label, says why.
func TestLabelOfReserved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	w.offloader.system = w.home
	w.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.home}}, "metadata", map[string]any{"labels": map[string]any{v1alpha1.LabelOffload: "true"}})
	if _, err := (&labelled{client: w.client}).Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: w.home}}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	said := meta.FindStatusCondition(w.offloading().Status.Conditions, v1alpha1.ConditionStalled)
	if said == nil || said.Status != metav1.ConditionTrue || !strings.Contains(said.Message, "is never offloaded") {
		t.Errorf("it says %v", said)
	}
	if get(w, "", w.home, &corev1.Namespace{}).Labels[v1alpha1.LabelOffloaded] != "" {
		t.Error("it is offloaded")
	}
}

func TestReservedHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	w.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.home}}, "metadata",
		map[string]any{"labels": map[string]any{v1alpha1.LabelTenant: "rome", v1alpha1.LabelManagedBy: component}})
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	o := w.offloading()
	if !meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionStalled) || slices.ContainsFunc(o.Status.Clusters, func(c v1alpha1.ClusterOffloading) bool {
		return meta.IsStatusConditionTrue(c.Conditions, v1alpha1.ConditionOffloadingRequired)
	}) {
		t.Errorf("%+v", o.Status)
	}
	if get(w, "", w.home, &corev1.Namespace{}).Labels[v1alpha1.LabelOffloaded] != "" || w.remote(w.peer("milan")) != nil {
		t.Error("offloaded though it is another tenant's")
	}
	for name, want := range map[string]bool{"default": true, "kube-system": true, "pelago-system": true, "openshift-x": true, "mine": true, "shop": false, "kubernetes": false} {
		if reserved(name, "mine") != want {
			t.Error(name)
		}
	}
}
