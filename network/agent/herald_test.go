package agent

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/health"
)

var plainly = cmp.Options{cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()}

// uidOf is the UID of pod n.
func uidOf(n byte) types.UID { return types.UID(uuid.UUID{15: n}.String()) }

// toldOf is one of pods n at 10.42.9.n.
func toldOf(after, upTo uint64, pods ...byte) health.Recent {
	r := health.Recent{After: after, UpTo: upTo}
	for _, n := range pods {
		r.Pods = append(r.Pods, health.Pod{UID: [16]byte{15: n}, Address: netip.AddrFrom4([4]byte{10, 42, 9, n})})
	}
	return r
}

// TestHeralds is up to where pods are known by what was told of them, and what a plan is made for.
func TestHeralds(t *testing.T) {
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	moved := toldOf(9, 12, 1)
	moved.Pods[0].Address = netip.MustParseAddr("10.42.9.99")
	for _, c := range []struct {
		reason  string
		awaited []types.UID
		told    []health.Recent
		number  uint64 // told last, if not 0
		said    bool
		after   int64
		upTo    int64
		means   string // of each, m for a plan at once, a for one in its turn, - for none, x if it is of no use
	}{
		{reason: "nothing"},
		{reason: "there are none", told: []health.Recent{toldOf(7, 7)}, said: true, after: 7, upTo: 7, means: "-"},
		{reason: "one that nobody waits for", told: []health.Recent{toldOf(0, 9, 1)}, said: true, upTo: 9, means: "-"},
		{reason: "one that waits", awaited: []types.UID{uidOf(1)}, told: []health.Recent{toldOf(0, 9, 1)}, said: true, upTo: 9, means: "m"},
		{reason: "the same twice", awaited: []types.UID{uidOf(1)}, told: []health.Recent{toldOf(0, 9, 1), toldOf(0, 9, 1)}, said: true, upTo: 9, means: "m-"},
		{reason: "it goes on", told: []health.Recent{toldOf(0, 9, 1), toldOf(9, 12, 2)}, said: true, upTo: 12, means: "--"},
		{reason: "some were left out", told: []health.Recent{toldOf(3, 9, 1)}, said: true, after: 9, upTo: 9, means: "-"},
		{reason: "what is in between was lost", told: []health.Recent{toldOf(0, 9, 1), toldOf(10, 12, 2)}, said: true, after: 12, upTo: 12, means: "--"},
		{reason: "and comes later", told: []health.Recent{toldOf(0, 9, 1), toldOf(10, 12, 2), toldOf(3, 12, 1, 2)}, said: true, upTo: 12, means: "---"},
		{reason: "it is late", told: []health.Recent{toldOf(0, 9, 1), toldOf(0, 3, 2)}, said: true, upTo: 9, means: "--"},
		{reason: "it moves", awaited: []types.UID{uidOf(1)}, told: []health.Recent{toldOf(0, 9, 1), moved}, said: true, upTo: 12, means: "ma"},
		{reason: "versions began anew", awaited: []types.UID{uidOf(1)}, told: []health.Recent{toldOf(0, 9, 1)}, number: 8, means: "m"},
		{reason: "the number of what was told", told: []health.Recent{toldOf(0, 9, 1)}, number: 9, said: true, upTo: 9, means: "-"},
		{reason: "it ends before where it began", told: []health.Recent{toldOf(0, 9, 1), toldOf(9, 9)}, said: true, upTo: 9, means: "--"},
		{reason: "no number", told: []health.Recent{toldOf(0, 1<<63, 1), {After: 2, UpTo: 1}}, means: "xx"},
	} {
		var h heralds
		const key = "peering-milan"
		h.expect(map[string]expected{key: {pods: c.awaited}}, noon)
		means, last := "", int64(0)
		for _, r := range c.told {
			upTo, now, anew, ok := h.take(key, r, noon)
			switch {
			case !ok:
				means += "x"
				continue
			case now:
				means += "m"
			case anew:
				means += "a"
			default:
				means += "-"
			}
			last = upTo
		}
		if c.number != 0 && h.number(key, c.number) {
			last = 0
		}
		after, upTo, said := h.since(key)
		if after != c.after || said != c.said || upTo != c.upTo || last != c.upTo || means != c.means {
			t.Errorf("%s: after %d up to %d, %t, %q; want %d, %d, %t, %q", c.reason, after, last, said, means, c.after, c.upTo, c.said, c.means)
		}
	}
}

