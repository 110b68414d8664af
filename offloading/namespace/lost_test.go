package namespace

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// remove deletes an object, whatever holds it.
func (w *world) remove(obj client.Object) {
	w.t.Helper()
	w.patch(obj, "metadata", map[string]any{"finalizers": nil})
	if err := w.raw.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
}

// wants says whether the provider's copy has an entry of the namespace.
func (w *world) wants(peering string) bool {
	w.t.Helper()
	m := get(w, v1alpha1.TenantNamespace(peering), v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{})
	_, is := m.Spec.Namespaces[w.home]
	return is
}

// TestLostMap: what nobody offloads any more does not stay at the provider because the map was lost as well.
func TestLostMap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	w.remove(homeMap(milan)) // and nobody looks
	if err := w.raw.Delete(ctx, w.offloading()); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.settle()
	if w.offloading() != nil {
		t.Fatalf("%v: the end hangs", w.says())
	}
	if !w.wants(milan) || !there(w.remote(milan)) {
		t.Fatal("gone at once, though somebody may be putting all of it together again")
	}
	w.clock.Step(lostAfter)
	w.settle()
	if w.wants(milan) || there(w.remote(milan)) {
		t.Error("the namespace at the provider stays for good")
	}
}

// TestLostMapKeeps: without a map nothing is taken away that may be wanted.
func TestLostMapKeeps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	whole := get(w, v1alpha1.PeeringNamespace(milan), v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{})
	w.remove(homeMap(milan))
	carry := func(why string) {
		t.Helper()
		for range 2 { // first seen, and long after
			w.clock.Step(lostAfter)
			res, err := w.carrier.Reconcile(ctx, mapOfPeer(milan)[0])
			if failed := errors.Is(err, errDead); err != nil && !failed {
				t.Fatal(err)
			} else if !failed && res.RequeueAfter <= 0 {
				t.Errorf("%s: nobody looks again", why)
			}
		}
		if !w.wants(milan) {
			t.Fatalf("%s: what is wanted is taken away", why)
		}
	}
	carry("an offloading requires it")
	o := w.offloading()
	o.Status = v1alpha1.NamespaceOffloadingStatus{}
	if err := w.raw.Status().Update(ctx, o); err != nil {
		t.Fatal(err)
	}
	carry("nobody has looked at the offloading yet")
	if err := w.raw.Delete(ctx, o); err != nil {
		t.Fatal(err)
	}
	carry("it ends, and brings its pods home first")
	w.remove(o)
	w.carrier.live = interceptor.NewClient(w.raw, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return errDead },
	})
	carry("home's API server does not know")
	w.restart()
	made := homeMap(milan)
	made.Spec = whole.Spec
	w.create(made)
	hidden := interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			if _, is := obj.(*v1alpha1.NamespaceMap); is && key.Namespace == made.Namespace {
				key.Name = "none"
			}
			return c.Get(ctx, key, obj, o...)
		},
	})
	w.carrier = newCarrier(hidden, w.client, w.clock, w)
	carry("the cache is behind")
	w.remove(made)
	w.restart()
	w.remove(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: milan}})
	for range 2 {
		w.clock.Step(lostAfter)
		if _, err := w.carrier.Reconcile(ctx, mapOfPeer(milan)[0]); err != nil || !w.wants(milan) {
			t.Fatalf("%v: the peering is not there", err)
		}
	}
}
