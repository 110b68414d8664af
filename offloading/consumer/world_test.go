package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/offloading/admission"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

var ctx = context.Background()

// world is a home and a provider on one API server, kept apart by namespaces. The test
// plays the provider.
type world struct {
	t        *testing.T
	admin    client.WithWatch // neither counted nor made to fail
	clock    *testingclock.FakeClock
	peering  string
	home     string // namespace
	views    *fakeViews
	tunnels  *fakeTunnels
	node     string
	peer     *fakePeer
	recorded *events.FakeRecorder
	pods     *reconciler
	orphans  *orphans
	outdated *outdated

	mu     sync.Mutex
	writes map[string]int // "here create" and so on, whatever came of them
	total  int
	made   int // shadow pods that were created
	fail   func(n int, call string) (before, after error)
}

// fakePeer is a provider on the same server, and the fleet that consists of it.
type fakePeer struct {
	client    client.Client
	admin     client.Client
	namespace string
	state     fleet.State
	missing   bool
	blind     bool
	full      bool
	hidden    map[string]bool // not in the mirror yet
}

func (p *fakePeer) TenantNamespace() string { return p.namespace }
func (p *fakePeer) Client() client.Client   { return p.client }
func (p *fakePeer) Reader() client.Reader   { return mirror{p} }
func (p *fakePeer) State() fleet.State      { return p.state }
func (p *fakePeer) Full(client.Object) bool { return p.full }

func (p *fakePeer) WatchWithin(client.Object, fleet.Bounds) error { return nil }
func (p *fakePeer) Peer(string) (Peer, bool)                      { return p, !p.missing }
func (p *fakePeer) Source(client.Object, func(string, client.Object) []reconcile.Request) source.Source {
	return nil
}
func (p *fakePeer) StateSourceAt(fleet.Pace, func(string) []reconcile.Request) source.Source {
	return nil
}

// mirror reads as the fleet's does: without the pod's text, and not before it is synced.
type mirror struct{ p *fakePeer }

func (m mirror) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if m.p.blind {
		return fmt.Errorf("reading: %w", fleet.ErrNotSynced)
	}
	if m.p.hidden[key.Name] {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("shadowpods").GroupResource(), key.Name)
	}
	err := m.p.admin.Get(ctx, key, obj)
	if s, ok := obj.(*v1alpha1.ShadowPod); ok && err == nil {
		return mirrored(s)
	}
	return err
}

// mirrored makes a ShadowPod what the mirror keeps of it.
func mirrored(s *v1alpha1.ShadowPod) error {
	kept, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return err
	}
	trim(&unstructured.Unstructured{Object: kept})
	*s = v1alpha1.ShadowPod{}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(kept, s)
}

func (m mirror) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return m.p.admin.List(ctx, list, client.InNamespace(m.p.namespace))
}

var (
	answering = fleet.State{Reachable: true, Reason: v1alpha1.ReasonPeerReachable}
	silent    = fleet.State{Reason: v1alpha1.ReasonPeerUnreachable, Err: errors.New("away")}
	starting  = fleet.State{Reason: v1alpha1.ReasonPending, Err: fleet.ErrNotSynced}
	denying   = fleet.State{Reachable: true, Reason: v1alpha1.ReasonForbidden, Err: errors.New("forbidden")}
)