// TestHeraldsBound holds that a provider fills no memory, that nothing it says of itself has more than
// one plan made at once for a pod here, and that what it says too much of is not taken for known.
func TestHeraldsBound(t *testing.T) {
	var h heralds
	const key = "peering-milan"
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	expect := func() map[types.UID][]netip.Addr {
		at, _ := h.expect(map[string]expected{key: {pods: []types.UID{uidOf(1)}}}, now)
		return at[key]
	}
	expect()
	plans, version := 0, uint64(0)
	for i := range 100 * maxHeralds {
		r := toldOf(version, version+1, 1)
		r.Pods[0].Address = netip.AddrFrom4([4]byte{10, 42, byte(i >> 8), byte(i)})
		r.Pods = append(r.Pods, health.Pod{UID: [16]byte{0: 1, 12: byte(i >> 16), 13: byte(i >> 8), 14: byte(i)}, Address: r.Pods[0].Address})
		version++
		if _, means, _, ok := h.take(key, r, now); !ok {
			t.Fatal("it is of no use")
		} else if means {
			plans++
		}
		if n := len(h.of[key].pods); n > maxHeralds {
			t.Fatalf("%d are remembered", n)
		}
		if i%1000 == 0 {
			expect()
		}
		if i < 50*maxHeralds && i%1700 == 0 && h.number(key, 0) { // as if its versions began anew
			version = 0
		}
	}
	if plans != 1 {
		t.Errorf("%d plans at once", plans)
	}
	if after, _, _ := h.since(key); after == 0 {
		t.Error("what was forgotten is taken for known")
	}
	if got := expect(); len(got) != 1 {
		t.Errorf("the pod here is at %v", got)
	}
	now = now.Add(heraldFor)
	if expect(); len(h.of[key].pods) != 1 {
		t.Errorf("%d are remembered later", len(h.of[key].pods))
	}
	if _, forgotten := h.expect(nil, now); len(h.of) != 0 || !slices.Equal(forgotten, []string{key}) {
		t.Errorf("who is no peer is remembered; %v is forgotten", forgotten)
	}
}

// TestHeraldsLate holds that what was told before does not take the place of what was told since.
func TestHeraldsLate(t *testing.T) {
	var h heralds
	const key = "peering-milan"
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	newer := toldOf(5, 10, 1)
	newer.Pods[0].Address = netip.MustParseAddr("10.42.9.99")
	for _, r := range []health.Recent{newer, toldOf(0, 5, 1)} {
		if _, _, _, ok := h.take(key, r, now); !ok {
			t.Fatal("it is of no use")
		}
	}
	at, _ := h.expect(map[string]expected{key: {pods: []types.UID{uidOf(1)}}}, now)
	if got := fmt.Sprint(at[key][uidOf(1)]); got != "[10.42.9.99]" {
		t.Errorf("it is at %s", got)
	}
}

// TestHeraldsRuled holds that of pods that NetworkPolicies are about nothing is known by what is told of them.
func TestHeraldsRuled(t *testing.T) {
	f := pathFacts()
	pod := podAt(labelled("shop", "web"), "milan")
	pod.UID = uidOf(1)
	f.away = map[string][]corev1.Pod{"milan": {pod}}
	var h heralds
	key := v1alpha1.NetworkKey(atMilan)
	view := f.configs[1].Status.Views[0]
	r := toldOf(0, 9, 1)
	r.Pods[0].Address = netip.MustParsePrefix(view.Real).Addr().Next()
	take := func() bool { _, _, _, ok := h.take(key, r, f.now); return ok }
	known := func() bool {
		f.away["milan"][0].Status.PodIPs = nil
		f.heralded(&h)
		return len(f.away["milan"][0].Status.PodIPs) > 0
	}
	if !take() || !known() {
		t.Fatal("it is not known without policies")
	}
	f.ruling = map[string]bool{atMilan: true}
	if got := f.heralded(&h); !slices.Equal(got, []string{key}) || known() || take() || known() {
		t.Errorf("it is known with policies; %v is forgotten", got)
	}
	if _, _, said := h.since(key); said {
		t.Error("somebody waits for what is told")
	}
	if f.ruling = nil; known() || !take() || !known() {
		t.Error("it is not known without policies, later")
	}
}

