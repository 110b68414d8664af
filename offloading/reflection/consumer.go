package reflection

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/offloading/content"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

const (
	// readEvery bounds how often one object is read, however many pods come and go.
	readEvery = time.Second
	// remoteLimit bounds what one look does at a provider.
	remoteLimit = 15 * time.Second
)

// consumer carries objects to providers. Its requests are PEERING/NAMESPACE and KIND/NAME.
type consumer struct {
	client client.Client // pods that tolerate our taint are whole in its cache
	live   client.Reader // the only way to content, one object at a time, and to lists of names
	fleet  Fleet
	clock  clock.PassiveClock
	pods   podFinder
	spaces spaceFinder
	// addresses says by which addresses providers reach what is here; nil while there is no
	// network.
	addresses Addresses
	tunnels   Tunnels // likewise
	// share is how many objects of one tenant go onward to one provider.
	share int
	// sooner is how many may be looked for soon that were not there, of all tenants and kinds.
	sooner *rate.Limiter
	events events.EventRecorder
	budget *fleet.Budget // of events that providers cause
	meter  *meter
	notes  *notes[note]
	waits  *waits
	// retries are those of its requests.
	retries throttle.Rests
	// domain is what this cluster is called in its own DNS; cluster.local if empty.
	domain string
	// show asks for what a peering's NamespaceMap says of objects.
	show func(context.Context, reconcile.Request)
}

// note is what is remembered of one object and one provider.
type note struct {
	read     time.Time
	unwanted time.Time
	missing  time.Time
	barred   time.Time // since when this cluster does not let us read it, or mint it
	renew    time.Time // of tokens that were sent
	minted   tries
	behind   tries  // while the provider's side is another one than what it shows
	seen     string // what it showed then
	told     string
	toldAt   time.Time
	tellings map[types.UID]bool
	// located are the addresses that were told last, at locatedAt.
	located   []string
	locatedAt time.Time
	// looked is the version of the object at home that is at the provider, with the text of hash sent;
	// it stays home if that is empty.
	looked, sent string
	// concluded is when it was read that is so.
	concluded time.Time
	known     known
	// removed is the ShadowObject that was deleted last, at removedAt; the mirror may show it still.
	removed   types.UID
	removedAt time.Time
	// held is until when parts are not tried again that were refused as is said.
	held    time.Time
	refused verdict
	// shown is what the NamespaceMap says of it; nothing if it is empty.
	shown v1alpha1.ReflectedObject
}

// +kubebuilder:rbac:groups="",resources=pods;nodes;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
//
// In namespaces that are offloaded, by a RoleBinding made with their label:
//
// +kubebuilder:rbac:groups="",resources=secrets;configmaps,verbs=get;list,roleName=pelago-manager-home

// Reconcile looks at one object and one provider.
func (r *consumer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	peering, home, ok := split(req)
	kind, travels := kindOf(home.Kind)
	if !ok || !travels {
		return ctrl.Result{}, nil
	}
	peer, ok := r.fleet.Peer(peering)
	if !ok {
		r.notes.forget(req.NamespacedName)
		return ctrl.Result{}, nil // its connection brings us back
	}
	if !peer.State().Reachable {
		return ctrl.Result{}, nil
	}
	n := r.notes.get(req.NamespacedName)
	had, now := n.known, r.clock.Now()
	every := readEvery
	if r.waits.awaited(req.NamespacedName, n.read) {
		every, n.known = awaitedEvery, known{} // a pod has come since
	}
	if wait := every - now.Sub(n.read); wait > 0 && wait <= every {
		return r.retries.Rest(req, wait), nil
	}
	want, err := r.wanted(ctx, peering, home, &n)
	if err != nil {
		return ctrl.Result{}, err
	}
	f, err := r.gather(ctx, peer, peering, kind, home, want, &n)
	if err != nil {
		return ctrl.Result{}, err
	}
	if f == nil { // not read from the provider yet, or by the network, which brings us back
		return ctrl.Result{RequeueAfter: spread(rereadEvery)}, nil
	}
	if f.early > 0 {
		r.notes.set(req.NamespacedName, n)
		return r.retries.Rest(req, f.early), nil
	}
	p := decide(*f)
	if f.wanted && !kind.Referred && !f.counted && p.again == rereadEvery {
		p.again = watchedEvery
	}
	decided := p
	if wait := n.held.Sub(now); wait > 0 && wait <= rereadEvery && len(f.pieces) > 1 && (p.create || p.change) {
		p = plan{verdict: n.refused, again: wait}
	} else {
		p, err = r.apply(ctx, peer, home, f, p)
	}
	switch {
	case err != nil:
	case p.behind:
		n.behind, n.seen = n.behind.again(now), f.seen()
		p.again = n.behind.early(now)
	default:
		n.behind = tries{}
	}
	if err == nil && p.told == "" && (p.create || p.change) {
		n.renew = f.renew
	}
	if err == nil && p.remove {
		n.removed, n.removedAt = f.there.UID, f.now
	}
	if p.reason == v1alpha1.ReasonForbidden && len(f.pieces) > 1 && (decided.create || decided.change) && !n.held.After(now) { // as the quota of its parts, which are gone again
		n.held, n.refused = now.Add(rereadEvery), p.verdict
	}
	about := home
	if f.bereft != "" && p.told == "" && err == nil {
		about.Kind, about.Name, p.verdict = kindService, f.bereft, verdict{told: toldBereft, reason: v1alpha1.ReasonEndpointsMissing}
	}
	p.again = r.tell(peering, about, f, p.verdict, want.pods, &n, p.again)
	n.settle(f, decided, p, err)
	before := n.shown
	n.shown = shownOf(about, p, f.stays())
	p.again = r.tellAddresses(peering, home, f, &n, p.again)
	if !f.wanted && f.there == nil && !(want.is && n.minted.early(now) > 0) { // one that goes is seen to be gone
		r.notes.forget(req.NamespacedName)
	} else {
		r.notes.put(req.NamespacedName, func(is note) note {
			if is.known.version != had.version { // it was listed meanwhile, and this may be what was there before
				n.known = known{}
			}
			return n
		})
		r.left(peering) // meanwhile, perhaps
	}
	if !equality.Semantic.DeepEqual(n.shown, before) {
		r.show(ctx, reconcile.Request{NamespacedName: mapKey(peering)})
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: spread(p.again)}, nil
}

