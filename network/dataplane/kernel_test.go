package dataplane

import (
	"testing"
)

func TestKernel(t *testing.T) {
	w := newWorld(t)
	w.start()
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"the same again changes nothing", testIdempotent},
		{"pods reach pods by views, and are seen by views", testPods},
		{"a node reaches pods and is seen by the external address", testNodes},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, w) })
	}
}

func testIdempotent(t *testing.T, w *world) {
	for _, c := range []*cluster{w.rome, w.milan} {
		for i, n := range c.nodes {
			before := n.kernel.writes.Load()
			w.set(c, i)
			if after := n.kernel.writes.Load(); after != before {
				t.Errorf("%s: %d writes", n.name, after-before)
			}
		}
	}
}

// testPods goes both ways between all nodes, of which one in each cluster is the gateway.
func testPods(t *testing.T, w *world) {
	for _, way := range []struct{ from, to *cluster }{{w.rome, w.milan}, {w.milan, w.rome}} {
		for from := range way.from.nodes {
			for to := range way.to.nodes {
				for _, v4 := range families {
					c, seen, err := way.from.nodes[from].pod.dial(podAt(way.from.view, to+1, 5, v4), patience)
					if err != nil {
						t.Errorf("from %s to %s: %v", way.from.nodes[from].name, way.to.nodes[to].name, err)
						continue
					}
					_ = c.Close()
					if want := podAt(way.to.view, from+1, 5, v4).String(); seen != want {
						t.Errorf("from %s to %s: seen as %s, want %s", way.from.nodes[from].name, way.to.nodes[to].name, seen, want)
					}
				}
			}
		}
	}
}

func testNodes(t *testing.T, w *world) {
	for _, n := range w.rome.nodes {
		for to := range w.milan.nodes {
			for _, v4 := range families {
				c, seen, err := n.dial(podAt(w.rome.view, to+1, 5, v4), patience)
				if err != nil {
					t.Errorf("from %s: %v", n.name, err)
					continue
				}
				_ = c.Close()
				if want := externalAt(w.milan.external, v4).String(); seen != want {
					t.Errorf("from %s: seen as %s, want %s", n.name, seen, want)
				}
			}
		}
	}
}
