package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/health"
)

// theirKey and milansKey are those of the peering of a heralding, as its provider and its home call it.
var theirKey, milansKey = v1alpha1.NetworkKey(atTurin), "peering-milan"

// heralding is a provider's gateway that tells a consumer's, by sockets of this host.
type heralding struct {
	t              *testing.T
	provider, home *Agent
	f              facts // the provider's
	peer           *atomic.Pointer[int64]
	told           chan health.Recent
}

func newHeralding(t *testing.T) *heralding {
	h := &heralding{t: t, f: pathFacts(), peer: &atomic.Pointer[int64]{}, told: make(chan health.Recent, 100)}
	h.f.hosted = nil
	listen := func() *net.UDPConn {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	answers, questions := listen(), listen()
	responder := health.NewResponder(health.ResponderOptions{Conn: answers})
	h.provider = &Agent{cluster: &cluster{}, tunnels: &tunnels{running: map[string]*running{theirKey: {probing: probing{responder: responder}}}}}
	h.home = &Agent{
		cluster: &cluster{changed: func() {}}, away: map[string][]string{milansKey: {"milan"}},
		tunnels: &tunnels{running: map[string]*running{milansKey: {probing: probing{peer: h.peer}}}},
	}
	prober := health.NewProber(health.ProberOptions{
		Conn: questions, Peer: answers.LocalAddr().(*net.UDPAddr).AddrPort(),
		Told: func(number uint64) {
			n := int64(number)
			h.home.numbered(milansKey, number)
			h.peer.Store(&n)
		},
		Heralded: func(r health.Recent) {
			h.home.heralded(milansKey, r)
			h.told <- r
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, run := range []func(context.Context) error{responder.Run, prober.Run} {
		go func() { ended <- run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return h
}

// hear has the provider's gateway hear of a tenant's pod, and whether that means something to a plan.
func (h *heralding) hear(version int64, means bool) {
	h.provider.cluster.versions.hear(stream{tenant: "turin"}, version, means)
}

// plan is one of the provider's gateway, with pods.
func (h *heralding) plan(pods ...corev1.Pod) known {
	h.f.hosted = pods
	h.f.read = h.f.progress(h.provider.cluster.versions.begin())
	return input(h.f)
}

// apply applies one.
func (h *heralding) apply(pods ...corev1.Pod) {
	k := h.plan(pods...)
	h.provider.knows(k)
	h.provider.applied(k, nil)
}

// until waits until home was told something, and returns all that it was told on the way.
func (h *heralding) until(what string, is func(health.Recent) bool) (all []health.Recent) {
	h.t.Helper()
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	for {
		select {
		case r := <-h.told:
			if all = append(all, r); is(r) {
				return all
			}
		case <-limit.C:
			h.t.Fatalf("home was not told %s, but %v", what, all)
		}
	}
}

func (h *heralding) upTo(number uint64) []health.Recent {
	h.t.Helper()
	return h.until(fmt.Sprintf("up to %d", number), func(r health.Recent) bool { return r.UpTo >= number })
}

// knows says whether home's manager takes from the Lease that home's gateway knows a pod of a version.
func (h *heralding) knows(version int64) bool {
	h.t.Helper()
	var all map[string]v1alpha1.AppliedPods
	if err := json.Unmarshal([]byte(h.home.appliedText()), &all); err != nil {
		h.t.Fatal(err)
	}
	said := all[milansKey].Heralded
	return said != nil && said.After < version && version <= said.UpTo
}

// await has home's gateway make a plan with pods that have no address here.
func (h *heralding) await(now time.Time, waiting ...types.UID) {
	f := facts{}
	before := h.home.cluster.versions.begin()
	h.home.cluster.heralds.expect(map[string]expected{milansKey: {pods: waiting}}, now)
	h.home.applied(known{read: f.progress(before)}, nil)
}

// hosted is pod n of the tenant, of a version, on a node of the provider.
func hosted(n byte, node string, version int) corev1.Pod {
	p := podAt(labelled("x", fmt.Sprint("web-", n), v1alpha1.LabelTenant, "turin", v1alpha1.LabelHomeUID, string(uidOf(n))), node, fmt.Sprint("10.42.1.", n))
	p.ResourceVersion = fmt.Sprint(version)
	return p
}

// TestHeraldsOnward holds that a pod that runs onward, of which home's gateway is told nothing, is not known there
// by later versions of it, whether or not these cause plans, and that others are as soon as it does not wait.
func TestHeraldsOnward(t *testing.T) {
	h := newHeralding(t)
	now := time.Now()
	h.await(now, uidOf(1), uidOf(2))
	h.hear(99, true)
	h.apply()
	h.upTo(99)

	const onward, node = 1, "milan" // a virtual one there
	h.hear(100, true)
	h.apply(hosted(onward, node, 100))
	h.upTo(100)
	h.await(now, uidOf(1), uidOf(2))
	if h.knows(100) {
		t.Error("it is known when it has its address")
	}
	h.hear(103, false)
	h.provider.tell()
	h.upTo(103)
	if h.await(now, uidOf(1), uidOf(2)); h.knows(103) {
		t.Error("it is known by a change without a plan")
	}
	h.apply(hosted(onward, node, 103))
	h.hear(105, true)
	h.hear(106, false)
	h.apply(hosted(onward, node, 106), hosted(2, "a", 105))
	h.upTo(106)
	h.await(now.Add(time.Minute), uidOf(1), uidOf(2))
	h.hear(107, false)
	h.provider.tell()
	h.upTo(107)
	if h.await(now.Add(time.Minute), uidOf(1), uidOf(2)); h.knows(103) || h.knows(106) || h.knows(107) {
		t.Error("it is known by one with a plan")
	}

	h.await(now.Add(2*time.Minute), uidOf(3)) // it has its address at home
	h.hear(110, true)
	h.apply(hosted(onward, node, 106), hosted(2, "a", 105), hosted(3, "b", 110))
	h.upTo(110)
	if h.await(now.Add(2*time.Minute), uidOf(3)); !h.knows(110) {
		t.Error("another is not known later")
	}
}

// TestHeraldsLost holds that what was not told is not known by later versions of it, however long it
// waits, and that what comes since is, as soon as that was told after all or nobody waits for it.
func TestHeraldsLost(t *testing.T) {
	const key = "peering-milan"
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	tell := func(after, upTo uint64, pods ...byte) func(h *heralds, now time.Time) {
		return func(h *heralds, now time.Time) { h.take(key, toldOf(after, upTo, pods...), now) }
	}
	plan := func(pods ...byte) func(h *heralds, now time.Time) {
		var waiting []types.UID
		for _, n := range pods {
			waiting = append(waiting, uidOf(n))
		}
		return func(h *heralds, now time.Time) { h.expect(map[string]expected{key: {pods: waiting}}, now) }
	}
	many := func(h *heralds, now time.Time) { // more than are remembered
		for i := range uint64(maxHeralds + 1) {
			r := toldOf(9+i, 10+i, 0)
			r.Pods[0].UID = [16]byte{0: 1, 14: byte(i >> 8), 15: byte(i)}
			h.take(key, r, now)
		}
	}
	type step struct {
		after time.Duration // the one before
		do    func(h *heralds, now time.Time)
	}
	for _, c := range []struct {
		reason string
		steps  []step
		after  int64
		upTo   int64
	}{
		{"of which 2 was lost", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(10, 10)}}, 10, 10},
		{"and it changes", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(10, 10)}, {0, tell(10, 12)}}, 12, 12},
		{"and it does while another is told", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(10, 12, 1)}, {0, tell(12, 15, 3)}}, 15, 15},
		{"and it waits", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(10, 12)}, {time.Hour, plan(1, 2, 3)}, {0, tell(12, 15)}}, 15, 15},
		{"and home hears of it later", []step{{0, plan(1)}, {0, tell(0, 9, 1)}, {0, tell(10, 12)}, {time.Second, plan(1)}, {time.Second, plan(1, 2)}, {time.Hour, plan(1, 2)}, {0, tell(12, 15)}}, 15, 15},
		{"and it waits no more", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(10, 12)}, {time.Minute, plan(1)}, {0, tell(12, 15)}}, 12, 15},
		{"and others wait since", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(10, 12)}, {time.Minute, plan(1, 3)}, {0, tell(12, 15)}}, 12, 15},
		{"and it is told later", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(10, 12)}, {0, tell(12, 15, 2)}, {time.Minute, plan(1, 2)}, {0, tell(15, 18)}}, 15, 18},
		{"and all is told again", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(10, 12)}, {0, tell(0, 12, 1, 2)}}, 0, 12},
		{"and in parts", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(10, 12)}, {0, tell(8, 11, 2)}, {0, tell(11, 15, 3)}}, 0, 15},
		{"and of it again a part", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(11, 12)}, {0, tell(9, 10, 3)}}, 12, 12},
		{"and again one is lost", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(10, 12)}, {time.Minute, tell(13, 15)}, {0, plan(1, 3)}, {0, tell(15, 18)}}, 18, 18},
		{"of which some were left out at first", []step{{0, plan(1, 2)}, {0, tell(5, 9, 1)}, {0, tell(9, 12)}}, 12, 12},
		{"that are too many", []step{{0, plan(1, 2)}, {0, tell(0, 9, 1, 2)}, {0, many}, {time.Hour, plan(1, 2)}, {0, tell(2058, 3000)}}, 3000, 3000},
		{"that are told anew, as after a restore", []step{
			{0, plan(1, 2)}, {0, tell(0, 9, 1)}, {0, tell(10, 12)}, {0, func(h *heralds, _ time.Time) { h.number(key, 5) }}, {0, tell(0, 5, 1)},
		}, 0, 5},
	} {
		var h heralds
		now := noon
		for _, s := range c.steps {
			now = now.Add(s.after)
			s.do(&h, now)
		}
		if after, upTo, said := h.since(key); !said || after != c.after || upTo != c.upTo {
			t.Errorf("pods %s: all are known after %d up to %d, %t; want %d to %d", c.reason, after, upTo, said, c.after, c.upTo)
		}
	}
}

