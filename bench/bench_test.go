// Package bench measures what Pelago promises in numbers, each beside a baseline from
// the same run, for machines differ and are noisy. Run one with
//
//	PELAGO_CLUSTER_TESTS=1 go test ./bench -run Peering -v
//
// as root, after make build image; make bench runs all of them. A number that is
// missed fails.
package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// sample is how long each of several attempts took.
type sample []time.Duration

// quantile is the value below which the share q of the attempts is.
func (s sample) quantile(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (s sample) String() string {
	return fmt.Sprintf("p50 %.2f s, worst %.2f s of %d", s.quantile(0.5).Seconds(), s.quantile(1).Seconds(), len(s))
}

// atMost reports a measurement and its limit, and fails if it is missed. What it
// prints is shown by make bench.
func atMost(t *testing.T, what string, got, limit float64, unit string) {
	t.Helper()
	t.Logf("limit: %s: %.2f %s, at most %.2f %s", what, got, unit, limit, unit)
	if got > limit {
		t.Errorf("%s: %.2f %s, at most %.2f %s", what, got, unit, limit, unit)
	}
}

// until waits for a condition, looking often enough to be a measurement.
func until(t *testing.T, limit time.Duration, what string, so func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := so()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting %s until %s: %v", limit, what, err)
		}
		<-tick.C
	}
}
