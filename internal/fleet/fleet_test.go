package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	clusterID = "7b0d9c36-6d0f-4b0e-9a58-3f1d8e7c2a10"
	peering   = "milan"
)

// stage is a provider, a link to it and a fleet with one connection.
type stage struct {
	fleet     *Fleet
	link      *link
	client    client.WithWatch
	namespace string
	conn      Connection
}

func newStage(t *testing.T) *stage {
	t.Helper()
	server := kubetest.Server(t)
	s := &stage{client: server.Client(t), namespace: server.Namespace(t)}
	config := rest.CopyConfig(server.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	s.link = newLink(t, address.Host)
	s.conn = Connection{
		Peering: peering, ClusterID: clusterID, ServerURL: config.Host, CA: config.CAData,
		Certificate: config.CertData, Key: config.KeyData, TenantNamespace: s.namespace,
	}
	s.fleet = New(Options{Scheme: kubetest.Scheme(), Dial: s.link.dial})
	for _, kind := range []client.Object{
		&v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.IdentityName}}, &v1alpha1.ResourceOffer{},
	} {
		if err := s.fleet.Watch(kind); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.fleet.Start(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the fleet does not end")
		}
	})
	return s
}

func (s *stage) connect(t *testing.T) *Peer {
	t.Helper()
	if err := s.fleet.Set(t.Context(), s.conn); err != nil {
		t.Fatal(err)
	}
	p, ok := s.fleet.Peer(peering)
	if !ok {
		t.Fatal("no peer after Set")
	}
	await(t, "the peer answers", func() bool { ok, _, err := p.Reachable(); return ok && err == nil })
	return p
}

// patience bounds the wait for what comes at once unless the machine is busy.
const patience = time.Minute

// await polls until the condition holds, and returns how long that took.
func await(t *testing.T, what string, condition func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		if time.Since(began) > patience {
			t.Fatalf("waiting until %s: not so after %s", what, patience)
		}
		<-tick.C
	}
	return time.Since(began)
}

func offer(namespace, name string) *v1alpha1.ResourceOffer {
	return &v1alpha1.ResourceOffer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"for": name}},
		Spec:       v1alpha1.ResourceOfferSpec{Resources: v1alpha1.ResourceList{}, Expires: metav1.Now()},
	}
}

func newQueue(t *testing.T) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	return q
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}
}

// TestWatchSet holds that what changes at the peer is read here, and that sources
// hear of it, before and after they start.
func TestWatchSet(t *testing.T) {
	s := newStage(t)
	ctx := t.Context()
	if err := s.client.Create(ctx, offer(s.namespace, "early")); err != nil {
		t.Fatal(err)
	}
	p := s.connect(t)
	queue := newQueue(t)
	src := s.fleet.Source(&v1alpha1.ResourceOffer{}, func(name string, obj client.Object) []reconcile.Request {
		if _, ok := obj.(*v1alpha1.ResourceOffer); !ok {
			t.Errorf("mapper got %T", obj)
		}
		return []reconcile.Request{request(name, obj.GetName())}
	})
	if err := src.Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	expect := func(reason, name string) {
		t.Helper()
		await(t, reason, func() bool { return queue.Len() > 0 })
		got, _ := queue.Get()
		queue.Done(got)
		if got != request(peering, name) {
			t.Errorf("%s: request %v, want %s", reason, got, name)
		}
	}
	expect("what was there before the source is told", "early")
	late := offer(s.namespace, "late")
	if err := s.client.Create(ctx, late); err != nil {
		t.Fatal(err)
	}
	expect("a new object is told", "late")

	list := &v1alpha1.ResourceOfferList{}
	if err := p.Reader().List(ctx, list, client.MatchingLabels{"for": "late"}); err != nil || len(list.Items) != 1 {
		t.Errorf("list by label: %d, %v; want 1", len(list.Items), err)
	}
	got := &unstructured.Unstructured{}
	got.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ResourceOffer"))
	if err := p.Reader().Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "late"}, got); err != nil || got.GetUID() != late.UID {
		t.Errorf("reading without a type: %v, %v", got.GetUID(), err)
	}
	if err := p.Reader().List(ctx, &v1alpha1.TenantList{}); err == nil {
		t.Error("a kind that is not watched was read")
	}
	if err := s.client.Delete(ctx, late); err != nil {
		t.Fatal(err)
	}
	expect("a removed object is told", "late")
	err := p.Reader().Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "late"}, late)
	if !apierrors.IsNotFound(err) {
		t.Errorf("reading what is gone: %v, want not found", err)
	}
	if err := s.fleet.Watch(&v1alpha1.ResourceRequest{}); !errors.Is(err, ErrStarted) {
		t.Errorf("watch after start: %v", err)
	}
}

