package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/tunnel"
)

func TestReportOf(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 0, 0, 123456, time.UTC)
	r := reportOf(
		health.Report{Known: true, Alive: true, Since: at, Latency: health.Latency{P50: 1500 * time.Microsecond}, Loss: 1. / 3},
		tunnel.Stats{Kernel: true, Handshake: at},
		tunnel.Config{Peer: tunnel.PublicKey{1}, NextPeer: tunnel.PublicKey{2}},
	)
	want := `{"pelago":{"alive":true,"since":"2026-11-22T10:00:00Z","latencyMicros":1500,"loss":0.333,"handshake":"2026-11-22T10:00:00Z","kernel":true,` +
		`"knows":"AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}}`
	if d := cmp.Diff(want, reportsText(map[string]v1alpha1.TunnelReport{"pelago": r})); d != "" {
		t.Error(d)
	}
	if text := reportsText(map[string]v1alpha1.TunnelReport{"x": reportOf(health.Report{Alive: true}, tunnel.Stats{}, tunnel.Config{Peer: tunnel.PublicKey{1}, NextPeer: tunnel.PublicKey{1}})}); text != `{"x":{"alive":false}}` {
		t.Errorf("what is not known is %s", text)
	}
}

func TestDue(t *testing.T) {
	begin := time.Unix(1000, 0)
	since := stamp(begin)
	base := v1alpha1.TunnelReport{Alive: true, Since: since, Peer: "a"}
	with := func(f func(*v1alpha1.TunnelReport)) map[string]v1alpha1.TunnelReport {
		r := base
		f(&r)
		return map[string]v1alpha1.TunnelReport{"x": r}
	}
	same := with(func(*v1alpha1.TunnelReport) {})
	numbers := with(func(r *v1alpha1.TunnelReport) { r.LatencyMicros, r.Loss, r.Endpoint = 7, .5, "1.2.3.4:5" })
	for _, c := range []struct {
		reason string
		of     told
		now    map[string]v1alpha1.TunnelReport
		after  time.Duration
		want   bool
	}{
		{"an earlier process has said who knows what", told{}, nil, 0, true},
		{"nothing is as before", told{known: true}, nil, time.Hour, false},
		{"the first tunnel", told{known: true}, same, 0, true},
		{"the last tunnel is gone", told{known: true, reports: same}, nil, 0, true},
		{"the same for an hour", told{known: true, reports: same, at: begin}, same, time.Hour, false},
		{"numbers wait", told{known: true, reports: same, at: begin}, numbers, 29 * time.Second, false},
		{"but not for ever", told{known: true, reports: same, at: begin}, numbers, 30 * time.Second, true},
		{"death", told{known: true, reports: same, at: begin}, with(func(r *v1alpha1.TunnelReport) { r.Alive = false }), 0, true},
		{"it is known now", told{known: true, reports: with(func(r *v1alpha1.TunnelReport) { r.Since = nil }), at: begin}, same, 0, true},
		{"the peer's key", told{known: true, reports: same, at: begin}, with(func(r *v1alpha1.TunnelReport) { r.Peer = "b" }), 0, true},
		{"the peer's next key", told{known: true, reports: same, at: begin}, with(func(r *v1alpha1.TunnelReport) { r.Knows = "b" }), 0, true},
		{"why there is none", told{known: true, reports: same, at: begin}, with(func(r *v1alpha1.TunnelReport) { r.Problem = "b" }), 0, true},
		{"another tunnel", told{known: true, reports: same, at: begin}, map[string]v1alpha1.TunnelReport{"y": base}, 0, true},
	} {
		if got := c.of.due(c.now, begin.Add(c.after)); got != c.want {
			t.Errorf("%s: due is %t", c.reason, got)
		}
	}
}

// TestPatch holds that a Lease says what it is to say, and leaves the annotation alone unless
// it is to be something else.
func TestPatch(t *testing.T) {
	none, some := "", `{"x":{}}`
	for _, c := range []struct {
		of   content
		want string
	}{
		{content{holder: "rome-1", term: gatewayTerm}, `{"metadata":{},"spec":{"holderIdentity":"rome-1","leaseDurationSeconds":2,"renewTime":"2026-11-22T10:00:00.000000Z"}}`},
		{content{term: idleTerm, tunnels: &none}, `{"metadata":{"annotations":{"pelago.dev/tunnels":null}},"spec":{"holderIdentity":"","leaseDurationSeconds":15,"renewTime":"2026-11-22T10:00:00.000000Z"}}`},
		{content{holder: "a", term: idleTerm, tunnels: &some}, `{"metadata":{"annotations":{"pelago.dev/tunnels":"{\"x\":{}}"}},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"renewTime":"2026-11-22T10:00:00.000000Z"}}`},
	} {
		c.of.now = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
		got, err := c.of.patch()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, string(got)); d != "" {
			t.Error(d)
		}
	}
}
