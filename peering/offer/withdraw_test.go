package offer

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestWithdrawWaits holds that a request stays at the provider until its virtual node is
// gone: the pods there end in an orderly way.
func TestWithdrawWaits(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	w.settle("default")
	q := w.request(w.here("default"))
	before := q.DeepCopy()
	q.Finalizers = append(q.Finalizers, v1alpha1.FinalizerNode)
	if err := w.client.Patch(ctx, q, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Delete(ctx, q); err != nil {
		t.Fatal(err)
	}
	w.settle("default")
	q = w.request(w.here("default"))
	c := meta.FindStatusCondition(q.Status.Conditions, ready)
	if w.request(w.there("default")) == nil || w.offer(w.here("default")) == nil || !strings.Contains(c.Message, "virtual node") {
		t.Errorf("it did not wait for the node: %+v", c)
	}
	before = q.DeepCopy()
	q.Finalizers = slices.DeleteFunc(q.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerNode })
	if err := w.client.Patch(ctx, q, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.consume("default")
	if err := w.client.Get(ctx, w.here("default"), q); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the request is still here: %v", err)
	}
}

// TestForgetsCopies holds that nothing is remembered of a request that has gone with its
// peering, which nobody withdraws.
func TestForgetsCopies(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	w.settle("default")
	if _, there := w.consumer.known.Load(w.here("default")); !there {
		t.Fatal("there is no copy")
	}
	if err := w.client.Delete(ctx, &v1alpha1.Peering{ObjectMeta: w.peeringMeta()}); err != nil {
		t.Fatal(err)
	}
	q := w.request(w.here("default"))
	if err := w.client.Delete(ctx, q); err != nil {
		t.Fatal(err)
	}
	w.consume("default")
	w.consume("default")
	if err := w.client.Get(ctx, w.here("default"), q); client.IgnoreNotFound(err) != nil || err == nil {
		t.Fatalf("the request is still here: %v", err)
	}
	w.consumer.known.Range(func(key, _ any) bool {
		t.Errorf("the copy of %v is remembered", key)
		return true
	})
}
