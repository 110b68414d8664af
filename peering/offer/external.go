package offer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/api/wire"
)

const (
	// holdLimit is how long the last good answer of an external reader holds.
	holdLimit = 5 * time.Minute
	// startLimit is how long it may be silent at first.
	startLimit = 10 * time.Second
	// readEvery is when it is asked again though nothing has changed.
	readEvery = 30 * time.Second
	// readAgain is the same while it fails.
	readAgain = 5 * time.Second
	// maxSilent is for how many consumers on end it may be too slow before all wait.
	maxSilent = 8
)

// External is the connection to a program of this cluster's owner that decides within
// what is free. All methods may be called from any goroutine. ReadResources ends with
// its context; its error is shown to the owner, says the same while it has the same
// cause, and wraps wire.ErrUnreached or wire.ErrLate if the program has said nothing. The
// others return at once.
type External interface {
	// ReadResources asks what a consumer may have.
	ReadResources(ctx context.Context, request *wire.ReadResourcesRequest) (*wire.ReadResourcesResponse, error)
	// Notify has changed called when an answer may have changed: with the cluster id, or
	// with an empty string for everyone.
	Notify(changed func(clusterID string))
	// Remove says that a consumer has gone.
	Remove(clusterID string)
}

// external is the last step of a chain: it cuts what is free to what the owner's program
// grants. While the program fails, its last good answer holds for holdLimit, and after
// that the most careful one: nothing beyond what is in use.
type external struct {
	inner   ResourceReader
	program External
	clock   clock.PassiveClock
	failure func(reader string)

	mu    sync.Mutex
	known map[string]granted
	began time.Time // when it was first asked
	// rests are until when it is not asked for a consumer for whom it was too slow, at most
	// maxRemembered. The others do not wait for that one.
	rests map[string]time.Time
	// silent are those for whom it was too slow since it has answered anybody, at most
	// maxSilent: then it hangs for all, and rest is until when nobody asks.
	silent map[string]bool
	rest   time.Time
}

// granted is what is remembered of a program's answers for one consumer.
type granted struct {
	total amounts   // the last good answer, nil if there was none
	at    time.Time // of it
	wrong error     // of the last attempt, nil if it was good
}

func newExternal(inner ResourceReader, program External, c clock.PassiveClock, failure func(string)) *external {
	return &external{inner: inner, program: program, clock: c, failure: failure, known: map[string]granted{},
		rests: map[string]time.Time{}, silent: map[string]bool{}}
}

// Read asks the reader before it, then the program, and cuts the answer of the one to
// that of the other.
func (e *external) Read(ctx context.Context, c Consumer) (Resources, error) {
	r, err := e.inner.Read(ctx, c)
	if err != nil {
		return r, err
	}
	total, err := e.ask(ctx, c, r)
	if err != nil {
		e.failure("external")
	}
	g, began := e.note(c.ClusterID, total, err)
	return g.allow(r, e.clock.Now(), began)
}

// errResting stands for the slowness that was found before.
var errResting = errors.New("it does not answer within a second")

// resting says whether the program was too slow a moment ago, for a consumer or for all.
func (e *external) resting(clusterID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	return now.Before(e.rest) || now.Before(e.rests[clusterID])
}

// answered notes that the program has answered for a consumer, well or not.
func (e *external) answered(clusterID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.rests, clusterID)
	clear(e.silent)
}

// tooSlow notes that the program has not answered for a consumer in time.
func (e *external) tooSlow(clusterID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	until := e.clock.Now().Add(readAgain)
	if _, known := e.rests[clusterID]; known || len(e.rests) < maxRemembered {
		e.rests[clusterID] = until
	}
	if len(e.silent) < maxSilent {
		e.silent[clusterID] = true
	}
	if len(e.silent) == maxSilent {
		e.rest = until
	}
}

// ask calls the program, unless it was too slow a moment ago.
func (e *external) ask(ctx context.Context, c Consumer, r Resources) (amounts, error) {
	if e.resting(c.ClusterID) {
		return nil, errResting
	}
	bounded, cancel := context.WithTimeout(ctx, wire.AnswerLimit)
	defer cancel()
	response, err := e.program.ReadResources(bounded, &wire.ReadResourcesRequest{
		Cluster: &wire.Cluster{Id: c.ClusterID, Tenant: c.Tenant, Labels: c.Labels},
		Used:    r.usedByAll().texts(), Free: amountsOf(r.Free).texts(),
	})
	if errors.Is(err, wire.ErrLate) || err != nil && bounded.Err() != nil {
		e.tooSlow(c.ClusterID)
		return nil, errResting
	}
	if !errors.Is(err, wire.ErrUnreached) {
		e.answered(c.ClusterID)
	}
	if err != nil {
		return nil, err
	}
	list, err := wire.Amounts(response.GetResources())
	return amountsOf(list), err
}

