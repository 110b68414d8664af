package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestAgents runs the agents of two clusters with all that is real but kubelets: API servers
// and the generated rights, processes, the data plane, tunnels and probes.
func TestAgents(t *testing.T) {
	netnstest.Root(t)
	w := newWorld(t)
	for _, s := range []*side{w.rome, w.milan} {
		s.found()
		for i := range s.Nodes {
			s.start(i)
		}
	}
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"nothing is made without a peer", testNothing},
		{"pods reach pods by views", testPods},
		{"pods are reached as soon as they are known", testApplied},
		{"metrics are shown", testVitals},
		{"the node counts that carries least", testLeast},
		{"a gateway is missed that its peer has to call", testUncalled}, // before the other one knows where that is
		{"a second process is killed", testKill},
		{"a gateway dies", testDeath},
		{"a key changes", testRotation},
		{"an API server is silent for a gateway", testSilence},
		{"an API server is away", testAway},
		{"an API server is away where names are asked for", testNames},
		{"agents end", testEnd},
		{"a node is not selected any more", testUnselected},
		{"agents are uninstalled", testUninstall},
	} {
		if !t.Run(c.name, func(t *testing.T) { c.test(t, w) }) {
			return // one world for all
		}
	}
}

// testNothing holds that agents without a peering only say that they are alive.
func testNothing(t *testing.T, w *world) {
	for _, s := range []*side{w.rome, w.milan} {
		for i, n := range s.Nodes {
			until(t, n.Name+" says that it is alive", 2*netnstest.Patience, func() bool {
				l, _ := s.lease(i)
				return l != nil && ptr.Deref(l.Spec.HolderIdentity, "") == n.Name && *l.Spec.LeaseDurationSeconds == 15
			})
			if names := ours(t, n); len(names) > 0 {
				t.Errorf("%s has %v", n.Name, names)
			}
		}
	}
}

func testPods(t *testing.T, w *world) {
	begin := time.Now()
	w.peer()
	for i, n := range w.rome.Nodes {
		for _, v4 := range netnstest.Families {
			c, seen := connects(t, n.Pod, netip.MustParseAddr(w.rome.view(1, 5, v4)))
			_ = c.Close()
			if want := w.milan.view(i, 5, v4); seen != want {
				t.Errorf("%s is seen as %s, not %s", n.Pod.Name, seen, want)
			}
		}
	}
	t.Logf("pods reach pods %s after the peering", time.Since(begin).Round(time.Millisecond))
	c, seen := connects(t, w.milan.Nodes[1].Pod, netip.MustParseAddr(w.milan.view(0, 5, true)))
	_ = c.Close()
	if want := w.rome.view(1, 5, true); seen != want {
		t.Errorf("a pod of rome's at milan is seen as %s, not %s", seen, want)
	}
	for _, denied := range []struct {
		from *netnstest.Node
		to   string
	}{
		{w.rome.Nodes[0], w.rome.view(1, 6, true)}, {w.rome.Nodes[1], w.rome.view(0, 5, true)},
		{w.milan.Nodes[1], w.milan.view(1, 5, true)}, {w.milan.Nodes[1], w.milan.view(0, 5, false)},
		{w.milan.Nodes[0], w.milan.view(0, 5, true)}, // which runs there for nobody
	} {
		if c, _, err := denied.from.Pod.Dial(netip.MustParseAddr(denied.to), netnstest.Silence); err == nil {
			_ = c.Close()
			t.Errorf("%s reaches %s", denied.from.Pod.Name, denied.to)
		}
	}
	for _, s := range []*side{w.rome, w.milan} {
		g := s.gateway(t)
		key := map[string]string{"rome": "peering-milan", "milan": "tenant-rome"}[s.Name]
		s.alive(t, g, key)
		l, reports := s.lease(g)
		r := reports[key]
		if len(reports) != 1 || r.Since == nil || r.Handshake == nil || r.Peer == "" || !strings.HasSuffix(r.Endpoint, ":7100") || *l.Spec.LeaseDurationSeconds != 2 {
			t.Errorf("%s says %+v, for %d s", s.Nodes[g].Name, reports, *l.Spec.LeaseDurationSeconds)
		}
		if _, none := s.lease(1 - g); len(none) > 0 {
			t.Errorf("%s says %+v", s.Nodes[1-g].Name, none)
		}
	}
}
