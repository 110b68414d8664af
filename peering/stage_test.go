package peering

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/status"
)

const (
	homeID   = "11111111-2222-4333-8444-555555555555"
	remoteID = "7b0d9c36-6d0f-4b0e-9a58-3f1d8e7c2a10"
	token    = "canary-token-3f1d8e7c2a10"
)

// fakeHome is this cluster.
type fakeHome struct{ info v1alpha1.ClusterInfo }

func (h *fakeHome) ID() string                                { return h.info.ID }
func (h *fakeHome) Info() v1alpha1.ClusterInfo                { return h.info }
func (h *fakeHome) Source(handler.EventHandler) source.Source { return nil }

// stage is a consumer and its provider on one API server, with the parts of Pelago
// played that are not of this package.
type stage struct {
	t         *testing.T
	server    *kubetest.APIServer
	client    client.WithWatch
	home      *fakeHome
	fleet     *fleet.Fleet
	clock     *clocktesting.FakePassiveClock
	recorder  *events.FakeRecorder
	options   Options
	r         *reconciler
	cluster   *authority
	auth      *endpoint
	name      string // of the Peering
	namespace string // of Pelago
	tenant    string // namespace
	life      time.Duration
	dial      func(ctx context.Context, network, address string) (net.Conn, error) // of the fleet
	offers    fleet.Bounds                                                         // in the fleet
	logs      []string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	server := kubetest.Server(t)
	s := &stage{
		t: t, server: server, client: server.Client(t), cluster: clusterAuthority(t, server),
		home: &fakeHome{info: v1alpha1.ClusterInfo{
			ID: homeID, Name: "rome", Version: "v0.3.0", KubernetesVersion: "v1.36.3", Features: []string{"offers/v1", "peering/v1"},
		}},
		clock: clocktesting.NewFakePassiveClock(time.Now()), recorder: events.NewFakeRecorder(1000),
		name: server.Name(t, "milan"), namespace: server.Namespace(t), life: time.Hour,
	}
	s.tenant = v1alpha1.TenantNamespacePrefix + server.Name(t, "rome")
	s.makeNamespace(s.tenant, nil)
	t.Cleanup(func() { s.dropNamespace(s.tenant); s.dropNamespace(v1alpha1.PeeringNamespace(s.name)) })
	t.Cleanup(s.dropPeering)
	s.auth = newEndpoint(s)
	s.options = Options{
		Home: s.home, Namespace: s.namespace, Clock: s.clock, Jitter: func() float64 { return 0.5 },
	}
	s.startFleet()
	s.restart(s.client)
	return s
}

// startFleet makes connections like the manager's fleet.
func (s *stage) startFleet() {
	s.t.Helper()
	s.fleet = fleet.New(fleet.Options{Scheme: kubetest.Scheme(), Dial: s.dial})
	identity := &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.IdentityName}}
	if err := errors.Join(s.fleet.Watch(identity), s.fleet.WatchWithin(&v1alpha1.ResourceOffer{}, s.offers)); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	started := s.fleet
	running.Go(func() { started.Start(ctx) })
	s.t.Cleanup(func() { cancel(); running.Wait() })
	s.options.Fleet = s.fleet
}

// restart forgets all that is only in memory.
func (s *stage) restart(c client.Client) {
	s.r = newReconciler(c, c, s.recorder, s.options)
}

func (s *stage) makeNamespace(name string, labels map[string]string) {
	s.t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if err := s.client.Create(s.t.Context(), n); err != nil {
		s.t.Fatal(err)
	}
}

// dropNamespace does what a namespace controller would.
func (s *stage) dropNamespace(name string) {
	ctx := context.Background()
	for _, list := range []client.ObjectList{&v1alpha1.ResourceRequestList{}, &v1alpha1.IdentityList{}} {
		if s.client.List(ctx, list, client.InNamespace(name)) != nil {
			continue
		}
		switch l := list.(type) {
		case *v1alpha1.ResourceRequestList:
			for i := range l.Items {
				s.free(&l.Items[i])
			}
		case *v1alpha1.IdentityList:
			for i := range l.Items {
				s.free(&l.Items[i])
			}
		}
	}
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.client.Delete(ctx, n); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		s.t.Error(err)
	}
	s.finalize(name)
}

// finalize lets a namespace go that is being deleted.
func (s *stage) finalize(name string) {
	typed, err := kubernetes.NewForConfig(s.server.Config)
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := typed.CoreV1().Namespaces().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil || n.DeletionTimestamp == nil {
		return
	}
	n.Spec.Finalizers = nil
	if _, err := typed.CoreV1().Namespaces().Finalize(context.Background(), n, metav1.UpdateOptions{}); client.IgnoreNotFound(err) != nil {
		s.t.Error(err)
	}
}

func (s *stage) free(obj client.Object) {
	ctx := context.Background()
	s.client.Delete(ctx, obj)
	s.client.Patch(ctx, obj, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
}

func (s *stage) dropPeering() {
	s.free(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: s.name}})
}