// note remembers the outcome of an attempt.
func (e *external) note(clusterID string, total amounts, err error) (granted, time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	if e.began.IsZero() {
		e.began = now
	}
	g, remembered := e.known[clusterID]
	if g.wrong = err; err == nil {
		g.total, g.at = total, now
	}
	if remembered || len(e.known) < maxRemembered {
		e.known[clusterID] = g
	}
	return g, e.began
}

// Notify passes on to both.
func (e *external) Notify(changed func(clusterID string)) {
	e.inner.Notify(changed)
	e.program.Notify(changed)
}

// Remove forgets a consumer, as all do.
func (e *external) Remove(clusterID string) {
	e.mu.Lock()
	delete(e.known, clusterID)
	delete(e.rests, clusterID)
	delete(e.silent, clusterID)
	e.mu.Unlock()
	e.inner.Remove(clusterID)
	e.program.Remove(clusterID)
}

// allow decides what holds now of what is free. The error wraps errUnknown: the program
// has not said anything yet, and may be starting.
func (g granted) allow(r Resources, now, began time.Time) (Resources, error) {
	holds := g.total != nil && now.Sub(g.at) < holdLimit
	capacity := amountsOf(r.Capacity)
	switch {
	case g.wrong == nil:
		r = grant(r, g.total)
		r.Again, r.External = readEvery, answering(metav1.ConditionTrue, v1alpha1.ReasonReady, "")
		if beyond := beyond(g.total, capacity); len(beyond) > 0 {
			r.External = answering(metav1.ConditionTrue, v1alpha1.ReasonBounded,
				"the resource reader grants more than this cluster has, which is not offered: "+strings.Join(beyond, ", "))
		}
	case holds:
		r = grant(r, g.total)
		r.Again = min(readAgain, g.at.Add(holdLimit).Sub(now))
		r.Problem = "the figures follow the last good answer of the provider's own resource reader, which fails now"
		r.External = answering(metav1.ConditionFalse, v1alpha1.ReasonLastAnswer, fmt.Sprintf(
			"the resource reader fails: %v; its last good answer holds for %v", g.wrong, holdLimit))
	case g.total == nil && now.Sub(began) < startLimit:
		return Resources{}, fmt.Errorf("%w: the resource reader fails: %w", errUnknown, g.wrong)
	default:
		r = grant(r, nil)
		r.Again = readAgain
		r.Problem = "the provider's own resource reader fails: nothing is offered beyond what is in use"
		r.External = answering(metav1.ConditionFalse, v1alpha1.ReasonOnlyUsed, fmt.Sprintf(
			"the resource reader fails: %v; nothing is offered beyond what is in use", g.wrong))
	}
	return r, nil
}

func answering(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Type: v1alpha1.ConditionReaderAnswering, Status: status, Reason: reason, Message: message}
}

// grant cuts what is free to what is left of a total after what is used. Of pods, which
// nobody gives away, a total need not speak; nil is a total that leaves nothing.
func grant(r Resources, total amounts) Resources {
	free, left := amountsOf(r.Free), amounts{}
	used := r.usedByAll()
	for name, v := range free {
		most, named := total[name]
		if name == pods && !named && total != nil {
			most = maxAmount
		}
		left[name] = max(0, min(v, most-used[name]))
	}
	if total != nil && free.usable() && !left.usable() {
		r.Withheld = v1alpha1.ReasonFiltered
	}
	r.Free = left.list()
	r.Shapes = refit(r.Shapes, func(a amounts) amounts { return a.within(left) })
	return r
}

// beyond lists the resources of which a total has more than all there is.
func beyond(total, capacity amounts) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(total)) {
		if total[name] > capacity[name] {
			names = append(names, name)
		}
	}
	return names
}

// texts writes amounts as programs read them.
func (a amounts) texts() map[string]string {
	out := make(map[string]string, len(a))
	for _, name := range a.names() {
		q := quantity(name, a[name])
		out[name] = q.String()
	}
	return out
}
