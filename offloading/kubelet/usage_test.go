package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/offloading/stats"
)

func number(n uint64) *uint64 { return &n }

func TestUsage(t *testing.T) {
	s := newStage(t, http.NotFoundHandler())
	at := metav1.NewTime(time.Unix(1_700_000_000, 0))
	one := stats.Pod{Metadata: stats.Home{UID: podUID, Name: "a lie"}, StartTime: at, Containers: []stats.Container{{
		Name: "web", StartTime: at, CPUTime: at, MemoryTime: at, CPUNanoCores: number(5e8), CPUCoreNanoSeconds: number(3e9), WorkingSetBytes: number(1000),
	}}}
	s.figures.pods = []stats.Pod{one, one, {Metadata: stats.Home{UID: "foreign"}, Containers: one.Containers}}
	get := func(path string) (int, string) { return do(t, s.caller(t, s.may), "GET", s.url(path), "") }
	code, text := get("/metrics/resource")
	for _, line := range []string{
		`container_cpu_usage_seconds_total{container="web",namespace="shop",pod="web-0"} 3 1700000000000`,
		`container_memory_working_set_bytes{container="web",namespace="shop",pod="web-0"} 1000 1700000000000`,
		`container_start_time_seconds{container="web",namespace="shop",pod="web-0"} 1.7e+09`,
		`pod_cpu_usage_seconds_total{namespace="shop",pod="web-0"} 3 1700000000000`,
		"node_cpu_usage_seconds_total 3 1700000000000", "node_memory_working_set_bytes 1000 1700000000000", "resource_scrape_error 0",
	} {
		if strings.Count(text, "\n"+line) != 1 || code != 200 {
			t.Errorf("%d without one %s in\n%s", code, line, text)
		}
	}
	if _, later := get("/metrics/resource"); later != text {
		t.Errorf("the same figures asked for later are\n%s", later)
	}
	code, text = get("/stats/summary")
	var summary summaryStats
	if err := json.Unmarshal([]byte(text), &summary); err != nil || code != 200 || len(summary.Pods) != 1 {
		t.Fatalf("got %d %s", code, text)
	}
	if diff := cmp.Diff(podRef{Name: "web-0", Namespace: "shop", UID: podUID}, summary.Pods[0].PodRef); diff != "" || summary.Node.NodeName != s.node.Name || *summary.Node.CPU.UsageNanoCores != 5e8 || !summary.Node.CPU.Time.Equal(&at) {
		t.Errorf("got %s", text)
	}
	s.figures.err = errors.New("away")
	if code, text = get("/metrics/resource"); code != 200 || !strings.Contains(text, "resource_scrape_error 1") || strings.Contains(text, "node_") {
		t.Errorf("the provider is away: got %d %s", code, text)
	}
	if code, text = get("/stats/summary"); code != 503 {
		t.Errorf("the provider is away: got %d %s", code, text)
	}
	// While nothing runs nobody is asked.
	s.store.mu.Lock()
	s.store.pods[0].Status.Phase = corev1.PodPending
	s.store.mu.Unlock()
	asked := s.figures.asked
	if code, text = get("/metrics/resource"); code != 200 || !strings.Contains(text, "node_cpu_usage_seconds_total 3 ") || strings.Contains(text, " 1700000000000") || s.figures.asked != asked {
		t.Errorf("nothing runs: got %d after asking %d times: %s", code, s.figures.asked-asked, text)
	}
	if code, text = get("/runningpods/"); code != 200 || !strings.Contains(text, `"items":[]`) {
		t.Errorf("nothing runs: got %d %s", code, text)
	}
	var list corev1.PodList
	if code, text = get("/pods"); json.Unmarshal([]byte(text), &list) != nil || len(list.Items) != 1 || list.Items[0].Name != "web-0" {
		t.Errorf("the pods: got %d %s", code, text)
	}
}

// The node's CPU time never falls and counts nothing twice, and its time is that of the figures.
func TestNodeUsage(t *testing.T) {
	var u usage
	is := func(string) bool { return true }
	not := func(string) bool { return false }
	a, b := life{"a", "web"}, life{"b", "web"}
	used := func(start int64, seconds float64, at int64) spent { return spent{start, seconds, time.Unix(at, 0)} }
	cases := []struct {
		reason string
		now    map[life]spent
		alive  func(string) bool
		want   float64
		at     int64
	}{
		{"the first", map[life]spent{a: used(1, 5, 10)}, is, 5, 10},
		{"more of it, and another", map[life]spent{a: used(1, 7, 25), b: used(1, 1, 20)}, is, 8, 25},
		{"late figures", map[life]spent{a: used(1, 6, 15), b: used(1, 1, 20)}, is, 8, 25},
		{"they were late only", map[life]spent{a: used(1, 7, 25), b: used(1, 1, 20)}, is, 8, 25},
		{"one is not told of", map[life]spent{b: used(1, 1, 20)}, is, 8, 25},
		{"none is told of", map[life]spent{}, is, 8, 25},
		{"and is again", map[life]spent{a: used(1, 8, 40), b: used(1, 1, 35)}, is, 9, 40},
		{"it was restarted", map[life]spent{a: used(2, 1, 55), b: used(1, 1, 50)}, is, 10, 55},
		{"all are gone", map[life]spent{}, not, 10, time.Time{}.Unix()},
	}
	for _, c := range cases {
		if got, at := u.add(c.now, c.alive); got != c.want || at.Unix() != c.at {
			t.Errorf("%s: got %g at %s, want %g", c.reason, got, at, c.want)
		}
	}
	if len(u.last) != 0 {
		t.Errorf("%v is kept", u.last)
	}
}

// A provider that makes up containers fills neither this program nor the metrics.
func TestMadeUpContainers(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: podUID}}
	pod.Spec.Containers = []corev1.Container{{Name: "web"}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	running := map[string]*corev1.Pod{podUID: pod}
	var node usage
	for round := range 10 {
		said := stats.Pod{Metadata: stats.Home{UID: podUID}}
		for _, name := range []string{"web", "debug", fmt.Sprintf("made-up-%d", round)} {
			said.Containers = append(said.Containers, stats.Container{Name: name, CPUCoreNanoSeconds: number(1e9), WorkingSetBytes: number(1)})
		}
		var r report
		r.sum(running, []stats.Pod{said}, &node)
		if text := string(r.metrics(false)); strings.Contains(text, "made-up") || r.cpuSeconds != 2 || r.memory != 2 {
			t.Fatalf("believed: %g s, %g bytes\n%s", r.cpuSeconds, r.memory, text)
		}
	}
	if len(node.last) != 2 {
		t.Errorf("%d containers are remembered of 2", len(node.last))
	}
}
