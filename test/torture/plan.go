package torture

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// shortOutage is the longest that a provider may be away while an offloading ends;
	// rest is how long it is back at least before it is away again.
	shortOutage = 40 * time.Second
	rest        = 20 * time.Second
	// Leaving is how long after an unoffload its pods may still be on their way.
	Leaving = 100 * time.Second
	// settle is how long a namespace stays as it is before it is offloaded or brought
	// back again.
	settle = 25 * time.Second

	// partFrom is when in a storm the provider is away for the first time for longer than
	// home waits before it replaces pods, and how long it takes until the next time.
	partFrom = 20 * time.Minute
	// replaced is after how long home would replace pods, and then some.
	replaced = 6 * time.Minute

	// tries is how often something else is drawn instead of what is not possible.
	tries       = 5
	maxReplicas = 3
	maxApps     = 4 // in one place, Jobs included, without those that call
	firstPort   = 8000
)

// The clusters, the component names and the nodes that faults choose from.
const (
	Home, Provider = "rome", "milan"
	managerPods    = "pelago-manager"
	authPods       = "pelago-auth"
	agentPods      = v1alpha1.AgentName
	link           = Home + "-" + Provider
)

// Components are those of Pelago that are struck.
var Components = []string{managerPods, authPods, agentPods}

// turns is whose turn it is.
var turns = []string{managerPods, managerPods, agentPods, authPods, managerPods, agentPods}

// NamespaceOf is where the pods of a component are.
func NamespaceOf(component string) string {
	if component == agentPods {
		return v1alpha1.NetworkNamespace
	}
	return v1alpha1.SystemNamespace
}

var appNames = []string{"web", "api", "db"}

// Plan is the steps of a storm: those of a longer one begin with those of a shorter one.
func Plan(seed uint64, length time.Duration) []Step {
	p := &planner{Rand: rand.New(rand.NewPCG(seed, 0x70656c61676f)), model: NewModel(), busy: map[string]time.Duration{}, part: partFrom}
	for _, place := range offloadable {
		p.add(Step{Verb: Offload, Target: place})
	}
	p.add(Step{Verb: Deploy, Target: Stay + "/" + Alien, Number: 1})
	p.add(Step{Verb: Expose, Target: Stay + "/" + toApp + Alien, Number: firstPort})
	p.add(Step{Verb: Configure, Target: Stay + "/" + Settings, Number: 1})
	for _, s := range callers() {
		p.add(s)
	}
	for {
		if p.at += p.between(500*time.Millisecond, 4*time.Second); p.at >= length {
			return p.steps
		}
		for range tries {
			if s, possible := p.draw(); possible {
				s.At = p.at
				p.add(s)
				break
			}
		}
	}
}

// Epilogue is what is made in a place after the storm, so that every storm ends with all
// that travels: a Deployment, a Service of it, and a ConfigMap.
func Epilogue(place string) []Step {
	return []Step{{Verb: Deploy, Target: place + "/" + Last, Number: 1}, {Verb: Expose, Target: place + "/" + toApp + Last, Number: firstPort},
		{Verb: Configure, Target: place + "/" + Settings, Number: 1 << 20}}
}

// planner draws steps that make sense after those before.
type planner struct {
	*rand.Rand
	at    time.Duration
	model *Model
	steps []Step
	// busy says until when something is not to be hit again: a node, an API server, the
	// way to the provider; and until when no unoffload or no long outage may begin.
	busy   map[string]time.Duration
	serial int
	// strikes is how many there were: components take turns, so that a short storm has all.
	strikes int
	// part is when the provider may be away next for longer than home waits for it.
	part time.Duration
}

const (
	noUnoffload = "no unoffload"
	noLong      = "no long outage"
	wayThere    = "the way to the provider"
	anyNode     = "the nodes of the provider"
)

func (p *planner) add(s Step) {
	p.model.Apply(s)
	p.steps = append(p.steps, s)
}

