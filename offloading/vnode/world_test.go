package vnode

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/status"
)

var ctx = logr.NewContext(context.Background(), logr.Discard())

// world is a consumer with one accepted offer.
type world struct {
	t         *testing.T
	client    client.WithWatch
	clock     *testingclock.FakePassiveClock
	peer      *fakePeer
	recorded  *events.FakeRecorder
	options   Options
	name      string // of the peering
	nodes     *reconciler
	leases    *leases
	admission *admission
	daemons   *daemons

	mu       sync.Mutex
	writes   int // but renewals of leases
	renewals int
	fail     int // the write that fails, and all after it; 0 for none
}

// fakePeer is the connection, and its own Fleet.
type fakePeer struct {
	mu      sync.Mutex
	state   fleet.State
	missing bool
	changed chan event.GenericEvent
}

func (p *fakePeer) State() fleet.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *fakePeer) set(reachable bool, reason string, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = fleet.State{Reachable: reachable, Reason: reason, Since: since}
}

func (p *fakePeer) Peer(string) (Peer, bool) { return p, !p.missing }

func (p *fakePeer) StateSource(mapper func(string) []reconcile.Request) source.Source {
	return source.Channel(p.changed, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return mapper(o.GetName())
	}))
}

type fakeHome struct{}

func (fakeHome) Config() home.Config { return home.Config{Cluster: home.Cluster{Name: "rome"}} }
func (fakeHome) Info() v1alpha1.ClusterInfo {
	return v1alpha1.ClusterInfo{KubernetesVersion: "v1.36.3"}
}
func (fakeHome) Source(handler.EventHandler) source.Source {
	return source.Channel(make(chan event.GenericEvent), &handler.EnqueueRequestForObject{})
}

var errInjected = errors.New("injected")

// count counts a write, and says whether it fails.
func (w *world) count() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	if w.fail > 0 && w.writes >= w.fail {
		return errInjected
	}
	return nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server := kubetest.Server(t)
	w := &world{
		t: t, clock: testingclock.NewFakePassiveClock(time.Now().Truncate(time.Second)), recorded: events.NewFakeRecorder(1000),
		name: server.Name(t, "milan"), peer: &fakePeer{changed: make(chan event.GenericEvent, 10)},
	}
	w.peer.set(true, v1alpha1.ReasonPeerReachable, w.clock.Now())
	w.client = interceptor.NewClient(server.Client(t), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := w.count(); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, ok := obj.(*coordinationv1.Lease); ok {
				w.renewals++
				return c.Patch(ctx, obj, patch, opts...)
			}
			if err := w.count(); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := w.count(); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, of client.Object, opts ...client.SubResourceCreateOption) error {
			if err := w.count(); err != nil {
				return err
			}
			return c.SubResource(sub).Create(ctx, obj, of, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := w.count(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
	w.options = Options{
		Home: fakeHome{}, Fleet: w.peer, Clock: w.clock, Address: "10.0.0.7", Version: "v0.3.0",
		Namespace: server.Namespace(t), Ports: func(string) int32 { return 10300 },
	}
	w.restart()
	w.addPeering(w.name)
	return w
}

// restart forgets all that is only in memory.
func (w *world) restart() {
	w.nodes = newReconciler(w.client, w.client, w.recorded, w.options)
	w.leases = &leases{client: w.client, live: w.client, clock: w.clock}
	w.admission = &admission{client: w.client, live: w.client, home: w.options.Home, namespace: w.options.Namespace}
	w.daemons = &daemons{client: w.client, clock: w.clock}
}

func (w *world) addPeering(name string) {
	w.t.Helper()
	namespace := v1alpha1.PeeringNamespace(name)
	w.create(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeeringSpec{
		ClusterID: clusterID, Consume: &v1alpha1.Consume{AuthURL: "https://192.0.2.1:1", CASHA256: v1alpha1.TokenHash("x")},
	}})
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{v1alpha1.LabelPeering: name}}}
	w.create(n)
	w.t.Cleanup(func() {
		all := &v1alpha1.ResourceRequestList{}
		_ = w.client.List(ctx, all, client.InNamespace(namespace))
		for i := range all.Items {
			q := &all.Items[i]
			_ = w.client.Patch(ctx, q, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
			_ = w.client.Delete(ctx, q)
			_ = w.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.VirtualNodeName(name, q.Name)}})
		}
		_ = w.client.DeleteAllOf(ctx, &v1alpha1.ResourceOffer{}, client.InNamespace(namespace))
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
	w.t.Cleanup(func() { _ = w.client.Delete(ctx, obj, client.GracePeriodSeconds(0)) })
}

