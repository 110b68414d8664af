package health

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	aliveDesc = prometheus.NewDesc("pelago_tunnel_alive",
		"1 if the tunnel of a peering carries packets both ways, 0 if not; none before that is known.", []string{"peering"}, nil)
	lossDesc = prometheus.NewDesc("pelago_tunnel_loss_ratio",
		"Part of the last minute's probes through the tunnel of a peering that had no answer.", []string{"peering"}, nil)
)

// Metrics are those of all probers and responders of a process. A peering that has none
// any more leaves nothing behind.
type Metrics struct {
	latency        *prometheus.HistogramVec
	sent, answered *prometheus.CounterVec
	questions      *prometheus.CounterVec

	mu         sync.Mutex
	probers    map[string]*Prober
	responders map[string]int
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(to prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pelago_tunnel_latency_seconds", Help: "From a probe through the tunnel of a peering to its answer.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2},
		}, []string{"peering"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_probes_sent_total", Help: "Probes sent through the tunnel of a peering.",
		}, []string{"peering"}),
		answered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_probes_answered_total", Help: "Probes sent through the tunnel of a peering that were answered.",
		}, []string{"peering"}),
		questions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_probes_received_total", Help: "Datagrams that came to where the other side's probes are answered, by what became of them.",
		}, []string{"peering", "result"}),
		probers:    map[string]*Prober{},
		responders: map[string]int{},
	}
	for _, c := range []prometheus.Collector{m.latency, m.sent, m.answered, m.questions, tunnels{m}} {
		if err := to.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of tunnels: %w", err)
		}
	}
	return m, nil
}

// measure is what one Prober counts.
type measure struct {
	latency        prometheus.Observer
	sent, answered prometheus.Counter
}

// begin is where the Prober of a peering counts until it calls end. One that began later
// for the same peering goes on with what was counted.
func (m *Metrics) begin(peering string, p *Prober) (_ measure, end func()) {
	if m == nil {
		return measure{
			latency: prometheus.NewHistogram(prometheus.HistogramOpts{}),
			sent:    prometheus.NewCounter(prometheus.CounterOpts{}), answered: prometheus.NewCounter(prometheus.CounterOpts{}),
		}, func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.probers[peering] = p
	return measure{m.latency.WithLabelValues(peering), m.sent.WithLabelValues(peering), m.answered.WithLabelValues(peering)}, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.probers[peering] != p {
			return
		}
		delete(m.probers, peering)
		m.latency.DeleteLabelValues(peering)
		m.sent.DeleteLabelValues(peering)
		m.answered.DeleteLabelValues(peering)
	}
}

// asked is where a Responder of a peering counts until it calls end.
func (m *Metrics) asked(peering string) (counters [len(resultNames)]prometheus.Counter, end func()) {
	if m == nil {
		for i := range counters {
			counters[i] = prometheus.NewCounter(prometheus.CounterOpts{})
		}
		return counters, func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.responders[peering]++
	for i, name := range resultNames {
		counters[i] = m.questions.WithLabelValues(peering, name)
	}
	return counters, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.responders[peering]--; m.responders[peering] == 0 {
			delete(m.responders, peering)
			m.questions.DeletePartialMatch(prometheus.Labels{"peering": peering})
		}
	}
}

// tunnels asks the probers when it is asked.
type tunnels struct{ *Metrics }

// Describe implements prometheus.Collector.
func (tunnels) Describe(out chan<- *prometheus.Desc) { out <- aliveDesc; out <- lossDesc }

// Collect implements prometheus.Collector.
func (t tunnels) Collect(out chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for peering, p := range t.probers {
		r := p.Report()
		if !r.Known {
			continue
		}
		alive := 0.0
		if r.Alive {
			alive = 1
		}
		out <- prometheus.MustNewConstMetric(aliveDesc, prometheus.GaugeValue, alive, peering)
		out <- prometheus.MustNewConstMetric(lossDesc, prometheus.GaugeValue, r.Loss, peering)
	}
}
