package reflection

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// changing is a network of which the test says what it knows, and who is told.
type changing struct {
	network
	mu      sync.Mutex
	unknown bool
	none    bool // nothing means anything elsewhere
	seen    *fakeTunnels
}

func newChanging() *changing { return &changing{seen: &fakeTunnels{state: map[string]bool{}}} }

// become says what is known, and tells the peering and the tenant of a name.
func (c *changing) become(unknown, none bool, name string) {
	c.mu.Lock()
	c.unknown, c.none = unknown, none
	c.mu.Unlock()
	c.seen.become(name, true)
	c.seen.become("tenant "+name, true)
}

func (c *changing) Known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.unknown
}

func (c *changing) nothing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unknown || c.none
}

func (c *changing) Translate(peering string, here netip.Addr) (netip.Addr, bool) {
	if c.nothing() {
		return netip.Addr{}, false
	}
	return c.network.Translate(peering, here)
}

func (c *changing) Allows(tenant string, a netip.Addr) bool {
	return !c.nothing() && c.network.Allows(tenant, a)
}

func (c *changing) TenantViews(tenant string) []netip.Prefix {
	if c.nothing() {
		return nil
	}
	return c.network.TenantViews(tenant)
}

func (c *changing) ViewSource(mapper func(string) []reconcile.Request) source.Source {
	return c.seen.TunnelSource(mapper)
}

func (c *changing) TenantViewSource(mapper func(string) []reconcile.Request) source.Source {
	return c.seen.TenantTunnelSource(mapper)
}

// TestSliceUnknown: what is there stays as it is while nothing is known, on both sides, and goes
// when it is known that there is nothing.
func TestSliceUnknown(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	net := newChanging()
	w.addresses, w.allowed = net, net
	w.restart()
	w.create(sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", "node-1")))
	w.says("it is known", "web-1", "10.201.0.1 ready serving")
	net.become(true, false, w.name)
	w.restart()
	before := w.writes
	for _, res := range []reconcile.Result{w.send("web-1"), w.take("web-1")} {
		if res.RequeueAfter <= 0 || res.RequeueAfter > rereadEvery {
			t.Errorf("it is looked at again after %s", res.RequeueAfter)
		}
	}
	if got := shown(w.slice("web-1")); w.writes != before || got != "10.201.0.1 ready serving" {
		t.Errorf("nothing is known: %d writes, %q", w.writes-before, got)
	}
	net.become(false, true, w.name)
	w.clock.Step(readEvery)
	w.says("there is no network with it", "web-1", "no slice")
}

// viewsInManager: slices follow what addresses mean without being asked.
func (w *world) viewsInManager(net *changing, whole string) {
	w.t.Helper()
	for _, none := range []bool{true, false} {
		want := whole
		if none {
			want = "no slice"
		}
		began := time.Now()
		net.become(false, none, w.name)
		w.await("the slice says "+want, func() bool {
			s := w.slice("web-1")
			return s == nil && none || s != nil && shown(s) == want
		})
		w.t.Logf("without addresses %t: the slice says so after %s", none, time.Since(began))
	}
}
