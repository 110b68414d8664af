package peering

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// An alert compares when a credential was to be renewed with its end, as the length of its life is
// the provider's choice.
func TestCredentialMetrics(t *testing.T) {
	m, all := newMeter(), prometheus.NewRegistry()
	m.register(all)
	value := func(name string) float64 {
		t.Helper()
		families, err := all.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return -1
	}
	at := func(d time.Duration) metav1.Time { return metav1.NewTime(time.Unix(0, 0).Add(d)) }
	p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
	p.Status.Credential = &v1alpha1.CredentialStatus{NotAfter: at(12 * time.Hour), RenewAfter: at(8 * time.Hour)}
	for name, end := range map[string]func(){
		"without a credential": func() { m.show(&v1alpha1.Peering{ObjectMeta: p.ObjectMeta}, nil, time.Time{}) },
		"gone":                 func() { m.forget(p.Name) },
	} {
		m.show(p, nil, time.Time{})
		if end, renew := value("pelago_credential_not_after_timestamp_seconds"), value("pelago_credential_renew_timestamp_seconds"); end != 43200 || renew != 28800 {
			t.Errorf("it ends at %v and is renewed at %v", end, renew)
		}
		end()
		if value("pelago_credential_not_after_timestamp_seconds") != -1 || value("pelago_credential_renew_timestamp_seconds") != -1 {
			t.Errorf("%s it has series", name)
		}
	}
}