// draws are all that can happen, with how often in relation to each other.
var draws = []struct {
	weight int
	draw   func(*planner) (Step, bool)
}{
	{10, (*planner).make}, {10, (*planner).job}, {12, (*planner).scale}, {6, (*planner).roll}, {6, (*planner).mark}, {8, (*planner).remove},
	{4, (*planner).rotate}, {5, (*planner).configure}, {7, (*planner).expose}, {3, (*planner).discard},
	{7, (*planner).offload}, {5, (*planner).unoffload},
	{5, (*planner).strike}, {5, (*planner).lose}, {7, (*planner).cut}, {5, (*planner).pause}, {4, (*planner).stop},
}

// draw draws what happens, if it is possible now.
func (p *planner) draw() (Step, bool) {
	sum := 0
	for _, each := range draws {
		sum += each.weight
	}
	n := p.IntN(sum)
	for _, each := range draws {
		if n -= each.weight; n < 0 {
			return each.draw(p)
		}
	}
	panic("the weights do not add up")
}

func (p *planner) between(least, most time.Duration) time.Duration {
	return (least + time.Duration(p.Int64N(int64(most-least)))).Round(time.Millisecond)
}

func pick[T any](p *planner, from []T) (one T, possible bool) {
	if len(from) == 0 {
		return one, false
	}
	return from[p.IntN(len(from))], true
}

// place draws an offloadable one.
func (p *planner) place() string { return offloadable[p.IntN(len(offloadable))] }

