package offer

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// measures are the metrics of offers. Amounts are in the units of Kubernetes: CPUs,
// bytes, pieces.
type measures struct {
	free     func() amounts
	freeDesc *prometheus.Desc

	gauge  *prometheus.GaugeVec
	errors *prometheus.CounterVec
	count  prometheus.GaugeFunc

	mu   sync.Mutex
	made map[[2]string]struct{} // tenant, request
}

// newMeasures makes the metrics; free is asked when they are read.
func newMeasures(free func() amounts) *measures {
	m := &measures{
		free: free, made: map[[2]string]struct{}{},
		freeDesc: prometheus.NewDesc("pelago_free_resources",
			"Free on this cluster's nodes before reserve and rules, by resource; CPUs, bytes, pieces.", []string{"resource"}, nil),
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pelago_offered_resources",
			Help: "Offered to a tenant in answer to one of its requests, by resource; CPUs, bytes, pieces.",
		}, []string{"tenant", "request", "resource"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_resource_reader_errors_total",
			Help: "Answers of a resource reader that were missing, late or nonsense, so that an older one was used.",
		}, []string{"reader"}),
	}
	m.count = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pelago_offers", Help: "ResourceOffers that this cluster has made as a provider and that stand.",
	}, func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return float64(len(m.made))
	})
	return m
}

// register adds the metrics to a registry.
func (m *measures) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m, m.gauge, m.errors, m.count} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// Describe and Collect make the metric of what is free.
func (m *measures) Describe(to chan<- *prometheus.Desc) { to <- m.freeDesc }

// Collect sends the amounts of this moment.
func (m *measures) Collect(to chan<- prometheus.Metric) {
	free := m.free()
	for _, name := range free.names() {
		to <- prometheus.MustNewConstMetric(m.freeDesc, prometheus.GaugeValue, value(name, free[name]), name)
	}
}

// value is an amount in the unit of its metric.
func value(name string, v int64) float64 {
	if name == cpu {
		return float64(v) / 1000
	}
	return float64(v)
}

func (m *measures) failed(reader string) { m.errors.WithLabelValues(reader).Inc() }

// offered notes an offer as it is now.
func (m *measures) offered(tenant, request string, a amounts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made[[2]string{tenant, request}] = struct{}{}
	m.gauge.DeletePartialMatch(prometheus.Labels{"tenant": tenant, "request": request})
	for name, v := range a {
		m.gauge.WithLabelValues(tenant, request, name).Set(value(name, v))
	}
}

// gone notes that there is no offer any more.
func (m *measures) gone(tenant, request string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.made, [2]string{tenant, request})
	m.gauge.DeletePartialMatch(prometheus.Labels{"tenant": tenant, "request": request})
}