// left forgets what is remembered of a provider that there is no connection to any more.
func (r *consumer) left(peering string) {
	if _, ok := r.fleet.Peer(peering); !ok {
		r.budget.Forget(peering)
		r.notes.forgetAll(func(namespace string) bool { return strings.HasPrefix(namespace, peering+"/") })
	}
}

// referring lists the pods that refer to an object and are bound to a provider.
func (r *consumer) referring(ctx context.Context, peering string, home v1alpha1.HomeObject) ([]*corev1.Pod, error) {
	all, err := r.pods(ctx, home)
	if err != nil {
		return nil, fmt.Errorf("listing pods that refer to the object: %w", err)
	}
	virtual := map[string]bool{}
	var pods []*corev1.Pod
	for i := range all {
		pod := &all[i]
		is, known := virtual[pod.Spec.NodeName]
		if !known {
			of, err := peeringOf(ctx, r.client, pod.Spec.NodeName)
			if err != nil {
				return nil, err
			}
			is = of == peering
			virtual[pod.Spec.NodeName] = is
		}
		if is && !over(pod) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// gather reads the facts; nil if the provider's side is not known.
func (r *consumer) gather(ctx context.Context, peer Peer, peering string, kind content.Kind, home v1alpha1.HomeObject, want want, n *note) (*facts, error) {
	f := &facts{now: r.clock.Now(), kind: kind.Name, wanted: want.is, found: want.found}
	if uid, ok := tokensOf(home); ok {
		f.tokens = true
		expects, known := expected(ctx, peer, uid)
		if !known {
			return nil, nil
		}
		f.wanted = want.is && expects && !shadow.IsBare(want.pods[0])
	}
	s := &v1alpha1.ShadowObject{}
	switch err := peer.Reader().Get(ctx, client.ObjectKey{Namespace: peer.TenantNamespace(), Name: v1alpha1.ShadowObjectName(home)}, s); {
	case err == nil:
		f.there, f.going = s, s.DeletionTimestamp != nil || s.UID == n.removed && f.now.Sub(n.removedAt) < rereadEvery
	case !apierrors.IsNotFound(err):
		return nil, nil
	}
	if kind.Long && !f.tokens && f.wanted && f.there != nil {
		var known bool
		if f.parts, known = partsOf(ctx, peer, f.there); !known {
			return nil, nil
		}
	}
	if kind.Name == kindSlice && r.addresses != nil && !r.addresses.Known() {
		return nil, nil
	}
	var err error
	if f.offloaded, err = offloaded(ctx, r.client, home.Namespace); err != nil {
		return nil, err
	}
	if !f.wanted {
		if n.unwanted.IsZero() || n.unwanted.After(f.now) {
			n.unwanted = f.now
		}
		if f.unwanted = n.unwanted; n.sent == "" && kind.Name != kindSlice { // who planted it would learn by when it goes what is here
			f.found = unread
		}
		return f, nil
	}
	n.unwanted = time.Time{}
	if !f.offloaded {
		return f, nil
	}
	if f.seen() == n.seen { // it is not read for what cannot be written yet
		if f.early = n.behind.early(f.now); f.early > 0 {
			return f, nil
		}
	}
	if f.tokens {
		n.read = f.now
		err := r.tokens(ctx, f, want.pods[0], n)
		n.bar(f)
		return f, err
	}
	terms, err := r.terms(ctx, peering, kind, home.Namespace)
	if err != nil {
		return nil, err
	}
	pods := podsOf(want.pods)
	if n.known.carried(f, terms, pods) {
		f.found, f.fresh, f.due, n.missing = present, true, n.known.until, time.Time{}
		f.home = r.nameOf(kind, &metav1.ObjectMeta{Namespace: home.Namespace, Name: home.Name, UID: n.known.uid, ResourceVersion: n.known.version})
		return f, nil
	}
	n.read, n.known = f.now, known{}
	r.waits.met(want.pods, f.now)
	err = r.read(ctx, f, peering, kind, home, want.ruled)
	n.bar(f)
	f.known.terms, f.known.pods = terms, pods
	switch {
	case f.found != absent || !kind.Referred:
		n.missing = time.Time{}
	case n.missing.IsZero() || n.missing.After(f.now):
		n.missing = f.now
	}
	if !n.missing.IsZero() && r.sooner.AllowN(f.now, 1) {
		f.missing = n.missing
	}
	if err != nil || f.text == "" {
		return f, err
	}
	f.pieces = content.Split(f.text)
	if f.there != nil && len(f.pieces) <= 1+len(f.parts) {
		return f, nil
	}
	if peer.Full(&v1alpha1.ShadowObject{}) {
		f.text, f.over = "", toldFull
		return f, nil
	}
	crowded, err := r.crowded(ctx, peer, home, len(f.pieces))
	if crowded {
		f.text, f.over = "", fmt.Sprintf("%d objects of this tenant are there, or would be, and no more go onward; so that others have room", r.share)
	}
	return f, err
}

// bar notes for how long this cluster has not let us do something.
func (n *note) bar(f *facts) {
	switch {
	case f.barred == "":
		n.barred = time.Time{}
	case n.barred.IsZero() || n.barred.After(f.now):
		n.barred = f.now
	default:
		f.barredFor = f.now.Sub(n.barred)
	}
}

// offloaded says whether objects of a namespace may travel.
func offloaded(ctx context.Context, c client.Reader, namespace string) (bool, error) {
	n := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, n); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the namespace: %w", err)
	}
	return leaves(n), nil
}

