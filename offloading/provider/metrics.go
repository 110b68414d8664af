package provider

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var shadowPodsDesc = prometheus.NewDesc("pelago_shadow_pods",
	"Number of shadow pods of a tenant by phase, Refused for those that do not run.", []string{"tenant", "phase"}, nil)

// measures are the metrics of this package.
type measures struct {
	created  prometheus.Counter
	replaced prometheus.Counter
	refused  *prometheus.CounterVec
}

func newMeasures() *measures {
	m := &measures{
		created: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pelago_pods_created_total", Help: "Pods made for tenants, replacements included."}),
		replaced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pelago_pods_replaced_total", Help: "Pods of tenants that were lost and made again."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_pods_refused_total", Help: "Pods of tenants that were refused, by reason."}, []string{"reason"}),
	}
	for _, reason := range refusals {
		m.refused.WithLabelValues(reason) // a series that begins with the trouble shows no increase
	}
	return m
}

// all are the collectors to register.
func (m *measures) all(memory *memory) []prometheus.Collector {
	return []prometheus.Collector{m.created, m.replaced, m.refused, census{memory}}
}

// census counts ShadowPods when it is asked. A tenant that is gone leaves none behind.
type census struct{ memory *memory }

// Describe implements prometheus.Collector.
func (census) Describe(out chan<- *prometheus.Desc) { out <- shadowPodsDesc }

// Collect implements prometheus.Collector.
func (c census) Collect(out chan<- prometheus.Metric) {
	for k, count := range c.memory.states() {
		out <- prometheus.MustNewConstMetric(shadowPodsDesc, prometheus.GaugeValue, float64(count), tenantName(k[0]), k[1])
	}
}

// state is the phase of a ShadowPod for metrics.
func state(s *v1alpha1.ShadowPod, p plan) string {
	after := s.DeepCopy()
	after.Status = p.status
	if c := condition(p.status.Conditions); c != nil && c.Status == metav1.ConditionFalse && !final(after) {
		return "Refused"
	}
	switch corev1.PodPhase(p.status.Phase) {
	case corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed:
		return p.status.Phase
	}
	return string(corev1.PodPending)
}

// announce makes metrics and events of what has been written for the first time.
func (r *reconciler) announce(f facts, p plan) {
	before, after := f.shadow.Status, p.status
	if after.Replaced > before.Replaced {
		r.metrics.replaced.Add(float64(after.Replaced - before.Replaced))
		r.warn(f, "Replaced", "Replace", "the pod was lost and is made again, replacement "+strconv.Itoa(int(after.Replaced)))
	}
	was, is := condition(before.Conditions), condition(after.Conditions)
	switch {
	case is == nil:
	case is.Status == metav1.ConditionFalse:
		if waiting(is.Reason) || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			return
		}
		r.metrics.refused.WithLabelValues(is.Reason).Inc()
		r.warn(f, is.Reason, "Accept", is.Message)
	case is.Message != "" && (was == nil || was.Message != is.Message):
		r.warn(f, "NotChanged", "Change", is.Message)
	}
}

// warn tells of a ShadowPod in an event, unless its tenant has caused too many: each is
// an object of this cluster, which keeps it for an hour. The status says it all the same.
func (r *reconciler) warn(f facts, reason, action, message string) {
	if r.budget.take(f.tenant) {
		r.events.Eventf(f.shadow, nil, corev1.EventTypeWarning, reason, action, "%s", message)
	}
}
