package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// linked is a world with a second provider of rome's, oslo, and direct paths allowed at all three. What
// oslo says is said by the test.
type linked struct {
	*world
	oslo   string
	spaces map[string]string // tenant namespaces, by peering
	gone   map[string]bool   // who does not answer
	hangs  map[string]bool   // whose writes do not end
	pather *pather
}

func newLinked(t *testing.T) *linked {
	t.Helper()
	w := &linked{world: newWorld(t), gone: map[string]bool{}, hangs: map[string]bool{}}
	w.settle()
	w.oslo = w.another(w.rome)
	w.spaces = map[string]string{w.rome.peer: w.milan.sees[0], w.oslo: v1alpha1.TenantNamespace(w.milan.peer + "-oslo")}
	w.space(w.spaces[w.oslo], nil)
	for peering, space := range w.spaces {
		t.Cleanup(func() { _ = w.raw.DeleteAllOf(ctx, &v1alpha1.NetworkPath{}, client.InNamespace(space)) })
		w.change(&v1alpha1.Peering{ObjectMeta: named(peering)}, `{"spec":{"directPaths":true}}`)
		w.changeStatus(&v1alpha1.Peering{ObjectMeta: named(peering)}, fmt.Sprintf(`{"status":{"remote":{"features":[%q,%q,%q]}}}`,
			v1alpha1.FeatureDirectPaths, v1alpha1.FeatureNetwork, v1alpha1.FeatureNetworkPolicy))
		w.offloads(peering, "shop")
	}
	w.allow(true)
	for _, node := range w.milan.nodes {
		w.milan.report(node, nil)
	}
	w.anew()
	w.settleAll()
	return w
}

// allow says whether milan's owner allows direct paths.
func (w *linked) allow(is bool) {
	w.change(&v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)}, `{"spec":{"directPaths":%t}}`, is)
}

// anew starts both managers anew.
func (w *linked) anew() {
	w.rome.restart()
	w.milan.restart()
	w.rome.network.options.Fleet = linkedFleet{fakeFleet{w.rome}, w}
	w.pather = newPather(w.rome.network, w.rome.client, w.rome.recorded)
}

type linkedFleet struct {
	fakeFleet
	world *linked
}

func (f linkedFleet) Peer(peering string) (Peer, bool) {
	_, ok := f.world.spaces[peering]
	return linkedPeer{fakePeer{f.world.world}, f.world, peering}, ok
}

type linkedPeer struct {
	fakePeer
	world   *linked
	peering string
}

func (p linkedPeer) TenantNamespace() string { return p.world.spaces[p.peering] }
func (p linkedPeer) Reachable() (bool, time.Time, error) {
	return !p.world.gone[p.peering], time.Time{}, nil
}
func (p linkedPeer) Client() client.Client {
	if p.world.hangs[p.peering] {
		return hanging{p.world.rome.client}
	}
	return p.world.rome.client
}

// hanging is a provider whose writes do not end before their time.
type hanging struct{ client.Client }

func (hanging) Create(ctx context.Context, _ client.Object, _ ...client.CreateOption) error {
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("nothing bounds this write")
	}
	return context.DeadlineExceeded
}

// settleAll lets all look until they are at rest.
func (w *linked) settleAll() {
	w.t.Helper()
	for quiet, i := 0, 0; quiet < 2; i++ {
		if i == 40 {
			w.t.Fatal("no rest after 40 looks")
		}
		before := w.writes
		if err := w.look(); err != nil {
			w.t.Fatal(err)
		}
		for peering := range w.spaces {
			if _, err := w.pather.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: peering}}); err != nil && !w.hangs[peering] {
				w.t.Fatal(err)
			}
		}
		if quiet++; w.writes != before {
			quiet = 0
		}
	}
}

// talks says whether rome's gateways carry much between the two.
func (w *linked) talks(is bool) {
	r := v1alpha1.TunnelReport{Alive: true}
	if is {
		r.Through = []string{consumerKey(w.oslo)}
	}
	w.rome.report(w.rome.nodes[0], map[string]v1alpha1.TunnelReport{w.rome.key(): r})
}