func newWorld(t *testing.T) *world {
	t.Helper()
	server := kubetest.Server(t)
	name := server.Name(t, "milan")
	w := &world{
		t: t, admin: server.Client(t), clock: testingclock.NewFakeClock(time.Now().Add(10 * time.Minute).Truncate(time.Second)),
		peering: name, node: name, home: server.Namespace(t), writes: map[string]int{}, views: &fakeViews{}, tunnels: &fakeTunnels{peering: name},
		recorded: events.NewFakeRecorder(10_000),
	}
	w.peer = &fakePeer{client: w.counted("there"), admin: w.admin, namespace: v1alpha1.TenantNamespace(name), state: answering, hidden: map[string]bool{}}
	w.restart()
	w.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantNamespace(name)}})
	w.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringNamespace(name)}})
	w.make(&v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.PeeringNamespace(name), Name: v1alpha1.NamespaceMapName},
		Spec: v1alpha1.NamespaceMapSpec{Namespaces: map[string]v1alpha1.NamespaceMapping{w.home: {Strategy: v1alpha1.MappingDefaultName}}}})
	w.make(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: v1alpha1.OffloadingName},
		Spec: v1alpha1.NamespaceOffloadingSpec{NamespaceMappingStrategy: v1alpha1.MappingDefaultName}})
	w.make(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeeringSpec{
		ClusterID: string(uuid.NewUUID()),
		Consume:   &v1alpha1.Consume{AuthURL: "https://192.0.2.1:1", CASHA256: v1alpha1.TokenHash("x")},
	}})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node, Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: name, v1alpha1.LabelRequest: v1alpha1.DefaultRequestName, "world": name,
	}}}
	w.make(node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	if err := w.admin.Status().Update(ctx, node); err != nil {
		t.Fatal(err)
	}
	w.label(true)
	t.Cleanup(w.clear)
	return w
}

