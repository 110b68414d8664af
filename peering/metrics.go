package peering

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// meter holds the metrics of peerings.
type meter struct {
	ready      *prometheus.GaugeVec
	reachable  *prometheus.GaugeVec
	contact    *prometheus.GaugeVec
	notAfter   *prometheus.GaugeVec
	renew      *prometheus.GaugeVec
	handshake  prometheus.Histogram
	tombstones prometheus.Gauge
}

func newMeter() *meter {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"peering"}, labels...))
	}
	return &meter{
		ready:     gauge("pelago_peering_ready", "1 if a peering is ready in a role, 0 if not.", "role"),
		reachable: gauge("pelago_peering_reachable", "1 if the provider of a peering answers, 0 if not."),
		contact:   gauge("pelago_peering_last_contact_timestamp_seconds", "When the remote cluster of a peering was last heard of."),
		notAfter:  gauge("pelago_credential_not_after_timestamp_seconds", "When the credential of a peering stops to be accepted."),
		renew:     gauge("pelago_credential_renew_timestamp_seconds", "When the credential of a peering is due to be renewed."),
		handshake: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "pelago_handshake_seconds", Help: "From the consumer's key to its credential, retries included.",
			Buckets: []float64{.1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 300},
		}),
		tombstones: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pelago_tombstones", Help: "Goodbyes that could not be delivered yet after unpeer --force.",
		}),
	}
}

func (m *meter) register(to prometheus.Registerer) {
	to.MustRegister(m.ready, m.reachable, m.contact, m.notAfter, m.renew, m.handshake, m.tombstones)
}

// show takes over what a Peering's status says.
func (m *meter) show(p *v1alpha1.Peering, ready map[v1alpha1.Role]bool, contact time.Time) {
	for _, role := range []v1alpha1.Role{v1alpha1.RoleConsumer, v1alpha1.RoleProvider} {
		if ok, has := ready[role]; has {
			m.ready.WithLabelValues(p.Name, string(role)).Set(number(ok))
		} else {
			m.ready.DeleteLabelValues(p.Name, string(role))
		}
	}
	if _, consumer := ready[v1alpha1.RoleConsumer]; consumer {
		m.reachable.WithLabelValues(p.Name).Set(number(isTrue(p, v1alpha1.ConditionReachable)))
	} else {
		m.reachable.DeleteLabelValues(p.Name)
	}
	if !contact.IsZero() {
		m.contact.WithLabelValues(p.Name).Set(float64(contact.Unix()))
	}
	if c := p.Status.Credential; c != nil {
		m.notAfter.WithLabelValues(p.Name).Set(float64(c.NotAfter.Unix()))
		m.renew.WithLabelValues(p.Name).Set(float64(c.RenewAfter.Unix()))
	} else {
		m.notAfter.DeleteLabelValues(p.Name)
		m.renew.DeleteLabelValues(p.Name)
	}
}

// forget removes what was shown of a Peering.
func (m *meter) forget(peering string) {
	labels := prometheus.Labels{"peering": peering}
	for _, v := range []*prometheus.GaugeVec{m.ready, m.reachable, m.contact, m.notAfter, m.renew} {
		v.DeletePartialMatch(labels)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
