package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// pulse is a connection that says a number every 20 ms, and hears it back.
type pulse struct {
	conn  net.Conn
	parts sync.WaitGroup
	stop  chan struct{}

	mu    sync.Mutex
	sent  uint32
	heard []time.Time
	err   error
}

// pulses are connections of rome's pods to the pod at milan, of both families.
func pulses(t *testing.T, w *world, from ...*netnstest.Node) (all []*pulse) {
	t.Helper()
	for _, n := range from {
		for _, v4 := range netnstest.Families {
			all = append(all, pulseTo(t, n, w.rome.view(1, 5, v4)))
		}
	}
	since(t, all, time.Now())
	return all
}

// pulseTo is one from a node's pod to an address.
func pulseTo(t *testing.T, from *netnstest.Node, to string) *pulse {
	t.Helper()
	c, _ := connects(t, from.Pod, netip.MustParseAddr(to))
	_ = c.SetDeadline(time.Now().Add(4 * time.Minute))
	p := &pulse{conn: c, stop: make(chan struct{})}
	p.parts.Go(p.say)
	p.parts.Go(p.hear)
	t.Cleanup(func() { _ = c.Close(); p.parts.Wait() })
	return p
}

func (p *pulse) say() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		p.mu.Lock()
		b := binary.BigEndian.AppendUint32(nil, p.sent)
		p.sent++
		p.mu.Unlock()
		if _, err := p.conn.Write(b); err != nil {
			p.fail(err)
			return
		}
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
	}
}

func (p *pulse) hear() {
	for b := make([]byte, 4); ; {
		if _, err := io.ReadFull(p.conn, b); err != nil {
			if !errors.Is(err, net.ErrClosed) {
				p.fail(err)
			}
			return
		}
		p.mu.Lock()
		if n := binary.BigEndian.Uint32(b); int(n) != len(p.heard) {
			p.err = errors.Join(p.err, errors.New("numbers come in another order"))
		}
		p.heard = append(p.heard, time.Now())
		p.mu.Unlock()
	}
}

func (p *pulse) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, err)
}

// since waits until all speak after a time, and returns when the last one began to.
func since(t *testing.T, all []*pulse, at time.Time) (last time.Time) {
	t.Helper()
	until(t, "all connections speak", 6*netnstest.Patience, func() bool {
		last = at
		for _, p := range all {
			p.mu.Lock()
			i := slices.IndexFunc(p.heard, func(h time.Time) bool { return h.After(at) })
			if i >= 0 && p.heard[i].After(last) {
				last = p.heard[i]
			}
			p.mu.Unlock()
			if i < 0 {
				return false
			}
		}
		return true
	})
	return last
}

// end holds that all that was said came back, in order, and returns the longest silence.
func end(t *testing.T, all []*pulse) (worst time.Duration) {
	t.Helper()
	for _, p := range all {
		close(p.stop)
		until(t, "all that was said came back", 6*netnstest.Patience, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.err != nil || len(p.heard) == int(p.sent)
		})
		p.mu.Lock()
		if p.err != nil {
			t.Errorf("a connection did not survive: %v", p.err)
		}
		for i := 1; i < len(p.heard); i++ {
			worst = max(worst, p.heard[i].Sub(p.heard[i-1]))
		}
		p.mu.Unlock()
		_ = p.conn.Close()
	}
	return worst
}

// index is the number of a device, which another one of the same name does not have.
func index(t *testing.T, n *netnstest.Node) map[string]int {
	t.Helper()
	links, err := n.Kernel.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	for _, l := range links {
		all[l.Attrs().Name] = l.Attrs().Index
	}
	return all
}

// testKill kills the second processes of both gateways: no device goes, and no connection.
func testKill(t *testing.T, w *world) {
	all := pulses(t, w, w.rome.Nodes[:]...)
	for _, s := range []*side{w.rome, w.milan} {
		g := s.gateway(t)
		before := index(t, s.Nodes[g])
		pid := s.agents[g].second()
		killed := time.Now()
		s.agents[g].kill()
		until(t, "the second process begins anew", netnstest.Patience, func() bool { now := s.agents[g].second(); return now != 0 && now != pid })
		began := time.Since(killed)
		since(t, all, killed.Add(2*time.Second)) // it may have gone on for a moment without it
		if after := index(t, s.Nodes[g]); after["pelago-vx"] != before["pelago-vx"] || len(after) != len(before) {
			t.Errorf("%s has the devices %v, and had %v", s.Nodes[g].Name, after, before)
		} else {
			for name := range after {
				if after[name] != before[name] {
					t.Errorf("%s has another %s", s.Nodes[g].Name, name)
				}
			}
		}
		if s.gateway(t) != g {
			t.Errorf("%s has another gateway", s.Name)
		}
		t.Logf("%s: a new second process %s after the old one was killed", s.Name, began.Round(time.Millisecond))
	}
	t.Logf("longest silence of a connection: %s", end(t, all).Round(time.Millisecond))
}

