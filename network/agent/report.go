package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// reportEvery is how often numbers alone are told.
const reportEvery = 30 * time.Second

// reportOf says how a tunnel is, and what is wrong with its peer's names.
func reportOf(h health.Report, s tunnel.Stats, config tunnel.Config, wrong []string) v1alpha1.TunnelReport {
	r := v1alpha1.TunnelReport{
		Alive: h.Known && h.Alive, LatencyMicros: h.Latency.P50.Microseconds(), Loss: float64(int(h.Loss*1000)) / 1000,
		Kernel: s.Kernel, Handshake: stamp(s.Handshake),
	}
	if h.Known {
		r.Since = stamp(h.Since)
	}
	if s.Endpoint.IsValid() {
		r.Endpoint = s.Endpoint.String()
	}
	if !s.Peer.IsZero() {
		r.Peer = s.Peer.String()
	}
	if !config.NextPeer.IsZero() && config.NextPeer != config.Peer {
		r.Knows = config.NextPeer.String()
	}
	r.Problem = cut(strings.Join(wrong, "; "), maxProblem)
	return r
}

func stamp(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	stamped := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &stamped
}

// told is what the Lease says of tunnels, and since when.
type told struct {
	reports map[string]v1alpha1.TunnelReport
	at      time.Time
	known   bool
}

// due says whether the Lease should say something else now.
func (t told) due(now map[string]v1alpha1.TunnelReport, at time.Time) bool {
	if !t.known || len(now) != len(t.reports) {
		return true
	}
	for key, r := range now {
		was, ok := t.reports[key]
		if !ok || was.Alive != r.Alive || (was.Since == nil) != (r.Since == nil) || was.Peer != r.Peer || was.Knows != r.Knows || was.Problem != r.Problem || (was.Unreached == 0) != (r.Unreached == 0) || !slices.Equal(was.Through, r.Through) {
			return true
		}
	}
	return at.Sub(t.at) >= reportEvery && !maps.EqualFunc(now, t.reports, func(a, b v1alpha1.TunnelReport) bool { return text(a) == text(b) })
}

const (
	// maxProblem and shortProblem are how much is told of why there is no tunnel, in bytes: usually,
	// and where there is much to tell.
	maxProblem, shortProblem = 256, 32
	// maxReports bounds the reports together, in bytes. An API server takes 256 KiB of
	// annotations, and refuses the renewal of a Lease with more.
	maxReports = 200 << 10
)

// reportsText is reports as they are written, "" if there are none. Of too many that is left out
// which matters least: numbers, most of the words about problems, since when tunnels live, and whose pods
// talk to each other. What what there is depends on stays: whether a tunnel lives, which keys it
// knows, and when it was used.
func reportsText(reports map[string]v1alpha1.TunnelReport) string {
	if len(reports) == 0 {
		return ""
	}
	out := text(reports)
	for _, less := range []func(*v1alpha1.TunnelReport){
		func(r *v1alpha1.TunnelReport) {
			r.LatencyMicros, r.Loss, r.Endpoint, r.Handshake, r.Kernel = 0, 0, "", nil, false
		},
		func(r *v1alpha1.TunnelReport) { r.Problem = cut(r.Problem, shortProblem) },
		func(r *v1alpha1.TunnelReport) {
			if r.Alive {
				r.Since = nil
			}
		},
		func(r *v1alpha1.TunnelReport) { r.Through = nil },
	} {
		if len(out) <= maxReports {
			return out
		}
		reports = maps.Clone(reports)
		for key, r := range reports {
			less(&r)
			reports[key] = r
		}
		out = text(reports)
	}
	return out
}

// cut is text of at most so many bytes, with no part of a letter at its end.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= most {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(err) // nothing in it cannot be marshalled
	}
	return string(b)
}

// stats are what the tunnels' devices say.
func (t *tunnels) stats() map[string]tunnel.Stats {
	all := map[string]tunnel.Stats{}
	for key, r := range t.all() {
		if s, err := r.device.Stats(); err == nil {
			all[key] = s
		}
	}
	return all
}

// reports says how the tunnels are, and remembers where their peers are.
func (t *tunnels) reports() map[string]v1alpha1.TunnelReport {
	stats, wrong := t.stats(), t.unfollowed()
	reports := map[string]v1alpha1.TunnelReport{}
	for key, s := range stats {
		if s.Endpoint.IsValid() && !s.Handshake.IsZero() {
			t.remember(key, s.Endpoint)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, r := range t.running {
		var h health.Report
		if r.prober != nil {
			h = r.prober.Report()
		}
		reports[key] = reportOf(h, stats[key], r.config, wrong[key])
	}
	for key, why := range t.wrong {
		report := reports[key]
		report.Problem = cut(why, maxProblem)
		reports[key] = report
	}
	return reports
}
