package vnode

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestGauge holds that the metric follows a node that somebody deletes, or whose name
// somebody else takes, and ends where no node is expected.
func TestGauge(t *testing.T) {
	w := newWorld(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.nodes.gauge)
	w.offer(w.key("default"))
	shows := func(reason string, want ...float64) {
		t.Helper()
		w.settle("default")
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []float64
		for _, f := range families {
			for _, m := range f.GetMetric() {
				got = append(got, m.GetGauge().GetValue())
			}
		}
		if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("%s: it shows %v, want %v", reason, got, want)
		}
	}
	finalizers := func(list string) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+list+`}}`))
		if err := w.client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name}}, patch); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		t.Helper()
		if err := w.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name}}); err != nil {
			t.Fatal(err)
		}
	}
	shows("made", 1)
	finalizers(`["example.org/keep"]`)
	remove()
	shows("hanging in its deletion", 0)
	finalizers("null")
	shows("made again", 1)
	remove()
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name}})
	shows("its name is taken", 0)
	remove()
	shows("its name is free", 1)
	w.drop("default")
	shows("its request is gone")

	// A request that never had a node has no finalizer.
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name}})
	if err := w.client.DeleteAllOf(ctx, &v1alpha1.ResourceOffer{}, client.InNamespace(w.key("").Namespace)); err != nil {
		t.Fatal(err)
	}
	w.offer(w.key("default"))
	shows("its name was taken before", 0)
	w.decide(w.key("default"), false, v1alpha1.ReasonWaiting)
	shows("its offer is not accepted any more")
	w.decide(w.key("default"), true, v1alpha1.ReasonAccepted)
	shows("its offer is accepted again", 0)
	w.drop("default")
	shows("its request is gone at once")
}
