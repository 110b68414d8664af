package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestBeyond holds that a provider with more than is kept stays reachable, that what is left
// out is read and removed all the same, and that it is said.
func TestBeyond(t *testing.T) {
	s := newStage(t)
	shadow := func(i int) *v1alpha1.ShadowObject {
		home := v1alpha1.HomeObject{Kind: "Secret", Namespace: "shop", Name: fmt.Sprint("s", i)}
		return &v1alpha1.ShadowObject{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: v1alpha1.ShadowObjectName(home)},
			Spec:       v1alpha1.ShadowObjectSpec{Home: home, Object: "{}"},
		}
	}
	const most = 3
	add := func(i int) {
		t.Helper()
		if err := s.client.Create(t.Context(), shadow(i)); err != nil {
			t.Fatal(err)
		}
	}
	begin := func() *Peer {
		t.Helper()
		f := New(Options{Scheme: kubetest.Scheme(), Dial: s.link.dial})
		if err := f.WatchWithin(&v1alpha1.ShadowObject{}, Bounds{Beyond: true, Objects: most, Trim: withoutSpec}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); f.Start(ctx) }()
		t.Cleanup(func() { cancel(); <-ended })
		return (&stage{fleet: f, conn: s.conn}).connect(t)
	}
	read := func(p *Peer, i int) error {
		got := &v1alpha1.ShadowObject{}
		err := p.Reader().Get(t.Context(), client.ObjectKeyFromObject(shadow(i)), got)
		if err == nil && (got.Name != shadow(i).Name || got.Spec.Object != "") {
			err = fmt.Errorf("%s with %q", got.Name, got.Spec.Object)
		}
		return err
	}
	for i := range most - 1 {
		add(i)
	}
	p := begin()
	if p.Full(&v1alpha1.ShadowObject{}) {
		t.Error("it is full below the bound")
	}
	add(most - 1)
	await(t, "it is full at the bound", func() bool { return p.Full(&v1alpha1.ShadowObject{}) })
	if state := p.State(); !state.Reachable || state.Err != nil || state.Beyond != nil {
		t.Errorf("at the bound: %+v", state)
	}
	add(most)
	await(t, "it is said", func() bool { return p.State().Beyond != nil })
	for reason, p := range map[string]*Peer{"seen coming": p, "found": begin()} {
		state := p.State()
		if !state.Reachable || state.Reason != v1alpha1.ReasonPeerReachable || state.Err != nil || !errors.Is(state.Beyond, ErrTooLarge) || !strings.Contains(state.Beyond.Error(), "more than 3 shadowobjects") {
			t.Errorf("%s: one more than the bound: %+v", reason, state)
		}
		for i := range most + 1 {
			if err := read(p, i); err != nil {
				t.Errorf("%s: reading number %d: %v", reason, i, err)
			}
		}
		if err := read(p, most+1); !apierrors.IsNotFound(err) {
			t.Errorf("%s: what is not there: %v", reason, err)
		}
		if kept := len(p.session().reader.mirrors[v1alpha1.GroupVersion.WithKind("ShadowObject")].all()); kept != most {
			t.Errorf("%s: %d are kept", reason, kept)
		}
	}
	if err := p.Client().Delete(t.Context(), shadow(most)); err != nil {
		t.Error(err)
	}
	if err := read(p, most); !apierrors.IsNotFound(err) {
		t.Errorf("what was left out and removed: %v", err)
	}
}

