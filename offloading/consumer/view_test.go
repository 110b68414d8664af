package consumer

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// real is the range of the provider's pods.
var real = netip.MustParsePrefix("10.42.0.0/16")

// fakeViews sees real in a prefix of the same size; without one nothing.
type fakeViews struct {
	mu   sync.Mutex
	into netip.Prefix
}

func (v *fakeViews) set(into string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.into = netip.Prefix{}
	if into != "" {
		v.into = netip.MustParsePrefix(into)
	}
}

// View implements Views.
func (v *fakeViews) View(_ string, a netip.Addr) (netip.Addr, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.into.IsValid() || !real.Contains(a) {
		return netip.Addr{}, false
	}
	from, to := a.As4(), v.into.Addr().As4()
	copy(from[:2], to[:2])
	return netip.AddrFrom4(from), true
}

// addressed is the status of a pod that runs and has addresses.
func addressed(all ...string) *corev1.PodStatus {
	s := running()
	for _, ip := range all {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
	}
	return s
}

// view says by which prefix the provider's pods are seen, and stores it as the network does.
func (w *world) view(into string) {
	w.t.Helper()
	w.views.set(into)
	n := &v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.PeeringNamespace(w.peering), Name: v1alpha1.NetworkProvider}}
	if into == "" {
		w.drop(n)
		return
	}
	if err := w.admin.Create(ctx, n); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
	if err := w.admin.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
		w.t.Fatal(err)
	}
	n.Status.Views = []v1alpha1.NetworkView{{Real: real.String(), View: into}}
	if err := w.admin.Status().Update(ctx, n); err != nil {
		w.t.Fatal(err)
	}
}

