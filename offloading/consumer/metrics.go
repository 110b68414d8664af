package consumer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// meter holds the metrics of offloaded pods.
type meter struct {
	pods   *prometheus.GaugeVec
	sent   *prometheus.CounterVec
	calls  *prometheus.CounterVec
	remade prometheus.Counter
}

func newMeter() *meter {
	return &meter{
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pelago_offloaded_pods", Help: "Pods of this cluster that a provider was given to run.",
		}, []string{"peering"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_pods_sent_home_total", Help: "Pods that a provider did not run and that were evicted here.",
		}, []string{"peering", "reason"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_shadow_pod_calls_total", Help: "Calls that write ShadowPods at providers.",
		}, []string{"verb"}),
		remade: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pelago_pods_remade_total", Help: "Unscheduled pods that were ended so that their owner makes them again, under looser terms.",
		}),
	}
}

func (m *meter) register(to prometheus.Registerer) error {
	var failed []error
	for _, c := range []prometheus.Collector{m.pods, m.sent, m.calls, m.remade} {
		failed = append(failed, to.Register(c))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// otherReason stands for what only a provider can explain.
const otherReason = "Other"

// sentReasons are why pods are sent home. A provider chooses the reason, but not new values of a label.
var sentReasons = []string{
	v1alpha1.ReasonRefused, v1alpha1.ReasonNotAdmitted, v1alpha1.ReasonUnschedulable, v1alpha1.ReasonLimitExceeded,
	v1alpha1.ReasonDrained, v1alpha1.ReasonCordoned, v1alpha1.ReasonNameForbidden, reasonRemoved, reasonEnded, reasonUnmapped, v1alpha1.ReasonNamespaceMissing, otherReason,
}

// sentHome counts a pod.
func (m *meter) sentHome(peering, reason string) {
	if !slices.Contains(sentReasons, reason) {
		reason = otherReason
	}
	m.sent.WithLabelValues(peering, reason).Inc()
}

// knows counts from zero what a provider will send home: a series that begins with the trouble
// shows no increase.
func (m *meter) knows(peering string) {
	for _, reason := range sentReasons {
		m.sent.WithLabelValues(peering, reason)
	}
}

// forget removes what was counted of a provider.
func (m *meter) forget(peering string) {
	m.sent.DeletePartialMatch(prometheus.Labels{"peering": peering})
}