// moveWithin is how long a move may take, from the death of a gateway to a byte: 2 s until its
// Lease has run out, the next attempt of TCP, and what a busy machine adds.
const moveWithin = 5 * time.Second

// testDeath cuts a gateway's node off and kills its agent: the other node takes over. A machine that was busy
// elsewhere for seconds is given two more tries; on clusters, five rounds of NetworkFaults give none.
func testDeath(t *testing.T, w *world) {
	for range 3 {
		took := w.dies(t)
		if took <= moveWithin {
			return
		}
		t.Logf("the move took %s", took)
	}
	t.Errorf("no move took %s or less", moveWithin)
}

// dies has rome's gateway die and come back, and returns how long the move took.
func (w *world) dies(t *testing.T) time.Duration {
	t.Helper()
	g := w.rome.gateway(t)
	lost, other := w.rome.Nodes[g], w.rome.Nodes[1-g]
	all := pulses(t, w, other)
	died := time.Now()
	w.router.Up(lost.Name, false)
	lost.Up("eth0", false)
	w.rome.api.away(true, lost)
	w.rome.agents[g].die()
	until(t, "the other node is gateway", netnstest.Patience, func() bool { return hasGateway(t, other) })
	moved := time.Since(died)
	took := since(t, all, died.Add(moved)).Sub(died)
	t.Logf("the other node is gateway %s after the death of the first, and the last connection speaks after %s", moved.Round(time.Millisecond), took.Round(time.Millisecond))
	w.rome.alive(t, 1-g, "peering-milan")

	lost.Up("eth0", true)
	w.router.Up(lost.Name, true)
	w.rome.Connect(g)
	w.rome.api.away(false, lost)
	w.rome.start(g)
	until(t, "the first node is gateway again", 2*netnstest.Patience, func() bool { return hasGateway(t, lost) && !hasGateway(t, other) })
	since(t, all, time.Now())
	t.Logf("longest silence of a connection: %s", end(t, all).Round(time.Millisecond))
	return took
}

// testRotation has rome change its key as its manager would.
func testRotation(t *testing.T, w *world) {
	next, err := tunnel.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	all := pulses(t, w, w.rome.Nodes[:]...)
	at, there := v1alpha1.PeeringNamespace("milan"), v1alpha1.TenantNamespace("rome")
	change := func(f func(*v1alpha1.NetworkConfig)) {
		t.Helper()
		for s, namespace := range map[*side]string{w.rome: at, w.milan: there} {
			c := &v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.NetworkConsumer}}
			if err := s.api.Client(t).Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
				t.Fatal(err)
			}
			f(c)
			if err := s.api.Client(t).Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	}
	secret := keys(at, w.rome.secret)
	secret.Data[v1alpha1.NetworkNextKey(at)] = keys(at, next).Data[v1alpha1.NetworkKey(at)]
	if err := w.rome.api.Client(t).Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	change(func(c *v1alpha1.NetworkConfig) { c.Spec.NextPublicKey = next.Public().String() })
	g := w.milan.gateway(t)
	until(t, "milan knows the next key", netnstest.Patience, func() bool {
		_, reports := w.milan.lease(g)
		return reports["tenant-rome"].Knows == next.Public().String()
	})
	changed := time.Now()
	change(func(c *v1alpha1.NetworkConfig) { c.Spec.PublicKey, c.Spec.NextPublicKey = next.Public().String(), "" })
	until(t, "milan talks to the next key", netnstest.Patience, func() bool {
		_, reports := w.milan.lease(g)
		return reports["tenant-rome"].Peer == next.Public().String() && reports["tenant-rome"].Alive
	})
	since(t, all, time.Now())
	t.Logf("the key changed in %s; longest silence of a connection: %s", time.Since(changed).Round(time.Millisecond), end(t, all).Round(time.Millisecond))
}

