// Package stats is what a tenant's pods use. At the provider it is an aggregated API,
// stats.pelago.dev: a tenant lists podstats in its tenant namespace, and gets the usage
// of the containers that run for it, which is read from the kubelets of just those
// nodes when somebody asks. At home it is the client of that. It shows nobody anything
// of other pods or of the nodes, stores nothing, and fetches nothing while nobody asks.
package stats

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The aggregated API.
const (
	// Group of the aggregated API.
	Group = "stats.pelago.dev"
	// Version of the aggregated API.
	Version = "v1alpha1"
	// Resource is what tenants list.
	Resource = "podstats"
	// Path below which everything of this API is.
	Path = "/apis/" + Group
)

// Bounds of one answer.
const (
	maxPods       = 10_000
	maxContainers = 256
	maxAnswer     = 8 << 20
)

// List is the answer to listing podstats.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	// Items are the tenant's pods that run and of which something is known.
	Items []Pod `json:"items"`
}

// Pod is what one pod uses.
type Pod struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the pod's namespace, name and UID at home.
	Metadata Home `json:"metadata"`
	// StartTime of the pod.
	StartTime metav1.Time `json:"startTime,omitzero"`
	// Containers of the pod.
	Containers []Container `json:"containers"`
}

// Home names a pod at home.
type Home struct {
	// Namespace of the pod at home.
	Namespace string `json:"namespace"`
	// Name of the pod at home.
	Name string `json:"name"`
	// UID of the pod at home.
	UID string `json:"uid"`
}

// Container is what one container uses.
type Container struct {
	// Name of the container.
	Name string `json:"name"`
	// Restarts of the container.
	Restarts int32 `json:"restarts"`
	// StartTime of the container that runs now.
	StartTime metav1.Time `json:"startTime,omitzero"`
	// CPUTime is when the figures of the CPU were taken.
	CPUTime metav1.Time `json:"cpuTime,omitzero"`
	// CPUNanoCores is the share of a CPU in use, if known.
	CPUNanoCores *uint64 `json:"cpuNanoCores,omitempty"`
	// CPUCoreNanoSeconds is the CPU time used since the container started, if known.
	CPUCoreNanoSeconds *uint64 `json:"cpuCoreNanoSeconds,omitempty"`
	// MemoryTime is when the figure of the memory was taken.
	MemoryTime metav1.Time `json:"memoryTime,omitzero"`
	// WorkingSetBytes of memory in use, if known.
	WorkingSetBytes *uint64 `json:"workingSetBytes,omitempty"`
}

// maxFigure is more than any container uses and small enough to add up thousands.
const maxFigure = 1 << 50

// maxCPUTime is a hundred CPUs for three years, in nanoseconds: more is nonsense.
const maxCPUTime = 1 << 63

// maxAhead is how far a provider's clock may be ahead. Times stand as they are said, as they are compared with each other:
// rates would waver if one figure had another time whenever it is read. A provider that lies has later figures of
// its own pods taken for older ones, for so long at most. Prometheus takes nothing that is ten minutes ahead.
const maxAhead = 5 * time.Minute

// errTooMuch says that an answer is larger than it may be.
var errTooMuch = errors.New("the answer is too large")

// sane leaves of what a provider says of a pod what can be true: it is part of this
// cluster's metrics next.
func sane(p *Pod, now time.Time) (Pod, bool) {
	if p.Metadata.UID == "" || len(p.Metadata.UID) > 64 || len(p.Containers) > maxContainers {
		return Pod{}, false
	}
	pod := Pod{Metadata: p.Metadata, StartTime: past(p.StartTime, now)}
	seen := map[string]bool{}
	for _, c := range p.Containers {
		if len(validation.IsDNS1123Label(c.Name)) > 0 || seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		pod.Containers = append(pod.Containers, Container{
			Name: c.Name, Restarts: max(c.Restarts, 0), StartTime: past(c.StartTime, now),
			CPUTime: past(c.CPUTime, now), MemoryTime: past(c.MemoryTime, now),
			CPUNanoCores: within(c.CPUNanoCores, maxFigure), CPUCoreNanoSeconds: within(c.CPUCoreNanoSeconds, maxCPUTime),
			WorkingSetBytes: within(c.WorkingSetBytes, maxFigure),
		})
	}
	return pod, true
}

// past is a time unless it lies far ahead or before everything.
func past(t metav1.Time, now time.Time) metav1.Time {
	if t.After(now.Add(maxAhead)) {
		return metav1.NewTime(now)
	}
	if t.Unix() <= 0 {
		return metav1.Time{}
	}
	return t
}

func within(figure *uint64, most uint64) *uint64 {
	if figure == nil || *figure > most {
		return nil
	}
	return figure
}
