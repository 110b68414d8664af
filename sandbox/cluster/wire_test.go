package cluster

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/internet"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

func TestWhoReachesWhom(t *testing.T) {
	w := startWires(t)
	address := func(name string) string { return w.addressOf(t, name, false) }
	milanNAT := w.Clusters[1].Transit.NAT(1).V4.Addr().String()
	host := w.Clusters[0].Transit.Host().V4.Addr().String()
	for _, c := range []struct{ reason, from, to, want string }{
		{"nodes of a cluster", "rome-1", "rome-2", address("rome-1")},
		{"a node and its control plane", "rome-1", "rome-control", address("rome-1")},
		{"a control plane and its node", "milan-control", "milan-1", address("milan-control")},
		{"nodes of two clusters, by their own addresses", "rome-1", "athens-1", address("rome-1")},
		{"a node and another cluster's API", "athens-1", "rome-control", address("athens-1")},
		{"behind NAT calls out, seen as its box", "milan-1", "rome-2", milanNAT},
		{"behind NAT cannot be called", "rome-1", "milan-1", ""},
		{"nor can its control plane", "athens-1", "milan-control", ""},
		{"the host reaches nodes", "host", "rome-2", host},
		{"the host reaches API servers", "host", "athens-control", host},
		{"also behind NAT", "host", "milan-control", host},
	} {
		w.check(t, c.reason, c.from, c.to, c.want)
	}

	w.complete(t) // the second time finds everything there
	w.check(t, "after a second start", "rome-1", "athens-1", address("rome-1"))

	ctx := context.Background()
	if err := w.SetLink(ctx, "rome", "athens", func(l *internet.Link) { l.Cut = true }); err != nil {
		t.Fatal(err)
	}
	w.check(t, "a cut link", "rome-1", "athens-1", "")
	w.check(t, "and back", "athens-1", "rome-control", "")
	w.check(t, "other links stay", "milan-1", "athens-1", anyone)
	if opened, err := Open(w.Name); err != nil || cmp.Diff([]internet.Link{{A: "athens", B: "rome", Cut: true}}, opened.Links) != "" {
		t.Errorf("the cut is stored as %v, %v", opened.Links, err)
	}
	if err := w.SetLink(ctx, "athens", "rome", func(l *internet.Link) { l.Cut = false }); err != nil {
		t.Fatal(err)
	}
	w.check(t, "a healed link", "rome-1", "athens-1", address("rome-1"))
	if len(w.Links) != 0 {
		t.Errorf("a plain link is still listed: %v", w.Links)
	}
	if stats, err := w.Stats(ctx); err != nil || len(stats.Flows) != 6 {
		t.Errorf("flows of three clusters: %v, %v", stats.Flows, err)
	}
}

// TestHostWithoutIPv6: it is switched off for whatever interface the host gets.
func TestHostWithoutIPv6(t *testing.T) {
	s, err := Prepare(randomName(t), config.Sandbox{Clusters: wanted(t, 1, "rome")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.installProgram(); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // for good: the thread, whose network is the host's here, ends with the test
	err = syscall.Unshare(syscall.CLONE_NEWNET)
	if err == nil {
		err = os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time finds the wire there
		if _, err := s.startInternet(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	link, err := net.InterfaceByName(hostInterface(s.Index))
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := link.Addrs()
	want := s.Clusters[0].Transit.Host().Hosts()[1].String()
	if err != nil || !slices.ContainsFunc(addresses, func(a net.Addr) bool { return a.String() == want }) {
		t.Errorf("%s has addresses %v (%v), not %s", link.Name, addresses, err, want)
	}
	text, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/disable_ipv6")
	if err != nil || string(text) != "1\n" {
		t.Errorf("what interfaces of the host get is %q now, %v", text, err)
	}
}

func TestRefusedLinks(t *testing.T) {
	w := startWires(t)
	for _, c := range []struct {
		reason, a, b string
		change       func(*internet.Link)
	}{
		{"no such cluster", "rome", "sparta", func(l *internet.Link) { l.Cut = true }},
		{"a cluster and itself", "rome", "rome", func(l *internet.Link) { l.Cut = true }},
		{"a delay out of bounds", "rome", "milan", func(l *internet.Link) { l.Delay = time.Hour }},
	} {
		if err := w.SetLink(context.Background(), c.a, c.b, c.change); err == nil || len(w.Links) != 0 {
			t.Errorf("%s: %v; links are %v", c.reason, err, w.Links)
		}
	}
}

func TestStoppedNodeComesBack(t *testing.T) {
	w := startWires(t)
	rome := w.Clusters[0]
	if err := w.StopNode(rome, "rome-2"); err != nil {
		t.Fatal(err)
	}
	w.check(t, "a node without power", "rome-1", "rome-2", "")
	if _, err := rome.Machine("rome-2"); err == nil {
		t.Error("a stopped node is said to run")
	}
	if err := w.StopNode(rome, "rome-3"); err == nil {
		t.Error("a node that does not exist was stopped")
	}
	w.complete(t)
	w.check(t, "the node is back", "rome-1", "rome-2", w.addressOf(t, "rome-1", false))
}

func TestDownLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		reason string
		before func(*testing.T, *wires)
		atOnce bool // the host's interface is gone when Down returns
	}{
		{"a healthy sandbox", func(*testing.T, *wires) {}, true},
		{"after the internet and a node were killed", func(t *testing.T, w *wires) {
			for _, m := range []*machine.Machine{w.internet, w.machines["rome-1"]} {
				if err := syscall.Kill(m.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}, true},
		{"after its records were lost", func(t *testing.T, w *wires) {
			if err := os.RemoveAll(w.Dir()); err != nil && !errors.Is(err, syscall.EBUSY) {
				t.Fatal(err)
			}
		}, false},
	} {
		w := startWires(t)
		if !w.hostHas(t) {
			t.Fatalf("%s: the host has no way into the sandbox", c.reason)
		}
		c.before(t, w)
		start := time.Now()
		if err := Down(w.Name); err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
		if c.atOnce && w.hostHas(t) {
			t.Errorf("%s: the host's interface outlives down", c.reason)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s: it took %s", c.reason, took)
		}
		if left := machine.Remaining(w.Name); len(left) > 0 {
			t.Errorf("%s: processes %v remain", c.reason, left)
		}
		if _, err := os.Stat(w.Dir()); err == nil {
			t.Errorf("%s: %s remains", c.reason, w.Dir())
		}
		err := within(context.Background(), time.Minute, "the host's interface to go", func(context.Context) error {
			if w.hostHas(t) {
				return errors.New("it is there")
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
}