// testEnd stops the gateway's agent, which comes back, as in an update.
func testEnd(t *testing.T, w *world) {
	g := w.rome.gateway(t)
	until(t, "the gateway's agent has read what there is, which an update waits for", netnstest.Patience, func() bool {
		status, _ := get(t, w.rome.Nodes[g], "/readyz", "")
		return status == http.StatusOK
	})
	all := pulses(t, w, w.rome.Nodes[1-g])
	began := time.Now()
	if err := w.rome.agents[g].stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	stopped := time.Since(began)
	if !hasGateway(t, w.rome.Nodes[1-g]) || hasGateway(t, w.rome.Nodes[g]) {
		t.Error("the other node is not gateway when the first one's agent has ended")
	}
	if l, reports := w.rome.lease(g); ptr.Deref(l.Spec.HolderIdentity, "") != "" || len(reports) > 0 {
		t.Errorf("the Lease is held by %q and has %v", *l.Spec.HolderIdentity, reports)
	}
	// What is for the peer goes by the other node's gateway, also from here.
	c, _ := connects(t, w.rome.Nodes[g].Pod, netip.MustParseAddr(w.rome.view(1, 5, true)))
	_ = c.Close()
	t.Logf("ended in %s", stopped.Round(time.Millisecond))

	// The last one ends as well, and cannot say so: nothing leaves for the peer by another way.
	t.Logf("longest silence of a connection: %s", end(t, all).Round(time.Millisecond))
	w.rome.api.away(true, w.rome.Nodes[1-g])
	if err := w.rome.agents[1-g].stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	w.rome.api.away(false, w.rome.Nodes[1-g])
	_, _, err := w.rome.Nodes[1-g].Pod.Dial(netip.MustParseAddr(w.rome.view(1, 5, true)), time.Second)
	if !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) {
		t.Errorf("without an agent a pod gets %v", err)
	}
	for i := range w.rome.Nodes {
		w.rome.start(i)
	}
	connects(t, w.rome.Nodes[0].Pod, netip.MustParseAddr(w.rome.view(1, 5, true)))
}

// testUnselected has the agents' DaemonSet select other nodes than one, whose agent ends: nothing of
// it is left, and the others go on. It begins anew when the node is selected again.
func testUnselected(t *testing.T, w *world) {
	const key = "example.org/network"
	node := w.rome.gateway(t)
	other := w.rome.Nodes[1-node]
	all := pulses(t, w, other)
	label := func(value any) {
		t.Helper()
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
		if err == nil {
			err = w.rome.api.Client(t).Patch(t.Context(), &corev1.Node{ObjectMeta: meta("", other.Name)}, client.RawPatch(types.MergePatchType, text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	selected := func(selector any) {
		t.Helper()
		text, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"nodeSelector": selector}}}})
		if err == nil {
			err = w.rome.api.Client(t).Patch(t.Context(), &appsv1.DaemonSet{ObjectMeta: meta(v1alpha1.NetworkNamespace, v1alpha1.AgentName)}, client.RawPatch(types.MergePatchType, text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	label("yes")
	selected(map[string]any{key: "yes"})
	if err := w.rome.agents[node].stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	nothing(t, w.rome.Nodes[node])
	if !hasGateway(t, other) {
		t.Error("the other node is not gateway")
	}
	end(t, all)
	selected(nil)
	w.rome.start(node)
	connects(t, w.rome.Nodes[node].Pod, netip.MustParseAddr(w.rome.view(1, 5, true)))
}

// nothing holds that a node has nothing of an agent's.
func nothing(t *testing.T, n *netnstest.Node) {
	t.Helper()
	if names := ours(t, n); len(names) > 0 {
		t.Errorf("%s still has %v", n.Name, names)
	}
	rules, err := n.Kernel.RuleList(unix.AF_INET)
	if err != nil || len(rules) != 3 {
		t.Errorf("%s still has %v, %v", n.Name, rules, err)
	}
}

// testUninstall takes the agents' DaemonSet away, and ends them.
func testUninstall(t *testing.T, w *world) {
	if err := w.rome.api.Client(t).Delete(t.Context(), &appsv1.DaemonSet{ObjectMeta: meta(v1alpha1.NetworkNamespace, v1alpha1.AgentName)}); err != nil {
		t.Fatal(err)
	}
	for i, n := range w.rome.Nodes {
		if err := w.rome.agents[i].stop(); err != nil {
			t.Errorf("%s ended with %v", n.Name, err)
		}
		nothing(t, n)
	}
}