// TestOneTooMany holds that an object that is the only one watched of its kind is read as it is though nothing
// of it is kept, or nothing new, since the provider shows too much.
func TestOneTooMany(t *testing.T) {
	s := newStage(t)
	one := &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: v1alpha1.IdentityName}}
	one.Spec.Cluster.ID, one.Spec.Cluster.Name, one.Spec.Request, one.Spec.PeeringUID = clusterID, "rome", "x", clusterID
	if err := s.client.Create(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	p := s.connect(t)
	s.fleet.budget.mu.Lock()
	s.fleet.budget.most = 1
	s.fleet.budget.mu.Unlock()
	one.Annotations = map[string]string{"example.com/more": strings.Repeat("x", 1000)}
	if err := s.client.Update(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	conn := s.conn
	conn.Peering = "never-kept"
	if err := s.fleet.Set(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	never, _ := s.fleet.Peer(conn.Peering)
	for reason, p := range map[string]*Peer{"nothing new is kept": p, "nothing was ever kept": never} {
		await(t, "it is too much", func() bool { return p.State().Reason == v1alpha1.ReasonTooMany })
		got := &v1alpha1.Identity{}
		if err := p.Reader().Get(t.Context(), client.ObjectKeyFromObject(one), got); err != nil || got.ResourceVersion != one.ResourceVersion {
			t.Errorf("%s: version %s, want %s, %v", reason, got.ResourceVersion, one.ResourceVersion, err)
		}
		err := p.Reader().Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "other"}, got)
		if errors.Is(err, ErrNotSynced) != (p == never) || err == nil {
			t.Errorf("%s: another one: %v", reason, err)
		}
	}
	if err := s.client.Delete(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if err := never.Reader().Get(t.Context(), client.ObjectKeyFromObject(one), one); !apierrors.IsNotFound(err) {
		t.Errorf("removed: %v", err)
	}
}

// TestBeyondHeals holds that what was left out is kept again once there is room.
func TestBeyondHeals(t *testing.T) {
	var there atomic.Int64
	there.Store(4)
	lives := make(chan string, 1)
	s, m := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		if life := r.URL.Query().Get("timeoutSeconds"); life != "" {
			select {
			case lives <- life:
			default:
			}
			return // it ends as watches do
		}
		var items []string
		for i := range there.Load() {
			items = append(items, fmt.Sprintf(`{"metadata":{"namespace":"ns","name":"a%d"}}`, i))
		}
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1"},"items":[%s]}`, strings.Join(items, ","))
	})
	m.bounds = Bounds{Beyond: true, Objects: 3, Trim: withoutSpec}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.follow(ctx, m) }()
	await(t, "one is left out", func() bool { return m.leftOut() != nil && len(m.all()) == 3 })
	if life := <-lives; life != "300" {
		t.Errorf("a watch lives for %s s while something is left out", life)
	}
	there.Store(3)
	await(t, "nothing is left out", func() bool { return m.leftOut() == nil && len(m.all()) == 3 })
	cancel()
	<-ended
}

// TestBeyondGrows holds that an object that outgrows the memory is left out, and weighs nothing.
func TestBeyondGrows(t *testing.T) {
	s, m, told := standing()
	m.bounds = Bounds{Beyond: true, Bytes: 4096}
	s.reader.mirrors[m.gvk] = m
	big := strings.Replace(event("MODIFIED", "ns", "a", "3"), `"metadata":{`, `"spec":"`+strings.Repeat("x", 8192)+`","metadata":{`, 1)
	if err := s.events(t.Context(), strings.NewReader(event("ADDED", "ns", "a", "2")+big), m); !quietEnd(err) {
		t.Fatal(err)
	}
	if m.get("a") != nil || m.kept != 0 || !errors.Is(m.leftOut(), ErrTooLarge) || len(*told) != 2 {
		t.Errorf("%d bytes are kept, %v is said, %v were told", m.kept, m.leftOut(), *told)
	}
}

// mute is a peer that does not answer.
type mute struct {
	client.Reader
	asked atomic.Int64
}

func (p *mute) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	p.asked.Add(1)
	return context.DeadlineExceeded
}

// TestBeyondMute holds that a provider that leaves out and does not answer holds up nobody: it is asked
// once for a while, and not at all by who wants what is kept.
func TestBeyondMute(t *testing.T) {
	s, m, _ := standing()
	m.leaveOut(ErrTooLarge)
	now, peer := testingclock.NewFakePassiveClock(time.Unix(1000, 0)), &mute{}
	s.reader.mirrors[m.gvk], s.reader.live, s.reader.clock = m, peer, now
	get := func(ctx context.Context) error {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(m.gvk)
		return s.reader.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: "a"}, u)
	}
	if err := get(Kept(t.Context())); !apierrors.IsNotFound(err) || peer.asked.Load() != 0 {
		t.Errorf("who wants what is kept has %v, after %d questions", err, peer.asked.Load())
	}
	for range 9 {
		if err := get(t.Context()); err == nil || apierrors.IsNotFound(err) {
			t.Fatalf("it is said not to be there: %v", err)
		}
	}
	if n := peer.asked.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	now.SetTime(now.Now().Add(askAgain))
	if _ = get(t.Context()); peer.asked.Load() != 2 {
		t.Errorf("after a while it was asked %d times", peer.asked.Load())
	}
}

// TestBeyondEnds holds that a watch in which something was left out ends after a while, so that all is
// listed again.
func TestBeyondEnds(t *testing.T) {
	s, m, told := standing()
	now := testingclock.NewFakeClock(time.Unix(1000, 0))
	s.options.Clock, m.bounds = now, Bounds{Beyond: true, Objects: 1}
	all := s.changed
	s.changed = func(of *session, u *unstructured.Unstructured) {
		all(of, u)
		if u.GetName() == "c" {
			now.Step(beyondFor)
		}
	}
	text := event("ADDED", "ns", "a", "2") + event("ADDED", "ns", "b", "3") + event("ADDED", "ns", "c", "4") + event("ADDED", "ns", "d", "5")
	if err := s.events(t.Context(), strings.NewReader(text), m); err != nil || len(*told) != 3 {
		t.Errorf("it goes on after %v: %v", *told, err)
	}
}
