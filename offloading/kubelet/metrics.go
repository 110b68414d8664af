package kubelet

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what this room counts.
type metrics struct {
	requests *prometheus.CounterVec
	streams  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_kubelet_requests_total", Help: "Requests to the kubelet API of virtual nodes.",
		}, []string{"endpoint", "code"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pelago_kubelet_streams", Help: "Logs, commands and connections that are carried to providers now.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.streams} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}
