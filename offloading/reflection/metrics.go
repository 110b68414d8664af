package reflection

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// meter holds the metrics of shadow objects.
type meter struct {
	calls   *prometheus.CounterVec
	made    *prometheus.CounterVec
	refused *prometheus.CounterVec
	tokens  prometheus.Counter
}

func newMeter() *meter {
	return &meter{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_shadow_object_calls_total", Help: "Calls that write ShadowObjects at providers.",
		}, []string{"verb"}),
		made: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_reflected_object_writes_total", Help: "Writes of objects that are made here for tenants.",
		}, []string{"verb"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pelago_shadow_objects_refused_total", Help: "Shadow objects of tenants that were refused, by the reason of their condition Accepted.",
		}, []string{"reason"}),
		tokens: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pelago_tokens_requested_total", Help: "Tokens of service accounts that were asked for, for pods at providers.",
		}),
	}
}

func (m *meter) register(to prometheus.Registerer) error {
	var failed []error
	for _, c := range []prometheus.Collector{m.calls, m.made, m.refused, m.tokens} {
		failed = append(failed, to.Register(c))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}
