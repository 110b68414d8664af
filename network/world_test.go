package network

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

var ctx = logr.NewContext(context.Background(), logr.Discard())

var errDead = errors.New("the process has died")

// world is a consumer, rome, and its provider, milan, on one API server, kept apart by names:
// each sees what is its own.
type world struct {
	t           *testing.T
	raw         *kubetest.Memory
	clock       *testingclock.FakeClock
	rome, milan *side
	away        bool // milan does not answer rome

	writes   int
	wrote    []string // each of them
	dieAfter int      // writes; -1 is never
	died     bool
}

// side is one cluster.
type side struct {
	world     *world
	name      string // of its Peering
	peer      string // the other side's name here
	config    home.Config
	id        string
	namespace string // of its agents
	nodes     []string
	client    client.WithWatch
	network   *Network
	decider   *decider
	carrier   *carrier
	recorded  *events.FakeRecorder
	sees      []string // namespaces
}

func (s *side) ID() string          { return s.id }
func (s *side) Config() home.Config { return s.config }
func (s *side) APIServer() (string, string, string, error) {
	return "https://192.0.2.1:6443", "", "", nil
}
func (s *side) Source(handler.EventHandler) source.Source { return nil }

type fakeFleet struct{ side *side }

func (f fakeFleet) WatchWithin(client.Object, fleet.Bounds) error { return nil }
func (f fakeFleet) Peer(string) (Peer, bool) {
	return fakePeer{f.side.world}, f.side == f.side.world.rome
}
func (f fakeFleet) Source(client.Object, func(string, client.Object) []reconcile.Request) source.Source {
	return nil
}
func (f fakeFleet) StateSource(func(string) []reconcile.Request) source.Source { return nil }

type fakePeer struct{ world *world }

func (p fakePeer) TenantNamespace() string { return v1alpha1.TenantNamespace(p.world.milan.peer) }
func (p fakePeer) Client() client.Client   { return p.world.rome.client }
func (p fakePeer) Reader() client.Reader   { return p.world.raw }
func (p fakePeer) Reachable() (bool, time.Time, error) {
	if p.world.away {
		return false, time.Time{}, errors.New("away")
	}
	return true, time.Time{}, nil
}

func (w *world) write(what string, obj client.Object, patch client.Patch) error {
	if w.dieAfter >= 0 && w.writes >= w.dieAfter {
		w.died = true
		return errDead
	}
	w.writes++
	if patch != nil {
		text, _ := patch.Data(obj)
		what += " " + string(text)
	}
	w.wrote = append(w.wrote, fmt.Sprintf("%T %s/%s: %s", obj, obj.GetNamespace(), obj.GetName(), what))
	return nil
}

// since is what was written after so many writes.
func (w *world) since(writes int) string {
	return strings.Join(w.wrote[len(w.wrote)-(w.writes-writes):], "\n")
}

// newWorld makes both sides, peered, with the same addresses, and their networks on.
func newWorld(t *testing.T) *world {
	t.Helper()
	return peeredBy(t, &v1alpha1.Consume{AuthURL: "https://192.0.2.1:1", CASHA256: v1alpha1.TokenHash("x")})
}

