package offer

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

var ctx = context.Background()

// world is a consumer and a provider on one API server, kept apart by namespaces.
type world struct {
	t        *testing.T
	client   client.WithWatch
	clock    *testingclock.FakeClock
	writes   int    // calls that write, whatever came of them
	reads    int    // of copies of offers, all fields, which no cache has
	name     string // of the tenant, and of the peering
	reader   *fakeReader
	settings home.Config
	peer     *fakePeer
	recorded *events.FakeRecorder
	provider *provider
	consumer *consumer
}

// fakePeer is a provider on the same server. It is its own Fleet, of itself.
type fakePeer struct {
	client    client.Client
	namespace string
	away      bool
	missing   bool
}

func (p *fakePeer) TenantNamespace() string { return p.namespace }
func (p *fakePeer) Client() client.Client   { return p.client }
func (p *fakePeer) Reader() client.Reader   { return p.client }
func (p *fakePeer) Reachable() (bool, time.Time, error) {
	if p.away {
		return false, time.Time{}, errors.New("away")
	}
	return true, time.Time{}, nil
}
func (p *fakePeer) Watch(client.Object) error { return nil }
func (p *fakePeer) Peer(string) (Peer, bool)  { return p, !p.missing }
func (p *fakePeer) Source(client.Object, func(string, client.Object) []reconcile.Request) source.Source {
	return nil
}
func (p *fakePeer) StateSource(func(string) []reconcile.Request) source.Source { return nil }

func newWorld(t *testing.T) *world {
	t.Helper()
	server := kubetest.Server(t)
	w := &world{
		t: t, clock: testingclock.NewFakeClock(time.Now().Truncate(time.Second)),
		name: server.Name(t, "rome"), reader: &fakeReader{answer: ample()}, recorded: events.NewFakeRecorder(100),
	}
	w.client = interceptor.NewClient(server.Client(t), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if u, whole := obj.(*unstructured.Unstructured); whole && u.GetKind() == "ResourceOffer" && key.Namespace == v1alpha1.PeeringNamespace(w.name) {
				w.reads++
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			w.writes++
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			w.writes++
			return c.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			w.writes++
			return c.Delete(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			w.writes++
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
	w.peer = &fakePeer{client: w.client, namespace: v1alpha1.TenantNamespace(w.name)}
	measures := newMeasures(func() amounts { return nil })
	guarded := newGuard("test", w.reader, w.clock, measures.failed)
	w.provider = &provider{
		client: w.client, live: w.client, clock: w.clock, settings: func() home.Config { return w.settings },
		reader: chain(guarded, func() home.Offer { return w.settings.Offer }),
		events: w.recorded, metrics: measures,
	}
	w.consumer = &consumer{client: w.client, clock: w.clock, fleet: w.peer, events: w.recorded}
	w.namespace(v1alpha1.TenantNamespace(w.name), v1alpha1.LabelTenant)
	w.namespace(v1alpha1.PeeringNamespace(w.name), v1alpha1.LabelPeering)
	w.create(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: v1alpha1.TenantSpec{
		ClusterID: string(uuid.NewUUID()), PeeringUID: string(uuid.NewUUID()),
	}})
	w.create(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: v1alpha1.PeeringSpec{
		ClusterID: string(uuid.NewUUID()),
		Consume:   &v1alpha1.Consume{AuthURL: "https://192.0.2.1:1", CASHA256: v1alpha1.TokenHash("x")},
	}})
	return w
}

func (w *world) namespace(name, label string) {
	w.t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: w.name}}}
	if err := w.client.Create(ctx, n); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = w.client.DeleteAllOf(ctx, &v1alpha1.ResourceOffer{}, client.InNamespace(name))
		all := &v1alpha1.ResourceRequestList{}
		_ = w.client.List(ctx, all, client.InNamespace(name))
		for i := range all.Items {
			r := &all.Items[i]
			r.Finalizers = nil
			_ = w.client.Update(ctx, r)
			_ = w.client.Delete(ctx, r)
		}
		_ = w.client.Delete(ctx, n)
		n.Spec.Finalizers = nil
		_ = w.client.SubResource("finalize").Update(ctx, n)
	})
}