// pathAt is the one path at a provider, nil if there is none.
func (w *linked) pathAt(peering string) *v1alpha1.NetworkPath {
	w.t.Helper()
	list := &v1alpha1.NetworkPathList{}
	if err := w.raw.List(ctx, list, client.InNamespace(w.spaces[peering])); err != nil {
		w.t.Fatal(err)
	}
	switch len(list.Items) {
	case 0:
		return nil
	case 1:
		return &list.Items[0]
	}
	w.t.Fatalf("there are %d paths at %s", len(list.Items), peering)
	return nil
}

// reason is Ready of the path at milan.
func (w *linked) reason() string {
	p := w.pathAt(w.rome.peer)
	if p == nil {
		return "none"
	}
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return ""
	}
	return c.Reason
}

// osloSays writes the status at oslo.
func (w *linked) osloSays(key, reason string) {
	w.t.Helper()
	status := "False"
	if reason == v1alpha1.ReasonReady {
		status = "True"
	}
	w.changeStatus(w.pathAt(w.oslo), fmt.Sprintf(`{"status":{"publicKey":%q,"endpoints":["198.51.100.9:7105"],"port":7105,"conditions":[
		{"type":"Ready","status":%q,"reason":%q,"message":"","lastTransitionTime":"2026-11-22T12:00:00Z"}]}}`, key, status, reason))
}

// TestPaths takes a direct path through its life, between a real provider and one that the test plays.
func TestPaths(t *testing.T) {
	w := newLinked(t)
	milan := w.rome.peer
	if w.pathAt(milan) != nil || w.pathAt(w.oslo) != nil {
		t.Fatal("there is a path between providers that do not talk")
	}
	w.talks(true)
	w.settleAll()
	here, there := w.pathAt(milan), w.pathAt(w.oslo)
	if here == nil || there == nil || here.Name != there.Name {
		t.Fatalf("they talk, and there are %v and %v", here, there)
	}
	view := func(peering string) []string {
		a, _ := w.rome.network.View(peering, addr("10.42.0.0"))
		return []string{a.String() + "/16"}
	}
	if !slices.Equal(here.Spec.Prefixes, view(w.oslo)) || !slices.Equal(there.Spec.Prefixes, view(milan)) || slices.Equal(here.Spec.Prefixes, there.Spec.Prefixes) {
		t.Errorf("it leads to %v at milan and %v at oslo", here.Spec.Prefixes, there.Spec.Prefixes)
	}
	key := v1alpha1.NetworkPathKey(here.Namespace, here.Name)
	lock := unlocked(w.milan.secret())[key]
	if w.reason() != v1alpha1.ReasonWaiting || here.Status.PublicKey == "" || lock.key.Public().String() != here.Status.PublicKey || here.Status.Port != 7101 || len(here.Status.Endpoints) != 2 {
		t.Errorf("milan says %+v, with keys %v", here.Status, w.milan.keys())
	}
	if there.Spec.PublicKey != here.Status.PublicKey || !slices.Equal(there.Spec.Endpoints, here.Status.Endpoints) || here.Spec.PublicKey != "" {
		t.Errorf("oslo is told %+v, and milan %+v", there.Spec, here.Spec)
	}
	if left := there.Spec.Until.Sub(w.clock.Now()); left <= pathRenew || left > pathFor {
		t.Errorf("it is wanted for %s", left)
	}
	w.osloSays(keyOf(31).Public().String(), v1alpha1.ReasonTunnelDown)
	w.settleAll()
	if got := w.pathAt(milan).Spec; got.PublicKey != keyOf(31).Public().String() || !slices.Equal(got.Endpoints, []string{"198.51.100.9:7105"}) || w.reason() != v1alpha1.ReasonTunnelDown {
		t.Errorf("milan is told %+v, and says %s", got, w.reason())
	}
	if w.rome.said(v1alpha1.ReasonDirectPathMade) {
		t.Error("a path is made that is not alive")
	}
	w.milan.report(w.milan.nodes[0], map[string]v1alpha1.TunnelReport{key: {Alive: true, Used: &metav1.Time{Time: w.clock.Now().Add(-time.Minute)}}})
	w.osloSays(keyOf(31).Public().String(), v1alpha1.ReasonReady)
	w.settleAll()
	if got := w.pathAt(milan).Status; w.reason() != v1alpha1.ReasonReady || got.Used == nil || got.PublicKey != here.Status.PublicKey {
		t.Errorf("of a tunnel that is alive milan says %+v", got)
	}
	if !w.rome.said(v1alpha1.ReasonDirectPathMade) {
		t.Error("nobody is told")
	}
	if wanted, alive := w.rome.network.paths.count(); wanted != 1 || alive != 1 {
		t.Errorf("%d are wanted and %d alive", wanted, alive)
	}
	// Managers that begin anew write nothing, tell nothing, and have the same key.
	w.renewed()
	w.talks(false)
	writes := w.writes
	w.anew()
	w.settleAll()
	if w.writes != writes || w.rome.said("DirectPath") {
		t.Errorf("after a restart there are events, or writes:\n%s", w.since(writes))
	}
	// Both providers stay linked while rome is away.
	w.gone[milan], w.gone[w.oslo] = true, true
	w.settleAll()
	w.clock.Step(time.Hour)
	w.settleAll()
	w.gone[milan], w.gone[w.oslo] = false, false
	w.settleAll()
	if w.pathAt(milan) == nil || w.pathAt(w.oslo) == nil || w.rome.said("DirectPath") {
		t.Error("when rome is back the path is gone")
	}
	// It is renewed when a day is left.
	until := w.pathAt(milan).Spec.Until
	w.clock.Step(until.Sub(w.clock.Now()) - pathRenew + time.Second)
	w.talks(true)
	w.settleAll()
	if got := w.pathAt(milan).Spec.Until; !got.After(until.Time) {
		t.Errorf("it is wanted until %s still", got)
	}
	// Milan's owner changes his mind.
	w.allow(false)
	w.settleAll()
	if w.pathAt(milan) != nil || w.pathAt(w.oslo) != nil || !w.rome.said(v1alpha1.ReasonDirectPathEnded) {
		t.Error("a path is there that milan does not allow, or nobody is told")
	}
	if slices.Contains(w.milan.keys(), key) {
		t.Error("its key is there still")
	}
	w.allow(true)
	w.settleAll()
	if w.pathAt(milan) != nil {
		t.Error("it is tried again at once")
	}
	w.clock.Step(pathHeld)
	w.talks(true)
	w.settleAll()
	if again := w.pathAt(milan); again == nil || again.Name != here.Name || again.Status.PublicKey == here.Status.PublicKey {
		t.Errorf("10 minutes later there is %+v", again)
	}
	w.offloads(w.oslo, "inn")
	w.settleAll()
	if w.pathAt(milan) != nil || w.pathAt(w.oslo) != nil || slices.Contains(w.milan.keys(), key) {
		t.Error("no namespace is shared, and there is a path still")
	}
}

