package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/network/ration"
)

const (
	// lookEvery is how often everything is looked at anew, if nothing is told.
	lookEvery = time.Minute
	// lookRest is the least time between two looks: a peer that changes what it says all the
	// time causes no more.
	lookRest = 200 * time.Millisecond
	// lookLimit bounds one look.
	lookLimit = 30 * time.Second
	// seenSoon is how long a cache may take to show what was written.
	seenSoon = 5 * time.Second
	seenWait = 20 * time.Millisecond
)

// decider decides all that the network of this cluster is, in one look.
type decider struct {
	network *Network
	client  client.Client
	live    client.Reader // past the cache
	events  events.EventRecorder
	clock   clock.PassiveClock
	home    Home
	agents  *agents
	leases  client.Reader // those of agents, as far as they are known
	near    client.Reader // the namespace of agents
	keys    *keyring
	meter   *meter
	refused *notes
	denied  *notes         // why a Service could not be written, by its name
	rations ration.Rations // of looks, by namespace of NetworkConfigs
	retries throttle.Rests

	looked  time.Time
	fresh   map[types.NamespacedName]wrote
	turned  map[string]time.Time // when a next key was first seen to be published as the key
	begun   map[string]begun
	strays  strays
	servers servers
	problem string // logged last
}

// begun is since when a network is wanted, or may be.
type begun struct {
	wanted bool
	at     time.Time
}

// wrote is what was written last of an object, and when.
type wrote struct {
	version uint64
	at      time.Time
}

func newDecider(n *Network, c client.Client, live client.Reader, recorder events.EventRecorder) *decider {
	o := n.options
	r := &decider{
		network: n, client: c, live: live, near: live, events: recorder, clock: o.Clock, home: o.Home,
		agents: newAgents(o.Clock), keys: &keyring{client: c, live: live, namespace: o.Namespace},
		meter: newMeter(), refused: &notes{}, denied: &notes{}, fresh: map[types.NamespacedName]wrote{}, turned: map[string]time.Time{}, begun: map[string]begun{},
	}
	r.agents.heard = func() { n.tunnels.hear(r.agents.peek) }
	return r
}

