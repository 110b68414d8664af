package dns

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are those of a Server.
type Metrics struct {
	questions [len(resultNames)]prometheus.Counter
	seconds   prometheus.Histogram
	up        prometheus.Gauge
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(to prometheus.Registerer) (*Metrics, error) {
	questions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pelago_dns_questions_total", Help: "Questions for names by pods of tenants on this node, by what became of them.",
	}, []string{"result"})
	m := &Metrics{seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "pelago_dns_upstream_seconds", Help: "How long the cluster's DNS took for what pods of tenants asked.",
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 4},
	}), up: prometheus.NewGauge(prometheus.GaugeOpts{Name: "pelago_dns_up", Help: "1 while this node answers pods of tenants that ask for names."})}
	for i, name := range resultNames {
		m.questions[i] = questions.WithLabelValues(name)
	}
	for _, c := range []prometheus.Collector{questions, m.seconds, m.up} {
		if err := to.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of names: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) count(what result) {
	if m != nil {
		m.questions[what].Inc()
	}
}

func (m *Metrics) listens(now float64) {
	if m != nil {
		m.up.Set(now)
	}
}

func (m *Metrics) took(d time.Duration) {
	if m != nil {
		m.seconds.Observe(d.Seconds())
	}
}