// TestPathsIdle holds that a path without packets is removed at both.
func TestPathsIdle(t *testing.T) {
	w := newLinked(t)
	w.talks(true)
	w.settleAll()
	w.talks(false)
	w.settleAll()
	w.clock.Step(pathIdle - 10*time.Second)
	w.settleAll()
	if w.pathAt(w.oslo) == nil {
		t.Fatal("it has ended too soon")
	}
	w.clock.Step(10 * time.Second)
	w.settleAll()
	if w.pathAt(w.rome.peer) != nil || w.pathAt(w.oslo) != nil || len(w.milan.keys()) != 1 {
		t.Errorf("a path without packets is there, or its key: %v", w.milan.keys())
	}
}

// TestPathsHanging holds that a provider whose writes hang is left after their time, and that one that
// refuses is asked a minute later.
func TestPathsHanging(t *testing.T) {
	w := newLinked(t)
	w.hangs[w.oslo] = true
	w.talks(true)
	w.settleAll()
	if w.pathAt(w.rome.peer) == nil || w.pathAt(w.oslo) != nil {
		t.Error("milan waits for oslo")
	}
	w.clock.Step(pathRest)
	_, err := w.pather.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: w.oslo}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a write that hangs there is %v", err)
	}
	w.pather.fleet = forbidding{w.pather.fleet}
	w.clock.Step(pathRest)
	last, err := w.pather.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: w.oslo}})
	if err != nil || last.RequeueAfter != retryRefused {
		t.Errorf("one that refuses is asked again after %s (%v)", last.RequeueAfter, err)
	}
}

