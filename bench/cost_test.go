package bench

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/bench/audit"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	// ownAccounts begin the user names of our programs in their own cluster.
	ownAccounts = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":"
	// settling is how long what was just measured has to come to rest.
	settling = 3 * time.Second
)

// cost is what our programs spend on something.
type cost struct {
	// home and provider are requests to the API servers of their own clusters, across those
	// of rome to milan.
	home, provider, across audit.Counts
	// bytes pass between the clusters, in both directions.
	bytes int64
	// cpu is the processor time of the managers of both clusters, in seconds.
	cpu float64
}

func newCost() *cost {
	return &cost{home: audit.Counts{}, provider: audit.Counts{}, across: audit.Counts{}}
}

// meter measures the cost of what is done between its making and read.
type meter struct {
	c     *kubetest.Continuum
	wire  counter
	marks map[string]audit.Mark
	bytes int64
	cpu   float64
}

func newMeter(t *testing.T, c *kubetest.Continuum) *meter {
	t.Helper()
	m := &meter{c: c, wire: newCounter(t, c), marks: map[string]audit.Mark{}}
	m.cpu, _ = vitals(t, c)
	for _, cluster := range []string{"rome", "milan"} {
		mark, err := audit.Here(filepath.Join("/var/lib/pelago-sandbox", c.Name, cluster+"-control", "log", "audit.log"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(mark.Close)
		m.marks[cluster] = mark
	}
	m.bytes = m.wire.bytes(t)
	return m
}

// read adds to a cost what there was since the meter was made, and comes a little later.
func (m *meter) read(t *testing.T, k *cost) {
	t.Helper()
	<-time.After(settling)
	k.bytes += m.wire.bytes(t) - m.bytes
	for cluster, mark := range m.marks {
		if err := mark.Since(func(r audit.Request) { k.add(cluster, r) }); err != nil {
			t.Fatal(err)
		}
	}
	cpu, _ := vitals(t, m.c)
	k.cpu += cpu - m.cpu
}

// add counts a request of ours that was made to a cluster's API server. Those that ask
// who somebody is are made because this benchmark reads metrics.
func (k *cost) add(cluster string, r audit.Request) {
	switch own := strings.HasPrefix(r.User, ownAccounts); {
	case r.Resource == "tokenreviews", r.Resource == "subjectaccessreviews":
	case own && cluster == "rome":
		k.home.Add(r)
	case own:
		k.provider.Add(r)
	case strings.HasPrefix(r.User, v1alpha1.UserPrefix):
		k.across.Add(r)
	}
}

// requests, events and tokens tell kinds of requests apart.
func events(_, resource string) bool { return resource == "events" }
func tokens(_, resource string) bool { return resource == "serviceaccounts/token" }
func requests(verb, resource string) bool {
	return !events(verb, resource) && !tokens(verb, resource)
}

// vitals are the processor time that all managers have had, in seconds, and the memory
// of the largest one, in MiB.
func vitals(t *testing.T, c *kubetest.Continuum) (cpu, memory float64) {
	t.Helper()
	for _, cluster := range []string{"rome", "milan"} {
		for _, text := range c.Metrics(t, cluster, "pelago-manager") {
			cpu += gauge(t, text, "process_cpu_seconds_total")
			memory = max(memory, gauge(t, text, "process_resident_memory_bytes")/(1<<20))
		}
	}
	return cpu, memory
}

// gauge is the value of a metric without labels.
func gauge(t *testing.T, text, name string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatalf("reading %s: %v", name, err)
			}
			return v
		}
	}
	t.Fatalf("the manager does not measure %s", name)
	return 0
}
