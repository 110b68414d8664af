package auth

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Refusals are counted from zero, so that the first many of them are an increase.
func TestRefusalsBeginAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := newMetrics(registry); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "pelago_auth_refused_total" {
			for _, m := range f.GetMetric() {
				seen[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	for _, reason := range []string{v1alpha1.ReasonInvitationRefused, reasonTooManyFailures, v1alpha1.ReasonSigningFailed} {
		if n, is := seen[reason]; !is || n != 0 {
			t.Errorf("refusals for %s: %v of %v", reason, n, seen)
		}
	}
}
