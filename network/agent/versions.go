package agent

import (
	"maps"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// stream is one source of pods that is in order: a watch of those on a virtual node or of those of a
// tenant here, or the gateway of a provider, by the key of its peering.
type stream struct{ node, tenant, peer string }

// versions knows up to which resourceVersion of the pods of each stream the data plane is made. What
// is heard and means nothing to a plan is so as soon as all before it is. Its zero value knows nothing.
//
// After a watch that broke, the pods come in any order, and for as long as that takes the number
// may be too high.
type versions struct {
	mu      sync.Mutex
	streams map[stream]*progress
	born    int // streams so far
}

// progress is how far a stream is.
type progress struct {
	// heard is the version that was heard of last, and changes how often it meant something.
	heard   int64
	changes int
	// applied is the version that the last plan that was applied was made of, and done the changes
	// in that.
	applied int64
	done    int
	// born tells it from one of the same stream that was forgotten; 0 is of none that was heard.
	born int
}

func hostedStream(pod *corev1.Pod) stream { return stream{tenant: pod.Labels[v1alpha1.LabelTenant]} }

// versionOf is a pod's resourceVersion as a number, 0 if it is none.
func versionOf(pod *corev1.Pod) int64 {
	n, err := strconv.ParseInt(pod.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// hear takes what a pod is now, and whether that means something to a plan.
func (v *versions) hear(s stream, version int64, means bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.of(s)
	if means && p.changes == p.done { // all before it is applied
		p.applied = max(p.applied, p.heard)
	}
	p.heard = version
	if means {
		p.changes++
	}
}

// of is the progress of a stream. The caller holds the lock.
func (v *versions) of(s stream) *progress {
	if v.streams == nil {
		v.streams = map[stream]*progress{}
	}
	if v.streams[s] == nil {
		v.born++
		v.streams[s] = &progress{born: v.born}
	}
	return v.streams[s]
}

// notify tells of the pods of a kind of stream that are not as they were, and of those that are, as
// far as a plan goes.
func (v *versions) notify(of func(*corev1.Pod) stream, changed, passed func()) toolscache.ResourceEventHandler {
	take := func(o any, means bool) {
		if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if pod, ok := o.(*corev1.Pod); ok {
			v.hear(of(pod), versionOf(pod), means)
		}
		if means {
			changed()
		} else {
			passed()
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { take(o, true) }, DeleteFunc: func(o any) { take(o, true) },
		UpdateFunc: func(before, after any) { take(after, !same(before, after)) },
	}
}

// begin is what was heard before all is read that a plan is made of.
func (v *versions) begin() map[stream]progress {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := map[stream]progress{}
	for s, p := range v.streams {
		all[s] = *p
	}
	return all
}

// apply takes that a plan was applied that was made of so much. It reports whether a stream that
// changed is further than before.
func (v *versions) apply(read map[stream]progress) (news bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for s, r := range read {
		if now := v.streams[s]; r.born != 0 && (now == nil || now.born != r.born) {
			continue // it was forgotten meanwhile
		}
		p := v.of(s)
		news = news || p.done != r.changes
		p.applied, p.done = r.heard, r.changes
	}
	return news
}

// now is the version that is applied.
func (v *versions) now(s stream) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch p := v.streams[s]; {
	case p == nil:
		return 0
	case p.changes == p.done:
		return max(p.applied, p.heard)
	default:
		return p.applied
	}
}

// forget forgets a stream that is not followed any more.
func (v *versions) forget(s stream) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.streams, s)
}

// read are the versions that a plan is made of: what was heard before, or what is in the pods that
// were read after that. Of streams that were not read it says nothing.
func read(before map[stream]progress, pods map[stream][]*corev1.Pod) map[stream]progress {
	all := maps.Clone(before)
	maps.DeleteFunc(all, func(s stream, _ progress) bool { _, ok := pods[s]; return !ok })
	for s, list := range pods {
		p := all[s]
		for _, pod := range list {
			p.heard = max(p.heard, versionOf(pod))
		}
		all[s] = p
	}
	return all
}