// invite makes the token's Secret and the Peering.
func (s *stage) invite(change ...func(*v1alpha1.Peering)) *v1alpha1.Peering {
	s.t.Helper()
	s.makeToken(token)
	p := &v1alpha1.Peering{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: v1alpha1.PeeringSpec{ClusterID: s.auth.clusterID, Consume: &v1alpha1.Consume{
			AuthURL: s.auth.url, CASHA256: s.auth.pin, TokenSecret: "invitation",
		}},
	}
	for _, f := range change {
		f(p)
	}
	if err := s.client.Create(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *stage) makeToken(value string) {
	s.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "invitation"},
		StringData: map[string]string{"token": value},
	}
	if err := s.client.Create(s.t.Context(), secret); err != nil {
		s.t.Fatal(err)
	}
}

// reconcile looks once.
func (s *stage) reconcile() (ctrl.Result, error) {
	logger := funcr.New(func(prefix, args string) { s.logs = append(s.logs, prefix+args) }, funcr.Options{Verbosity: 2})
	return s.r.Reconcile(ctrl.LoggerInto(context.Background(), logger), ctrl.Request{NamespacedName: client.ObjectKey{Name: s.name}})
}

// until looks again and again, as its watches would make it, until the Peering is so.
func (s *stage) until(what string, so func(*v1alpha1.Peering) bool) *v1alpha1.Peering {
	s.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var last *v1alpha1.Peering
	for {
		_, err := s.reconcile()
		s.clock.SetTime(s.clock.Now().Add(100 * time.Millisecond))
		last = s.peering()
		if so(last) {
			return last
		}
		if err != nil {
			s.t.Fatalf("waiting until %s: %v", what, err)
		}
		select {
		case <-deadline:
			text, _ := json.MarshalIndent(last, "", " ")
			s.t.Fatalf("waiting until %s: not so after a minute: %s", what, text)
		case <-tick.C:
		}
	}
}

// peering reads the Peering; nil if it is gone.
func (s *stage) peering() *v1alpha1.Peering {
	s.t.Helper()
	p := &v1alpha1.Peering{}
	err := s.client.Get(context.Background(), client.ObjectKey{Name: s.name}, p)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func gone(p *v1alpha1.Peering) bool { return p == nil }

func has(kind, reason string) func(*v1alpha1.Peering) bool {
	return func(p *v1alpha1.Peering) bool {
		if p == nil {
			return false
		}
		for _, c := range p.Status.Conditions {
			if c.Type == kind && c.Reason == reason {
				return true
			}
		}
		return false
	}
}

func ready(p *v1alpha1.Peering) bool {
	return p != nil && status.IsTrue(p.Status.Conditions, v1alpha1.ConditionReady)
}

func (s *stage) credential() (*corev1.Secret, *credential) {
	s.t.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.namespace, Name: v1alpha1.CredentialSecret(s.name)}
	if err := s.client.Get(context.Background(), key, secret); err != nil {
		s.t.Fatal(err)
	}
	c, err := load(secret)
	if err != nil {
		s.t.Fatal(err)
	}
	return secret, c
}

func (s *stage) exists(obj client.Object) bool {
	s.t.Helper()
	err := s.client.Get(context.Background(), client.ObjectKeyFromObject(obj), obj)
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	return err == nil
}

func (s *stage) identity() *v1alpha1.Identity {
	return &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: v1alpha1.IdentityName}}
}

// accept plays the negotiation.
func (s *stage) accept() {
	s.t.Helper()
	q := &v1alpha1.ResourceRequest{}
	key := client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(s.name), Name: v1alpha1.DefaultRequestName}
	if err := s.client.Get(s.t.Context(), key, q); err != nil {
		s.t.Fatal(err)
	}
	before := q.DeepCopy()
	status.True(&q.Status.Conditions, q.Generation, v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, "")
	if err := s.client.Status().Patch(s.t.Context(), q, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// peer brings a Peering to Ready.
func (s *stage) peer(change ...func(*v1alpha1.Peering)) *v1alpha1.Peering {
	s.t.Helper()
	s.invite(change...)
	s.until("there is a request", func(p *v1alpha1.Peering) bool {
		return p != nil && has(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonPending)(p)
	})
	s.accept()
	return s.until("it is ready", ready)
}

// events returns what was told to people so far.
func (s *stage) events() []string {
	var all []string
	for {
		select {
		case e := <-s.recorder.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

func (s *stage) told(reason string) bool {
	for _, e := range s.events() {
		if strings.Contains(e, reason) {
			return true
		}
	}
	return false
}

// secrets fails if one of the secret things is in a text that people see.
func (s *stage) secrets(c *credential, texts ...[]byte) {
	s.t.Helper()
	for _, text := range texts {
		for _, secret := range [][]byte{c.Key, []byte(token), c.Request} {
			if len(secret) > 0 && bytes.Contains(text, secret) {
				s.t.Error("a secret is where people see it")
			}
		}
	}
}
