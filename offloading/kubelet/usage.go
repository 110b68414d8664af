package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/offloading/stats"
)

// metricsType is the text format of Prometheus.
const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// usageLimit bounds the wait for a provider's figures.
const usageLimit = 10 * time.Second

// podUsage is a home pod with what it uses.
type podUsage struct {
	pod  *corev1.Pod
	used stats.Pod
}

// report is what the pods of a node use, and the node as their sum.
type report struct {
	at         time.Time // when it was asked for
	taken      time.Time // when the CPU time is of: at if no figure is known
	pods       []podUsage
	nanoCores  float64
	cpuSeconds float64
	memory     float64
}

// usage adds up CPU time over the life of containers: the node's figure must not fall
// when one ends.
type usage struct {
	mu    sync.Mutex
	total float64 // seconds
	last  map[life]spent
}

// life is a container of a pod, spent the CPU time since it started last, and when that was so.
type life struct{ uid, container string }
type spent struct {
	start   int64
	seconds float64
	at      time.Time
}

// add returns the node's CPU seconds so far, given those of its containers, and the newest time that
// they are of. A container that is not among them counts as before, as long as its pod is alive.
func (u *usage) add(now map[life]spent, alive func(uid string) bool) (seconds float64, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, s := range now {
		before := u.last[name]
		if before.start != s.start {
			before.seconds = 0
		}
		if s.seconds < before.seconds { // figures of before
			now[name] = before
			continue
		}
		u.total += s.seconds - before.seconds
	}
	for name, s := range u.last {
		if _, told := now[name]; !told && alive(name.uid) {
			now[name] = s
		}
	}
	u.last = now
	for _, s := range now {
		if s.at.After(at) {
			at = s.at
		}
	}
	return u.total, at
}

// report asks for what the node's pods use. Nobody is asked while none runs.
func (s *server) report(ctx context.Context) (report, error) {
	ctx, cancel := context.WithTimeout(ctx, usageLimit)
	defer cancel()
	r := report{at: s.options.Clock.Now()}
	pods, err := s.home.list(ctx, s.node)
	if err != nil {
		return r, err
	}
	running := map[string]*corev1.Pod{}
	for i := range pods {
		if pods[i].Status.Phase == corev1.PodRunning {
			running[string(pods[i].UID)] = &pods[i]
		}
	}
	var used []stats.Pod
	if len(running) > 0 && s.options.Stats != nil {
		if used, err = s.options.Stats.Pods(ctx, s.peering()); err != nil {
			return r, err
		}
	}
	r.sum(running, used, &s.usage)
	return r, nil
}

// sum takes those figures that are about pods of the node.
func (r *report) sum(running map[string]*corev1.Pod, used []stats.Pod, node *usage) {
	cpu := map[life]spent{}
	told := map[string]bool{}
	for _, u := range used {
		pod := running[u.Metadata.UID]
		if pod == nil || told[u.Metadata.UID] {
			continue
		}
		told[u.Metadata.UID] = true
		u.Containers = containersOf(pod, u.Containers)
		r.pods = append(r.pods, podUsage{pod: pod, used: u})
		for _, c := range u.Containers {
			if c.CPUCoreNanoSeconds != nil {
				cpu[life{u.Metadata.UID, c.Name}] = spent{c.StartTime.Unix(), float64(*c.CPUCoreNanoSeconds) / 1e9, c.CPUTime.Time}
			}
			if c.CPUNanoCores != nil {
				r.nanoCores += float64(*c.CPUNanoCores)
			}
			if c.WorkingSetBytes != nil {
				r.memory += float64(*c.WorkingSetBytes)
			}
		}
	}
	slices.SortFunc(r.pods, func(a, b podUsage) int {
		return strings.Compare(a.pod.Namespace+"/"+a.pod.Name, b.pod.Namespace+"/"+b.pod.Name)
	})
	r.cpuSeconds, r.taken = node.add(cpu, func(uid string) bool { return running[uid] != nil })
	if r.taken.IsZero() {
		r.taken = r.at
	}
}

// containersOf leaves the figures of containers that a pod has: others would be kept as
// long as the pod lives, and become metrics, as many as a provider makes up.
func containersOf(pod *corev1.Pod, said []stats.Container) []stats.Container {
	names := map[string]bool{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			names[list[i].Name] = true
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		names[pod.Spec.EphemeralContainers[i].Name] = true
	}
	var known []stats.Container // what is said is shared with others who ask
	for _, c := range said {
		if names[c.Name] {
			known = append(known, c)
		}
	}
	return known
}

