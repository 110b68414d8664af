package consumer

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// real is the range of the provider's pods.
var real = netip.MustParsePrefix("10.42.0.0/16")

// fakeViews sees real in a prefix of the same size; without one nothing.
type fakeViews struct {
	mu      sync.Mutex
	into    netip.Prefix
	unknown bool // before the first look
	tell    func(peering string)
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

// Known implements Views.
func (v *fakeViews) Known() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.unknown
}

// ViewSource implements Views.
func (v *fakeViews) ViewSource(mapper func(string) []reconcile.Request) source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.tell = func(peering string) {
			for _, r := range mapper(peering) {
				q.Add(r)
			}
		}
		return nil
	})
}

// view says by which prefix the provider's pods are seen, and tells who listens.
func (w *world) view(into string) {
	w.t.Helper()
	w.views.set(into)
	w.views.mu.Lock()
	tell := w.views.tell
	w.views.mu.Unlock()
	tell(w.peering)
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
	w.views.unknown = true
	if res := w.reconcile(p); res.RequeueAfter <= 0 || res.RequeueAfter > 2*viewAgain {
		t.Errorf("it looks again after %s", res.RequeueAfter)
	}
	want("views are being learnt", "10.82.3.9")
	w.clock.Step(10 * settling)
	want("they are, for long", "10.82.3.9")
	w.views.unknown = false
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

// TestSettled holds that a pod keeps its address until it is known that there is no view.
func TestSettled(t *testing.T) {
	at := []corev1.PodIP{{IP: "10.81.0.7"}}
	none := func(netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false }
	for _, c := range []struct {
		reason string
		edit   func(*facts, *corev1.PodStatus)
		want   time.Duration
	}{
		{"not known", func(*facts, *corev1.PodStatus) {}, viewAgain},
		{"known", func(f *facts, _ *corev1.PodStatus) { f.viewed = true }, 0},
		{"no network", func(f *facts, _ *corev1.PodStatus) { f.view = nil }, 0},
		{"it had none", func(f *facts, _ *corev1.PodStatus) { f.pod.Status.PodIPs = nil }, 0},
		{"it has ended", func(_ *facts, next *corev1.PodStatus) { next.Phase = corev1.PodFailed }, 0},
	} {
		f := given(alive)
		f.view, f.pod.Status.PodIP, f.pod.Status.PodIPs = none, at[0].IP, at
		next := *f.pod.Status.DeepCopy()
		next.PodIP, next.PodIPs = "", nil
		c.edit(&f, &next)
		if got := settled(f, &next); got != c.want || (next.PodIP != "") != (c.want > 0) || len(next.PodIPs) > 0 != (c.want > 0) {
			t.Errorf("%s: %s, at %q, want %s", c.reason, got, next.PodIP, c.want)
		}
	}
	f := given(alive)
	f.view, f.pod.Status.PodIPs = none, at
	next := *f.pod.Status.DeepCopy()
	next.PodIP, next.PodIPs = "10.82.0.7", []corev1.PodIP{{IP: "10.82.0.7"}}
	if got := settled(f, &next); got != 0 || next.PodIP != "10.82.0.7" {
		t.Errorf("a new address was not taken: %q", next.PodIP)
	}
}