// app draws an object that is there and of one of the kinds; with those that call, or without.
func (p *planner) app(calling bool, kinds ...Verb) (target string, possible bool) {
	place := p.place()
	var names []string
	for name, app := range p.model.Places[place].Apps {
		if slices.Contains(kinds, app.Kind) && (calling || !Calls(name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	name, possible := pick(p, names)
	return place + "/" + name, possible
}

func (p *planner) make() (Step, bool) {
	place := p.place()
	name := appNames[p.IntN(len(appNames))]
	s := Step{Verb: Deploy, Target: place + "/" + name, Number: 1 + p.IntN(maxReplicas)}
	if name == "db" {
		s.Verb, s.Number = Stateful, 1+p.IntN(2)
	}
	apps := p.model.Places[place].Apps
	return s, apps[name] == nil && p.room(place)
}

// room says whether a place may have one more app.
func (p *planner) room(place string) bool {
	drawn := 0
	for name := range p.model.Places[place].Apps {
		if !Calls(name) {
			drawn++
		}
	}
	return drawn < maxApps
}

func (p *planner) job() (Step, bool) {
	place := p.place()
	p.serial++
	return Step{Verb: Job, Target: fmt.Sprintf("%s/job-%d", place, p.serial), Number: 1 + p.IntN(15)}, p.room(place)
}

func (p *planner) scale() (Step, bool) {
	if p.IntN(8) == 0 {
		return Step{Verb: Scale, Target: Stay + "/" + Alien, Number: 1 + p.IntN(maxReplicas)}, true
	}
	target, possible := p.app(false, Deploy, Stateful)
	return Step{Verb: Scale, Target: target, Number: p.IntN(maxReplicas + 1)}, possible
}

func (p *planner) versioned(verb Verb) (Step, bool) {
	target, possible := p.app(true, Deploy, Stateful)
	p.serial++
	return Step{Verb: verb, Target: target, Number: p.serial}, possible
}

func (p *planner) roll() (Step, bool) { return p.versioned(Roll) }
func (p *planner) mark() (Step, bool) { return p.versioned(Mark) }

func (p *planner) remove() (Step, bool) {
	target, possible := p.app(false, Deploy, Stateful, Job, Job)
	return Step{Verb: Delete, Target: target}, possible
}

func (p *planner) rotate() (Step, bool) {
	p.serial++
	return Step{Verb: Rotate, Target: p.place(), Number: p.serial}, true
}

func (p *planner) configure() (Step, bool) {
	p.serial++
	return Step{Verb: Configure, Target: p.place() + "/" + Settings, Number: p.serial}, true
}

func (p *planner) expose() (Step, bool) {
	p.serial++
	return Step{Verb: Expose, Target: p.place() + "/" + toApp + appNames[p.IntN(len(appNames))], Number: firstPort + p.serial}, true
}

// discard deletes a ConfigMap or a Service.
func (p *planner) discard() (Step, bool) {
	place := p.place()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(p.model.Places[place].Services)), func(name string) bool { return Calls(AppOf(name)) })
	if p.model.Places[place].Settings != 0 {
		names = append(names, Settings)
	}
	name, possible := pick(p, names)
	return Step{Verb: Delete, Target: place + "/" + name}, possible
}

func (p *planner) offload() (Step, bool) {
	place := p.place()
	now := p.model.Places[place]
	return Step{Verb: Offload, Target: place}, !now.Offloaded && p.at >= now.Since+settle
}

func (p *planner) unoffload() (Step, bool) {
	place := p.place()
	now := p.model.Places[place]
	possible := now.Offloaded && p.at >= now.Since+settle && p.free(noUnoffload) && !p.due()
	if possible {
		p.busy[noLong] = p.at + Leaving
	}
	return Step{Verb: Unoffload, Target: place}, possible
}

// free says whether something may be hit now.
func (p *planner) free(what string) bool { return p.at >= p.busy[what] }

// occupy says for how long it may not be hit again.
func (p *planner) occupy(what string, length time.Duration) { p.busy[what] = p.at + length }

func (p *planner) strike() (Step, bool) {
	cluster := []string{Home, Provider}[p.IntN(2)]
	if !p.free(cluster) {
		return Step{}, false
	}
	p.strikes++
	return Step{Verb: Strike, Target: cluster + "/" + turns[p.strikes%len(turns)]}, true
}

func (p *planner) lose() (Step, bool) {
	target, possible := p.app(true, Deploy)
	return Step{Verb: Lose, Target: target}, possible && p.model.Places[Step{Target: target}.Place()].Offloaded && p.free(Provider)
}

// due says that the next outage is one that lasts, for which what forbids it makes way.
func (p *planner) due() bool { return p.at >= p.part }

func (p *planner) cut() (Step, bool) {
	s := Step{Verb: Cut, Target: link, For: p.between(2*time.Second, shortOutage)}
	long := p.between(70*time.Second, 110*time.Second)
	if p.IntN(4) == 0 && p.free(noLong) {
		s.For = long
	}
	if !p.free(wayThere) {
		return s, false
	}
	if p.due() {
		if !p.free(noLong) {
			return s, false
		}
		s.For = replaced + (long / 2).Round(time.Millisecond)
		p.part = p.at + s.For + partFrom
	}
	p.occupy(wayThere, s.For+rest)
	if s.Long() {
		p.occupy(noUnoffload, s.For+rest)
	}
	return s, true
}

func (p *planner) pause() (Step, bool) {
	cluster := []string{Home, Provider}[p.IntN(2)]
	s := Step{Verb: Pause, Target: cluster, For: p.between(time.Second, 14*time.Second)}
	if !p.free(cluster) || cluster == Provider && (!p.free(wayThere) || p.due()) {
		return s, false
	}
	p.occupy(cluster, s.For+rest/2)
	if cluster == Provider {
		p.occupy(wayThere, s.For+rest)
	}
	return s, true
}

func (p *planner) stop() (Step, bool) {
	s := Step{Verb: Stop, Target: fmt.Sprintf("%s/%s-%d", Provider, Provider, 1+p.IntN(2)), For: p.between(3*time.Second, 60*time.Second)}
	if !p.free(anyNode) {
		return s, false
	}
	p.occupy(anyNode, s.For+2*rest)
	return s, true
}
