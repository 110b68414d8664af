package network

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// pathIdle is how long a path carries nothing before it is removed.
	pathIdle = 5 * time.Minute
	// pathActive is how lately one carried something that is in use now: agents say it to the minute.
	pathActive = 2 * time.Minute
	// pathHeld is how soon one that a provider refused is tried again.
	pathHeld = 10 * time.Minute
)

// tellAgain is how often is said again what is so still.
const tellAgain = 30 * time.Minute

// again says whether it is time to say something that was said before.
func again(said, now time.Time) bool {
	return said.IsZero() || now.Sub(said) >= tellAgain || said.After(now)
}

// paths knows the direct paths between providers of this cluster: which are wanted, by what
// gateways here and both ends say. Its zero value knows nothing, and lets everything be.
type paths struct {
	mu sync.Mutex
	// known says that couples are: before that nothing is removed.
	known   bool
	couples []couple
	// ends are what providers say, by peering and name, of those that can be asked now.
	ends map[string]map[string]end
	// courses are by name.
	courses map[string]course
	// wishes are what is to be there, by peering and name.
	wishes map[string]map[string]wish
	// told are words of the wishes, by key of the peering, and listeners told of changes.
	told      map[string]string
	listeners listeners
	// news are events that nobody has fetched yet.
	news []news
}

// wish is what one provider is to be told of a path.
type wish struct {
	prefixes []string
	// owner is whose pods there it is for, "" if they are this cluster's.
	owner string
	// known says that the other end is; else what was said of it stays.
	known     bool
	publicKey string
	endpoints []string
	// asIs says that the object stays as it is.
	asIs bool
}

// course is what is remembered of a path.
type course struct {
	// ends are what was seen of both.
	ends [2]sighting
	// talked is when pods talked last by way of this cluster, and held until when it is not tried.
	talked, held time.Time
	// wanted is what was decided last, and why if it is not. ours says that this process had it made,
	// and alive that both ends have said that they are.
	wanted, ours, alive bool
	// ended says that it was ended: an end that could not be asked then is no reason to have it again.
	ended    bool
	peerings [2]string
	// crowded says that it would be wanted if a provider took more, and crowdedTold when that was said.
	crowded     bool
	crowdedTold time.Time
}

// sighting is since when one end has been as it is, by the clock here.
type sighting struct {
	there bool
	used  string
	since time.Time
}

// glance is what can be seen of one end now.
type glance struct {
	end
	// read says that the provider can be asked, there that it has the object.
	read, there bool
}

// seen is the next sighting. What cannot be seen is forgotten, so that it counts anew.
func (s sighting) seen(g glance, now time.Time) sighting {
	switch {
	case !g.there:
		return sighting{}
	case !s.there || s.used != g.used || s.since.After(now):
		return sighting{there: true, used: g.used, since: now}
	}
	return s
}

// next is the next step of a path: what is remembered, and why it is not wanted if it is not.
func (c course) next(of couple, ends [2]glance, now time.Time) (after course, why string) {
	after, after.peerings, after.crowded = c, of.peerings, false
	there, latest := false, time.Time{}
	for i := range ends {
		after.ends[i] = c.ends[i].seen(ends[i], now)
		if s := after.ends[i]; s.there {
			there = true
			if s.since.After(latest) {
				latest = s.since
			}
		}
	}
	if of.talks || after.talked.After(now) {
		after.talked, after.ended = now, after.ended && !of.talks
	}
	if after.talked.After(latest) {
		latest = after.talked
	}
	if after.held.Sub(now) > pathHeld {
		after.held = now.Add(pathHeld) // the clock went back
	}
	refused := -1
	for i := range ends {
		if ends[i].read && ends[i].there && ends[i].refuses() {
			refused = i
		}
	}
	read := ends[0].read && ends[1].read
	switch {
	case refused >= 0 && !of.unsure:
		after.held, after.wanted = now.Add(pathHeld), false
		why = fmt.Sprintf("%s does not allow it: %s", endName(of.peerings[refused]), ends[refused].text)
	case now.Before(after.held):
		after.wanted = false
	case there && after.ended && !of.unsure:
		after.wanted = false
	case there && (of.unsure || now.Sub(latest) < pathIdle):
		after.wanted = true
	case there:
		after.wanted, why = false, fmt.Sprintf("nothing went by it for %s", pathIdle)
	case of.unsure:
		after.wanted = false
	case !read: // what is there now cannot be seen: nothing is made, and what is wanted is so still
	default:
		after.wanted, why = of.talks || c.wanted && now.Sub(latest) < pathIdle, "somebody has removed it at both"
		after.ours = after.ours || after.wanted
	}
	return after, why
}

// active says whether packets go by a path, or did a moment ago.
func (c course) active(now time.Time) bool {
	return slices.ContainsFunc(c.ends[:], func(s sighting) bool { return s.there && s.used != "" && now.Sub(s.since) < pathActive })
}

// rank orders paths where a provider takes no more: those that are used, those that would be, and
// the rest.
func rank(of couple, c course, now time.Time) int {
	switch {
	case c.active(now):
		return 0
	case of.talks:
		return 1
	}
	return 2
}

// want takes over the couples there are now.
func (p *paths) want(all []couple, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.couples = true, all
	p.decide(now)
}

