package namespace

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

var ctx = context.Background()

var errDead = errors.New("the process has died")

// world is a consumer and its providers on one API server, kept apart by names.
type world struct {
	t         *testing.T
	raw       client.WithWatch // counts nothing, fails never
	client    client.WithWatch
	clock     *testingclock.FakeClock
	writes    int
	dieAfter  int // writes; -1 is never
	died      bool
	home      string
	also      []string // namespaces that are looked at as well as home
	peers     map[string]*fakePeer
	recorded  *events.FakeRecorder
	offloader *offloader
	carrier   *carrier
	provider  *provider
}

// fakePeer is a provider on the same server.
type fakePeer struct {
	world     *world
	namespace string
	away      bool
}

func (p *fakePeer) TenantNamespace() string { return p.namespace }
func (p *fakePeer) Client() client.Client   { return p.world.client }
func (p *fakePeer) Reader() client.Reader   { return p.world.client }
func (p *fakePeer) Reachable() (bool, time.Time, error) {
	if p.away {
		return false, time.Time{}, errors.New("away")
	}
	return true, time.Time{}, nil
}

func (w *world) Watch(client.Object) error { return nil }
func (w *world) Peer(name string) (Peer, bool) {
	p, ok := w.peers[name]
	return p, ok
}
func (w *world) Source(client.Object, func(string, client.Object) []reconcile.Request) source.Source {
	return nil
}
func (w *world) StateSource(func(string) []reconcile.Request) source.Source { return nil }

// write counts a write, or fails it.
func (w *world) write() error {
	if w.dieAfter >= 0 && w.writes >= w.dieAfter {
		w.died = true
		return errDead
	}
	w.writes++
	return nil
}

func newWorld(t *testing.T, peers ...string) *world {
	t.Helper()
	server := kubetest.Server(t)
	raw := server.Client(t)
	w := &world{t: t, raw: raw, clock: testingclock.NewFakeClock(time.Now().Truncate(time.Second)), dieAfter: -1,
		peers: map[string]*fakePeer{}, recorded: events.NewFakeRecorder(1000)}
	w.client = interceptor.NewClient(raw, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if nodes, ok := list.(*corev1.NodeList); ok { // of other tests
				nodes.Items = slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return w.peers[n.Labels[v1alpha1.LabelPeering]] == nil })
			}
			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := w.write(); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := w.write(); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := w.write(); err != nil {
				return err
			}
			return c.Apply(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := w.write(); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := w.write(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, in client.Object, opts ...client.SubResourceCreateOption) error {
			if err := w.write(); err != nil {
				return err
			}
			return c.SubResource(sub).Create(ctx, obj, in, opts...)
		},
	})
	w.home = server.Name(t, "shop")
	w.restart()
	w.namespace(w.home, nil)
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: "default"}})
	for _, prefix := range peers {
		w.join(server.Name(t, prefix), prefix)
	}
	return w
}

// restart makes new processes, which remember nothing.
func (w *world) restart() {
	w.offloader = &offloader{client: w.client, live: w.client, clock: w.clock, fleet: w, events: w.recorded, system: v1alpha1.SystemNamespace}
	w.carrier = newCarrier(w.client, w.client, w.clock, w)
	w.provider = &provider{client: w.client, live: w.client, clock: w.clock, events: w.recorded, system: v1alpha1.SystemNamespace}
}

// join makes a peering with its tenant and virtual node, labelled with a region.
func (w *world) join(name, region string) {
	w.t.Helper()
	w.peers[name] = &fakePeer{world: w, namespace: v1alpha1.TenantNamespace(name)}
	w.namespace(v1alpha1.TenantNamespace(name), map[string]string{v1alpha1.LabelTenant: name, v1alpha1.LabelManagedBy: component})
	w.namespace(v1alpha1.PeeringNamespace(name), map[string]string{v1alpha1.LabelPeering: name})
	w.create(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{
		ClusterID: string(uuid.NewUUID()), PeeringUID: string(uuid.NewUUID())}})
	w.create(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeeringSpec{
		ClusterID: string(uuid.NewUUID()), Consume: &v1alpha1.Consume{AuthURL: "https://192.0.2.1:1", CASHA256: v1alpha1.TokenHash("x")}}})
	w.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(name), Name: v1alpha1.ConsumerRole},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.ConsumerRole},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "user-of-" + name}}})
	w.create(w.node(name, region))
}

func (w *world) node(peering, region string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: peering, Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: peering, "region": region}}}
}

func (w *world) namespace(name string, labels map[string]string) {
	w.t.Helper()
	if err := w.raw.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.end(name) })
}

