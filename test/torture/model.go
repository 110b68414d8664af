package torture

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Namespaces of a storm at home. Keep has one copy of each pod, Roam may run it on
// either side, Stay is never offloaded.
const (
	Keep, Roam, Stay = "keep", "roam", "stay"
)

// Names that mean something to the model.
const (
	// Alien is the Deployment of Stay, whose pods tolerate everything. Where they end is
	// not the model's, as they may be left Pending (see docs/offloading.md), but for that
	// it is never at a provider.
	Alien = "alien"
	// Last is a Deployment made when the storm is over: it must be where it is to be.
	Last = "last"
	// Login is the Secret that pods refer to, Denied one that stays home, though they do,
	// and Other one that they do not refer to.
	Login, Denied, Other = "login", "denied", "other"
	// Settings is the ConfigMap that pods refer to. They run without it as well.
	Settings = "settings"
)

// Places are all namespaces of a storm.
var Places = []string{Keep, Roam, Stay}

var offloadable = []string{Keep, Roam}

// Strategies of the places that are ever offloaded.
var Strategies = map[string]v1alpha1.PodOffloadingStrategy{Keep: v1alpha1.PodsRemote, Roam: v1alpha1.PodsLocalAndRemote}

// Mapped is what a place is called at the provider.
func Mapped(place string) string { return v1alpha1.DefaultRemoteNamespace(place, Home) }

// Model is what users have asked for.
type Model struct{ Places map[string]*Place }

// Place is a namespace as its users want it.
type Place struct {
	// Offloaded says whether it is, Since when in the storm that was said.
	Offloaded bool
	Since     time.Duration
	// Login is the version of its Secret.
	Login int
	// Settings is the version of its ConfigMap, 0 if there is none; Services are ports by name.
	Settings int
	Services map[string]int
	// Apps are its Deployments, StatefulSets and Jobs by name.
	Apps map[string]*App
}

// App is something that has pods.
type App struct {
	Kind     Verb // Deploy, Stateful or Job
	Replicas int
	Tier     int // version of its template
}

// NewModel is the model before the first step.
func NewModel() *Model {
	m := &Model{Places: map[string]*Place{}}
	for _, place := range Places {
		m.Places[place] = &Place{Apps: map[string]*App{}, Services: map[string]int{}}
	}
	return m
}

// Has says whether what a step is about is there.
func (m *Model) Has(s Step) bool {
	place := m.Places[s.Place()]
	if s.Name() == Settings {
		return place.Settings != 0
	}
	_, service := place.Services[s.Name()]
	return service || place.Apps[s.Name()] != nil
}

// Apply is what a user wants after a step. Faults change nothing of that.
func (m *Model) Apply(s Step) {
	if s.Fault() {
		return
	}
	place := m.Places[s.Place()]
	app := place.Apps[s.Name()]
	switch s.Verb {
	case Deploy, Stateful:
		place.Apps[s.Name()] = &App{Kind: s.Verb, Replicas: s.Number}
	case Job:
		place.Apps[s.Name()] = &App{Kind: Job}
	case Scale:
		app.Replicas = s.Number
	case Roll:
		app.Tier = s.Number
	case Delete:
		delete(place.Apps, s.Name())
		delete(place.Services, s.Name())
		if s.Name() == Settings {
			place.Settings = 0
		}
	case Configure:
		place.Settings = s.Number
	case Expose:
		place.Services[s.Name()] = s.Number
	case Rotate:
		place.Login = s.Number
	case Offload, Unoffload:
		place.Offloaded, place.Since = s.Verb == Offload, s.At
	}
}

// Unsettled says what is not yet as it must be some time after the last fault; nothing
// if all is.
func (m *Model) Unsettled(w *World) []string {
	var found []string
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, name := range offloadable {
		place := m.Places[name]
		m.unsettledApps(w, name, add)
		if there := w.Remote.has(Mapped(name)); there != place.Offloaded {
			add("namespace %s at the provider is there: %t, want %t", Mapped(name), there, place.Offloaded)
		}
		m.unsettledReflected(w, name, add)
		m.unanswered(w, name, add)
	}
	unpaired(w, add)
	slices.Sort(found)
	return found
}

func (c Cluster) has(namespace string) bool {
	for _, name := range c.Namespaces {
		if name == namespace {
			return true
		}
	}
	return false
}

