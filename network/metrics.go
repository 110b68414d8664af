package network

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// meter holds the metrics of this package.
type meter struct{ ready, views, lacking, made *prometheus.GaugeVec }

func newMeter() *meter {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"peering"})
	}
	return &meter{
		ready:   gauge("pelago_network_ready", "1 if all ranges of both sides are carried and the tunnel carries packets both ways, 0 if not."),
		views:   gauge("pelago_network_views", "Views of the ranges of a peering's other side."),
		lacking: gauge("pelago_network_ranges_without_view", "Ranges of a peering's other side that are refused or have no view."),
		made:    gauge("pelago_network_key_made_timestamp_seconds", "When the private key of a peering's tunnel came into use."),
	}
}

func (m *meter) register(to prometheus.Registerer) error {
	for _, g := range []*prometheus.GaugeVec{m.ready, m.views, m.lacking, m.made} {
		if err := to.Register(g); err != nil {
			return fmt.Errorf("registering metrics of the network: %w", err)
		}
	}
	return nil
}

// register has the number of direct paths counted whenever that is asked for.
func (p *paths) register(to prometheus.Registerer) error {
	for state, of := range map[string]func(wanted, alive int) int{
		"wanted": func(wanted, _ int) int { return wanted },
		"alive":  func(_, alive int) int { return alive },
	} {
		err := to.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pelago_direct_paths", Help: "Direct paths between providers of this cluster that are wanted, and those alive at both ends.", ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(of(p.count())) }))
		if err != nil {
			return fmt.Errorf("registering metrics of direct paths: %w", err)
		}
	}
	return nil
}

// show takes over what was decided.
func (m *meter) show(f *facts, d *decision) {
	for _, g := range []*prometheus.GaugeVec{m.ready, m.views, m.lacking, m.made} {
		g.Reset()
	}
	for _, p := range f.pairs {
		if !p.wanted {
			continue
		}
		ready := 0.0
		if d.ready(f, p).Status == metav1.ConditionTrue {
			ready = 1
		}
		m.ready.WithLabelValues(p.key).Set(ready)
		r := d.results[p.key]
		refused, lacking := complaints(r)
		m.views.WithLabelValues(p.key).Set(float64(len(r.Views)))
		m.lacking.WithLabelValues(p.key).Set(float64(len(refused) + len(lacking)))
		if l := f.locks[p.key]; !l.key.IsZero() {
			m.made.WithLabelValues(p.key).Set(float64(l.made.Unix()))
		}
	}
}