// TestHeraldsApplied holds that what was told is known when a plan with it is applied, and not before, that
// what nobody waits for is at once, and that it is no more when versions begin anew.
func TestHeraldsApplied(t *testing.T) {
	const key = "peering-milan"
	a := &Agent{renewal: make(chan struct{}, 1), away: map[string][]string{key: {"milan"}}, tunnels: &tunnels{running: map[string]*running{key: {}}}}
	plans := 0
	a.cluster = &cluster{changed: func() { plans++ }}
	expect := func() {
		a.cluster.heralds.expect(map[string]expected{key: {pods: []types.UID{uidOf(1), uidOf(2)}}}, time.Now())
	}
	want := func(when, lease string, planned int) {
		t.Helper()
		got := "nothing"
		var all map[string]v1alpha1.AppliedPods
		if err := json.Unmarshal([]byte(a.appliedText()), &all); err != nil {
			t.Fatal(err)
		}
		if said := all[key].Heralded; said != nil {
			got = fmt.Sprintf("%d to %d", said.After, said.UpTo)
		}
		if got != lease || plans != planned {
			t.Errorf("%s: the Lease says %s, after %d plans; want %s, %d", when, got, plans, lease, planned)
		}
	}
	read := func() known {
		f := facts{away: map[string][]corev1.Pod{}}
		before := a.cluster.versions.begin()
		expect()
		return known{read: f.progress(before)}
	}
	expect()
	want("nothing was told", "nothing", 0)
	a.heralded(key, toldOf(0, 5, 7))
	want("of a pod that nobody waits for", "0 to 5", 0)
	a.heralded(key, toldOf(5, 9, 1))
	want("of one that waits", "0 to 5", 1)
	k := read()
	want("a plan is made", "0 to 5", 1)
	a.heralded(key, toldOf(9, 12, 2))
	a.applied(k, nil)
	want("it is applied, and more was told", "0 to 9", 2)
	select {
	case <-a.renewal:
	default:
		t.Error("the Lease is not renewed")
	}
	a.applied(read(), nil)
	want("and that with the next", "0 to 12", 2)
	a.numbered(key, 12)
	want("the same number", "0 to 12", 2)
	k = read()
	a.numbered(key, 4)
	want("versions begin anew", "nothing", 2)
	a.applied(k, nil) // as it was before
	a.heralded(key, toldOf(0, 4, 7))
	want("and are told anew", "0 to 4", 2)
}

