package reflection

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestTries: while a provider does not take a write, whatever it says of it, an object is read and written ever
// less often; and at once when the provider shows another one, or is ready.
func TestTries(t *testing.T) {
	t.Parallel()
	objects := schema.GroupResource{Resource: "shadowobjects"}
	cases := []struct {
		reason string
		there  bool // before
		says   error
	}{
		{"it is there, and not shown", false, apierrors.NewAlreadyExists(objects, "x")},
		{"its quota has not counted", false, apierrors.NewForbidden(objects, "x", errors.New("status unknown for quota: q"))},
		{"it is another one", true, apierrors.NewConflict(objects, "x", errors.New("changed"))},
		{"it is gone, and shown", true, apierrors.NewNotFound(objects, "x")},
		{"it is going", true, nil},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			w := newWorld(t)
			secret := pullSecret(w.home, "registry", "s3cret")
			w.create(secret)
			w.pod("web", "registry")
			if c.there {
				w.both("registry")
			}
			secret.Data[jsonKey] = login("s3cret-2")
			w.update(secret)
			w.clock.Step(listedFor)
			if c.says == nil { // somebody's finalizer holds it
				s := w.shadow("registry")
				s.Finalizers = []string{"example.com/held"}
				w.update(s)
				if err := w.raw.Delete(ctx, s); err != nil {
					t.Fatal(err)
				}
			}
			writes, reads := 0, w.reads
			w.fail = func(verb string, obj client.Object) error {
				if _, ok := obj.(*v1alpha1.ShadowObject); ok && c.says != nil && (verb == "create" || verb == "patch") {
					writes++
					return c.says
				}
				return nil
			}
			const most = 16 // at once, after 1, 2, 4, 8, 16 and 32 s, and then each minute
			for end := w.clock.Now().Add(10 * time.Minute); w.clock.Now().Before(end); {
				res := w.send("registry")
				if res.RequeueAfter <= 0 || res.RequeueAfter > triesMost {
					t.Fatalf("looks again in %s", res.RequeueAfter)
				}
				w.clock.Step(res.RequeueAfter - readEvery)
			}
			if n := w.reads - reads; n == 0 || n > most || writes > most {
				t.Errorf("%d reads and %d writes in 10 minutes, want %d at most", n, writes, most)
			}
			w.fail = nil
			if s := w.shadow("registry"); s != nil {
				s.Finalizers, s.Labels["test"] = nil, "look"
				w.update(s)
			} else {
				w.clock.Step(triesMost)
			}
			w.both("registry")
			if w.password("registry") != "s3cret-2" {
				t.Error("it is not there when the provider takes it")
			}
		})
	}
}

// TestRetries: what an API server answers with an error is tried ever less often on both sides, though both rest
// between looks; and as if it had never failed once it went well.
func TestRetries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(pullSecret(w.home, "registry", "s3cret"))
	w.pod("web", "registry")
	down, tries := true, 0
	w.fail = func(string, client.Object) error {
		tries++
		if down {
			return apierrors.NewInternalError(errors.New("the store does not answer"))
		}
		return nil
	}
	// as a controller has it, by its clock
	work := func(r reconcile.Reconciler, l workqueue.TypedRateLimiter[reconcile.Request], req reconcile.Request) (tried int) {
		before := tries
		for end := w.clock.Now().Add(10 * time.Minute); w.clock.Now().Before(end); {
			res, err := r.Reconcile(ctx, req)
			if err != nil {
				w.clock.Step(l.When(req))
				continue
			}
			if l.Forget(req); res.RequeueAfter <= 0 {
				t.Fatal("it does not look again")
			}
			w.clock.Step(res.RequeueAfter)
		}
		return tries - before
	}
	for _, side := range []struct {
		name    string
		is      reconcile.Reconciler
		retries workqueue.TypedRateLimiter[reconcile.Request]
		req     reconcile.Request
	}{
		{"home", w.consumer, &w.consumer.retries, at(w.name, w.of("registry"))},
		{"the provider", w.provider, &w.provider.retries, reconcile.Request{NamespacedName: w.key("registry")}},
	} {
		down = true
		const most = 90 // after 0.05, 0.1, 0.2 … 6.4 s, and then about each 9 s
		if n := work(side.is, side.retries, side.req); n == 0 || n > most {
			t.Errorf("%s tries %d times in 10 minutes, want %d at most", side.name, n, most)
		}
		if down = false; work(side.is, side.retries, side.req) == 0 || side.retries.NumRequeues(side.req) > 0 {
			t.Errorf("%s has not forgotten its failures when all is well", side.name)
		}
	}
	if w.password("registry") != "s3cret" {
		t.Error("it is not there when all is well")
	}
}
