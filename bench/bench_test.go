// Package bench measures what Pelago promises in numbers, each beside a baseline from
// the same run, for machines differ and are noisy. Run one with
//
//	PELAGO_CLUSTER_TESTS=1 go test ./bench -run Peering -v
//
// as root, after make build image; make bench runs all of them. A number that is
// missed fails. PELAGO_BENCH_PODS=100,5000, PELAGO_BENCH_DELAYS=0s,50ms and
// PELAGO_BENCH_KINDS=plain,shared,own, of pods without or with a Secret, a ConfigMap, a
// token and a Service, choose what TestOffload measures; pictures go to out/plots, or the folder PELAGO_BENCH_PLOTS.
package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/bench/plot"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	// envAll set to 1 makes benchmarks measure all sizes, not only those that take minutes.
	envAll = "PELAGO_TEST_ALL"
	// envPlots is the folder that pictures go to, out/plots of the repository if unset.
	envPlots = "PELAGO_BENCH_PLOTS"
)

// smallClusters are a consumer and a provider with real containers.
const smallClusters = `clusters:
- name: rome
  nodes: 1
  addons: [coredns]
- name: milan
  nodes: 1
  addons: [coredns, load-balancer]
`

// continuum starts the clusters rome and milan of a sandbox.yaml, with Pelago in both.
func continuum(t *testing.T, text string) *kubetest.Continuum {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sandbox.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := kubetest.Sandbox(t, kubetest.Options{Name: "bench", File: file, Pelago: true})
	return kubetest.NewContinuum(t, s, "rome", "milan")
}

// peer makes milan a provider of rome, by an invitation with these terms, and waits for the virtual node.
func peer(t *testing.T, c *kubetest.Continuum, terms ...string) {
	t.Helper()
	if r := c.Shell(t, "rome", c.Invite(t, "milan", terms...)); r.Code != 0 {
		t.Fatalf("peering: exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	until(t, time.Minute, "the virtual node is there", func() error {
		return c.Clients["rome"].Get(t.Context(), client.ObjectKey{Name: "milan"}, &corev1.Node{})
	})
}

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

// atLeast is atMost the other way round.
func atLeast(t *testing.T, what string, got, limit float64, unit string) {
	t.Helper()
	t.Logf("limit: %s: %.2f %s, at least %.2f %s", what, got, unit, limit, unit)
	if got < limit {
		t.Errorf("%s: %.2f %s, at least %.2f %s", what, got, unit, limit, unit)
	}
}

// draw writes charts as a picture of today.
func draw(t *testing.T, name string, charts ...plot.Chart) {
	t.Helper()
	dir := os.Getenv(envPlots)
	if dir == "" {
		dir = filepath.Join("..", "out", "plots")
	}
	path := filepath.Join(dir, time.Now().UTC().Format("20060102")+"-"+name+".svg")
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(plot.SVG(charts...)), 0o644)
	}
	if err != nil {
		t.Errorf("drawing: %v", err)
	}
	t.Logf("drawn: %s", path)
}

// until waits for a condition, looking often enough to be a measurement.
func until(t *testing.T, limit time.Duration, what string, so func() error) {
	t.Helper()
	poll(t, 10*time.Millisecond, limit, what, so)
}

// poll waits for a condition, looking now and then.
func poll(t *testing.T, every, limit time.Duration, what string, so func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(every)
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
