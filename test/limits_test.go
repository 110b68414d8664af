package test

import (
	"testing"
	"time"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// The limits that docs/sandbox.md states, for 2 cores and warm caches.
const (
	upMost     = 60 * time.Second
	downMost   = 10 * time.Second
	memoryMost = 1_100_000_000 // bytes of PSS for a cluster of two nodes
)

// TestLimits measures two clusters of two nodes with all add-ons. The lines it prints
// are what make bench shows.
func TestLimits(t *testing.T) {
	s := kubetest.Reserve(t, kubetest.Options{Name: "limits", Clusters: []string{"rome", "milan"}, Nodes: 2})
	s.Up(t) // fills the caches
	s.Run(t, "down")

	up := timed(func() { s.Up(t) })
	t.Logf("limit: up of 2 clusters of 2 nodes with add-ons, warm: %.1f s, at most %.0f s", up.Seconds(), upMost.Seconds())
	if up > upMost {
		t.Errorf("up took %s, at most %s", up, upMost)
	}
	for _, c := range statusOf(t, s).Clusters {
		t.Logf("limit: memory of cluster %s of 2 nodes: %.2f GB PSS, at most %.1f GB", c.Name, float64(c.MemoryPSS)/1e9, memoryMost/1e9)
		if c.MemoryPSS == 0 || c.MemoryPSS > memoryMost {
			t.Errorf("cluster %s uses %d bytes, at most %d", c.Name, c.MemoryPSS, int64(memoryMost))
		}
	}
	down := timed(func() { s.Run(t, "down") })
	t.Logf("limit: down: %.1f s, at most %.0f s", down.Seconds(), downMost.Seconds())
	if down > downMost {
		t.Errorf("down took %s, at most %s", down, downMost)
	}
}

func timed(do func()) time.Duration {
	begin := time.Now()
	do()
	return time.Since(begin)
}