// resource answers with the figures as metrics, named as kubelets name them.
func (s *server) resource(w http.ResponseWriter, r *http.Request) {
	found, err := s.report(r.Context())
	if err != nil {
		s.logger.V(1).Info("usage not known", "node", s.node, "cause", err.Error())
	}
	answer(w, metricsType, found.metrics(err != nil))
}

// family is the metrics of one name.
type family struct {
	name, kind, help string
	lines            bytes.Buffer
}

func (f *family) add(labels string, value float64, at metav1.Time) {
	fmt.Fprintf(&f.lines, "%s%s %g", f.name, labels, value)
	if !at.IsZero() {
		fmt.Fprintf(&f.lines, " %d", at.UnixMilli())
	}
	f.lines.WriteByte('\n')
}

// metrics writes a report in the text format. Labels are names of Kubernetes objects,
// in which nothing needs to be escaped.
func (r *report) metrics(failed bool) []byte {
	containerCPU := &family{name: "container_cpu_usage_seconds_total", kind: "counter", help: "Cumulative cpu time consumed by the container in core-seconds"}
	containerMemory := &family{name: "container_memory_working_set_bytes", kind: "gauge", help: "Current working set of the container in bytes"}
	containerStart := &family{name: "container_start_time_seconds", kind: "gauge", help: "Start time of the container since unix epoch in seconds"}
	nodeCPU := &family{name: "node_cpu_usage_seconds_total", kind: "counter", help: "Cumulative cpu time consumed by the node in core-seconds"}
	nodeMemory := &family{name: "node_memory_working_set_bytes", kind: "gauge", help: "Current working set of the node in bytes"}
	podCPU := &family{name: "pod_cpu_usage_seconds_total", kind: "counter", help: "Cumulative cpu time consumed by the pod in core-seconds"}
	podMemory := &family{name: "pod_memory_working_set_bytes", kind: "gauge", help: "Current working set of the pod in bytes"}
	failure := &family{name: "resource_scrape_error", kind: "gauge", help: "1 if there was an error while getting container metrics, 0 otherwise"}
	for _, p := range r.pods {
		sum := p.sum()
		for _, c := range p.used.Containers {
			labels := fmt.Sprintf("{container=%q,namespace=%q,pod=%q}", c.Name, p.pod.Namespace, p.pod.Name)
			if c.CPUCoreNanoSeconds != nil {
				containerCPU.add(labels, float64(*c.CPUCoreNanoSeconds)/1e9, c.CPUTime)
			}
			if c.WorkingSetBytes != nil {
				containerMemory.add(labels, float64(*c.WorkingSetBytes), c.MemoryTime)
			}
			if !c.StartTime.IsZero() {
				containerStart.add(labels, float64(c.StartTime.Unix()), metav1.Time{})
			}
		}
		labels := fmt.Sprintf("{namespace=%q,pod=%q}", p.pod.Namespace, p.pod.Name)
		if sum.cpu != nil {
			podCPU.add(labels, float64(*sum.cpu)/1e9, sum.at)
		}
		if sum.memory != nil {
			podMemory.add(labels, float64(*sum.memory), sum.at)
		}
	}
	broken := 0.0
	if failed {
		broken = 1
	} else {
		// Both with one time: metrics-server has one for a node's figures, that of the last line.
		nodeCPU.add("", r.cpuSeconds, metav1.NewTime(r.taken))
		nodeMemory.add("", r.memory, metav1.NewTime(r.taken))
	}
	failure.add("", broken, metav1.Time{})
	var out bytes.Buffer
	for _, f := range []*family{containerCPU, containerMemory, containerStart, nodeCPU, nodeMemory, podCPU, podMemory, failure} {
		if f.lines.Len() > 0 {
			fmt.Fprintf(&out, "# HELP %s [STABLE] %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
			out.Write(f.lines.Bytes())
		}
	}
	return out.Bytes()
}

// podSum is the sum of a pod's containers.
type podSum struct {
	nano, cpu, memory *uint64
	at                metav1.Time
}

func (p podUsage) sum() podSum {
	var s podSum
	plus := func(to **uint64, more *uint64) {
		if more == nil {
			return
		}
		if *to == nil {
			*to = new(uint64)
		}
		if **to+*more >= **to { // or it would overflow
			**to += *more
		}
	}
	for _, c := range p.used.Containers {
		plus(&s.nano, c.CPUNanoCores)
		plus(&s.cpu, c.CPUCoreNanoSeconds)
		plus(&s.memory, c.WorkingSetBytes)
		for _, t := range []metav1.Time{c.CPUTime, c.MemoryTime} {
			if t.After(s.at.Time) {
				s.at = t
			}
		}
	}
	return s
}

// cpuStats and memoryStats are parts of the kubelet's summary.
type cpuStats struct {
	Time                 metav1.Time `json:"time"`
	UsageNanoCores       *uint64     `json:"usageNanoCores,omitempty"`
	UsageCoreNanoSeconds *uint64     `json:"usageCoreNanoSeconds,omitempty"`
}

type memoryStats struct {
	Time            metav1.Time `json:"time"`
	WorkingSetBytes *uint64     `json:"workingSetBytes,omitempty"`
}

type podRef struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

type containerStats struct {
	Name      string       `json:"name"`
	StartTime metav1.Time  `json:"startTime"`
	CPU       *cpuStats    `json:"cpu,omitempty"`
	Memory    *memoryStats `json:"memory,omitempty"`
}

type podStats struct {
	PodRef     podRef           `json:"podRef"`
	StartTime  metav1.Time      `json:"startTime"`
	Containers []containerStats `json:"containers"`
	CPU        *cpuStats        `json:"cpu,omitempty"`
	Memory     *memoryStats     `json:"memory,omitempty"`
}

type nodeStats struct {
	NodeName  string       `json:"nodeName"`
	StartTime metav1.Time  `json:"startTime"`
	CPU       *cpuStats    `json:"cpu,omitempty"`
	Memory    *memoryStats `json:"memory,omitempty"`
}

type summaryStats struct {
	Node nodeStats  `json:"node"`
	Pods []podStats `json:"pods"`
}

// summary answers with the figures as kubelets' /stats/summary has them.
func (s *server) summary(w http.ResponseWriter, r *http.Request) {
	found, err := s.report(r.Context())
	if err != nil {
		s.logger.V(1).Info("usage not known", "node", s.node, "cause", err.Error())
		s.fail(w, refuse(http.StatusServiceUnavailable, "cluster %s does not say what its pods use", s.peering()))
		return
	}
	text, err := json.Marshal(found.summary(s.node))
	if err != nil {
		s.fail(w, err)
		return
	}
	answer(w, "application/json", text)
}

func (r *report) summary(node string) summaryStats {
	whole := func(f float64) *uint64 { n := uint64(max(f, 0)); return &n }
	at := metav1.NewTime(r.taken)
	out := summaryStats{Pods: []podStats{}, Node: nodeStats{
		NodeName: node, CPU: &cpuStats{Time: at, UsageNanoCores: whole(r.nanoCores), UsageCoreNanoSeconds: whole(r.cpuSeconds * 1e9)},
		Memory: &memoryStats{Time: at, WorkingSetBytes: whole(r.memory)},
	}}
	for _, p := range r.pods {
		sum := p.sum()
		one := podStats{
			PodRef: podRef{Name: p.pod.Name, Namespace: p.pod.Namespace, UID: string(p.pod.UID)}, StartTime: p.used.StartTime,
			CPU:    &cpuStats{Time: sum.at, UsageNanoCores: sum.nano, UsageCoreNanoSeconds: sum.cpu},
			Memory: &memoryStats{Time: sum.at, WorkingSetBytes: sum.memory}, Containers: []containerStats{},
		}
		for _, c := range p.used.Containers {
			one.Containers = append(one.Containers, containerStats{
				Name: c.Name, StartTime: c.StartTime,
				CPU:    &cpuStats{Time: c.CPUTime, UsageNanoCores: c.CPUNanoCores, UsageCoreNanoSeconds: c.CPUCoreNanoSeconds},
				Memory: &memoryStats{Time: c.MemoryTime, WorkingSetBytes: c.WorkingSetBytes},
			})
		}
		out.Pods = append(out.Pods, one)
	}
	return out
}
