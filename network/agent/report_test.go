package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		nil,
	)
	want := `{"pelago":{"alive":true,"since":"2026-11-22T10:00:00Z","latencyMicros":1500,"loss":0.333,"handshake":"2026-11-22T10:00:00Z","kernel":true,` +
		`"knows":"AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}}`
	if d := cmp.Diff(want, reportsText(map[string]v1alpha1.TunnelReport{"pelago": r})); d != "" {
		t.Error(d)
	}
	if text := reportsText(map[string]v1alpha1.TunnelReport{"x": reportOf(health.Report{Alive: true}, tunnel.Stats{}, tunnel.Config{Peer: tunnel.PublicKey{1}, NextPeer: tunnel.PublicKey{1}}, nil)}); text != `{"x":{"alive":false}}` {
		t.Errorf("what is not known is %s", text)
	}
	if r := reportOf(health.Report{Known: true, Since: at}, tunnel.Stats{}, tunnel.Config{}, []string{"a name leads here", "another is not resolved"}); r.Problem != "a name leads here; another is not resolved" {
		t.Errorf("why nothing comes is %q", r.Problem)
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
		{"who talks through it", told{known: true, reports: same, at: begin}, with(func(r *v1alpha1.TunnelReport) { r.Through = []string{"b"} }), 0, true},
		{"that something is not reached", told{known: true, reports: same, at: begin}, with(func(r *v1alpha1.TunnelReport) { r.Unreached = 1 }), 0, true},
		{"when it was used waits", told{known: true, reports: same, at: begin}, with(func(r *v1alpha1.TunnelReport) { r.Used = since }), 29 * time.Second, false},
		{"but not for ever either", told{known: true, reports: same, at: begin}, with(func(r *v1alpha1.TunnelReport) { r.Used = since }), 30 * time.Second, true},
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
	none, some, other := "", `{"x":{}}`, "10.0.0.0/8"
	for _, c := range []struct {
		of   content
		want string
	}{
		{content{holder: "rome-1", term: gatewayTerm}, `{"metadata":{},"spec":{"holderIdentity":"rome-1","leaseDurationSeconds":2,"renewTime":"2026-11-22T10:00:00.000000Z"}}`},
		{content{term: nextTerm, tunnels: &none}, `{"metadata":{"annotations":{"pelago.dev/tunnels":null}},"spec":{"holderIdentity":"","leaseDurationSeconds":15,"renewTime":"2026-11-22T10:00:00.000000Z"}}`},
		{content{holder: "a", term: nextTerm, networks: &other}, `{"metadata":{"annotations":{"pelago.dev/networks":"10.0.0.0/8"}},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"renewTime":"2026-11-22T10:00:00.000000Z"}}`},
		{content{holder: "a", term: nextTerm, networks: &none, tunnels: &none}, `{"metadata":{"annotations":{"pelago.dev/networks":null,"pelago.dev/tunnels":null}},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"renewTime":"2026-11-22T10:00:00.000000Z"}}`},
		{content{holder: "a", term: nextTerm, tunnels: &some}, `{"metadata":{"annotations":{"pelago.dev/tunnels":"{\"x\":{}}"}},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"renewTime":"2026-11-22T10:00:00.000000Z"}}`},
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

// TestReportsFit holds that however many tunnels end on a node, its Lease can say what follows from
// them: alive or dead, and the keys.
func TestReportsFit(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC))
	name := strings.Repeat("n", v1alpha1.MaxClusterName-4)
	for _, c := range []struct {
		reason  string
		count   int
		problem string
		knows   bool
		numbers bool // they are left
		words   int  // bytes of each problem, at most
	}{
		{"a few", 10, "no port", true, true, 7},
		{"500 that are well", 500, "", false, true, 0},
		{"500, half of them with long problems", 500, strings.Repeat("a device is busy: ", 14) + "end", true, false, maxProblem},
		{"1000 that are well", 1000, "", false, false, 0},
		{"1000, half of them with long problems, and all with next keys", 1000, strings.Repeat("ä", 128), true, false, shortProblem},
	} {
		reports := map[string]v1alpha1.TunnelReport{}
		for i := range c.count {
			r := v1alpha1.TunnelReport{
				Alive: i%2 == 0, Since: &at, LatencyMicros: 123456, Loss: .123, Endpoint: "[2001:db8:1111:2222:3333:4444:5555:6666]:7100", Handshake: &at, Kernel: true,
				Peer: tunnel.PublicKey{byte(i), byte(i >> 8)}.String(),
			}
			if c.knows {
				r.Knows = tunnel.PublicKey{1, byte(i), byte(i >> 8)}.String()
			}
			if !r.Alive {
				r.Problem = cut(c.problem, maxProblem)
			}
			reports[fmt.Sprintf("peering-%s%04d", name, i)] = r
		}
		before := text(reports)
		out := reportsText(reports)
		t.Logf("%s: %d bytes of %d", c.reason, len(out), len(before))
		if text(reports) != before {
			t.Errorf("%s: the reports themselves were changed", c.reason)
		}
		if len(out) > 240<<10 || len(out) > maxReports && !c.knows {
			t.Errorf("%s: %d bytes", c.reason, len(out))
		}
		var got map[string]v1alpha1.TunnelReport
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) != c.count {
			t.Fatalf("%s: %d reports, %v", c.reason, len(got), err)
		}
		for key, r := range got {
			want := reports[key]
			if r.Alive != want.Alive || r.Peer != want.Peer || r.Knows != want.Knows || !r.Alive && (r.Since == nil || (r.Problem == "") != (want.Problem == "")) {
				t.Fatalf("%s: of %+v is left %+v", c.reason, want, r)
			}
			if (r.LatencyMicros != 0) != c.numbers || len(r.Problem) > c.words || !utf8.ValidString(r.Problem) {
				t.Fatalf("%s: told %+v", c.reason, r)
			}
		}
	}
}

// TestReportsFitThrough holds that who talks to whom is left out before what a tunnel is, and only if
// there is no room.
func TestReportsFitThrough(t *testing.T) {
	for _, count := range []int{50, 1000} {
		used := metav1.NewTime(time.Unix(1000, 0).UTC())
		reports := map[string]v1alpha1.TunnelReport{}
		for i := range count {
			r := v1alpha1.TunnelReport{Alive: true, Peer: tunnel.PublicKey{byte(i)}.String(), Used: &used}
			for j := range v1alpha1.MaxThrough {
				r.Through = append(r.Through, fmt.Sprintf("peering-provider%04d", j))
			}
			reports[fmt.Sprintf("peering-%04d", i)] = r
		}
		out := reportsText(reports)
		var got map[string]v1alpha1.TunnelReport
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) != count || len(out) > maxReports {
			t.Fatalf("%d reports in %d bytes, %v", len(got), len(out), err)
		}
		for key, r := range got {
			if (len(r.Through) > 0) != (count == 50) || !r.Alive || r.Peer != reports[key].Peer || r.Used == nil {
				t.Fatalf("of %d: told %+v", count, r)
			}
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct{ of, want string }{{"", ""}, {"1234567890", "1234567890"}, {"12345678901", "1234567…"}, {"ääääää", "äää…"}, {"a\xff", "a?"}} {
		if got := cut(c.of, 10); got != c.want || len(got) > 10 {
			t.Errorf("%q is cut to %q", c.of, got)
		}
	}
}