// TestClientNeedsNoDiscovery writes built-in kinds and reads only metadata back.
func TestClientNeedsNoDiscovery(t *testing.T) {
	s := newStage(t)
	p := s.connect(t)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: p.TenantNamespace(), Name: "consumer"}}
	if err := s.client.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	only := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}}
	only.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"renewTime":"2026-01-02T03:04:05.000000Z"}}`))
	if err := p.Client().Patch(t.Context(), only, patch); err != nil {
		t.Fatal(err)
	}
	if err := p.Client().Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil || lease.Spec.RenewTime == nil {
		t.Errorf("lease %v, %v; want it renewed", lease.Spec.RenewTime, err)
	}
}

// TestNothingIsDroppedSilently holds that a field which the peer's definition lacks is an
// error, whoever forgot to ask for its feature, and that one which it keeps is none.
func TestNothingIsDroppedSilently(t *testing.T) {
	s := newStage(t)
	p := s.connect(t)
	home := v1alpha1.HomeObject{Kind: "Secret", Namespace: "shop", Name: "login"}
	shadow := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"home": map[string]any{"kind": home.Kind, "namespace": home.Namespace, "name": home.Name}, "object": "{}", "later": "x"}}}
	shadow.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ShadowObject"))
	shadow.SetNamespace(p.TenantNamespace())
	shadow.SetName(v1alpha1.ShadowObjectName(home))
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrOlder) || !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "spec.later") || strings.Contains(err.Error(), "managedFields") {
			t.Errorf("%s: %v, want a refusal that names the field", what, err)
		}
	}
	refused("making it", p.Client().Create(t.Context(), shadow.DeepCopy()))
	unstructured.RemoveNestedField(shadow.Object, "spec", "later")
	if err := p.Client().Create(t.Context(), shadow); err != nil {
		t.Fatal(err)
	}
	later := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"later":"x"}}`))
	refused("changing it", p.Client().Patch(t.Context(), shadow, later))
	request := &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: p.TenantNamespace(), Name: "default"}}
	if err := p.Client().Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if err := p.Client().Patch(t.Context(), request, later); err != nil {
		t.Errorf("a kind that keeps what it does not know: %v", err)
	}
}

// TestShortAnswers makes and removes an object that is long: the answers are short, and
// say what the peer has made of it.
func TestShortAnswers(t *testing.T) {
	s := newStage(t)
	p := s.connect(t)
	session, ok := p.Client().(bounded)
	if !ok {
		t.Fatalf("the client is a %T", p.Client())
	}
	home := v1alpha1.HomeObject{Kind: "Secret", Namespace: "shop", Name: "login"}
	shadow := &v1alpha1.ShadowObject{ObjectMeta: metav1.ObjectMeta{Namespace: p.TenantNamespace(), Name: v1alpha1.ShadowObjectName(home)}}
	shadow.Spec = v1alpha1.ShadowObjectSpec{Home: home, Object: `{"data":"` + strings.Repeat("x", 10_000) + `"}`}
	answers := &answers{RESTClient: session.brief.rest.(*rest.RESTClient)}
	transport := answers.Client.Transport
	answers.Client.Transport = answers.count(transport)
	defer func() { answers.Client.Transport = transport }()
	if err := p.Client().Create(t.Context(), shadow); err != nil {
		t.Fatal(err)
	}
	if shadow.UID == "" || shadow.ResourceVersion == "" || shadow.Spec.Object == "" {
		t.Errorf("what was made has UID %q and version %q, and %d characters", shadow.UID, shadow.ResourceVersion, len(shadow.Spec.Object))
	}
	other := types.UID("other")
	if err := p.Client().Delete(t.Context(), shadow, client.Preconditions{UID: &other}); !apierrors.IsConflict(err) {
		t.Errorf("removing another one: %v", err)
	}
	if err := p.Client().Create(t.Context(), shadow.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("one that is there: %v, want what the API server says of it", err)
	}
	if err := p.Client().Delete(t.Context(), shadow, client.Preconditions{UID: &shadow.UID}); err != nil {
		t.Fatal(err)
	}
	if got := answers.bytes.Load(); got == 0 || got > 5000 {
		t.Errorf("the answers have %d bytes", got)
	}
}

// answers counts what comes back.
type answers struct {
	*rest.RESTClient
	bytes atomic.Int64
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (a *answers) count(base http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		answer, err := base.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		a.bytes.Add(int64(len(body)))
		answer.Body = io.NopCloser(bytes.NewReader(body))
		return answer, err
	})
}