// TestHeraldsBefore holds that what was told is remembered where there is a network and no virtual node yet,
// so that the first pods there are known.
func TestHeraldsBefore(t *testing.T) {
	f := pathFacts()
	f.nodes = slices.DeleteFunc(f.nodes, func(n corev1.Node) bool { return n.Name == "milan" })
	f.away = nil
	var h heralds
	key := v1alpha1.NetworkKey(atMilan)
	h.take(key, toldOf(0, 9), f.now)
	f.heralded(&h)
	if after, upTo, said := h.since(key); !said || after != 0 || upTo != 9 {
		t.Errorf("after %d up to %d, %t", after, upTo, said)
	}
	f.configs = nil
	if f.heralded(&h); len(h.of) != 0 {
		t.Error("it is remembered where there is no network")
	}
}

// TestHeraldsBack holds that a consumer whose network comes, or comes back, while its pods are here already is told
// of these, and of none that there are none, before a plan with them is applied.
func TestHeraldsBack(t *testing.T) {
	h := newHeralding(t)
	h.hear(99, true)
	k := h.plan(hosted(2, "a", 99))
	k.hosts, k.recent = nil, map[string]health.Recent{"tenant-genoa": {}}
	h.provider.knows(k)
	h.provider.applied(k, nil)

	h.await(time.Now(), uidOf(2))
	k = h.plan(hosted(2, "a", 99))
	h.provider.knows(k)
	before := h.until("anything", func(health.Recent) bool { return true }) // as it asks
	if n := h.peer.Load(); n == nil || *n != 0 {
		t.Error("its pods are said to be known, or nothing is")
	}
	h.provider.applied(k, nil)
	after := h.until("of the pod", func(r health.Recent) bool { return len(r.Pods) > 0 })
	for _, r := range slices.Concat(before, after) {
		if r.After < 99 && r.UpTo >= 99 && len(r.Pods) == 0 {
			t.Errorf("it was told that there are none: %+v", r)
		}
	}
	if h.await(time.Now(), uidOf(2)); !h.knows(99) {
		t.Error("the pod is not known")
	}
}