// TestPathsUnread holds that a provider whose paths cannot be read is looked at again, and one that is
// away is waited for; at neither, nor at the other, anything is made.
func TestPathsUnread(t *testing.T) {
	w := newLinked(t)
	w.pather.fleet = unreading{w.pather.fleet, w.oslo}
	w.settleAll()
	w.talks(true)
	w.settleAll()
	if w.pathAt(w.rome.peer) != nil {
		t.Error("a path is made though oslo cannot be asked")
	}
	for _, gone := range []bool{false, true} {
		w.gone[w.oslo] = gone
		w.clock.Step(pathRest)
		last, err := w.pather.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: w.oslo}})
		if err != nil || (last.RequeueAfter == pathAgain) == gone {
			t.Errorf("away %t: it is looked at after %s (%v)", gone, last.RequeueAfter, err)
		}
	}
}

// unreading is a fleet in which a provider does not let its paths be read.
type unreading struct {
	Fleet
	peering string
}

func (f unreading) Peer(name string) (Peer, bool) {
	p, ok := f.Fleet.Peer(name)
	if name == f.peering {
		return unreadPeer{p}, ok
	}
	return p, ok
}

type unreadPeer struct{ Peer }

func (p unreadPeer) Reader() client.Reader { return unlisted{p.Peer.Reader()} }

type unlisted struct{ client.Reader }

func (unlisted) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("not synced")
}

type forbidding struct{ Fleet }

func (f forbidding) Peer(name string) (Peer, bool) {
	p, ok := f.Fleet.Peer(name)
	return forbiddingPeer{p}, ok
}

type forbiddingPeer struct{ Peer }

func (p forbiddingPeer) Client() client.Client { return forbidder{p.Peer.Client()} }

type forbidder struct{ client.Client }

func (forbidder) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("networkpaths").GroupResource(), o.GetName(), errors.New("not today"))
}

// TestPathHostileTenant holds that a tenant who removes his paths while they are answered holds up
// nobody, and that what he writes into them changes nothing of others.
func TestPathHostileTenant(t *testing.T) {
	w := newWorld(t)
	w.change(&v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)}, `{"spec":{"directPaths":true}}`)
	w.settle()
	before := w.milan.pair(v1alpha1.NetworkProvider).Spec
	space := w.milan.sees[0]
	published := w.milan.pair(v1alpha1.NetworkConsumer).Spec.Pods[0]
	for i := range v1alpha1.MaxNetworkPaths + 4 {
		w.create(&v1alpha1.NetworkPath{ObjectMeta: at(space, fmt.Sprintf("%016x", i)), Spec: v1alpha1.NetworkPathSpec{
			Prefixes: []string{published}, Until: metav1.NewTime(w.clock.Now().Add(time.Hour)), Endpoints: []string{"127.0.0.1:22"}}})
	}
	w.settle()
	keys := w.milan.keys()
	if len(keys) != 1 {
		t.Errorf("paths that cannot be have keys: %v", keys)
	}
	o := &v1alpha1.NetworkPath{ObjectMeta: at(space, fmt.Sprintf("%016x", 0))}
	w.change(o, `{"spec":{"endpoints":null}}`)
	w.settle()
	if keys := w.milan.keys(); len(keys) != 2 || !strings.HasPrefix(keys[1], w.milan.key()+".") {
		t.Errorf("keys %v", keys)
	}
	w.change(o, `{"spec":{"publicKey":%q}}`, keyOf(5).Public())
	if _, err := w.milan.decider.Reconcile(ctx, whole); err != nil {
		t.Fatal(err)
	}
	if err := w.raw.Delete(ctx, o); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(lookRest)
	if last, err := w.milan.decider.Reconcile(ctx, whole); err != nil || last.RequeueAfter == seenWait {
		t.Errorf("a path that is gone is waited for (%v)", err)
	}
	w.settle()
	if got := w.milan.pair(v1alpha1.NetworkProvider).Spec; got.PublicKey != before.PublicKey || got.Port != before.Port {
		t.Errorf("the tunnel of the peering has changed: %+v, was %+v", got, before)
	}
}