// end is what the namespace controller does.
func (w *world) end(name string) {
	for _, kind := range []client.Object{&v1alpha1.NamespaceOffloading{}, &v1alpha1.NamespaceMap{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &rbacv1.RoleBinding{}} {
		_ = w.raw.DeleteAllOf(ctx, kind, client.InNamespace(name), client.GracePeriodSeconds(0))
	}
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_ = w.raw.Delete(ctx, n)
	_ = w.raw.SubResource("finalize").Update(ctx, n)
}

func (w *world) create(obj client.Object) {
	w.t.Helper()
	if err := w.raw.Create(ctx, obj); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.raw.Delete(ctx, obj, client.GracePeriodSeconds(0)) })
}

// offload writes the NamespaceOffloading.
func (w *world) offload(spec v1alpha1.NamespaceOffloadingSpec) {
	w.t.Helper()
	o := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: v1alpha1.OffloadingName}, Spec: spec}
	if err := w.raw.Create(ctx, o); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = w.raw.Patch(ctx, o, merge("metadata", map[string]any{"finalizers": nil}))
		_ = w.raw.Delete(ctx, o)
	})
}

// once lets one part look, and again, a few times, if a busy machine left it too little time.
func once(r reconcile.Reconciler, what reconcile.Request) (err error) {
	for range 5 {
		if _, err = r.Reconcile(ctx, what); !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return err
}

// look lets every part look once. It returns what failed.
func (w *world) look() error {
	failed := []error{once(w.offloader, offloadingOf(w.home))}
	for _, namespace := range w.also {
		failed = append(failed, once(w.offloader, offloadingOf(namespace)))
	}
	for name := range w.peers {
		if !w.peers[name].away {
			failed = append(failed, once(w.provider, mapOfTenant(name)))
		}
		failed = append(failed, once(w.carrier, mapOfPeer(name)[0]))
	}
	w.clock.Step(writeEvery)
	return errors.Join(failed...)
}

// settle lets all parts look until they are at rest, or try the same again and again.
func (w *world) settle() {
	w.t.Helper()
	for quiet, looks := 0, 0; quiet < 2 && looks < 16; looks++ {
		before := w.writes
		if err := w.look(); err != nil {
			w.t.Fatal(err)
		}
		if quiet++; w.writes != before {
			quiet = 0
		}
	}
}

func get[T client.Object](w *world, namespace, name string, into T) T {
	w.t.Helper()
	obj, err := read(ctx, w.raw, namespace, name, into)
	if err != nil {
		w.t.Fatal(err)
	}
	return obj
}

func (w *world) offloading() *v1alpha1.NamespaceOffloading {
	w.t.Helper()
	return get(w, w.home, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})
}

// remote is the namespace at a provider by its default name.
func (w *world) remote(peering string) *corev1.Namespace {
	w.t.Helper()
	return get(w, "", v1alpha1.DefaultRemoteNamespace(w.home, peering), &corev1.Namespace{})
}

// peer is the peering that begins with a word.
func (w *world) peer(prefix string) string {
	for name := range w.peers {
		if strings.HasPrefix(name, prefix+"-") {
			return name
		}
	}
	w.t.Fatalf("there is no %s", prefix)
	return ""
}

// says is the status in short: phase, reason and the clusters with their conditions.
func (w *world) says() map[string]string {
	w.t.Helper()
	o := w.offloading()
	if o == nil {
		return nil
	}
	out := map[string]string{"phase": string(o.Status.Phase)}
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		out["ready"] = string(c.Status) + "/" + c.Reason
	}
	for _, c := range o.Status.Clusters {
		short, _, _ := strings.Cut(c.Name, "-")
		for _, said := range c.Conditions {
			out[short+" "+said.Type] = string(said.Status) + "/" + said.Reason
		}
	}
	return out
}

// patch changes an object by a merge patch of one field.
func (w *world) patch(obj client.Object, field string, value any) {
	w.t.Helper()
	if err := w.raw.Patch(ctx, obj, merge(field, value)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) tenant(name string) *v1alpha1.Tenant {
	return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// pod makes a pod bound to the virtual node of a peering, running.
func (w *world) pod(name, peering string, labels map[string]string) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: name, Labels: labels},
		Spec: corev1.PodSpec{NodeName: peering, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	w.create(p)
	p.Status.Phase = corev1.PodRunning
	if err := w.raw.Status().Update(ctx, p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// leave says that the pod is gone.
func (w *world) leave(p *corev1.Pod) {
	w.t.Helper()
	if err := w.raw.Delete(ctx, p, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
}

func (w *world) said(words string) bool {
	for found := false; ; {
		select {
		case e := <-w.recorded.Events:
			found = found || strings.Contains(e, words)
		default:
			return found
		}
	}
}