// clear takes away finalizers, so that the namespaces can go.
func (w *world) clear() {
	list := &v1alpha1.ShadowPodList{}
	_ = w.admin.List(ctx, list, client.InNamespace(w.peer.namespace))
	for i := range list.Items {
		w.release(string(list.Items[i].Name))
	}
	for _, n := range []string{v1alpha1.TenantNamespace(w.peering), v1alpha1.PeeringNamespace(w.peering)} {
		_ = w.admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
}

// restart replaces this program by a new one that remembers nothing.
func (w *world) restart() {
	home, m := w.counted("here"), newMeter()
	w.pods = &reconciler{
		client: home, live: w.admin, fleet: w.peer, views: w.views, tunnels: w.tunnels, clock: w.clock, events: w.recorded, meter: m,
		ledger: newLedger(m.pods), refusals: &refusals{client: home, live: w.admin},
		choices: admission.NewChoices(w.admin, w.admin, w.clock), budget: fleet.NewBudget(), turns: throttle.NewTurns(share),
	}
	w.outdated = newOutdated(home, w.admin, w.pods.choices, w.clock, w.recorded, m)
	w.orphans = &orphans{client: home, live: w.admin, fleet: w.peer, meter: m, turns: throttle.NewTurns(orphanShare)}
}

// counted counts what is written by a side, and lets it fail.
func (w *world) counted(side string) client.WithWatch {
	do := func(verb string, call func() error) error {
		w.mu.Lock()
		w.writes[side+" "+verb]++
		w.total++
		n, fail := w.total, w.fail
		w.mu.Unlock()
		var before, after error
		if fail != nil {
			before, after = fail(n, side+" "+verb)
		}
		if before != nil {
			return before
		}
		err := call()
		if err == nil && side+verb == "therecreate" {
			w.mu.Lock()
			w.made++
			w.mu.Unlock()
		}
		return errors.Join(err, after)
	}
	return interceptor.NewClient(w.admin, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return do("create", func() error { return c.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return do("patch", func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return do("delete", func() error { return c.Delete(ctx, obj, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, subObj client.Object, opts ...client.SubResourceCreateOption) error {
			return do(sub, func() error { return c.SubResource(sub).Create(ctx, obj, subObj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return do(sub, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	})
}

func (w *world) make(obj client.Object) {
	w.t.Helper()
	if err := w.admin.Create(ctx, obj); err != nil {
		w.t.Fatal(err)
	}
}

// label says whether the home namespace is offloaded.
func (w *world) label(offloaded bool) {
	w.t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.home}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:"%v"}}}`, v1alpha1.LabelOffloaded, offloaded))
	if err := w.admin.Patch(ctx, n, patch); err != nil {
		w.t.Fatal(err)
	}
}

// template is a pod on the virtual node.
func template(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "web", Image: "example.org/web:1"}},
			Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}},
		},
	}
}

func (w *world) pod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := template(w.home, name, w.node)
	for _, e := range edit {
		e(p)
	}
	w.make(p)
	return p
}

// owned gives a pod a controller.
func owned(kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		version, yes := "apps/v1", true
		if kind == "Job" {
			version = "batch/v1"
		}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "owner", UID: uuid.NewUUID(), Controller: &yes}}
	}
}

func never1(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }

func request(p *corev1.Pod) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)}
}

// reconcile looks at a pod once; errors fail the test.
func (w *world) reconcile(p *corev1.Pod) ctrl.Result {
	w.t.Helper()
	res, err := w.pods.Reconcile(ctx, request(p))
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

// now is the pod as it is, nil if it is gone or another one.
func (w *world) now(p *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	got := &corev1.Pod{}
	err := w.admin.Get(ctx, client.ObjectKeyFromObject(p), got)
	if apierrors.IsNotFound(err) || err == nil && got.UID != p.UID {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// shadow is the ShadowPod of a UID, nil if there is none.
func (w *world) shadow(p *corev1.Pod) *v1alpha1.ShadowPod {
	w.t.Helper()
	s := &v1alpha1.ShadowPod{}
	err := w.admin.Get(ctx, client.ObjectKey{Namespace: w.peer.namespace, Name: string(p.UID)}, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// tell writes what a provider says of a pod.
func (w *world) tell(p *corev1.Pod, status *corev1.PodStatus, conditions ...metav1.Condition) {
	w.t.Helper()
	s := w.shadow(p)
	if status != nil {
		text, err := shadow.Report(status, 0, "")
		if err != nil {
			w.t.Fatal(err)
		}
		s.Status.Pod, s.Status.Phase = text, string(status.Phase)
	}
	s.Status.ObservedGeneration = s.Generation
	s.Status.Conditions = conditions
	if err := w.admin.Status().Update(ctx, s); err != nil {
		w.t.Fatal(err)
	}
}

func accepted(value metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: value, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
}

// began is when all pods of these tests began to run: one time, so that what is told twice
// is the same.
var began = metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))

// running is the status of a pod whose container runs.
func running() *corev1.PodStatus {
	at, yes := began, true
	return &corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &at,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: at},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: at},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", Ready: true, Started: &yes, Image: "example.org/web:1", ImageID: "x", ContainerID: "containerd://1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		}},
	}
}

// ended is the status of a pod whose container has exited.
func ended(phase corev1.PodPhase, code int32) *corev1.PodStatus {
	s := running()
	s.Phase = phase
	for i := range s.Conditions {
		if s.Conditions[i].Type != corev1.PodInitialized {
			s.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	s.ContainerStatuses[0].Ready = false
	s.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed"}}
	return s
}

// release is the provider letting go of a ShadowPod that is being deleted.
func (w *world) release(uid string) {
	s := &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: w.peer.namespace, Name: uid}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := w.admin.Patch(ctx, s, patch); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

func (w *world) delete(p *corev1.Pod, opts ...client.DeleteOption) {
	w.t.Helper()
	if err := w.admin.Delete(ctx, p, opts...); err != nil {
		w.t.Fatal(err)
	}
}

// drop deletes an object.
func (w *world) drop(obj client.Object) {
	w.t.Helper()
	if err := w.admin.Delete(ctx, obj); err != nil {
		w.t.Fatal(err)
	}
}

// runs brings a pod to where its provider says that it runs.
func (w *world) runs(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := w.pod(name, edit...)
	w.reconcile(p)
	w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(p)
	return p
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// Short names for tables.
type (
	fleetStateOf = fleet.State
	schemaUID    = types.UID
)

var (
	away1 = fleetState{silent, false}
	none1 = fleetState{starting, true}
	here1 = fleetState{answering, false}
)
