package bench

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// perTunnel is what the product promises of the memory of a tunnel, in bytes.
const perTunnel = 2 << 20

// TestNetworkMemory has tunnels in this process carry as much as they can, and then no more than
// a few requests, as probes are. The limit is for what they have then, beside what the first tunnels
// of a process take once and for all, which is held by TestMemory of cmd/pelago-agent.
func TestNetworkMemory(t *testing.T) {
	netnstest.Root(t)
	usual := takes
	takes = 8 << 10 // what servers of the test have is not what tunnels have
	t.Cleanup(func() { takes = usual })
	first := fabric(t, openTunnels, "as is", 42, 43)
	carry(t, first)
	before, now := settled(t, first), 0
	lines := append(fabric(t, openTunnels, "translated", 42, 42), fabric(t, openTunnels, "once more", 44, 45)...)
	const tunnels = 4 // two fabrics, with two ends each
	all := append(lines, first...)
	most := carry(t, all) - before
	defer func() {
		t.Logf("limit: %d tunnels more: %.1f MiB each while they work, %.1f after, at most %.1f", tunnels,
			mebi(most/tunnels), mebi(now/tunnels), mebi(perTunnel))
	}()
	now = settled(t, all) - before
	if now > tunnels*perTunnel {
		t.Error("tunnels keep more than that")
	}
}

// settled is how much memory this process has once it gives no more back.
func settled(t *testing.T, lines []*line) int {
	t.Helper()
	const still = 12 // probes; what gathers is given back every five seconds
	debug.FreeOSMemory()
	var had []int
	var asked time.Time
	netnstest.Await(t, "no more memory is given back", 3*netnstest.Patience, func() bool {
		if time.Since(asked) < health.Interval {
			return false
		}
		asked = time.Now()
		probe(t, lines)
		had = append(had, anonymous(t))
		return len(had) > still && slices.Min(had[len(had)-still:]) > slices.Min(had)-64<<10 && slices.Index(had, slices.Min(had)) < len(had)-still/2
	})
	return slices.Min(had)
}

// carry has tunnels carry as much as they can, and returns how much memory this process had at most.
func carry(t *testing.T, lines []*line) (most int) {
	t.Helper()
	for _, l := range lines {
		l.check(t)
	}
	b := make([]byte, 256<<10)
	for range 20 {
		for _, l := range lines {
			if _, err := l.piece(b); err != nil {
				t.Fatalf("%s: %v", l.name, err)
			}
			most = max(most, anonymous(t))
		}
	}
	return most
}

// probe has tunnels carry one request each, as probes are.
func probe(t *testing.T, lines []*line) {
	t.Helper()
	for _, l := range lines {
		if _, err := l.ask(1); err != nil {
			t.Fatalf("%s: %v", l.name, err)
		}
	}
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