// Reconcile looks at everything.
func (r *decider) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	now := r.clock.Now()
	if r.looked.IsZero() && r.leases != nil {
		if err := r.agents.fill(ctx, r.leases); err != nil {
			return ctrl.Result{}, err
		}
	}
	r.agents.tell()
	if rest := r.looked.Add(lookRest).Sub(now); rest > 0 && rest <= lookRest {
		return r.retries.Rest(req, rest), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	r.rations.Begin(now)
	f, left, err := r.gather(ctx, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	if f == nil {
		return r.retries.Rest(req, seenWait), nil // the cache is behind what was written
	}
	r.looked = now
	turned, keyErr := r.turn(ctx, f, left)
	f.wishes, f.wishesKnown = r.network.paths.hearTenants(f.tenantsSay(), now)
	d := decide(f)
	d.events = append(turned, d.events...)
	again, err := r.apply(ctx, f, d, left)
	r.network.learn(d.picture)
	r.network.paths.want(d.couples, now)
	r.tell(ctx, f, d)
	if err := errors.Join(keyErr, err); err != nil {
		return ctrl.Result{}, err
	}
	if again {
		return r.retries.Again(req, lookRest), nil
	}
	if f.lacksToken() {
		return ctrl.Result{RequeueAfter: tokenWait}, nil
	}
	return ctrl.Result{RequeueAfter: lookEvery}, nil
}

// turn makes, replaces and removes private keys, and stores them before anything is said of
// them. They go when nothing is said of them any more.
func (r *decider) turn(ctx context.Context, f *facts, left []*v1alpha1.NetworkConfig) ([]news, error) {
	now := f.now.Truncate(time.Second) // as it is stored
	have, unread := r.keys.locks(ctx, now)
	if unread != nil {
		f.unread = unread.Error()
	}
	if have == nil {
		return nil, unread
	}
	next := map[string]lock{}
	for _, c := range left {
		key := v1alpha1.NetworkKey(c.Namespace)
		if l, ok := have[key]; ok {
			next[key] = l
		}
	}
	var told []news
	var failed error
	for _, p := range f.pairs {
		if !p.wanted {
			continue
		}
		l, replaced, err := have[p.key].turn(p.asked, r.inUse(p, have[p.key], now), now, maker(r.network.options.Rand))
		if err != nil {
			return nil, err
		}
		next[p.key] = l
		if replaced {
			told = append(told, news{p.peering, corev1.EventTypeNormal, v1alpha1.ReasonKeyRotated, "Rotate", "the key of the tunnel to " + p.peer + " was replaced"})
		}
	}
	for _, p := range f.paths {
		l, err := p.lock(have[p.key], now, maker(r.network.options.Rand))
		if err != nil {
			return nil, err
		}
		if !l.key.IsZero() {
			next[p.key] = l
		}
	}
	for _, o := range f.openings {
		l, err := r.openingLock(ctx, o, have[o.name], now)
		failed = errors.Join(failed, err) // of one, and no other waits for it
		if !l.key.IsZero() {
			next[o.name] = l
		}
	}
	err := unread
	if err == nil { // what cannot be read is not written either
		err = r.keys.keep(ctx, next)
	}
	if err != nil {
		f.locks = have // what is not stored is not said
		for key := range have {
			if _, wanted := next[key]; !wanted {
				delete(f.locks, key)
			}
		}
		return nil, client.IgnoreNotFound(waiting(err))
	}
	f.locks = next
	return told, failed
}

// inUse says whether the next key of a peering has been published in place of the key for long
// enough. Who has just begun counts anew.
func (r *decider) inUse(p *pair, l lock, now time.Time) bool {
	own := p.own()
	if own == nil || l.next.IsZero() || own.Spec.PublicKey != l.next.Public().String() {
		delete(r.turned, p.key)
		return false
	}
	since, known := r.turned[p.key]
	if !known || since.After(now) {
		r.turned[p.key], since = now, now
	}
	return now.Sub(since) >= inUseAfter
}

// waiting drops the error that the namespace of agents is not there: its making is looked for
// by and by, and said of in conditions.
func waiting(err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// apply writes what was decided. What does not succeed for one peering holds up no other. It
// says whether something is to be looked at again soon.
func (r *decider) apply(ctx context.Context, f *facts, d *decision, left []*v1alpha1.NetworkConfig) (again bool, err error) {
	var failed []error
	note := func(err error) {
		switch {
		case err == nil:
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			again = true
		default:
			failed = append(failed, err)
		}
	}
	r.applyFronts(ctx, f, d, note)
	for _, p := range f.pairs {
		if spec, ok := d.specs[p]; ok {
			note(r.writeSpec(ctx, p, spec))
			note(r.makeTheirs(ctx, p))
		}
	}
	r.applyOpenings(ctx, d, note)
	for _, p := range f.pairs { // a view goes after what is published of it
		if s, ok := d.statuses[p]; ok {
			note(r.writeStatus(ctx, p.theirs(), s))
		}
	}
	r.applyPaths(ctx, d, note)
	r.removeFronts(ctx, f, note)
	for _, c := range left {
		note(r.remove(ctx, c))
	}
	for name, c := range d.conditions {
		more, err := r.condition(ctx, name, c)
		again = again || more
		note(err)
	}
	return again, errors.Join(failed...)
}

// writeSpec makes the object of this cluster, or what it says.
func (r *decider) writeSpec(ctx context.Context, p *pair, spec v1alpha1.NetworkConfigSpec) error {
	own := p.own()
	if own == nil {
		c := blank(p, p.ownName())
		c.Spec = spec
		return r.create(ctx, c)
	}
	if equality.Semantic.DeepEqual(own.Spec, spec) {
		return nil
	}
	after := own.DeepCopy()
	after.Spec = spec
	if err := r.client.Patch(ctx, after, client.MergeFrom(own)); err != nil {
		return fmt.Errorf("publishing in %s: %w", p.namespace, err)
	}
	r.note(after)
	return nil
}

// makeTheirs makes the object of the other side, which alone writes its spec: a consumer may
// change it at the provider, and not make it.
func (r *decider) makeTheirs(ctx context.Context, p *pair) error {
	if p.theirs() != nil {
		return nil
	}
	return r.create(ctx, blank(p, p.theirName()))
}

// blank is a NetworkConfig of a peering that says nothing yet.
func blank(p *pair, name string) *v1alpha1.NetworkConfig {
	return &v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.namespace, Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: component},
	}}
}

func (r *decider) create(ctx context.Context, c *v1alpha1.NetworkConfig) error {
	if err := r.client.Create(ctx, c); err != nil {
		return fmt.Errorf("making the network config %s in %s: %w", c.Name, c.Namespace, err)
	}
	r.note(c)
	return nil
}

// writeStatus answers what the other side says. Nobody else writes it, so that it is not
// locked: a peer that changes its part all the time cannot keep it from being written.
func (r *decider) writeStatus(ctx context.Context, theirs *v1alpha1.NetworkConfig, s v1alpha1.NetworkConfigStatus) error {
	if equality.Semantic.DeepEqual(theirs.Status, s) {
		return nil
	}
	after := theirs.DeepCopy()
	after.Status = s
	if err := r.client.Status().Patch(ctx, after, client.MergeFrom(theirs)); err != nil {
		return fmt.Errorf("answering in %s: %w", theirs.Namespace, err)
	}
	r.note(after)
	return nil
}

