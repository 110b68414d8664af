package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// perTunnel is what the product promises of the memory of a tunnel, in bytes.
const perTunnel = 2 << 20

// TestNetworkMemory has tunnels in this process carry as much as they can, and then no more than
// a few requests, as probes are. The limit is for what they have then.
func TestNetworkMemory(t *testing.T) {
	netnstest.Root(t)
	before, most, now := anonymous(t), 0, 0
	lines := append(fabric(t, "as is", 42, 43), fabric(t, "translated", 42, 42)...)
	const tunnels = 4 // two fabrics, with two ends each
	for _, l := range lines {
		l.check(t)
	}
	b := make([]byte, 256<<10)
	for range 20 {
		for _, l := range lines {
			if _, err := l.piece(b); err != nil {
				t.Fatalf("%s: %v", l.name, err)
			}
			most = max(most, anonymous(t)-before)
		}
	}
	defer func() {
		t.Logf("limit: %d tunnels: %.1f MiB each while they work, %.1f after, at most %.1f", tunnels,
			mebi(most/tunnels), mebi(now/tunnels), mebi(perTunnel))
	}()
	var asked time.Time
	netnstest.Await(t, "memory is given back", netnstest.Patience, func() bool {
		if time.Since(asked) < health.Interval {
			return false
		}
		asked = time.Now()
		for _, l := range lines {
			if _, err := l.ask(1); err != nil {
				t.Fatalf("%s: %v", l.name, err)
			}
		}
		now = anonymous(t) - before
		return now <= tunnels*perTunnel
	})
}

func mebi(bytes int) float64 { return float64(bytes) / (1 << 20) }

// anonymous is how much memory of its own this process has, in bytes.
func anonymous(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "Anonymous:")
	var kib int
	if _, err := fmt.Sscanf(after, "%d kB", &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