// TestAddress is the address of a home pod: it comes with the view, costs a write when it
// changes and none otherwise, stays while the provider is away, and goes with the view.
func TestAddress(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web")
	w.reconcile(p)
	w.tell(p, addressed("10.42.0.7", "127.0.0.1", "10.42.0.8"), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	want := func(when, ip string) {
		t.Helper()
		w.reconcile(p)
		got := w.now(p).Status
		if got.PodIP != ip || len(got.PodIPs) != 0 && ip == "" || ip != "" && (len(got.PodIPs) != 1 || got.PodIPs[0].IP != ip) {
			t.Errorf("%s: the pod is at %q, %v, want %q", when, got.PodIP, got.PodIPs, ip)
		}
		writes := w.total
		if w.reconcile(p); w.total != writes {
			t.Errorf("%s: what is known was written again", when)
		}
	}
	want("without a view", "")
	w.views.set("10.81.0.0/16")
	want("seen", "10.81.0.7")
	w.views.set("10.82.0.0/16")
	want("seen by another prefix", "10.82.0.7")
	w.peer.state = silent
	want("the provider is away", "10.82.0.7")
	w.peer.state = answering
	w.tell(p, addressed("10.42.3.9"), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	want("another one", "10.82.3.9")

	// A new process does not know the views at first.
	w.restart()
	w.views.set("")
	if res := w.reconcile(p); res.RequeueAfter <= 0 || res.RequeueAfter > settling {
		t.Errorf("it looks again after %s", res.RequeueAfter)
	}
	want("views are being learnt", "10.82.3.9")
	w.clock.Step(settling)
	want("there are none", "")
	w.views.set("10.82.0.0/16")
	want("seen again", "10.82.3.9")
	w.tell(p, ended(corev1.PodSucceeded, 0), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	want("ended", "")
}

// TestRemovedHasNoAddress: others get the address of a pod that its provider removed.
func TestRemovedHasNoAddress(t *testing.T) {
	w := newWorld(t)
	w.views.set("10.81.0.0/16")
	p := w.pod("web")
	w.reconcile(p)
	w.tell(p, addressed("10.42.0.7"), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(p)
	if ip := w.now(p).Status.PodIP; ip != "10.81.0.7" {
		t.Fatalf("the pod is at %q", ip)
	}
	w.drop(w.shadow(p))
	w.release(string(p.UID))
	w.reconcile(p)
	if got := w.now(p).Status; got.Phase != corev1.PodFailed || got.PodIP != "" || len(got.PodIPs) != 0 {
		t.Errorf("removed: %s at %q", got.Phase, got.PodIP)
	}
}

// TestSettled holds how long a pod keeps an address for which there is no view.
func TestSettled(t *testing.T) {
	at := []corev1.PodIP{{IP: "10.81.0.7"}}
	none := func(netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false }
	for _, c := range []struct {
		reason string
		edit   func(*facts, *corev1.PodStatus)
		want   time.Duration
	}{
		{"just started", func(*facts, *corev1.PodStatus) {}, settling},
		{"later", func(f *facts, _ *corev1.PodStatus) { f.began = noon.Add(-50 * time.Second) }, 10 * time.Second},
		{"settled", func(f *facts, _ *corev1.PodStatus) { f.began = noon.Add(-settling) }, 0},
		{"the clock went back", func(f *facts, _ *corev1.PodStatus) { f.began = noon.Add(time.Hour) }, 0},
		{"no network", func(f *facts, _ *corev1.PodStatus) { f.view = nil }, 0},
		{"it had none", func(f *facts, _ *corev1.PodStatus) { f.pod.Status.PodIPs = nil }, 0},
		{"it has ended", func(_ *facts, next *corev1.PodStatus) { next.Phase = corev1.PodFailed }, 0},
	} {
		f := given(alive)
		f.began, f.view, f.pod.Status.PodIP, f.pod.Status.PodIPs = noon, none, at[0].IP, at
		next := *f.pod.Status.DeepCopy()
		next.PodIP, next.PodIPs = "", nil
		c.edit(&f, &next)
		if got := settled(f, &next); got != c.want || (next.PodIP != "") != (c.want > 0) || len(next.PodIPs) > 0 != (c.want > 0) {
			t.Errorf("%s: %s, at %q, want %s", c.reason, got, next.PodIP, c.want)
		}
	}
	f := given(alive)
	f.began, f.view, f.pod.Status.PodIPs = noon, none, at
	next := *f.pod.Status.DeepCopy()
	next.PodIP, next.PodIPs = "10.82.0.7", []corev1.PodIP{{IP: "10.82.0.7"}}
	if got := settled(f, &next); got != 0 || next.PodIP != "10.82.0.7" {
		t.Errorf("a new address was not taken: %q", next.PodIP)
	}
}

// TestNetworksWake holds which changes of NetworkConfigs are looked at.
func TestNetworksWake(t *testing.T) {
	p := template("shop", "web", "milan-1")
	wake := wakers{cache: listed{pod: p}, places: &places{nodes: map[string]string{"milan-1": "milan"}}}.networks(0)
	network := func(namespace, name string, views ...v1alpha1.NetworkView) *v1alpha1.NetworkConfig {
		return &v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: v1alpha1.NetworkConfigStatus{Views: views}}
	}
	a, b := v1alpha1.NetworkView{Real: "10.42.0.0/16", View: "10.81.0.0/16"}, v1alpha1.NetworkView{Real: "10.42.0.0/16", View: "10.82.0.0/16"}
	here := v1alpha1.PeeringNamespace("milan")
	for _, c := range []struct {
		reason    string
		old, next *v1alpha1.NetworkConfig
		want      int
	}{
		{"it is there with views, as after a restart", nil, network(here, "provider", a), 1},
		{"it is there without", nil, network(here, "provider"), 0},
		{"it gets views", network(here, "provider"), network(here, "provider", a), 1},
		{"they change", network(here, "provider", a), network(here, "provider", b), 1},
		{"they do not", network(here, "provider", a), network(here, "provider", a), 0},
		{"it goes", network(here, "provider", a), nil, 1},
		{"by which the provider sees this cluster", network(here, "consumer"), network(here, "consumer", a), 0},
		{"of a tenant", network(v1alpha1.TenantNamespace("milan"), "provider"), network(v1alpha1.TenantNamespace("milan"), "provider", a), 0},
		{"of another peering", network(here+"2", "provider"), network(here+"2", "provider", a), 0},
	} {
		q := workqueue.NewTypedRateLimitingQueue(newLimiter())
		switch {
		case c.old == nil:
			wake.Create(ctx, event.TypedCreateEvent[client.Object]{Object: c.next}, q)
		case c.next == nil:
			wake.Delete(ctx, event.TypedDeleteEvent[client.Object]{Object: c.old}, q)
		default:
			wake.Update(ctx, event.TypedUpdateEvent[client.Object]{ObjectOld: c.old, ObjectNew: c.next}, q)
		}
		if q.Len() != c.want {
			t.Errorf("%s: %d pods are looked at, want %d", c.reason, q.Len(), c.want)
		} else if got, _ := maybe(q); c.want > 0 && got.NamespacedName != client.ObjectKeyFromObject(p) {
			t.Errorf("%s: looks at %s", c.reason, got)
		}
		q.ShutDown()
	}
}

// listed is a cache with one pod.
type listed struct {
	client.Reader
	pod *corev1.Pod
}

func (l listed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.PodList).Items = []corev1.Pod{*l.pod}
	return nil
}

func maybe(q workqueue.TypedRateLimitingInterface[reconcile.Request]) (reconcile.Request, bool) {
	if q.Len() == 0 {
		return reconcile.Request{}, false
	}
	r, _ := q.Get()
	return r, true
}