// create makes an object, and removes it at the end of the test.
func (w *world) create(obj client.Object) {
	w.t.Helper()
	if err := w.client.Create(ctx, obj); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.client.Delete(ctx, obj) })
}

// there and here are the keys of a request at the provider and at the consumer.
func (w *world) there(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.TenantNamespace(w.name), Name: name}
}

func (w *world) here(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(w.name), Name: name}
}

// ask makes a request at either side.
func (w *world) ask(key client.ObjectKey, spec v1alpha1.ResourceRequestSpec) {
	w.t.Helper()
	w.create(&v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: spec})
}

func (w *world) provide(name string) ctrl.Result {
	w.t.Helper()
	res, err := w.provider.Reconcile(ctx, ctrl.Request{NamespacedName: w.there(name)})
	if err != nil {
		w.t.Fatalf("provider: %v", err)
	}
	return res
}

func (w *world) consume(name string) ctrl.Result {
	w.t.Helper()
	res, err := w.consumer.Reconcile(ctx, ctrl.Request{NamespacedName: w.here(name)})
	if err != nil {
		w.t.Fatalf("consumer: %v", err)
	}
	return res
}

// settle lets both sides work until a request is at rest.
func (w *world) settle(name string) {
	w.t.Helper()
	for range 6 {
		w.pass(w.consume(name))
		w.pass(w.provide(name))
	}
	w.pass(w.consume(name))
	w.consume(name)
}

// pass lets the time pass that a write has to wait.
func (w *world) pass(res ctrl.Result) {
	if res.RequeueAfter <= writeEvery {
		w.clock.Step(res.RequeueAfter)
	}
}

func (w *world) request(key client.ObjectKey) *v1alpha1.ResourceRequest {
	w.t.Helper()
	r := &v1alpha1.ResourceRequest{}
	if err := w.client.Get(ctx, key, r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// offer returns an offer, nil if there is none.
func (w *world) offer(key client.ObjectKey) *v1alpha1.ResourceOffer {
	w.t.Helper()
	o := &v1alpha1.ResourceOffer{}
	if err := w.client.Get(ctx, key, o); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	} else if err != nil {
		return nil
	}
	return o
}

// expect checks conditions, written like "Offered=False/Cordoned".
func (w *world) expect(reason string, key client.ObjectKey, want ...string) {
	w.t.Helper()
	conditions := w.request(key).Status.Conditions
	for i := 0; i < len(want); i += 2 {
		got := "absent"
		if c := meta.FindStatusCondition(conditions, want[i]); c != nil {
			got = string(c.Status) + "/" + c.Reason
		}
		if got != want[i+1] {
			w.t.Errorf("%s: %s is %s, want %s: %+v", reason, want[i], got, want[i+1], conditions)
		}
	}
}

// patch changes the spec of a request or an offer by a JSON merge patch.
func (w *world) patch(obj client.Object, key client.ObjectKey, text string) {
	w.t.Helper()
	if !json.Valid([]byte(text)) {
		w.t.Fatalf("no JSON: %s", text)
	}
	obj.SetName(key.Name)
	obj.SetNamespace(key.Namespace)
	if err := w.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
		w.t.Fatal(err)
	}
}

// versions are the resource versions of all there is.
func (w *world) versions() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, namespace := range []string{w.there("").Namespace, w.here("").Namespace} {
		requests, offers := &v1alpha1.ResourceRequestList{}, &v1alpha1.ResourceOfferList{}
		for _, l := range []client.ObjectList{requests, offers} {
			if err := w.client.List(ctx, l, client.InNamespace(namespace)); err != nil {
				w.t.Fatal(err)
			}
		}
		for _, r := range requests.Items {
			out[namespace+"/request/"+r.Name] = r.ResourceVersion
		}
		for _, o := range offers.Items {
			out[namespace+"/offer/"+o.Name] = o.ResourceVersion
		}
	}
	return out
}

func (w *world) peeringMeta() metav1.ObjectMeta { return metav1.ObjectMeta{Name: w.name} }

// sorted makes a comparison blind to order.
func sorted() cmp.Option {
	return cmp.Transformer("sorted", func(in []string) map[string]int {
		out := map[string]int{}
		for _, s := range in {
			out[s]++
		}
		return out
	})
}
