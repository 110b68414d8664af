package provider

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

const (
	// warnAfter is how long a pod may be unready before it is told what this cluster warns
	// of: what a start gets over by itself, such as a ConfigMap that comes after its pod, is
	// not worth a word.
	warnAfter = 10 * time.Second
	// warnEvery is how often the same is told again at most.
	warnEvery = time.Minute
	// maxWarnings are the reasons that are told of one pod, maxWarning the bytes of what is
	// said of one.
	maxWarnings, maxWarning = 5, 512
	// maxReason is the most bytes of a reason.
	maxReason = 128
	// maxHeard is the most bytes that are read of what an event says.
	maxHeard = 4096
	// maxNoted are the events remembered of one pod, maxPods the pods of one tenant that
	// have any.
	maxNoted, maxPods = 10, 1000
	// notedFor is how long events are remembered: as long as an API server keeps them.
	notedFor = time.Hour
	// outdone is how much older than the last of its reason a warning may be to be told
	// instead, if it says more.
	outdone = 10 * time.Minute
)

// tellable are the reasons that kubelets, schedulers and those who attach volumes give when a
// pod does not get on, and that are about the pod. Whatever else warns of it, such as a policy
// or a mesh, speaks to this cluster's owner; so do kubelets of name servers, of features and of
// themselves.
var tellable = sets.New(
	"FailedScheduling",
	"Failed", "BackOff", "InspectFailed", "ErrImageNeverPull", "InvalidImageName", "FailedToRetrieveImagePullSecret",
	"FailedAttachVolume", "FailedMount", "FailedMapVolume", "FailedMountOnFilesystemMismatch", "AlreadyMountedVolume",
	"VolumeResizeFailed", "FileSystemResizeFailed", "VolumePermissionChangeInProgress", "VolumeConditionAbnormal",
	"FailedCreatePodSandBox", "FailedPodSandBoxStatus", "FailedCreatePodContainer", "FailedKillPod", "FailedSync", "NetworkNotReady",
	"FailedValidation", "FailedPrepareDynamicResources", "UnexpectedAdmissionError", "TopologyAffinityError", "NodeAffinity", "NodePorts",
	"AppArmor", "SysctlForbidden", "PodOSNotSupported", "PodLevelResourcesNotSupported",
	"Unhealthy", "ProbeWarning", "LifecycleHTTPFallback", "FailedPostStartHook", "FailedPreStopHook", "ExceededGracePeriod",
	"Evicted", "Preempting", "ResizeError",
)

// mayTell says whether a consumer may be told warnings of a reason.
func mayTell(reason string) bool {
	return tellable.Has(reason) || strings.HasPrefix(reason, "OutOf") && len(reason) <= maxReason
}

// warningOf is what an event warns of about a pod; ok is false if it does not.
func warningOf(e *corev1.Event, isNode func(name string) bool) (w v1alpha1.PodWarning, ok bool) {
	reason, text := passedOn(e)
	if e.Type != corev1.EventTypeWarning || e.InvolvedObject.Kind != "Pod" || e.InvolvedObject.UID == "" || !mayTell(reason) {
		return w, false
	}
	node := func(name string) bool { return name == e.Source.Host || name == e.ReportingInstance || isNode(name) }
	message := shadow.Telling(reason, bounded(text, maxHeard), node)
	w = v1alpha1.PodWarning{Reason: bounded(reason, maxReason), Message: bounded(message, maxWarning), Count: max(e.Count, 1)}
	last := e.CreationTimestamp
	for _, at := range []metav1.Time{metav1.NewTime(e.EventTime.Time), e.LastTimestamp} {
		if last.Before(&at) {
			last = at
		}
	}
	if s := e.Series; s != nil {
		w.Count = max(w.Count, s.Count)
		if at := metav1.NewTime(s.LastObservedTime.Time); last.Before(&at) {
			last = at
		}
	}
	w.LastTime = metav1.NewTime(last.Truncate(time.Second))
	return w, true
}

// book remembers the last warnings about pods, by UID and by the event that they came
// in. It is lost with this program, and comes again as long as the events are there.
type book struct {
	mu    sync.Mutex
	pods  map[types.UID]page
	count map[string]int // of pages, by tenant
}

// page is what is remembered of one pod.
type page struct {
	tenant string
	noted  map[string]v1alpha1.PodWarning
}

func newBook() *book { return &book{pods: map[types.UID]page{}, count: map[string]int{}} }