// peeredBy is a world whose consumer reaches the provider in this way.
func peeredBy(t *testing.T, consume *v1alpha1.Consume) *world {
	t.Helper()
	server := kubetest.Server(t)
	w := &world{t: t, raw: kubetest.Remember(server.Client(t)), clock: testingclock.NewFakeClock(time.Now().Truncate(time.Second)), dieAfter: -1}
	rome, milan := server.Name(t, "rome"), server.Name(t, "milan")
	w.rome = &side{world: w, peer: milan, name: milan, namespace: server.Namespace(t)}
	w.milan = &side{world: w, peer: rome, name: rome, namespace: server.Namespace(t)}
	w.rome.sees, w.milan.sees = []string{v1alpha1.PeeringNamespace(milan)}, []string{v1alpha1.TenantNamespace(rome)}
	on := &v1alpha1.ClusterInfo{ID: string(uuid.NewUUID()), Name: "x", Features: []string{v1alpha1.FeatureNetwork, v1alpha1.FeatureNetworkPolicy, v1alpha1.FeaturePeering}}
	w.space(v1alpha1.PeeringNamespace(milan), map[string]string{v1alpha1.LabelPeering: milan})
	w.space(v1alpha1.TenantNamespace(rome), map[string]string{v1alpha1.LabelTenant: rome})
	p := w.create(&v1alpha1.Peering{ObjectMeta: w.named(milan), Spec: v1alpha1.PeeringSpec{ClusterID: string(uuid.NewUUID()),
		Consume: consume}}).(*v1alpha1.Peering)
	p.Status.Remote, p.Status.ServerURL = on, "https://192.0.2.77:6443"
	w.status(p)
	w.create(&v1alpha1.Peering{ObjectMeta: w.named(rome), Spec: v1alpha1.PeeringSpec{ClusterID: string(uuid.NewUUID()),
		Provide: &v1alpha1.Provide{Tenant: rome}}})
	tenant := w.create(&v1alpha1.Tenant{ObjectMeta: w.named(rome), Spec: v1alpha1.TenantSpec{
		ClusterID: string(uuid.NewUUID()), PeeringUID: string(uuid.NewUUID()), InBand: consume.InBand != nil}}).(*v1alpha1.Tenant)
	tenant.Status.Cluster = on
	tenant.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionNamespaceReady, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now()}}
	w.status(tenant)
	for i, s := range []*side{w.rome, w.milan} {
		s.id, s.config.Network.Port = string(uuid.NewUUID()), 7100
		for j := range 2 {
			name := fmt.Sprintf("%s-%d", s.peer, j)
			s.nodes = append(s.nodes, name)
			n := w.create(&corev1.Node{ObjectMeta: w.named(name), Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.42.%d.0/24", j)}}}).(*corev1.Node)
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("198.18.%d.%d", i, j+1)}}
			w.status(n)
		}
		s.client = s.intercepted()
		s.restart()
	}
	return w
}