// read reads the object, if it may be. One that only a rule sends has to be ruled so still.
func (r *consumer) read(ctx context.Context, f *facts, peering string, kind content.Kind, home v1alpha1.HomeObject, onlyRuled bool) error {
	says, err := r.says(ctx, home.Namespace)
	if err != nil {
		return err
	}
	there, err := r.remote(ctx, peering)
	if err != nil {
		return err
	}
	obj := kind.New()
	switch err := r.live.Get(ctx, client.ObjectKey{Namespace: home.Namespace, Name: home.Name}, obj); {
	case err == nil:
		policy, kept := v1alpha1.Reflected(says.Reflection, kind.Name, obj)
		if onlyRuled && policy != v1alpha1.ReflectAll {
			return nil // since a moment ago; the next look sees it
		}
		f.found, f.home = present, r.nameOf(kind, obj)
		if kind.Referred && kept == "" {
			f.known = knownOf(obj, policy, "", f.now)
		}
		if f.wrong = kept; f.wrong == "" {
			err := r.encode(ctx, f, peering, there, kind, obj)
			f.cut = cmp.Or(f.cut, uncalled(there, says, kind.Name, obj))
			return err
		}
	case apierrors.IsNotFound(err):
		f.found = absent
	case apierrors.IsForbidden(err):
		f.barred = "read it"
	default:
		return plain("reading the object", err)
	}
	return nil
}

// encode puts into the facts the text that carries an object, or why there is none.
func (r *consumer) encode(ctx context.Context, f *facts, peering string, there v1alpha1.ClusterInfo, kind content.Kind, obj client.Object) error {
	obj, err := r.named(ctx, peering, obj)
	if err != nil {
		return err
	}
	told, err := r.abroad(ctx, peering, obj, f)
	if err != nil {
		return err
	}
	if f.empty = told == nil; f.empty {
		return nil
	}
	if f.wrong = unknown(there, kind.Name); f.wrong != "" {
		f.reason = v1alpha1.ReasonUnsupported
		return nil
	}
	sent := without(there, content.Named(told, r.domain))
	f.text, f.wrong = kind.Encode(sent)
	if f.wrong == "" && kind.Long {
		f.tooLong(there, sent)
	}
	f.cut = kind.Cut(sent)
	return nil
}

// nameOf is what an event about an object needs of it.
func (r *consumer) nameOf(kind content.Kind, obj metav1.Object) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: objectMeta(obj.GetNamespace(), obj.GetName())}
	o.UID, o.ResourceVersion = obj.GetUID(), obj.GetResourceVersion()
	if gvk, err := r.client.GroupVersionKindFor(kind.New()); err == nil {
		o.SetGroupVersionKind(gvk)
	}
	return o
}

// spread is about d, so that not all come at once; 0 if it is 0.
func spread(d time.Duration) time.Duration {
	if d < 10*soon {
		return d
	}
	return d - rand.N(d/5)
}
