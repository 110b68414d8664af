package consumer

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestAwaitHeralds is when a pod without an address waits until gateways are told of that. Home's is of a
// version up to 10, of which pods it was told from 5 to 20.
func TestAwaitHeralds(t *testing.T) {
	base := []func(*facts){carried, said(addressed("10.42.0.7")), func(f *facts) {
		f.view = func(a netip.Addr) (netip.Addr, bool) { return a, true }
		f.tunnel, f.viewed = tunnelAlive, true
		f.behind = func(here, there int64) (bool, bool) { return 10 < here, 20 < there }
		f.heralded = func(here, there int64) (known, may bool) {
			if there <= 5 {
				return false, false
			}
			known = here <= 10 && there <= 20
			return known, !known
		}
		f.pod.ResourceVersion, f.shadow.Status.AddressVersion = "10", 20
	}}
	here := func(version string) func(*facts) { return func(f *facts) { f.pod.ResourceVersion = version } }
	there := func(version int64) func(*facts) { return func(f *facts) { f.shadow.Status.AddressVersion = version } }
	since := func(ago time.Duration) func(*facts) { return func(f *facts) { f.waits = noon.Add(-ago) } }
	behind := "False/" + v1alpha1.ReasonGatewaysBehind
	for _, c := range []struct {
		reason string
		edit   []func(*facts)
		want   string // that is written, "" if nothing
		waits  bool
		again  time.Duration
	}{
		{"they were told", nil, "True", false, 0},
		{"the provider's did not tell yet", []func(*facts){there(21)}, "", true, patiently},
		{"home's does not know yet that it is on the node", []func(*facts){here("11")}, "", true, patiently},
		{"for a while", []func(*facts){there(21), since(time.Second)}, "", true, patiently - time.Second},
		{"for too long", []func(*facts){there(21), since(patiently)}, behind, true, briefly - patiently},
		{"the clock went back", []func(*facts){there(21), since(-time.Hour)}, behind, true, 0},
		{"what was told was lost", []func(*facts){there(5)}, behind, true, briefly},
		{"the provider does not say since when", []func(*facts){there(0)}, behind, true, briefly},
		{"it has another address here", []func(*facts){there(21), func(f *facts) { f.pod.Status.PodIPs = []corev1.PodIP{{IP: "10.42.0.8"}} }}, behind, true, briefly},
		{"the cache is behind its address", []func(*facts){there(21), func(f *facts) { f.memory.addresses, f.memory.addressed = "10.42.0.7", 9 }}, behind, true, briefly},
		{"the tunnel is not known", []func(*facts){there(21), func(f *facts) { f.tunnel = tunnelUnknown }}, "True", false, 0},
	} {
		f := given(append(slices.Clone(base), c.edit...)...)
		p := decide(f)
		got := ""
		if p.status != nil {
			got = readyOf(*p.status)
		}
		if got != c.want || p.again != c.again || (p.waits != nil) != c.waits {
			t.Errorf("%s: writes %q, again after %s, waits for %+v; want %q after %s", c.reason, got, p.again, p.waits, c.want, c.again)
		}
		if c.want == "" && (p.begins || p.welcome || p.waits != nil && !p.waits.heralds) {
			t.Errorf("%s: %+v", c.reason, p)
		}
	}
}

// TestHeralded holds that a pod of which gateways are told is ready with one write, that it is woken by what
// they are told, that one of which they never are is ready all the same, and that a new process begins anew.
func TestHeralded(t *testing.T) {
	w := newWorld(t)
	w.views.set("10.81.0.0/16")
	w.tunnels.state = tunnelAlive
	w.tunnels.know(true, 0, 0)
	w.tunnels.herald(0, 0)
	const there = 500
	want := func(when string, p *corev1.Pod, ready, address string, writes int) {
		t.Helper()
		before := w.total
		w.reconcile(p)
		if got := w.now(p); readyOf(got.Status) != ready || got.Status.PodIP != address || w.total-before != writes {
			t.Errorf("%s: %q at %q after %d writes, want %q at %q after %d", when, readyOf(got.Status), got.Status.PodIP, w.total-before, ready, address, writes)
		}
	}
	p := w.runsAt("web", "10.42.0.7", there)
	want("nobody was told", p, "", "", 0)
	w.clock.Step(patiently / 2)
	want("nobody was told still", p, "", "", 0)
	here := versionOf(w.now(p))
	w.tunnels.herald(0, there)
	if got := w.pods.known(w.peering); got != nil {
		t.Errorf("%v are woken", got)
	}
	want("home does not know that it is on the node", p, "", "", 0)
	w.restart()
	want("a new process", p, "", "", 0)
	w.tunnels.know(true, here, there)
	if got := w.pods.known(w.peering); len(got) != 1 || got[0] != request(p) {
		t.Errorf("%v are woken", got)
	}
	want("they were told", p, "True", "10.81.0.7", 1)
	if len(w.pods.waiters.all) != 0 {
		t.Errorf("%v wait", w.pods.waiters.all)
	}

	w.tunnels.herald(0, there-1)
	w.tunnels.know(true, here, there)
	q := w.runsAt("late", "10.42.0.8", there)
	want("it may be told", q, "", "", 0)
	w.clock.Step(patiently)
	behind := "False/" + v1alpha1.ReasonGatewaysBehind
	want("it never was", q, behind, "10.81.0.8", 1)
	w.tunnels.know(true, versionOf(w.now(q)), there)
	want("they know it by its address", q, "True", "10.81.0.8", 1)

	q = w.runsAt("lost", "10.42.0.9", there)
	want("it may be told too", q, "", "", 0)
	w.tunnels.herald(there, there)
	if got := w.pods.known(w.peering); len(got) != 1 || got[0] != request(q) {
		t.Errorf("%v are woken", got)
	}
	want("it will not be", q, behind, "10.81.0.9", 1)
}