// TestLink cuts the link in silence and measures how soon that is known, and how
// soon it is known to be healed; what happened meanwhile arrives. A machine that was busy elsewhere
// for seconds is given two more tries.
func TestLink(t *testing.T) {
	s := newStage(t)
	p := s.connect(t)
	states := newQueue(t)
	src := s.fleet.StateSource(func(name string) []reconcile.Request { return []reconcile.Request{request("", name)} })
	if err := src.Start(t.Context(), states); err != nil {
		t.Fatal(err)
	}
	for try := range 3 {
		for states.Len() > 0 {
			r, _ := states.Get()
			states.Done(r)
		}
		s.link.cut()
		down := await(t, "the cut is known", func() bool { ok, _, _ := p.Reachable(); return !ok })
		if state := p.State(); state.Reason != v1alpha1.ReasonPeerUnreachable || state.Err == nil {
			t.Errorf("state %+v, want unreachable with an error", state)
		}
		await(t, "a source hears of the cut", func() bool { return states.Len() > 0 })
		meanwhile := fmt.Sprint("meanwhile-", try)
		if err := s.client.Create(t.Context(), offer(s.namespace, meanwhile)); err != nil {
			t.Fatal(err)
		}
		s.link.heal()
		healed := await(t, "the healing is known", func() bool { ok, _, _ := p.Reachable(); return ok })
		await(t, "what happened meanwhile is here", func() bool {
			return p.Reader().Get(t.Context(), client.ObjectKey{Name: meanwhile}, &v1alpha1.ResourceOffer{}) == nil
		})
		t.Logf("cut known after %s, healed after %s", down, healed)
		if down <= 10*time.Second && healed <= 5*time.Second {
			return
		}
	}
	t.Error("no cut was known within 10 s and its healing within 5 s")
}

// TestReset holds that connections that are only reset are taken up again without
// the peer being called unreachable for longer than a moment.
func TestReset(t *testing.T) {
	s := newStage(t)
	p := s.connect(t)
	s.link.reset()
	await(t, "the watches are back", func() bool {
		ok, _, _ := p.Reachable()
		return ok && s.link.connections() > 0
	})
	if err := s.client.Create(t.Context(), offer(s.namespace, "after")); err != nil {
		t.Fatal(err)
	}
	await(t, "a change after the reset is here", func() bool {
		return p.Reader().Get(t.Context(), client.ObjectKey{Name: "after"}, &v1alpha1.ResourceOffer{}) == nil
	})
}

// TestForbidden holds that a refusal is no absence.
func TestForbidden(t *testing.T) {
	s := newStage(t)
	s.conn.Certificate, s.conn.Key, s.conn.Token = nil, nil, "not-a-token"
	if err := s.fleet.Set(t.Context(), s.conn); err != nil {
		t.Fatal(err)
	}
	p, _ := s.fleet.Peer(peering)
	await(t, "the refusal is known", func() bool { return p.State().Reason == v1alpha1.ReasonForbidden })
	if ok, _, err := p.Reachable(); !ok || !apierrors.IsUnauthorized(err) {
		t.Errorf("reachable %v, %v; want true with the refusal", ok, err)
	}
	if err := p.Reader().List(t.Context(), &v1alpha1.ResourceOfferList{}); !errors.Is(err, ErrNotSynced) {
		t.Errorf("reading what was never read: %v", err)
	}
	s.conn = Connection{}
	if err := s.fleet.Set(t.Context(), s.conn); err == nil {
		t.Error("an empty connection was set")
	}
}

// TestSwap replaces the credential again and again while calls run: none fails, the
// watch set is never empty, and the old connections close.
func TestSwap(t *testing.T) {
	s := newStage(t)
	if err := s.client.Create(t.Context(), offer(s.namespace, "one")); err != nil {
		t.Fatal(err)
	}
	p := s.connect(t)
	var calls, swaps atomic.Int64
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				got := &v1alpha1.ResourceOffer{}
				if err := p.Client().Get(context.Background(), client.ObjectKey{Namespace: s.namespace, Name: "one"}, got); err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				if err := p.Reader().Get(context.Background(), client.ObjectKey{Name: "one"}, got); err != nil {
					t.Errorf("a read failed: %v", err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for range 5 {
		before := p.session()
		s.conn.ClusterID += "" // same
		if err := s.fleet.Set(t.Context(), s.conn); err != nil || p.session() != before {
			t.Fatalf("setting the same changed something: %v", err)
		}
		s.conn.CA = append([]byte("\n"), s.conn.CA...) // another connection to the same place
		if err := s.fleet.Set(t.Context(), s.conn); err != nil {
			t.Fatal(err)
		}
		await(t, "the new connection is in use", func() bool { return p.session() != before })
		swaps.Add(1)
		if ok, _, err := p.Reachable(); !ok || err != nil {
			t.Errorf("after a swap: %v, %v", ok, err)
		}
	}
	close(stop)
	running.Wait()
	if calls.Load() < 20 {
		t.Errorf("only %d calls were made", calls.Load())
	}
	await(t, "the old connections are closed", func() bool { return s.link.connections() == 1 })
	t.Logf("%d calls over %d swaps", calls.Load(), swaps.Load())

	broken := s.conn
	broken.Certificate, broken.Key, broken.Token = nil, nil, "not-a-token"
	before := p.session()
	if err := s.fleet.Set(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	await(t, "the bad credential was tried", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.pending != nil && p.pending.state().Reason == v1alpha1.ReasonForbidden
	})
	if p.session() != before {
		t.Error("a credential that does not work replaced one that does")
	}
	s.fleet.Remove(peering)
	await(t, "all connections are closed", func() bool { return s.link.connections() == 0 })
	if _, ok := s.fleet.Peer(peering); ok {
		t.Error("a removed peer is there")
	}
}