// intercepted sees what is the side's own, and counts what it writes.
func (s *side) intercepted() client.WithWatch {
	w := s.world
	return interceptor.NewClient(w.raw, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l, ok := list.(*networkingv1.ServiceCIDRList); ok {
				l.Items = []networkingv1.ServiceCIDR{{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.43.0.0/16"}}}}
				return nil
			}
			err := c.List(ctx, list, opts...)
			drop(list, func(o client.Object) bool {
				switch o.(type) {
				case *corev1.Node, *corev1.Pod:
					return !slices.Contains(s.nodes, o.GetName())
				case *v1alpha1.Peering:
					return o.GetName() != s.name && !slices.Contains(s.sees, v1alpha1.PeeringNamespace(o.GetName()))
				case *v1alpha1.Tenant:
					return s != w.milan || o.GetName() != s.peer
				case *v1alpha1.Invitation:
					return s != w.milan || o.GetLabels()[v1alpha1.LabelPeering] != s.peer
				case *v1alpha1.NetworkPath:
					return !slices.Contains(s.sees, o.GetNamespace())
				case *v1alpha1.NetworkConfig:
					return !slices.Contains(s.sees, o.GetNamespace()) && o.GetNamespace() != s.namespace
				}
				return false
			})
			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := w.write("create", obj, nil); err != nil {
				return err
			}
			return s.keyed(c.Create(ctx, obj, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if err := w.write("update", obj, nil); err != nil {
				return err
			}
			return s.keyed(c.Update(ctx, obj, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := w.write("patch", obj, patch); err != nil {
				return err
			}
			return s.keyed(c.Patch(ctx, obj, patch, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := w.write("delete", obj, nil); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := w.write("patch", obj, patch); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
}

// keyed holds, after each write, that the private key to what is published is there, by which
// agents make tunnels.
func (s *side) keyed(err error) error {
	s.world.t.Helper()
	s.told()
	own := s.own()
	if own == nil || own.Spec.PublicKey == "" {
		return err
	}
	l := unlocked(s.secret())[s.key()]
	if text := own.Spec.PublicKey; text != l.key.Public().String() && text != l.next.Public().String() {
		s.world.t.Errorf("%s publishes a key that is not in its Secret", s.peer)
	}
	return err
}

// own is the object whose spec is of this side.
func (s *side) own() *v1alpha1.NetworkConfig {
	if s == s.world.rome {
		return s.pair(v1alpha1.NetworkConsumer)
	}
	return s.pair(v1alpha1.NetworkProvider)
}

// drop takes items out of a list.
func drop(list client.ObjectList, if_ func(client.Object) bool) {
	switch l := list.(type) {
	case *corev1.NodeList:
		l.Items = slices.DeleteFunc(l.Items, func(o corev1.Node) bool { return if_(&o) })
	case *corev1.PodList:
		l.Items = slices.DeleteFunc(l.Items, func(o corev1.Pod) bool { return if_(&o) })
	case *v1alpha1.PeeringList:
		l.Items = slices.DeleteFunc(l.Items, func(o v1alpha1.Peering) bool { return if_(&o) })
	case *v1alpha1.TenantList:
		l.Items = slices.DeleteFunc(l.Items, func(o v1alpha1.Tenant) bool { return if_(&o) })
	case *v1alpha1.InvitationList:
		l.Items = slices.DeleteFunc(l.Items, func(o v1alpha1.Invitation) bool { return if_(&o) })
	case *v1alpha1.NetworkPathList:
		l.Items = slices.DeleteFunc(l.Items, func(o v1alpha1.NetworkPath) bool { return if_(&o) })
	case *v1alpha1.NetworkConfigList:
		l.Items = slices.DeleteFunc(l.Items, func(o v1alpha1.NetworkConfig) bool { return if_(&o) })
	}
}

// restart makes a new process, which remembers nothing.
func (s *side) restart() {
	s.recorded = events.NewFakeRecorder(1000)
	s.network = New(Options{Home: s, Fleet: fakeFleet{s}, Namespace: s.namespace, Clock: s.world.clock, Rand: rand.Reader})
	s.decider = newDecider(s.network, s.client, s.client, s.recorded)
	s.carrier = &carrier{client: s.client, clock: s.world.clock, fleet: fakeFleet{s}, refused: s.decider.refused, tell: s.decider.agents.wake}
	leases := &coordinationv1.LeaseList{}
	if err := s.world.raw.List(ctx, leases, client.InNamespace(s.namespace)); err != nil {
		s.world.t.Fatal(err)
	}
	for i := range leases.Items {
		s.decider.agents.see(&leases.Items[i])
	}
}

func (w *world) space(name string, labels map[string]string) {
	w.t.Helper()
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	w.t.Cleanup(func() {
		list := &v1alpha1.NetworkConfigList{}
		_ = w.raw.List(ctx, list, client.InNamespace(name))
		for i := range list.Items {
			_ = w.raw.Patch(ctx, &list.Items[i], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			_ = w.raw.Delete(ctx, &list.Items[i])
		}
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_ = w.raw.Delete(ctx, n)
		_ = w.raw.SubResource("finalize").Update(ctx, n)
	})
}

func (w *world) create(obj client.Object) client.Object {
	w.t.Helper()
	if err := w.raw.Create(ctx, obj); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.raw.Delete(ctx, obj, client.GracePeriodSeconds(0)) })
	return obj
}

func (w *world) status(obj client.Object) {
	w.t.Helper()
	if err := w.raw.Status().Update(ctx, obj); err != nil {
		w.t.Fatal(err)
	}
}

// change patches an object by a merge patch.
func (w *world) change(obj client.Object, text string, args ...any) {
	w.t.Helper()
	if err := w.raw.Patch(ctx, obj, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, text, args...))); err != nil {
		w.t.Fatal(err)
	}
}

// look lets every part of a side look once.
func (w *world) look() error {
	var failed []error
	for _, s := range []*side{w.rome, w.milan} {
		_, err := s.decider.Reconcile(ctx, whole)
		failed = append(failed, err)
	}
	_, err := w.rome.carrier.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: w.rome.peer}})
	w.clock.Step(copyRest)
	return errors.Join(append(failed, err)...)
}

// settle lets all parts look until they are at rest.
func (w *world) settle() {
	w.t.Helper()
	quiet := 0
	for range 40 {
		before := w.writes
		if err := w.look(); err != nil {
			w.t.Fatal(err)
		}
		if quiet++; w.writes != before {
			quiet = 0
		}
		if quiet == 2 {
			return
		}
	}
	w.t.Fatal("no rest after 40 looks")
}

// pair is a NetworkConfig of a side, nil if there is none.
func (s *side) pair(name string) *v1alpha1.NetworkConfig {
	s.world.t.Helper()
	c := &v1alpha1.NetworkConfig{}
	err := s.world.raw.Get(ctx, client.ObjectKey{Namespace: s.sees[0], Name: name}, c)
	if client.IgnoreNotFound(err) != nil {
		s.world.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return c
}

// secret is the Secret with the keys, nil if there is none.
func (s *side) secret() *corev1.Secret {
	s.world.t.Helper()
	c := &corev1.Secret{}
	if err := s.world.raw.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: v1alpha1.NetworkKeysName}, c); err != nil {
		return nil
	}
	return c
}

func (s *side) key() string { return v1alpha1.NetworkKey(s.sees[0]) }

// networkReady is the condition as status/reason: message.
func (s *side) networkReady() string {
	s.world.t.Helper()
	p := &v1alpha1.Peering{}
	if err := s.world.raw.Get(ctx, client.ObjectKey{Name: s.name}, p); err != nil {
		return err.Error()
	}
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionNetworkReady)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason + ": " + c.Message
}

// report is what the agent of a node does: renew its Lease, and say how tunnels are.
func (s *side) report(node string, reports map[string]v1alpha1.TunnelReport) {
	s.world.t.Helper()
	text, err := json.Marshal(reports)
	if err != nil {
		s.world.t.Fatal(err)
	}
	s.renew(node, map[string]string{v1alpha1.AnnotationTunnels: string(text)})
}

// renew makes the Lease of a node's agent, or renews it, with annotations.
func (s *side) renew(node string, annotations map[string]string) {
	s.world.t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: v1alpha1.AgentLease(node), Annotations: annotations}}
	renew := metav1.NewMicroTime(s.world.clock.Now())
	l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: new(int32(5)), RenewTime: &renew}
	if err := s.world.raw.Create(ctx, l); err != nil {
		have := &coordinationv1.Lease{}
		if err := s.world.raw.Get(ctx, client.ObjectKeyFromObject(l), have); err != nil {
			s.world.t.Fatal(err)
		}
		l.ResourceVersion = have.ResourceVersion
		if err := s.world.raw.Update(ctx, l); err != nil {
			s.world.t.Fatal(err)
		}
	}
	s.decider.agents.see(l)
	s.decider.agents.tell()
}

