package torture

import (
	"fmt"
	"slices"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	phaseSucceeded = "Succeeded"
	phaseFailed    = "Failed"
)

// doubt is for how long a pod at the provider must have succeeded to have done so by itself for
// certain: one that is deleted up to two seconds after its end is taken to have been lost.
const doubt = 5 * time.Second

// Violation is something that must never be true, and is.
type Violation struct {
	// Rule is the rule's name, Place and App what it is about, Text what was seen.
	Rule, Place, App, Text string
	// Doubtful: the two clusters were seen at different moments. It counts if the rule
	// says so again of a fresh look at both, at home first.
	Doubtful bool
}

// String is a line for people.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s/%s: %s", v.Rule, v.Place, v.App, v.Text)
}

// Memory is what was seen before.
type Memory struct {
	finished map[string][]string  // PLACE/JOB → UIDs of home pods that succeeded
	good     map[string]time.Time // UID of a pod at the provider → when it was first seen to have succeeded
	ended    map[string]string    // UID of a home pod → UID of its pod at the provider that ended by itself
	final    map[string]Shadow    // ShadowPods that had ended, by UID
	needed   map[string]time.Time // place → when a pod of it was last seen bound to the provider
	arrivals map[string]*arrival  // by UID
}

// NewMemory is that of one who has seen nothing.
func NewMemory() *Memory {
	return &Memory{finished: map[string][]string{}, good: map[string]time.Time{}, ended: map[string]string{}, final: map[string]Shadow{},
		needed: map[string]time.Time{}, arrivals: map[string]*arrival{}}
}

// rules are asked after every event.
var rules = []struct {
	name  string
	check func(*World, *Memory) []Violation
}{
	{"a Job finishes once", finishedTwice},
	{"what has ended by itself never runs again", ranAgain},
	{"pods stay in their tenant", outsideTenant},
	{"there is one copy of a StatefulSet's pod", twoCopies},
	{"what runs at a provider that is away is not replaced", replacedPods},
	{"what goes with pods is in their namespace, and nowhere else", strayed},
	{"nothing comes to the provider that no pod there refers to", arrivedUnasked},
}

// Never returns what is true of the world and must never be. It remembers what it sees.
func (m *Memory) Never(w *World) []Violation {
	var found []Violation
	for _, rule := range rules {
		for _, v := range rule.check(w, m) {
			v.Rule = rule.name
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b Violation) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	return found
}

// finishedTwice: two pods of one Job have succeeded, or the Job counts two. One that has at the
// provider counts, though its home pod may never say so.
func finishedTwice(w *World, m *Memory) (found []Violation) {
	succeeded := func(pod Pod, place, uid string) {
		key := place + "/" + pod.App
		if !pod.Counted || pod.Phase != phaseSucceeded || slices.Contains(m.finished[key], uid) {
			return
		}
		m.finished[key] = append(m.finished[key], uid)
		if n := len(m.finished[key]); n > 1 {
			found = append(found, Violation{Place: place, App: pod.App, Text: fmt.Sprintf("%s is the pod number %d of it that succeeded", pod.Name, n)})
		}
	}
	for uid, pod := range w.Home.Pods {
		succeeded(pod, pod.Namespace, uid)
	}
	for uid, pod := range w.Remote.Pods {
		if pod.HomeUID == "" || pod.Phase != phaseSucceeded || pod.Deleting {
			continue
		}
		if _, known := m.good[uid]; !known {
			m.good[uid] = w.Now
		}
		if w.Now.Sub(m.good[uid]) > doubt {
			succeeded(pod, pod.Place, pod.HomeUID)
		}
	}
	for _, job := range w.Home.Jobs {
		if job.Succeeded > 1 {
			found = append(found, Violation{Place: job.Namespace, App: job.Name, Text: fmt.Sprintf("it counts %d pods that succeeded", job.Succeeded)})
		}
	}
	return found
}

// ranAgain: a pod at the provider ended by itself, and another one is there for the same
// home pod; or a ShadowPod that told of an end tells of something else.
func ranAgain(w *World, m *Memory) (found []Violation) {
	for uid, pod := range w.Remote.Pods {
		if pod.HomeUID == "" {
			continue
		}
		first, known := m.ended[pod.HomeUID]
		switch {
		case known && first != uid:
			found = append(found, Violation{Place: pod.Place, App: pod.App, Text: fmt.Sprintf("%s/%s is there again, as %s; %s had succeeded", pod.Namespace, pod.Name, uid, first)})
		case pod.Phase == phaseSucceeded && !pod.Deleting: // one that is being deleted may have been lost
			m.ended[pod.HomeUID] = uid
		}
	}
	for uid, s := range w.Remote.Shadows {
		before, known := m.final[uid]
		switch {
		case s.Kind != "":
		case known && before.Phase != s.Phase:
			found = append(found, Violation{Place: s.HomePlace, Text: fmt.Sprintf("ShadowPod of %s was %s and is %q", s.HomeName, before.Phase, s.Phase)})
		case s.Phase == phaseSucceeded || s.Phase == phaseFailed:
			m.final[uid] = s
		}
	}
	return found
}

// outsideTenant: a pod is where its namespace has no place, or an intent outside the
// tenant's namespace.
func outsideTenant(w *World, _ *Memory) (found []Violation) {
	for _, pod := range w.Remote.Pods {
		if !slices.Contains(offloadable, pod.Place) || pod.Namespace != Mapped(pod.Place) || pod.HomeUID == "" {
			found = append(found, Violation{Place: pod.Place, App: pod.App, Text: fmt.Sprintf("its pod %s is in %s of the provider, home UID %q", pod.Name, pod.Namespace, pod.HomeUID)})
		}
	}
	for _, pod := range w.Home.Pods {
		if pod.Namespace == Stay && pod.Node == Provider {
			found = append(found, Violation{Place: Stay, App: pod.App, Text: pod.Name + " is bound to the virtual node, and its namespace was never offloaded"})
		}
	}
	for _, s := range w.Remote.Shadows {
		if s.Namespace != v1alpha1.TenantNamespace(Home) || !slices.Contains(offloadable, s.HomePlace) {
			found = append(found, Violation{Place: s.HomePlace, Text: fmt.Sprintf("shadow of %s %s/%s is in %s of the provider", s.Kind, s.HomePlace, s.HomeName, s.Namespace)})
		}
	}
	return found
}

// twoCopies: a pod of a StatefulSet runs at home, and one of its name at the provider.
func twoCopies(w *World, _ *Memory) (found []Violation) {
	for _, home := range w.Home.Pods {
		if !home.Unique || !home.Live || home.Node == Provider {
			continue
		}
		for _, remote := range w.Remote.Pods {
			if remote.Live && remote.Name == home.Name && remote.Namespace == Mapped(home.Namespace) {
				found = append(found, Violation{Place: home.Namespace, App: home.App, Doubtful: true,
					Text: fmt.Sprintf("%s runs on %s and, as %s, on %s", home.Name, home.Node, remote.UID, remote.Node)})
			}
		}
	}
	return found
}

// replacedPods: a pod is taken from the virtual node, so that its controller makes another
// one while it may run at a provider that is only away. All places are offloaded with
// WhenUnreachable: Keep.
func replacedPods(w *World, _ *Memory) (found []Violation) {
	for _, pod := range w.Home.Pods {
		if pod.Evicted && pod.Node == Provider && slices.Contains(offloadable, pod.Namespace) {
			found = append(found, Violation{Place: pod.Namespace, App: pod.App, Text: pod.Name + " is evicted from the virtual node"})
		}
	}
	return found
}
