package consumer

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Behind implements Gateways.
func (f *fakeTunnels) Behind(_, _ string, here, there int64) (home, provider bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.says && f.here < here, f.says && f.there < there
}

// Heralded implements Gateways.
func (f *fakeTunnels) Heralded(_, _ string, here, there int64) (known, may bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.says || !f.heralds || there <= f.after {
		return false, false
	}
	known = here <= f.here && there <= f.upTo
	return known, !known
}

// herald says of which versions pods at the provider are known here before they have addresses here.
func (f *fakeTunnels) herald(after, upTo int64) {
	f.mu.Lock()
	f.heralds, f.after, f.upTo = true, after, upTo
	tell := f.gateways
	f.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// GatewaySource implements Gateways.
func (f *fakeTunnels) GatewaySource(mapper func(string) []reconcile.Request) source.Source {
	return f.source(&f.gateways, mapper)
}

// know says up to which versions gateways know pods, and tells who listens.
func (f *fakeTunnels) know(says bool, here, there int64) {
	f.mu.Lock()
	f.says, f.here, f.there = says, here, there
	tell := f.gateways
	f.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// TestAwait is when a pod waits for gateways, of which home's knows versions up to 10 and the
// provider's up to 20.
func TestAwait(t *testing.T) {
	base := []func(*facts){carried, said(addressed("10.42.0.7")), func(f *facts) {
		f.view = func(a netip.Addr) (netip.Addr, bool) { return a, true }
		f.tunnel, f.viewed = tunnelAlive, true
		f.behind = func(here, there int64) (bool, bool) { return 10 < here, 20 < there }
		f.pod.ResourceVersion, f.shadow.Status.AddressVersion = "10", 20
		f.pod.Status = *addressed("10.42.0.7")
		for i := range f.pod.Status.Conditions {
			f.pod.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}}
	bare := func(f *facts) { f.pod.Status.PodIPs = nil }
	since := func(ago time.Duration) func(*facts) { return func(f *facts) { f.waits = noon.Add(-ago) } }
	here := func(version string) func(*facts) { return func(f *facts) { f.pod.ResourceVersion = version } }
	there := func(version int64) func(*facts) { return func(f *facts) { f.shadow.Status.AddressVersion = version } }
	known := func(addresses string, version int64) func(*facts) {
		return func(f *facts) { f.memory.addresses, f.memory.addressed = addresses, version }
	}
	through := func(s tunnel) func(*facts) { return func(f *facts) { f.tunnel = s } }
	silent := func(f *facts) { f.behind = func(_, _ int64) (bool, bool) { return false, false } }
	ready := func(f *facts) {
		f.pod.Status = *addressed("10.42.0.7")
	}
	unready := func(f *facts) {
		s := addressed("10.42.0.7")
		s.Conditions[1].Status, s.Conditions[2].Status = corev1.ConditionFalse, corev1.ConditionFalse
		said(s)(f)
	}
	marked := func(f *facts) {
		for i := range f.pod.Status.Conditions {
			f.pod.Status.Conditions[i].Reason = v1alpha1.ReasonGatewaysBehind
		}
	}
	behind := "False/" + v1alpha1.ReasonGatewaysBehind
	for _, c := range []struct {
		reason  string
		edit    []func(*facts)
		want    string
		here    int64 // that it waits for
		message string
		again   time.Duration
	}{
		{"both know it", nil, "True", 0, "", 0},
		{"home does not", []func(*facts){here("11")}, behind, 11, "not all gateways", briefly},
		{"the provider's does not", []func(*facts){there(21)}, behind, 10, "not all gateways", briefly},
		{"it has no address here yet", []func(*facts){bare}, behind, math.MaxInt64, "not all gateways", briefly},
		{"it had its address sooner than what is known of it", []func(*facts){here("11"), known("10.42.0.7", 9)}, "True", 0, "", 0},
		{"the cache is behind its address", []func(*facts){bare, known("10.42.0.7", 9)}, "True", 0, "", 0},
		{"it had another address", []func(*facts){here("11"), known("10.42.0.8", 9)}, behind, 11, "not all gateways", briefly},
		{"it waits for a while", []func(*facts){here("11"), since(time.Second)}, behind, 11, "not all gateways", briefly - time.Second},
		{"it waits for home for long", []func(*facts){here("11"), since(briefly)}, behind, 11, "the gateway of this cluster does not", 0},
		{"it waits for the provider's for long", []func(*facts){there(21), since(briefly)}, behind, 10, "the gateway of milan does not", 0},
		{"it waits for both for long", []func(*facts){here("11"), there(21), since(time.Hour)}, behind, 11, "neither", 0},
		{"the clock went back", []func(*facts){here("11"), since(-time.Hour)}, behind, 11, "the gateway of this cluster", 0},
		{"it waited when another process ran", []func(*facts){here("11"), marked}, behind, 11, "the gateway of this cluster", 0},
		{"it waited, and both know it", []func(*facts){marked, since(time.Second)}, "True", 0, "", 0},
		{"the provider does not say since when", []func(*facts){there(0)}, "True", 0, "", 0},
		{"the provider says nonsense", []func(*facts){there(math.MinInt64)}, "True", 0, "", 0},
		{"nobody says anything", []func(*facts){here("11"), there(21), silent}, "True", 0, "", 0},
		{"the network is off", []func(*facts){here("11"), through(tunnelNone), func(f *facts) { f.behind = nil }}, "True", 0, "", 0},
		{"the tunnel is not known", []func(*facts){here("11"), through(tunnelUnknown)}, "True", 0, "", 0},
		{"the tunnel is dead", []func(*facts){here("11"), through(tunnelDead)}, "False/" + v1alpha1.ReasonTunnelDown, 0, "", 0},
		{"it is not seen", []func(*facts){here("11"), bare, func(f *facts) { f.view = nil }}, "True", 0, "", 0},
		{"it is ready", []func(*facts){ready, here("11"), there(21)}, "True", 0, "", 0},
		{"its containers are not", []func(*facts){here("11"), unready}, "False", 0, "", 0},
		{"the provider does not answer", []func(*facts){here("11"), marked, linked(away)}, "False/" + v1alpha1.ReasonPeerUnreachable, 0, "", 0},
	} {
		f := given(append(slices.Clone(base), c.edit...)...)
		p := decide(f)
		got := f.pod.Status
		if p.status != nil {
			got = *p.status
		}
		if readyOf(got) != c.want || p.again != c.again {
			t.Errorf("%s: %q, again after %s, want %q after %s", c.reason, readyOf(got), p.again, c.want, c.again)
		}
		if (p.waits != nil) != (c.here != 0) || p.waits != nil && p.waits.here != c.here {
			t.Errorf("%s: it waits for %+v, want %d", c.reason, p.waits, c.here)
		}
		for _, cond := range got.Conditions {
			if p.waits == nil || cond.Type == corev1.PodInitialized {
				continue
			}
			if cond.Status != corev1.ConditionFalse || !strings.HasPrefix(cond.Message, c.message) {
				t.Errorf("%s: %s is %s: %s", c.reason, cond.Type, cond.Status, cond.Message)
			}
		}
		if p.warnings != nil {
			t.Errorf("%s: the provider is asked what is wrong there", c.reason)
		}
		if p.waits != nil && addressesOf(&got) != "10.42.0.7" {
			t.Errorf("%s: it is at %q", c.reason, addressesOf(&got))
		}
	}
}

// addressedAt has the provider say that a pod runs at an address that it has since a version.
func (w *world) addressedAt(p *corev1.Pod, address string, version int64) {
	w.t.Helper()
	w.tell(p, addressed(address), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	s := w.shadow(p)
	s.Status.AddressVersion = version
	if err := w.admin.Status().Update(ctx, s); err != nil {
		w.t.Fatal(err)
	}
}

// runsAt makes a pod of which the provider says that it runs at an address that it has since a version.
func (w *world) runsAt(name, address string, version int64) *corev1.Pod {
	w.t.Helper()
	p := w.pod(name)
	w.reconcile(p)
	w.addressedAt(p, address, version)
	return p
}

// TestGatewaysBehind holds that a pod gets its address first, and is ready when both gateways have
// said that they know it; that this is one write more, and that nothing of it is lost by a new process.
func TestGatewaysBehind(t *testing.T) {
	w := newWorld(t)
	w.views.set("10.81.0.0/16")
	w.tunnels.state = tunnelAlive
	w.tunnels.know(true, 0, 0)
	const there = 500
	p := w.runsAt("web", "10.42.0.7", there)
	writes := w.total
	want := func(when, ready string, more int) {
		t.Helper()
		w.reconcile(p)
		got := w.now(p)
		if readyOf(got.Status) != ready || got.Status.PodIP != "10.81.0.7" || condition(got, corev1.ContainersReady).Status != condition(got, corev1.PodReady).Status {
			t.Errorf("%s: %q at %q, want %q", when, readyOf(got.Status), got.Status.PodIP, ready)
		}
		if writes += more; w.total != writes {
			t.Errorf("%s: %d writes, want %d", when, w.total-writes+more, more)
		}
		writes = w.total
	}
	behind := "False/" + v1alpha1.ReasonGatewaysBehind
	want("nobody knows it", behind, 1)
	here := versionOf(w.now(p))
	want("nobody does still", behind, 0)
	if got := w.pods.known(w.peering); got != nil {
		t.Errorf("%v are woken", got)
	}
	w.tunnels.know(true, here-1, there)
	want("the provider's does", behind, 0)
	w.tunnels.know(true, here, there-1)
	want("home's does", behind, 0)
	w.restart()
	w.clock.Step(2 * briefly)
	want("a new process tells whose does not", behind, 1)
	if m := condition(w.now(p), corev1.PodReady).Message; !strings.HasPrefix(m, "the gateway of "+w.peering+" does not know") {
		t.Errorf("it says %q", m)
	}
	w.tunnels.know(true, versionOf(w.now(p)), there-1) // of that write too
	w.restart()
	want("the next one", behind, 0)
	w.tunnels.know(true, versionOf(w.now(p)), there)
	if got := w.pods.known(w.peering); len(got) != 1 || got[0] != request(p) {
		t.Errorf("%v are woken", got)
	}
	want("both do", "True", 1)
	if got := w.pods.known(w.peering); got != nil {
		t.Errorf("%v are woken, and wait for nothing", got)
	}
	w.tunnels.know(true, 0, 0)
	want("a gateway moved", "True", 0)
	w.restart()
	want("and a new process began", "True", 0)

	// It was not ready for another reason: what was known of it is enough.
	w.tunnels.know(true, versionOf(w.now(p)), there)
	w.peer.state = silent
	want("the provider is away", "False/"+v1alpha1.ReasonPeerUnreachable, 1)
	w.peer.state = answering
	w.tunnels.know(true, versionOf(w.now(p)), there)
	want("it answers", "True", 1)

	// One that has had its address before is ready with one write.
	q := w.pod("early")
	w.reconcile(q)
	s := addressed("10.42.0.8")
	s.Conditions[1].Status, s.Conditions[2].Status = corev1.ConditionFalse, corev1.ConditionFalse
	w.tell(q, s, accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(q)
	here = versionOf(w.now(q))
	got := w.now(q)
	got.Status.Conditions = append(got.Status.Conditions, corev1.PodCondition{Type: "example.org/other", Status: corev1.ConditionTrue})
	if err := w.admin.Status().Update(ctx, got); err != nil {
		t.Fatal(err)
	}
	w.tunnels.know(true, here, there)
	w.addressedAt(q, "10.42.0.8", there)
	p, writes = q, w.total
	before := w.total
	w.reconcile(q)
	if readyOf(w.now(q).Status) != "True" || w.total != before+1 {
		t.Errorf("a pod whose address is known: %s, %d writes", readyOf(w.now(q).Status), w.total-before)
	}

	// Who says nothing is not waited for.
	w.tunnels.know(false, 0, 0)
	q = w.runsAt("older", "10.42.0.9", there)
	before = w.total
	w.reconcile(q)
	if readyOf(w.now(q).Status) != "True" || w.total != before+1 {
		t.Errorf("an older build is waited for: %s, %d writes", readyOf(w.now(q).Status), w.total-before)
	}

	// What is said between the look and the write wakes nobody, and is not lost.
	w.tunnels.know(true, 0, 0)
	q = w.runsAt("between", "10.42.0.10", there)
	w.fail = func(_ int, call string) (error, error) {
		w.tunnels.know(true, math.MaxInt64-1, there)
		return nil, nil
	}
	if res := w.reconcile(q); res.RequeueAfter <= 0 || res.RequeueAfter > 10*time.Millisecond {
		t.Errorf("it looks again after %s", res.RequeueAfter)
	}
	w.fail = nil
	w.reconcile(q)
	if readyOf(w.now(q).Status) != "True" {
		t.Errorf("then it is %s", readyOf(w.now(q).Status))
	}
	// One that is gone is forgotten.
	w.tunnels.know(true, 0, 0)
	q = w.runsAt("gone", "10.42.0.11", there)
	w.reconcile(q)
	w.delete(q, client.GracePeriodSeconds(0))
	w.reconcile(q)
	if len(w.pods.waiters.all) != 0 {
		t.Errorf("%v wait", w.pods.waiters.all)
	}
}

// TestOutrun holds that nothing is decided of a pod that a cache shows as it was before this process
// wrote its status, as it would be written twice, and that this is so for a while only.
func TestOutrun(t *testing.T) {
	w := newWorld(t)
	w.views.set("10.81.0.0/16")
	w.tunnels.state = tunnelAlive
	w.tunnels.know(true, 0, 0)
	p := w.pod("web")
	w.reconcile(p)
	w.addressedAt(p, "10.42.0.7", 500)
	var shown *corev1.Pod // by the cache; what there is if nil
	w.pods.client = interceptor.NewClient(w.counted("here"), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if pod, ok := obj.(*corev1.Pod); ok && shown != nil {
				shown.DeepCopyInto(pod)
				return nil
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	want := func(when, ready string, writes int) {
		t.Helper()
		before := w.total
		w.reconcile(p)
		if got := readyOf(w.now(p).Status); got != ready || w.total-before != writes {
			t.Errorf("%s: %q after %d writes, want %q after %d", when, got, w.total-before, ready, writes)
		}
	}
	behind := "False/" + v1alpha1.ReasonGatewaysBehind
	shown = w.now(p)
	want("it has its address", behind, 1)
	waiting := w.now(p)
	w.tunnels.know(true, math.MaxInt64-1, 500)
	want("both know it, and the cache does not show the address", behind, 0)
	w.clock.Step(buryAgain / 2)
	if again := w.reconcile(p).RequeueAfter; again != buryAgain/2 {
		t.Errorf("it is looked at again after %s, want as soon as it is not believed any more", again)
	}
	shown = waiting
	want("the cache shows it", "True", 1)
	want("and not yet that it is ready", "True", 0)
	w.clock.Step(-time.Hour)
	want("nor when the clock went back", "True", 1)
	w.clock.Step(buryAgain)
	want("nor after long: versions began anew", "True", 1)
	shown = nil
	want("it shows it", "True", 0)
}

// gatewaysCome holds, with everything running, that pods are ready as soon as gateways say that they
// know them, and that they are woken only then.
func (w *world) gatewaysCome() {
	w.t.Helper()
	w.view("10.81.0.0/16")
	w.tunnels.know(true, 0, 0)
	w.tunnels.become(tunnelAlive)
	const many = 20
	var all []*corev1.Pod
	for i := range many {
		all = append(all, w.pod(fmt.Sprint("known-", i)))
	}
	highest := int64(0)
	for i, p := range all {
		w.await("the pod is carried", func() bool { return w.shadow(p) != nil })
		w.addressedAt(p, fmt.Sprintf("10.42.7.%d", i+1), int64(100+i))
	}
	for _, p := range all {
		w.await("the pod waits", func() bool { return readyOf(w.now(p).Status) == "False/"+v1alpha1.ReasonGatewaysBehind })
		highest = max(highest, versionOf(w.now(p)))
	}
	w.tunnels.mu.Lock()
	heard := w.tunnels.gateways != nil
	w.tunnels.mu.Unlock()
	if !heard { // a pod is looked at again after a while all the same
		w.t.Error("nobody listens to what gateways say")
	}
	began := time.Now()
	w.tunnels.know(true, highest, 100+many/2-1) // half of them
	ready := func() (n int) {
		for _, p := range all {
			if readyOf(w.now(p).Status) == "True" {
				n++
			}
		}
		return n
	}
	w.await("those are ready that both know", func() bool { return ready() >= many/2 })
	if n := ready(); n != many/2 {
		w.t.Errorf("%d are ready", n)
	}
	w.tunnels.know(true, highest, 100+many)
	w.await("all are", func() bool { return ready() == many })
	w.t.Logf("%d pods were ready %s after the first half was known", many, time.Since(began).Round(time.Millisecond))
	w.tunnels.know(false, 0, 0)
	w.view("")
	for _, p := range all {
		w.drop(p)
		w.await("the end is asked for", func() bool { s := w.shadow(p); return s == nil || s.DeletionTimestamp != nil })
		w.release(string(p.UID))
	}
}