// renewed lets all agents renew their Leases: who begins anew takes every one for one that holds.
func (w *world) renewed() {
	w.t.Helper()
	for _, s := range []*side{w.rome, w.milan} {
		leases := &coordinationv1.LeaseList{}
		if err := w.raw.List(ctx, leases, client.InNamespace(s.namespace)); err != nil {
			w.t.Fatal(err)
		}
		for i := range leases.Items {
			s.renew(*leases.Items[i].Spec.HolderIdentity, leases.Items[i].Annotations)
		}
	}
}

// tunnel is what is known of the tunnel.
func (s *side) tunnel() string {
	switch alive, known := s.network.Alive(s.peer); {
	case !known:
		return "unknown"
	case alive:
		return "alive"
	}
	return "dead"
}

func (s *side) said(words string) bool {
	for found := false; ; {
		select {
		case e := <-s.recorded.Events:
			found = found || strings.Contains(e, words)
		default:
			return found
		}
	}
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func at(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// labelWorld tells the objects of a world from those of others at the same server.
const labelWorld = "world"

// named is the name of an object of this world, in no namespace.
func (w *world) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{labelWorld: w.milan.peer}}
}

// lies is a reader that shows another spec of the provider's object.
type lies struct {
	client.Reader
	spec string
}

func (l lies) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := l.Reader.Get(ctx, key, obj, opts...)
	if u, ok := obj.(*unstructured.Unstructured); ok && err == nil && key.Name == v1alpha1.NetworkProvider {
		var spec map[string]any
		if err := utiljson.Unmarshal([]byte(l.spec), &spec); err != nil {
			return err
		}
		u.Object["spec"] = spec
	}
	return err
}