// note remembers a warning about a tenant's pod, in place of what the same event said
// before. A tenant whose part of the book is full gets no more.
func (b *book) note(tenant string, pod types.UID, event string, w v1alpha1.PodWarning) {
	b.mu.Lock()
	defer b.mu.Unlock()
	noted := b.pods[pod].noted
	if noted == nil {
		if b.count[tenant] >= maxPods {
			return
		}
		noted = map[string]v1alpha1.PodWarning{}
		b.pods[pod] = page{tenant: tenant, noted: noted}
		b.count[tenant]++
	}
	noted[event] = w
	for len(noted) > maxNoted {
		oldest := event
		for name := range noted {
			if noted[name].LastTime.Time.Before(noted[oldest].LastTime.Time) {
				oldest = name
			}
		}
		delete(noted, oldest)
	}
}

// of is what is remembered of a pod.
func (b *book) of(pod types.UID) []v1alpha1.PodWarning {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]v1alpha1.PodWarning, 0, len(b.pods[pod].noted))
	for _, w := range b.pods[pod].noted {
		all = append(all, w)
	}
	return all
}

// drop forgets a pod that is gone.
func (b *book) drop(pod types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tear(pod)
}

// tear takes out a page. The caller holds the lock.
func (b *book) tear(pod types.UID) {
	p, there := b.pods[pod]
	if !there {
		return
	}
	delete(b.pods, pod)
	if b.count[p.tenant]--; b.count[p.tenant] == 0 {
		delete(b.count, p.tenant)
	}
}

// sweep forgets what is too old.
func (b *book) sweep(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for pod, p := range b.pods {
		for event, w := range p.noted {
			if now.Sub(w.LastTime.Time) > notedFor {
				delete(p.noted, event)
			}
		}
		if len(p.noted) == 0 {
			b.tear(pod)
		}
	}
}

// warn tells what this cluster warns of about a pod that has not been ready for a while.
func (p *plan) warn(f facts) {
	since, unready := unreadySince(f.pod)
	if !unready || len(f.warnings) == 0 {
		return
	}
	if wait := since.Add(warnAfter).Sub(f.now); wait > 0 {
		p.in(min(wait, warnAfter))
		return
	}
	next, again := tellWarnings(p.status.Warnings, perReason(f.warnings), f.now)
	p.status.Warnings = next
	if again > 0 {
		p.in(again)
	}
}

// unreadySince is since when a pod that has not ended is not ready.
func unreadySince(pod *corev1.Pod) (time.Time, bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return time.Time{}, false
		}
		if c.LastTransitionTime.After(pod.CreationTimestamp.Time) {
			return c.LastTransitionTime.Time, true
		}
	}
	return pod.CreationTimestamp.Time, true
}

// perReason puts warnings of one reason together. Of several messages the one that says
// most is told: "Error: ErrImagePull" follows what is wrong with the image.
func perReason(noted []v1alpha1.PodWarning) []v1alpha1.PodWarning {
	noted = slices.Clone(noted)
	slices.SortFunc(noted, func(a, b v1alpha1.PodWarning) int { // the last first
		return cmp.Or(b.LastTime.Compare(a.LastTime.Time), strings.Compare(a.Message, b.Message))
	})
	var all []v1alpha1.PodWarning
	for _, w := range noted {
		i := slices.IndexFunc(all, func(o v1alpha1.PodWarning) bool { return o.Reason == w.Reason })
		if i < 0 {
			all = append(all, w)
			continue
		}
		if len(w.Message) > len(all[i].Message) && all[i].LastTime.Sub(w.LastTime.Time) <= outdone {
			all[i].Message = w.Message
		}
		all[i].Count = int32(min(int64(all[i].Count)+int64(w.Count), math.MaxInt32))
	}
	return all
}

// tellWarnings is what is told next, of what was told and what there is: the last ones,
// and what was told of a reason stays as it is for a while. again is when there may be
// more to tell, 0 if not.
func tellWarnings(told, have []v1alpha1.PodWarning, now time.Time) (next []v1alpha1.PodWarning, again time.Duration) {
	next = slices.Clone(told)
	for _, w := range have {
		i := slices.IndexFunc(next, func(o v1alpha1.PodWarning) bool { return o.Reason == w.Reason })
		switch {
		case i < 0:
			next = append(next, w)
		case !w.LastTime.After(next[i].LastTime.Time):
		case now.Sub(next[i].LastTime.Time) >= warnEvery:
			next[i] = w
		default:
			if wait := next[i].LastTime.Add(warnEvery).Sub(now); again == 0 || wait < again {
				again = min(wait, warnEvery)
			}
		}
	}
	slices.SortStableFunc(next, func(a, b v1alpha1.PodWarning) int {
		return cmp.Or(a.LastTime.Compare(b.LastTime.Time), strings.Compare(a.Reason, b.Reason))
	})
	if len(next) > maxWarnings {
		next = slices.Delete(next, 0, len(next)-maxWarnings)
	}
	return next, again
}