// TestHeraldedFacts holds that a pod without an address here is where its provider tells, as it is seen
// here, and no other is.
func TestHeraldedFacts(t *testing.T) {
	f := pathFacts()
	views := f.configs[1].Status.Views
	if len(views) == 0 || f.configs[1].Namespace != atMilan {
		t.Fatalf("no views of milan's in %+v", f.configs[1])
	}
	real, view := netip.MustParsePrefix(views[0].Real), netip.MustParsePrefix(views[0].View)
	at := func(p netip.Prefix, n byte) string { b := p.Addr().As4(); b[3] = n; return netip.AddrFrom4(b).String() }
	pod := func(n byte, ips ...string) corev1.Pod {
		p := podAt(labelled("shop", fmt.Sprint("web-", n)), "milan", ips...)
		p.UID = uidOf(n)
		return p
	}
	ended := pod(4)
	ended.Status.Phase = corev1.PodFailed
	f.away = map[string][]corev1.Pod{"milan": {pod(1), pod(2, at(view, 200)), pod(3), ended, pod(6)}}
	var h heralds
	key := v1alpha1.NetworkKey(atMilan)
	r := health.Recent{UpTo: 9}
	for _, n := range []byte{1, 2, 4, 5} {
		r.Pods = append(r.Pods, health.Pod{UID: [16]byte{15: n}, Address: netip.MustParseAddr(at(real, n))})
	}
	r.Pods = append(r.Pods, health.Pod{UID: [16]byte{15: 6}, Address: netip.MustParseAddr("192.0.2.1")}) // which is none of milan's
	if _, _, _, ok := h.take(key, r, f.now); !ok {
		t.Fatal("it is of no use")
	}
	before := f.away["milan"][0].Status.PodIPs
	f.heralded(&h)
	var got []string
	for _, p := range f.away["milan"] {
		got = append(got, fmt.Sprint(podAddresses(&p)))
	}
	want := []string{"[" + at(view, 1) + "]", "[" + at(view, 200) + "]", "[]", "[]", "[]"}
	if d := cmp.Diff(want, got); d != "" || len(before) != 0 {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, p := range input(f).input.Peerings {
		if p.Key == key && !slices.Contains(p.There, netip.MustParseAddr(at(real, 1))) {
			t.Errorf("of milan's, %v may be reached", p.There)
		}
	}
	if _, means, _, _ := h.take(key, toldOf(9, 10, 3), f.now); !means {
		t.Error("nobody waits for a pod that has no address")
	}
	f.nodes = slices.DeleteFunc(f.nodes, func(n corev1.Node) bool { return n.Name == "milan" })
	f.away["milan"][0].Status.PodIPs = nil
	if f.heralded(&h); len(f.away["milan"][0].Status.PodIPs) != 0 {
		t.Error("a pod of a virtual node that is gone is somewhere")
	}
}

// TestRecent is what a tenant is told of its pods here.
func TestRecent(t *testing.T) {
	f := pathFacts()
	pod := func(n byte, tenant, node string, version int, ips ...string) corev1.Pod {
		p := podAt(labelled("shop-rome", fmt.Sprint("web-", n), v1alpha1.LabelTenant, tenant, v1alpha1.LabelHomeUID, string(uidOf(n))), node, ips...)
		p.ResourceVersion = fmt.Sprint(version)
		return p
	}
	told := func(n byte, version uint64, ip string) health.Pod {
		return health.Pod{Version: version, UID: [16]byte{15: n}, Address: netip.MustParseAddr(ip)}
	}
	odd := pod(9, "rome", "a", 25, "10.42.1.9")
	odd.Labels[v1alpha1.LabelHomeUID] = "static-pod"
	ended := pod(8, "rome", "a", 26, "10.42.1.8")
	ended.Status.Phase = corev1.PodSucceeded
	f.hosted = []corev1.Pod{pod(1, "rome", "a", 30, "10.42.1.1", "fd00::1"), pod(2, "rome", "b", 20, "10.42.2.2"), pod(3, "turin", "a", 40, "10.42.1.3"), pod(4, "rome", "", 50), ended}
	want := health.Recent{Pods: []health.Pod{told(2, 20, "10.42.2.2"), told(1, 30, "10.42.1.1"), told(1, 30, "fd00::1")}}
	if d := cmp.Diff(want, recent(f, "rome"), plainly); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	f.hosted = append(f.hosted, pod(5, "rome", "milan", 22, "10.93.1.5"), odd)
	if got := recent(f, "rome"); got.After != 25 {
		t.Errorf("with pods that are told of in another way: %+v", got)
	}
	f.hosted = nil
	for n := range maxRecent + 10 {
		f.hosted = append(f.hosted, pod(byte(n), "rome", "a", 1000-n, fmt.Sprintf("10.42.1.%d", n)))
	}
	if got := recent(f, "rome"); got.After != 1000-maxRecent || len(got.Pods) != maxRecent || got.Pods[0].Version != 1001-maxRecent {
		t.Errorf("of many, %d after %d, the first %+v", len(got.Pods), got.After, got.Pods[0])
	}
}