// remove deletes an object, whatever holds it: a consumer may have written into its own.
func (r *decider) remove(ctx context.Context, c *v1alpha1.NetworkConfig) error {
	delete(r.fresh, client.ObjectKeyFromObject(c))
	if c.DeletionTimestamp == nil {
		if err := r.client.Delete(ctx, c, client.Preconditions{UID: &c.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing a network config in %s: %w", c.Namespace, err)
		}
	}
	if len(c.Finalizers) == 0 {
		return nil
	}
	after := c.DeepCopy()
	after.Finalizers = nil
	if err := r.client.Patch(ctx, after, client.MergeFrom(c)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("letting go of a network config in %s: %w", c.Namespace, err)
	}
	return nil
}

// condition writes NetworkReady of a Peering, or takes it away.
func (r *decider) condition(ctx context.Context, name string, c *metav1.Condition) (again bool, err error) {
	p := &v1alpha1.Peering{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	have := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionNetworkReady)
	if c == nil && have == nil || c != nil && have != nil && have.Status == c.Status && have.Reason == c.Reason && have.Message == c.Message && have.ObservedGeneration == p.Generation {
		return false, nil
	}
	var res ctrl.Result
	w := status.Begin(r.client, p)
	if c == nil {
		meta.RemoveStatusCondition(&p.Status.Conditions, v1alpha1.ConditionNetworkReady)
	} else {
		next := *c
		next.ObservedGeneration = p.Generation
		meta.SetStatusCondition(&p.Status.Conditions, next)
	}
	w.Commit(ctx, &res, &err)
	return res.RequeueAfter > 0, err
}

// note remembers what was written: before the cache shows it nothing is decided, as what was
// decided before is part of what decisions follow from.
func (r *decider) note(c client.Object) {
	if version, err := strconv.ParseUint(c.GetResourceVersion(), 10, 64); err == nil {
		r.fresh[client.ObjectKeyFromObject(c)] = wrote{version, r.clock.Now()}
	}
}

// behind says whether the cache does not show yet what was written. A path that it does not show is
// gone: it was there when its status was written, and a tenant may remove it at any moment.
func (r *decider) behind(have map[types.NamespacedName]*v1alpha1.NetworkConfig, paths []*v1alpha1.NetworkPath, now time.Time) bool {
	there := map[types.NamespacedName]client.Object{}
	for key, c := range have {
		there[key] = c
	}
	for _, p := range paths {
		there[client.ObjectKeyFromObject(p)] = p
	}
	for key, w := range r.fresh {
		version := uint64(0)
		if o := there[key]; o != nil {
			version, _ = strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		} else if key.Name != v1alpha1.NetworkConsumer && key.Name != v1alpha1.NetworkProvider && key.Namespace != r.network.options.Namespace {
			delete(r.fresh, key)
			continue
		}
		if age := now.Sub(w.at); version < w.version && age >= 0 && age < seenSoon {
			return true
		}
		delete(r.fresh, key)
	}
	return false
}

// tell makes events, metrics and, of what is wrong with this cluster's own ranges, a line in
// the log.
func (r *decider) tell(ctx context.Context, f *facts, d *decision) {
	for _, n := range slices.Concat(d.events, r.network.paths.fetch()) {
		n.tell(ctx, r.client, r.events)
	}
	r.meter.show(f, d)
	problem := f.property.problem
	if problem == "" {
		problem = f.stray
	}
	if problem != "" && problem != r.problem {
		ctrl.LoggerFrom(ctx).Info("not all addresses of pods here are known to peers", "why", problem)
	}
	r.problem = problem
}

// tell makes the event, if its Peering is there.
func (n news) tell(ctx context.Context, c client.Reader, to events.EventRecorder) {
	p := &v1alpha1.Peering{}
	if n.peering != "" && c.Get(ctx, client.ObjectKey{Name: n.peering}, p) == nil {
		to.Eventf(p, nil, n.kind, n.reason, n.action, "%s", n.text)
	}
}

// notes are words about peerings, told by one controller to another. The zero value has none.
type notes struct {
	mu    sync.Mutex
	words map[string]string
}

// set replaces the words about a peering, and says whether they are new.
func (n *notes) set(peering, text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.words[peering] == text {
		return false
	}
	if n.words == nil {
		n.words = map[string]string{}
	}
	if n.words[peering] = text; text == "" {
		delete(n.words, peering)
	}
	return true
}

func (n *notes) all() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make(map[string]string, len(n.words))
	for name, text := range n.words {
		all[name] = text
	}
	return all
}