// managedPaths follows a direct path through a manager that runs, which is rome, and milan, over real
// connections; connect makes that to oslo.
func (w *world) managedPaths(t *testing.T, connect func(peering, space string)) {
	t.Helper()
	milan, oslo := w.rome.peer, w.rome.peer+"-oslo"
	spaces := map[string]string{milan: v1alpha1.TenantNamespace(w.milan.peer), oslo: v1alpha1.TenantNamespace(w.milan.peer + "-oslo")}
	w.space(spaces[oslo], nil)
	w.space(v1alpha1.PeeringNamespace(oslo), map[string]string{v1alpha1.LabelPeering: oslo})
	p := w.create(&v1alpha1.Peering{ObjectMeta: w.named(oslo), Spec: v1alpha1.PeeringSpec{ClusterID: string(uuid.NewUUID()), DirectPaths: true,
		Consume: &v1alpha1.Consume{AuthURL: "https://192.0.2.1:1", CASHA256: v1alpha1.TokenHash("x")}}}).(*v1alpha1.Peering)
	features := []string{v1alpha1.FeatureDirectPaths, v1alpha1.FeatureNetwork, v1alpha1.FeatureNetworkPolicy}
	p.Status.Remote = &v1alpha1.ClusterInfo{ID: p.Spec.ClusterID, Name: "x", Features: features}
	w.status(p)
	w.change(&v1alpha1.Peering{ObjectMeta: named(milan)}, `{"spec":{"directPaths":true}}`)
	w.changeStatus(&v1alpha1.Peering{ObjectMeta: named(milan)}, fmt.Sprintf(`{"status":{"remote":{"features":[%q,%q,%q]}}}`, features[0], features[1], features[2]))
	tenant := &v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)}
	w.change(tenant, `{"spec":{"directPaths":true}}`)
	connect(oslo, spaces[oslo])
	theirs := &v1alpha1.NetworkConfig{ObjectMeta: at(v1alpha1.PeeringNamespace(oslo), v1alpha1.NetworkProvider)}
	within(t, "oslo is expected to publish", func() bool { return w.raw.Get(ctx, client.ObjectKeyFromObject(theirs), theirs) == nil })
	w.change(theirs, `{"spec":{"pods":["10.42.0.0/16"],"publicKey":%q}}`, keyOf(7).Public())
	for _, peering := range []string{milan, oslo} {
		m := &v1alpha1.NamespaceMap{ObjectMeta: at(v1alpha1.PeeringNamespace(peering), v1alpha1.NamespaceMapName)}
		_ = w.raw.Delete(ctx, m.DeepCopy())
		m.Spec.Namespaces = map[string]v1alpha1.NamespaceMapping{"shop": {Strategy: v1alpha1.MappingDefaultName}}
		w.create(m)
	}
	path := func(peering string) *v1alpha1.NetworkPath {
		list := &v1alpha1.NetworkPathList{}
		if err := w.raw.List(ctx, list, client.InNamespace(spaces[peering])); err != nil || len(list.Items) != 1 {
			return nil
		}
		return &list.Items[0]
	}
	renew := func() {
		w.clock.SetTime(time.Now())
		w.rome.report(w.rome.nodes[0], map[string]v1alpha1.TunnelReport{w.rome.key(): {Through: []string{consumerKey(oslo)}}})
	}
	// What is told is not found by looking from time to time, nor since an agent has died.
	soon := func(what string, is func() bool) {
		t.Helper()
		began := time.Now()
		within(t, what, func() bool { renew(); return is() })
		if took := time.Since(began); took > lookEvery/2 {
			t.Errorf("%s after %s only", what, took)
		} else {
			t.Logf("%s after %s", what, took)
		}
	}
	within(t, "a path is made", func() bool {
		renew()
		return path(milan) != nil
	})
	soon("milan's key is told to oslo", func() bool {
		here, there := path(milan), path(oslo)
		return here != nil && there != nil && here.Status.PublicKey != "" && there.Spec.PublicKey == here.Status.PublicKey
	})
	w.changeStatus(path(oslo), fmt.Sprintf(`{"status":{"publicKey":%q}}`, keyOf(31).Public()))
	soon("oslo's key is told to milan", func() bool {
		here := path(milan)
		return here != nil && here.Spec.PublicKey == keyOf(31).Public().String()
	})
	if err := w.raw.Delete(ctx, path(oslo)); err != nil {
		t.Fatal(err)
	}
	soon("what somebody removes is made again", func() bool { return path(oslo) != nil })
	w.change(tenant, `{"spec":{"directPaths":false}}`)
	soon("what milan does not allow is removed at both", func() bool { return path(milan) == nil && path(oslo) == nil })
}