func (w *world) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(w.name), Name: name}
}

// offer makes a request with an accepted offer.
func (w *world) offer(key client.ObjectKey) {
	w.t.Helper()
	w.create(&v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	w.create(&v1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: v1alpha1.ResourceOfferSpec{
		Resources: list("cpu", "4", "memory", "8Gi", "pods", "20"), Used: list("cpu", "1", "pods", "1"),
		Labels:  map[string]string{"color": "blue"},
		Shapes:  []v1alpha1.NodeShape{{Architecture: "arm64", OperatingSystem: "linux", Nodes: 1}},
		Expires: metav1.NewTime(w.clock.Now().Add(time.Hour)),
	}})
	w.decide(key, true, v1alpha1.ReasonAccepted)
}

func (w *world) decide(key client.ObjectKey, is bool, reason string) {
	w.t.Helper()
	q := w.request(key)
	before := q.DeepCopy()
	if is {
		status.True(&q.Status.Conditions, q.Generation, v1alpha1.ConditionAccepted, reason, "")
	} else {
		status.False(&q.Status.Conditions, q.Generation, v1alpha1.ConditionAccepted, reason, "")
	}
	if err := w.client.Status().Patch(ctx, q, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) request(key client.ObjectKey) *v1alpha1.ResourceRequest {
	w.t.Helper()
	q := &v1alpha1.ResourceRequest{}
	if !w.exists(key, q) {
		w.t.Fatalf("there is no request %s", key)
	}
	return q
}

func (w *world) exists(key client.ObjectKey, obj client.Object) bool {
	w.t.Helper()
	err := w.client.Get(ctx, key, obj)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return err == nil
}

// node returns the virtual node of a request, nil if there is none.
func (w *world) node(request string) *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{}
	if !w.exists(client.ObjectKey{Name: v1alpha1.VirtualNodeName(w.name, request)}, n) {
		return nil
	}
	return n
}

func (w *world) lease(request string) *coordinationv1.Lease {
	w.t.Helper()
	l := &coordinationv1.Lease{}
	if !w.exists(client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: v1alpha1.VirtualNodeName(w.name, request)}, l) {
		return nil
	}
	return l
}

// look lets every controller look once at what concerns a request.
func (w *world) look(request string) (ctrl.Result, error) {
	res, err := w.nodes.Reconcile(ctx, ctrl.Request{NamespacedName: w.key(request)})
	_, admissionErr := w.admission.Reconcile(ctx, w.admission.self(ctx, nil)[0])
	_, leaseErr := w.leases.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: v1alpha1.VirtualNodeName(w.name, request)}})
	return res, errors.Join(err, admissionErr, leaseErr)
}

// settle looks until nothing is written any more.
func (w *world) settle(request string) ctrl.Result {
	w.t.Helper()
	var res ctrl.Result
	for range 10 {
		before, err := w.writes, error(nil)
		if res, err = w.look(request); err != nil {
			w.t.Fatal(err)
		}
		if w.writes == before {
			break
		}
	}
	return res
}

// listed is an annotation of the list for admission.
func (w *world) listed(key string) []string {
	w.t.Helper()
	list := &rbacv1.Role{}
	w.exists(client.ObjectKey{Namespace: w.options.Namespace, Name: v1alpha1.AdmissionName}, list)
	return strings.Fields(list.Annotations[key])
}

// expect checks the condition NodeReady, written like "False/PeerUnreachable", and the
// name of the node.
func (w *world) expect(reason, request, want, node string) {
	w.t.Helper()
	q := w.request(w.key(request))
	got := "absent"
	if c := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.ConditionNodeReady); c != nil {
		got = string(c.Status) + "/" + c.Reason
	}
	if got != want || q.Status.Node != node {
		w.t.Errorf("%s: NodeReady %s, node %q; want %s, %q: %+v", reason, got, q.Status.Node, want, node, q.Status.Conditions)
	}
}

func (w *world) pod(namespace, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "p-"},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}},
	}
	for _, f := range change {
		f(p)
	}
	w.create(p)
	return p
}

func ownedBy(kind, name, uid string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(uid), Controller: ptr.To(true)}}
	}
}

func aimed(nodes ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		required := &corev1.NodeSelector{}
		for _, n := range nodes {
			required.NodeSelectorTerms = append(required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{n}}}})
		}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
	}
}

func contains(list []string, name string) bool { return slices.Contains(list, name) }
