package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/plan"
)

var (
	bytesDesc = prometheus.NewDesc("pelago_tunnel_bytes_total",
		"Bytes that the tunnel of a peering has carried on the wire, received or sent, since it was made.", []string{"peering", "direction"}, nil)
	handshakeDesc = prometheus.NewDesc("pelago_tunnel_handshake_timestamp_seconds",
		"When the two sides of a tunnel agreed on keys last, Unix time.", []string{"peering"}, nil)
	restsDesc = prometheus.NewDesc("pelago_tunnel_rested_seconds_total",
		"How long a tunnel has let other tunnels of this node go first, since it was made, both directions together.", []string{"peering"}, nil)
	packetsDesc = prometheus.NewDesc("pelago_gateway_packets_total",
		"Packets between the pods here and the gateway of a peering, sent to it or received from it; those that the kernel handles as one count as one.",
		[]string{"peering", "direction"}, nil)
	payloadDesc = prometheus.NewDesc("pelago_gateway_bytes_total",
		"Bytes of these packets, without headers of tunnels.", []string{"peering", "direction"}, nil)
	dropsDesc = prometheus.NewDesc("pelago_gateway_dropped_packets_total",
		"Packets that the gateway of a peering has dropped, or the node itself if there is none, by reason.", []string{"peering", "reason"}, nil)
)

// dropGarbage is why a tunnel's sockets drop packets, beside the reasons of the data plane.
const dropGarbage = "garbage"

// collectLimit bounds the reading of counters for one scrape.
const collectLimit = 5 * time.Second

// meter counts what the agent does, and asks for what is counted elsewhere.
type meter struct {
	plane    *dataplane.Kernel
	tunnels  *tunnels
	problems prometheus.Gauge
	failures prometheus.Counter

	said map[plan.Problem]bool
	last string
}

func newMeter(to prometheus.Registerer, plane *dataplane.Kernel, t *tunnels) (*meter, error) {
	m := &meter{
		plane: plane, tunnels: t,
		problems: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pelago_network_problems", Help: "What in this cluster's network was left out of the plan or cannot be.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pelago_network_failures_total", Help: "Attempts to make this node's network what is wanted that did not succeed.",
		}),
	}
	for _, c := range []prometheus.Collector{m.problems, m.failures, m} {
		if err := to.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of the agent: %w", err)
		}
	}
	return m, nil
}

// told counts and logs what is wrong, each as long as it is once.
func (m *meter) told(log logr.Logger, problems []plan.Problem, err error) {
	now := map[plan.Problem]bool{}
	for _, p := range problems {
		now[p] = true
		if !m.said[p] {
			log.Info("a part of the network is left out", "object", p.Object, "why", p.Text)
		}
	}
	m.said = now
	m.problems.Set(float64(len(now)))
	if err != nil {
		m.failures.Inc()
	}
	if text := message(err); text != m.last {
		m.last = text
		if err != nil {
			log.Error(err, "making the network of this node")
		} else {
			log.Info("the network of this node is as wanted")
		}
	}
}

// Describe implements prometheus.Collector.
func (m *meter) Describe(out chan<- *prometheus.Desc) {
	out <- bytesDesc
	out <- handshakeDesc
	out <- restsDesc
	out <- packetsDesc
	out <- payloadDesc
	out <- dropsDesc
}

// Collect implements prometheus.Collector.
func (m *meter) Collect(out chan<- prometheus.Metric) {
	for peering, s := range m.tunnels.stats() {
		out <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(s.Received), peering, "received")
		out <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(s.Sent), peering, "sent")
		if !s.Handshake.IsZero() {
			out <- prometheus.MustNewConstMetric(handshakeDesc, prometheus.GaugeValue, float64(s.Handshake.Unix()), peering)
		}
		if !s.Kernel {
			out <- prometheus.MustNewConstMetric(dropsDesc, prometheus.CounterValue, float64(s.Dropped), peering, dropGarbage)
			out <- prometheus.MustNewConstMetric(restsDesc, prometheus.CounterValue, s.Rested.Seconds(), peering)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectLimit)
	defer cancel()
	passed, err := m.plane.Passed(ctx)
	if err != nil {
		return // another scrape asks again
	}
	for _, p := range passed {
		out <- prometheus.MustNewConstMetric(packetsDesc, prometheus.CounterValue, float64(p.Sent), p.Peering, "sent")
		out <- prometheus.MustNewConstMetric(packetsDesc, prometheus.CounterValue, float64(p.Received), p.Peering, "received")
		out <- prometheus.MustNewConstMetric(payloadDesc, prometheus.CounterValue, float64(p.SentBytes), p.Peering, "sent")
		out <- prometheus.MustNewConstMetric(payloadDesc, prometheus.CounterValue, float64(p.ReceivedBytes), p.Peering, "received")
	}
	drops, err := m.plane.Drops(ctx)
	if err != nil {
		return
	}
	for _, d := range drops {
		out <- prometheus.MustNewConstMetric(dropsDesc, prometheus.CounterValue, float64(d.Packets), d.Peering, string(d.Reason))
	}
}