// unsettledApps holds what a user sees of his own: the pods that he asked for, no others.
func (m *Model) unsettledApps(w *World, name string, add func(string, ...any)) {
	place := m.Places[name]
	good := map[string]int{}
	for _, pod := range w.Home.Pods {
		app := place.Apps[pod.App]
		switch {
		case pod.Namespace != name:
		case app == nil:
			add("pod %s/%s is of nothing that is there", name, pod.Name)
		case app.Kind == Job: // its pods may be gone, once it is complete
		case pod.Deleting || !pod.Ready || pod.Tier != strconv.Itoa(app.Tier):
			add("pod %s/%s on %q is %s, ready %t, deleting %t, of tier %s; want it ready, of tier %d", name, pod.Name, pod.Node, pod.Phase, pod.Ready, pod.Deleting, pod.Tier, app.Tier)
		case pod.App == Last && place.Offloaded && Strategies[name] == v1alpha1.PodsRemote && pod.Node != Provider, !place.Offloaded && pod.Node == Provider && pod.App == Last:
			add("pod %s/%s, made after the storm, is on %s", name, pod.Name, pod.Node)
		default:
			good[pod.App]++
		}
	}
	for app, want := range place.Apps {
		if want.Kind != Job && good[app] != want.Replicas {
			add("%s %s/%s has %d good pods, want %d", want.Kind, name, app, good[app], want.Replicas)
		}
		if want.Kind == Job && !slices.ContainsFunc(values(w.Home.Jobs), func(j JobState) bool { return j.Namespace == name && j.Name == app && j.Complete }) {
			add("job %s/%s is not complete", name, app)
		}
	}
}

// unpaired holds that what is on one side is on the other: a pod on the virtual node has
// its ShadowPod and, unless it has ended, its pod, alike; and nothing is without one at home.
func unpaired(w *World, add func(string, ...any)) {
	twins, shadows := map[string]Pod{}, map[string]bool{}
	for _, pod := range w.Remote.Pods {
		if _, home := w.Home.Pods[pod.HomeUID]; !home {
			add("pod %s/%s at the provider has no home pod", pod.Namespace, pod.Name)
		}
		twins[pod.HomeUID] = pod
	}
	for _, s := range w.Remote.Shadows {
		if s.Kind != "" {
			continue
		}
		shadows[s.Name] = true
		if home, there := w.Home.Pods[s.Name]; !there || home.Node != Provider {
			add("ShadowPod %s of %s/%s has no home pod on the virtual node", s.Name, s.HomePlace, s.HomeName)
		}
	}
	for uid, home := range w.Home.Pods {
		if home.Node != Provider || home.Place == Stay {
			continue
		}
		twin, there := twins[uid]
		ended := home.Phase == phaseSucceeded || home.Phase == phaseFailed
		switch {
		case !shadows[uid] && !ended:
			add("pod %s/%s on the virtual node has no ShadowPod", home.Namespace, home.Name)
		case !there && ended:
		case !there:
			add("pod %s/%s on the virtual node has no pod at the provider", home.Namespace, home.Name)
		case twin.Phase != home.Phase || twin.App != home.App || twin.Tier != home.Tier || twin.Mark != home.Mark:
			add("pod %s/%s is %s, tier %s, mark %q; at the provider %s, tier %s, mark %q", home.Namespace, home.Name, home.Phase, home.Tier, home.Mark, twin.Phase, twin.Tier, twin.Mark)
		}
	}
}

// Left says what is still there of a storm, of which nothing may be when its namespaces
// have been deleted.
func Left(w *World) []string {
	var found []string
	for side, c := range map[string]Cluster{Home: w.Home, Provider: w.Remote} {
		for _, pod := range c.Pods {
			found = append(found, fmt.Sprintf("%s: pod %s/%s", side, pod.Namespace, pod.Name))
		}
		for _, s := range c.Shadows {
			found = append(found, fmt.Sprintf("%s: shadow of %s %s/%s", side, s.Kind, s.HomePlace, s.HomeName))
		}
		for _, s := range c.Secrets {
			found = append(found, fmt.Sprintf("%s: Secret %s/%s", side, s.Namespace, s.Name))
		}
		for _, s := range c.Configs {
			found = append(found, fmt.Sprintf("%s: ConfigMap %s/%s", side, s.Namespace, s.Name))
		}
		for _, s := range c.Services {
			found = append(found, fmt.Sprintf("%s: Service %s/%s", side, s.Namespace, s.Name))
		}
		for _, s := range c.Slices {
			found = append(found, fmt.Sprintf("%s: a slice of %s/%s", side, s.Namespace, s.Service))
		}
		for _, place := range Places {
			if c.has(place) || c.has(Mapped(place)) {
				found = append(found, fmt.Sprintf("%s: a namespace of %s", side, place))
			}
		}
	}
	slices.Sort(found)
	return found
}

func values[T any](all map[string]T) []T {
	var found []T
	for _, each := range all {
		found = append(found, each)
	}
	return found
}
