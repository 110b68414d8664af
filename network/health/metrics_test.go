package health

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// measured is everything that a registry has, without zeros.
func measured(t *testing.T, r *prometheus.Registry) []string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, m := range f.Metric {
			line := f.GetName()
			for _, l := range m.Label {
				line += " " + l.GetValue()
			}
			switch {
			case m.Gauge != nil:
				line += fmt.Sprintf(" %.2f", m.Gauge.GetValue())
			case m.Counter.GetValue() == 0 && m.Histogram == nil:
				continue
			case m.Counter != nil:
				line += fmt.Sprint(" ", m.Counter.GetValue())
			default:
				line += fmt.Sprintf(" %d in %.2f", m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum())
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		m, err := NewMetrics(registry)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewMetrics(registry); err == nil {
			t.Error("the same metrics twice")
		}
		want := func(reason string, lines ...string) {
			t.Helper()
			if d := cmp.Diff(lines, measured(t, registry)); d != "" {
				t.Errorf("%s (-want +got):\n%s", reason, d)
			}
		}
		want("before anything runs")
		l, rome, milan := newLink(50 * ms)
		l.cut()
		p := NewProber(ProberOptions{Peering: "milan", Conn: rome, Peer: milanAt, Metrics: m})
		stopProber := run(t, p.Run)
		stopResponder := run(t, NewResponder(ResponderOptions{Peering: "milan", Conn: milan, Metrics: m}).Run)
		until(t, "the first one goes out", func() bool { return l.asked() == 1 })
		want("before anything is known",
			"pelago_probes_sent_total milan 1",
			"pelago_tunnel_latency_seconds milan 0 in 0.00")

		milan.deliver(romeAt, []byte("something else"))
		l.heal()
		l.probes(t, 2)
		until(t, "both are answered", func() bool { return slices.Contains(measured(t, registry), "pelago_probes_answered_total milan 2") })
		want("one of three was lost, and that is not sure yet",
			"pelago_probes_answered_total milan 2",
			"pelago_probes_received_total milan answered 2",
			"pelago_probes_received_total milan malformed 1",
			"pelago_probes_sent_total milan 3",
			"pelago_tunnel_alive milan 1.00",
			"pelago_tunnel_latency_seconds milan 2 in 0.20",
			"pelago_tunnel_loss_ratio milan 0.00")

		next := NewProber(ProberOptions{Peering: "milan", Conn: l.open(romeAt), Peer: milanAt, Metrics: m})
		stopNext := run(t, next.Run)
		synctest.Wait()
		stopProber()
		if got := measured(t, registry); !slices.Contains(got, "pelago_probes_sent_total milan 4") {
			t.Errorf("a second one for the same peering does not go on: %q", got)
		}
		stopNext()
		stopResponder()
		want("nothing is left")
	})
}