// hear takes over what a provider says now of its ends; nil if it cannot be asked. It returns what
// is to be there, if that is known.
func (p *paths) hear(peering string, ends map[string]end, now time.Time) (wishes map[string]wish, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ends == nil {
		p.ends = map[string]map[string]end{}
	}
	if p.ends[peering] = ends; ends == nil {
		delete(p.ends, peering)
	}
	p.decide(now)
	return p.wishes[peering], p.known
}

// look is what can be seen of an end.
func (p *paths) look(peering, name string) glance {
	ends, read := p.ends[peering]
	e, there := ends[name]
	return glance{end: e, read: read, there: there}
}

// decide decides all anew, and wakes whoever has to write something else. The caller holds the lock.
func (p *paths) decide(now time.Time) {
	before := p.courses
	p.courses, p.wishes = map[string]course{}, map[string]map[string]wish{}
	why := map[string]string{}
	for _, of := range p.couples {
		p.courses[of.name], why[of.name] = before[of.name].next(of, [2]glance{p.look(of.peerings[0], of.name), p.look(of.peerings[1], of.name)}, now)
	}
	p.limit(why, now)
	for _, of := range p.couples {
		c := p.courses[of.name]
		for i := range of.peerings {
			if !c.wanted {
				continue
			}
			if p.wishes[of.peerings[i]] == nil {
				p.wishes[of.peerings[i]] = map[string]wish{}
			}
			p.wishes[of.peerings[i]][of.name] = p.wishOf(of, i)
		}
		p.courses[of.name] = p.tell(of, before[of.name], c, why[of.name], now)
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, is := p.courses[name]; !is && before[name].wanted {
			p.say(before[name].peerings, v1alpha1.ReasonDirectPathEnded, "it is not allowed any more, or no namespace may run at both")
		}
	}
	words := map[string]string{}
	for peering, wishes := range p.wishes {
		for _, name := range slices.Sorted(maps.Keys(wishes)) {
			words[endKey(peering)] += fmt.Sprintf("%s %+v;", name, wishes[name])
		}
	}
	was := p.told
	p.told = words
	tell(&p.listeners, was, words)
}

// limit drops what is more than providers take.
func (p *paths) limit(why map[string]string, now time.Time) {
	order := slices.Clone(p.couples)
	slices.SortStableFunc(order, func(a, b couple) int { return rank(a, p.courses[a.name], now) - rank(b, p.courses[b.name], now) })
	counts := map[string]int{}
	for _, of := range order {
		c := p.courses[of.name]
		if !c.wanted {
			continue
		}
		if counts[of.peerings[0]] >= v1alpha1.MaxNetworkPaths || counts[of.peerings[1]] >= v1alpha1.MaxNetworkPaths {
			c.wanted, c.crowded, why[of.name] = false, true, fmt.Sprintf("a provider takes no more than %d, and others are used more", v1alpha1.MaxNetworkPaths)
			p.courses[of.name] = c
			continue
		}
		counts[of.peerings[0]]++
		counts[of.peerings[1]]++
	}
}

// wishOf is what one of a couple is to be told.
func (p *paths) wishOf(of couple, i int) wish {
	w := wish{prefixes: of.prefixes[i], asIs: of.unsure}
	if !strings.HasPrefix(of.peerings[i], tenantEnd) {
		w.owner = of.owner
	}
	own, other := p.look(of.peerings[i], of.name), p.look(of.peerings[1-i], of.name)
	if !other.read || other.problem != "" || other.publicKey != "" && other.publicKey == own.publicKey {
		return w
	}
	w.known, w.publicKey, w.endpoints = true, other.publicKey, other.endpoints
	return w
}

// tell makes an event of a path that is there, one of its end, and now and then one of that there is none
// for want of room.
func (p *paths) tell(of couple, was, c course, why string, now time.Time) course {
	if c.wanted && !c.alive && p.look(of.peerings[0], of.name).ready && p.look(of.peerings[1], of.name).ready {
		if c.alive = true; c.ours { // else it was made before this process
			p.say(of.peerings, v1alpha1.ReasonDirectPathMade, "")
		}
	}
	ends := was.wanted && !c.wanted
	if ends {
		c.alive, c.ours, c.ended = false, false, true
	}
	untold := c.crowded && again(c.crowdedTold, now)
	if untold {
		c.crowdedTold = now
	}
	if ends || untold {
		p.say(of.peerings, v1alpha1.ReasonDirectPathEnded, why)
	}
	return c
}

// say makes an event on both Peerings, or where one end is a tenant's on the other one.
func (p *paths) say(peerings [2]string, reason, why string) {
	for i, peering := range peerings {
		if strings.HasPrefix(peering, tenantEnd) {
			continue
		}
		text := fmt.Sprintf("pods at %s and at %s reach each other by a direct path", peering, endName(peerings[1-i]))
		if reason == v1alpha1.ReasonDirectPathEnded {
			text = fmt.Sprintf("there is no direct path between %s and %s: %s", peering, endName(peerings[1-i]), why)
		}
		p.news = append(p.news, news{peering, "Normal", reason, "Join", clean(text)})
	}
}

// fetch returns the events that nobody has fetched.
func (p *paths) fetch() []news {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.news
	p.news = nil
	return all
}

// count is how many paths are wanted, and how many of them alive at both ends.
func (p *paths) count() (wanted, alive int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.couples {
		if !p.courses[of.name].wanted {
			continue
		}
		wanted++
		if p.look(of.peerings[0], of.name).ready && p.look(of.peerings[1], of.name).ready {
			alive++
		}
	}
	return wanted, alive
}
