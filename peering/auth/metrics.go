package auth

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Causes of a credential, in the metrics.
const (
	causeInvitation = "invitation"
	causeRenewal    = "renewal"
)

// metrics are what is counted here. No label holds what a stranger said.
type metrics struct {
	invitations *prometheus.CounterVec
	issued      *prometheus.CounterVec
	refused     *prometheus.CounterVec
	seconds     prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		invitations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_invitations_total",
			Help: "Attempts to use an invitation: used (for the first time), repeated (by the same cluster and key), refused.",
		}, []string{"result"}),
		issued: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_credentials_issued_total",
			Help: "Credentials issued to consumers, by type and by cause: invitation or renewal.",
		}, []string{"type", "cause"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_auth_refused_total",
			Help: "Requests to the authentication endpoint and for renewal that were not granted, by reason.",
		}, []string{"reason"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "pelago_auth_request_seconds",
			Help:    "Duration of requests with an application to the authentication endpoint, in seconds.",
			Buckets: []float64{.005, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 25},
		}),
	}
	for _, c := range []prometheus.Collector{m.invitations, m.issued, m.refused, m.seconds} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	for _, reason := range []string{v1alpha1.ReasonInvitationRefused, reasonTooManyFailures, v1alpha1.ReasonInvalid, v1alpha1.ReasonDuplicate,
		v1alpha1.ReasonNameRefused, v1alpha1.ReasonUnsupported, v1alpha1.ReasonWaiting, v1alpha1.ReasonSigningFailed} {
		m.refused.WithLabelValues(reason) // a series that begins with its first refusal shows no increase
	}
	return m, nil
}
