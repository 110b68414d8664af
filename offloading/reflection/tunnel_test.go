package reflection

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// fakeTunnels are as the test says: those of peerings by their names, those of tenants after
// "tenant ". Of others nothing is known.
type fakeTunnels struct {
	mu    sync.Mutex
	state map[string]bool
	tell  []func(name string)
}

// become says how a tunnel is, and tells who listens.
func (f *fakeTunnels) become(name string, alive bool) {
	f.mu.Lock()
	f.state[name] = alive
	tell := slices.Clone(f.tell)
	f.mu.Unlock()
	for _, to := range tell {
		to(name)
	}
}

func (f *fakeTunnels) Alive(name string) (alive, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	alive, known = f.state[name]
	return alive, known
}

func (f *fakeTunnels) TenantAlive(tenant string) (alive, known bool) {
	return f.Alive("tenant " + tenant)
}

func (f *fakeTunnels) TunnelSource(mapper func(string) []reconcile.Request) source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.tell = append(f.tell, func(name string) {
			for _, r := range mapper(name) {
				q.Add(r)
			}
		})
		return nil
	})
}

func (f *fakeTunnels) TenantTunnelSource(mapper func(string) []reconcile.Request) source.Source {
	return f.TunnelSource(func(name string) []reconcile.Request {
		if tenant, ok := strings.CutPrefix(name, "tenant "); ok {
			return mapper(tenant)
		}
		return nil
	})
}

// TestSliceBehindTunnel: what was made for a tenant is not ready while its tunnel is dead,
// whether home could say so or not, and as home says when it is alive again.
func TestSliceBehindTunnel(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	s := sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", "node-1"), endpoint("10.1.0.2", "node-1"))
	s.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	w.create(s)
	tenant := "tenant " + w.name
	whole := "10.201.0.1 ready serving, 10.201.0.2 serving terminating"
	w.says("nothing is known of the tunnel", "web-1", whole)
	w.tunnels.become(tenant, true)
	w.says("it is alive", "web-1", whole)
	w.tunnels.become("tenant other", false)
	w.says("another one is dead", "web-1", whole)
	w.tunnels.become(tenant, false)
	w.take("web-1") // and home does not
	if got := shown(w.slice("web-1")); got != "10.201.0.1, 10.201.0.2 terminating" || w.answer("web-1") != "True/Ready" {
		t.Errorf("it is dead: %q, %s", got, w.answer("web-1"))
	}
	before := w.writes
	if w.take("web-1"); w.writes != before {
		t.Errorf("it is dead still: %d writes", w.writes-before)
	}
	s.Endpoints = s.Endpoints[:1]
	w.update(s)
	w.says("home says something else meanwhile", "web-1", "10.201.0.1")
	w.restart()
	w.says("a new process", "web-1", "10.201.0.1")
	w.tunnels.become(tenant, true)
	w.says("it is alive again", "web-1", "10.201.0.1 ready serving")
}

// TestSliceBeyondTunnel: pods at a provider whose tunnel is dead are not ready for others.
func TestSliceBeyondTunnel(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	oslo := w.another()
	w.create(sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", oslo), endpoint("10.1.0.2", "node-1")))
	w.others = map[string]fleet.State{oslo: {Reachable: true}}
	whole := "10.201.0.1 ready serving, 10.201.0.2 ready serving"
	w.says("nothing is known of the tunnel", "web-1", whole)
	w.tunnels.become(w.name, false)
	w.says("the tunnel to whom it is told is dead, as he sees himself", "web-1", whole)
	w.tunnels.become(oslo, false)
	w.says("it is dead", "web-1", "10.201.0.1, 10.201.0.2 ready serving")
	w.tunnels.become(oslo, true)
	w.says("it is alive again", "web-1", whole)
	w.others[oslo] = fleet.State{}
	w.says("it is alive, and its API does not answer", "web-1", "10.201.0.1, 10.201.0.2 ready serving")
}

// TestSlicesOf: what is looked at when the tunnel to a tenant dies or lives.
func TestSlicesOf(t *testing.T) {
	of := newNotes[made]()
	set := func(tenant, name, kind string) types.NamespacedName {
		key := types.NamespacedName{Namespace: v1alpha1.TenantNamespace(tenant), Name: name}
		of.set(key, made{kind: kind})
		return key
	}
	set("rome", "a", kindService)
	set("oslo", "b", kindSlice)
	set("rome-2", "d", kindSlice)
	want := []reconcile.Request{{NamespacedName: set("rome", "c", kindSlice)}}
	if diff := cmp.Diff(want, ofTenant(of, kindSlice)("rome")); diff != "" {
		t.Error(diff)
	}
}

// tunnelsInManager: slices follow their tunnels without being asked. All of it is of whole.
func (w *world) tunnelsInManager(oslo, whole, without string) {
	w.t.Helper()
	for _, c := range []struct {
		name, want string
	}{{oslo, without}, {"tenant " + w.name, "10.201.0.1, 10.201.0.2"}} {
		for _, alive := range []bool{false, true} {
			want := whole
			if !alive {
				want = c.want
			}
			began := time.Now()
			w.tunnels.become(c.name, alive)
			w.await("the slice says "+want, func() bool { return shown(w.slice("web-1")) == want })
			w.t.Logf("%s alive %t: the slice says so after %s", c.name, alive, time.Since(began))
		}
	}
}
