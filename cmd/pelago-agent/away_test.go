package main

import (
	"net"
	"net/netip"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// sent is how many packets a node has sent to the other cluster.
func sent(t *testing.T, n *netnstest.Node) uint64 {
	t.Helper()
	link, err := n.Kernel.LinkByName("eth1")
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Statistics.TxPackets
}

// testSilence takes the API server away from a gateway alone: another node takes over, and the
// first one leaves the peer to it until it can renew its Lease. It has as many tries as testDeath.
func testSilence(t *testing.T, w *world) {
	for range 3 {
		worst := w.silent(t)
		t.Logf("longest silence of a connection: %s", worst.Round(time.Millisecond))
		if worst <= moveWithin {
			return
		}
	}
	t.Errorf("a connection was silent for longer than %s each time", moveWithin)
}

// silent takes the API server away from rome's gateway alone and gives it back, and returns the longest silence of a
// connection.
func (w *world) silent(t *testing.T) time.Duration {
	t.Helper()
	g := w.rome.gateway(t)
	first, other := w.rome.Nodes[g], w.rome.Nodes[1-g]
	all := pulses(t, w, other)
	began := time.Now()
	w.rome.api.away(true, first)
	took := until(t, "the other node is gateway", netnstest.Patience, func() bool { return hasGateway(t, other) })
	last, quiet := sent(t, first), time.Now()
	until(t, "the first node is silent for a second", netnstest.Patience, func() bool {
		if now := sent(t, first); now != last {
			last, quiet = now, time.Now()
		}
		return time.Since(quiet) > time.Second
	})
	t.Logf("the other node is gateway %s after the API server went from the first, which says nothing after %s", took.Round(time.Millisecond), quiet.Sub(began).Round(time.Millisecond))
	if !hasTunnel(first) || !hasTunnel(other) {
		t.Errorf("the first node has a tunnel: %t, the other: %t", hasTunnel(first), hasTunnel(other))
	}
	w.rome.alive(t, 1-g, "peering-milan")
	since(t, all, time.Now())
	w.rome.api.away(false, first)
	until(t, "the first node is gateway again", 2*netnstest.Patience, func() bool { return hasGateway(t, first) && !hasGateway(t, other) })
	until(t, "it alone has a tunnel", netnstest.Patience, func() bool { return hasTunnel(first) && !hasTunnel(other) })
	since(t, all, time.Now())
	w.rome.alive(t, g, "peering-milan")
	if l, _ := w.rome.lease(g); *l.Spec.LeaseDurationSeconds != 2 {
		t.Errorf("a gateway's Lease is for %d s", *l.Spec.LeaseDurationSeconds)
	}
	return end(t, all)
}

// testUncalled takes the API server away from a gateway whose peer publishes no address at which
// it is: that is made to call the other one, which does not know where it could be called.
func testUncalled(t *testing.T, w *world) {
	publish := func(endpoints ...string) {
		t.Helper()
		c := &v1alpha1.NetworkConfig{ObjectMeta: meta(v1alpha1.PeeringNamespace("milan"), v1alpha1.NetworkProvider)}
		if err := w.rome.api.Client(t).Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			t.Fatal(err)
		}
		c.Spec.Endpoints = endpoints
		if err := w.rome.api.Client(t).Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	g := w.rome.gateway(t)
	first, other := w.rome.Nodes[g], w.rome.Nodes[1-g]
	publish("192.0.2.1:7100")
	all := pulses(t, w, other)
	began := time.Now()
	w.rome.api.away(true, first)
	until(t, "the other node is gateway", netnstest.Patience, func() bool { return hasGateway(t, other) })
	w.rome.alive(t, 1-g, "peering-milan")
	took := since(t, all, time.Now()).Sub(began)
	publish(w.milan.endpoints()...)
	w.rome.api.away(false, first)
	until(t, "the first node is gateway again", 2*netnstest.Patience, func() bool { return hasGateway(t, first) && !hasGateway(t, other) })
	w.rome.alive(t, g, "peering-milan")
	since(t, all, time.Now())
	t.Logf("all speak by the other node %s after the API server went from the first; longest silence of a connection: %s", took.Round(time.Millisecond), end(t, all).Round(time.Millisecond))
}

// The times of testAway: how long nobody has an API server, and the longest silence of a
// connection that nothing happens to on a busy machine, less than it takes to lose a tunnel and find it. TCP tries
// again after 1.4, 3 and 6.2 s: one of a machine that is busy for longer is taken for one of twice that.
const (
	awayFor  = 10 * time.Second
	unharmed = 3 * time.Second
)

// testAway takes the API server away from all nodes: nothing is lost by that, a second process
// that is killed meanwhile is followed by one that goes on, and a link that is cut heals. It has as many tries as
// testDeath.
func testAway(t *testing.T, w *world) {
	for range 3 {
		if w.away(t) {
			return
		}
	}
	t.Errorf("connections were silent for longer than %s, or for longer than %s after a link healed, each time", unharmed, moveWithin)
}

// away takes the API server away from rome's nodes and gives it back, and reports whether no connection was silent for
// too long.
func (w *world) away(t *testing.T) bool {
	t.Helper()
	g, m := w.rome.gateway(t), w.milan.gateway(t)
	before := [2]map[string]int{index(t, w.rome.Nodes[0]), index(t, w.rome.Nodes[1])}
	all := append(pulses(t, w, w.rome.Nodes[:]...), pulseTo(t, w.milan.Nodes[1], w.milan.view(0, 5, true)))
	w.rome.api.away(true, w.rome.Nodes[:]...)
	l, _ := w.rome.lease(g)
	gone := time.Now()
	until(t, "five times a Lease has passed", 2*awayFor, func() bool {
		for i, n := range w.rome.Nodes {
			if after := index(t, n); len(after) != len(before[i]) {
				t.Fatalf("without an API server %s has the devices %v, and had %v", n.Name, after, before[i])
			}
		}
		return time.Since(gone) > awayFor
	})
	worst := end(t, all)
	t.Logf("longest silence of a connection without an API server: %s", worst.Round(time.Millisecond))
	good := worst <= unharmed

	// How long that takes is not held here: alone it is a second or two, but one that hears nothing for
	// two seconds, as on a busy machine, cannot tell that from another gateway's having taken over, and
	// leaves the peer to that one first.
	all = pulses(t, w, w.rome.Nodes[:]...)
	w.rome.agents[g].kill()
	killed := time.Now()
	since(t, all, killed.Add(2*time.Second)) // it may have gone on for a moment without it
	worst = end(t, all)
	t.Logf("longest silence of a connection as a second process begins without an API server: %s", worst.Round(time.Millisecond))

	w.milan.alive(t, m, "tenant-rome")
	w.router.Up(w.rome.Nodes[g].Name, false)
	cut := time.Now()
	until(t, "the tunnel is dead", netnstest.Patience, func() bool { _, reports := w.milan.lease(m); return !reports["tenant-rome"].Alive })
	w.router.Up(w.rome.Nodes[g].Name, true)
	healed := time.Now()
	for _, n := range w.rome.Nodes {
		c, _ := connects(t, n.Pod, netip.MustParseAddr(w.rome.view(1, 5, true)))
		_ = c.Close()
	}
	took := time.Since(healed)
	t.Logf("cut for %s; all speak %s after it healed, without an API server", healed.Sub(cut).Round(time.Millisecond), took.Round(time.Millisecond))
	good = good && took <= moveWithin
	if now, _ := w.rome.lease(g); !now.Spec.RenewTime.Equal(l.Spec.RenewTime) {
		t.Errorf("the gateway has renewed its Lease: %v, %v", l.Spec.RenewTime, now.Spec.RenewTime)
	}

	all = pulses(t, w, w.rome.Nodes[:]...)
	w.rome.api.away(false, w.rome.Nodes[:]...)
	until(t, "the gateway renews its Lease", 2*netnstest.Patience, func() bool { now, _ := w.rome.lease(g); return !now.Spec.RenewTime.Equal(l.Spec.RenewTime) })
	since(t, all, time.Now().Add(time.Second))
	if now := w.rome.gateway(t); now != g {
		t.Errorf("the gateway moved from %d to %d as the API server came back", g, now)
	}
	worst = end(t, all)
	t.Logf("longest silence of a connection as the API server came back: %s", worst.Round(time.Millisecond))
	return good && worst <= unharmed
}

// asks asks the node of a pod for a name once, and returns what it says, -1 for nothing.
func asks(t *testing.T, from *netnstest.Place, name string) (code int) {
	t.Helper()
	question := &wire.Msg{}
	question.SetQuestion(name, wire.TypeA)
	code = -1
	from.In(func() error {
		conn, err := net.DialTimeout("udp", net.JoinHostPort(dns.Address().String(), "53"), time.Second)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		answer, _, err := (&wire.Client{Timeout: time.Second}).ExchangeWithConn(question, &wire.Conn{Conn: conn})
		if err == nil {
			code = answer.Rcode
		}
		return nil // nobody answers, for now
	})
	return code
}

// testNames takes the API server away from all nodes of the provider, and kills the second process of the one with a
// tenant's pod: it has the names of its namespaces as before, and no others.
func testNames(t *testing.T, w *world) {
	const here, nowhere = "shop.svc.cluster.local.", "bank.svc.cluster.local."
	milan := w.milan
	answered := func(reason string) {
		t.Helper()
		until(t, reason, netnstest.Patience, func() bool { return asks(t, milan.Nodes[1].Pod, here) == wire.RcodeSuccess })
		until(t, reason+": another one is not there", netnstest.Patience, func() bool { return asks(t, milan.Nodes[1].Pod, nowhere) == wire.RcodeNameError })
	}
	answered("a pod of a tenant asks")
	milan.api.away(true, milan.Nodes[:]...)
	pid := milan.agents[1].second()
	milan.agents[1].kill()
	killed := time.Now()
	until(t, "the second process begins anew", netnstest.Patience, func() bool { now := milan.agents[1].second(); return now != 0 && now != pid })
	answered("it asks again, without an API server")
	t.Logf("a name is answered %s after a second process was killed without an API server", time.Since(killed).Round(time.Millisecond))

	milan.api.away(false, milan.Nodes[:]...)
	milan.namespace("bank-rome", v1alpha1.LabelTenant, "rome", v1alpha1.LabelHomeNamespace, "bank")
	until(t, "what is new is there when the API server is", 2*netnstest.Patience, func() bool { return asks(t, milan.Nodes[1].Pod, nowhere) == wire.RcodeSuccess })
	milan.alive(t, milan.gateway(t), "tenant-rome")
}
