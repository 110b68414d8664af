package vnode

import "github.com/prometheus/client_golang/prometheus"

// gauge is the metric of virtual nodes.
type gauge struct{ *prometheus.GaugeVec }

func newGauge() *gauge {
	return &gauge{prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "pelago_virtual_node_ready",
		Help: "1 if the virtual node of a request is Ready, 0 if it is not, or not there yet.",
	}, []string{"peering", "request"})}
}

func (g *gauge) set(peering, request string, ready bool) {
	value := 0.0
	if ready {
		value = 1
	}
	g.WithLabelValues(peering, request).Set(value)
}

func (g *gauge) forget(peering, request string) { g.DeleteLabelValues(peering, request) }
