package tenant

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var (
	tenantsDesc = prometheus.NewDesc("pelago_tenants",
		"Number of tenants of this cluster.", nil, nil)
	usedDesc = prometheus.NewDesc("pelago_tenant_used",
		"What the pods of a tenant request together, in the base unit of the resource (cores, bytes, pods).",
		[]string{"tenant", "resource"}, nil)
	contactDesc = prometheus.NewDesc("pelago_tenant_last_contact_seconds",
		"Seconds since the consumer behind a tenant was last heard of, to the minute.", []string{"tenant"}, nil)
)

// gauges are the metrics of tenants, computed when they are asked for. A tenant that
// is gone leaves none behind.
type gauges struct {
	clock   clock.PassiveClock
	mu      sync.Mutex
	tenants map[string]gauge
}

type gauge struct {
	used    map[string]float64
	contact time.Time // zero if there was none
}

func newGauges(c clock.PassiveClock) *gauges {
	return &gauges{clock: c, tenants: map[string]gauge{}}
}

// set takes over the status of a tenant.
func (g *gauges) set(t *v1alpha1.Tenant) {
	now := gauge{used: map[string]float64{}}
	for name, quantity := range t.Status.Used {
		now.used[name] = quantity.AsApproximateFloat64()
	}
	if t.Status.LastContact != nil {
		now.contact = t.Status.LastContact.Time
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tenants[t.Name] = now
}

func (g *gauges) forget(tenant string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.tenants, tenant)
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	out <- tenantsDesc
	out <- usedDesc
	out <- contactDesc
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	g.mu.Lock()
	tenants := maps.Clone(g.tenants)
	g.mu.Unlock()
	now := g.clock.Now()
	out <- prometheus.MustNewConstMetric(tenantsDesc, prometheus.GaugeValue, float64(len(tenants)))
	for name, t := range tenants {
		for resource, amount := range t.used {
			out <- prometheus.MustNewConstMetric(usedDesc, prometheus.GaugeValue, amount, name, resource)
		}
		if !t.contact.IsZero() {
			out <- prometheus.MustNewConstMetric(contactDesc, prometheus.GaugeValue, now.Sub(t.contact).Seconds(), name)
		}
	}
}
