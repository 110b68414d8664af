package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const romesWord = "0123456789abcdef"

// lain is a world in which milan lies between rome, its tenant, and oslo, its provider, which the test
// plays. Rome's namespace shop is at milan, and may run at oslo.
type lain struct {
	*world
	oslo, space string
	there       string // milan's tenant namespace at oslo
	pather      *pather
}

func newLain(t *testing.T) *lain {
	t.Helper()
	w := &lain{world: newWorld(t)}
	w.settle()
	rome := w.milan.peer
	w.oslo, w.space, w.there = w.another(w.milan), rome+"-shop", v1alpha1.TenantNamespace(rome+"-oslo")
	w.hosts(w.space, "shop")
	w.world.space(w.there, nil)
	t.Cleanup(func() { _ = w.raw.DeleteAllOf(ctx, &v1alpha1.NetworkPath{}, client.InNamespace(w.there)) })
	w.know(v1alpha1.FeaturePathsBehind)
	w.maps(map[string]string{w.space: romesWord})
	w.tenant(true)
	w.change(&v1alpha1.Peering{ObjectMeta: named(w.oslo)}, `{"spec":{"directPaths":true}}`)
	w.home(true)
	for _, s := range []*side{w.rome, w.milan} {
		for _, node := range s.nodes {
			s.report(node, map[string]v1alpha1.TunnelReport{s.key(): {Alive: true}})
		}
	}
	w.anew()
	w.settleAll()
	return w
}

// hosts makes a namespace that is here for the tenant.
func (w *lain) hosts(name, home string) {
	w.world.space(name, map[string]string{v1alpha1.LabelTenant: w.milan.peer, v1alpha1.LabelHomeNamespace: home})
}

// maps offloads namespaces of milan's to oslo, each of the owner of a word.
func (w *lain) maps(words map[string]string) {
	w.t.Helper()
	m := &v1alpha1.NamespaceMap{ObjectMeta: at(v1alpha1.PeeringNamespace(w.oslo), "namespaces")}
	m.Spec.Namespaces = map[string]v1alpha1.NamespaceMapping{}
	for space, word := range words {
		one := v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName}
		if word != "" {
			one.OriginNamespace, one.OriginOwner = "shop", word
		}
		m.Spec.Namespaces[space] = one
	}
	_ = w.raw.Delete(ctx, m.DeepCopy())
	w.create(m)
}

// know says what rome and oslo know beside the network.
func (w *lain) know(more ...string) {
	text := ""
	for _, f := range append([]string{v1alpha1.FeatureNetwork, v1alpha1.FeatureNetworkPolicy, v1alpha1.FeatureDirectPaths}, more...) {
		text += fmt.Sprintf(",%q", f)
	}
	w.changeStatus(&v1alpha1.Peering{ObjectMeta: named(w.oslo)}, fmt.Sprintf(`{"status":{"remote":{"features":[%s]}}}`, text[1:]))
	w.changeStatus(&v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)}, fmt.Sprintf(`{"status":{"cluster":{"features":[%s]}}}`, text[1:]))
}

// tenant and home say whether milan's owner allows rome's paths, and rome's those that milan makes.
func (w *lain) tenant(is bool) {
	w.change(&v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)}, `{"spec":{"directPaths":%t}}`, is)
}

func (w *lain) home(is bool) {
	w.change(&v1alpha1.Peering{ObjectMeta: named(w.rome.peer)}, `{"spec":{"directPaths":%t}}`, is)
}

type lainFleet struct {
	fakeFleet
	world *lain
}

func (f lainFleet) Peer(peering string) (Peer, bool) {
	return lainPeer{fakePeer{f.world.world}, f.world}, peering == f.world.oslo
}

type lainPeer struct {
	fakePeer
	world *lain
}

func (p lainPeer) TenantNamespace() string { return p.world.there }
func (p lainPeer) Client() client.Client   { return p.world.milan.client }

// anew starts both managers anew.
func (w *lain) anew() {
	w.rome.restart()
	w.milan.restart()
	w.milan.network.options.Fleet = lainFleet{fakeFleet{w.milan}, w}
	w.pather = newPather(w.milan.network, w.milan.client, w.milan.recorded)
}

// settleAll lets all look until they are at rest.
func (w *lain) settleAll() {
	w.t.Helper()
	for quiet, i := 0, 0; quiet < 2; i++ {
		if i == 60 {
			w.t.Fatal("no rest after 60 looks")
		}
		before := w.writes
		if err := w.look(); err != nil {
			w.t.Fatal(err)
		}
		if _, err := w.pather.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: w.oslo}}); err != nil {
			w.t.Fatal(err)
		}
		if quiet++; w.writes != before {
			quiet = 0
		}
	}
}

// talks says whether milan's gateways carry much between the two.
func (w *lain) talks(is bool) {
	r := v1alpha1.TunnelReport{Alive: true}
	if is {
		r.Through = []string{consumerKey(w.oslo)}
	}
	w.milan.report(w.milan.nodes[0], map[string]v1alpha1.TunnelReport{w.milan.key(): r})
	w.settleAll()
}

// ends are the path at oslo, and what rome is told and says, nil if there is none.
func (w *lain) ends() (atOslo, atRome *v1alpha1.NetworkPath) {
	w.t.Helper()
	list := &v1alpha1.NetworkPathList{}
	if err := w.raw.List(ctx, list, client.InNamespace(w.there)); err != nil {
		w.t.Fatal(err)
	}
	there := w.milan.pair(v1alpha1.NetworkProvider).Paths()
	if len(list.Items) > 1 || len(there) > 1 {
		w.t.Fatalf("there are %d paths at oslo, and %d at rome", len(list.Items), len(there))
	}
	if len(list.Items) == 1 {
		atOslo = &list.Items[0]
	}
	if len(there) == 1 {
		atRome = &there[0]
	}
	return atOslo, atRome
}

// none holds that there is no path, and no key of one.
func (w *lain) none(why string) {
	w.t.Helper()
	if atOslo, atRome := w.ends(); atOslo != nil || atRome != nil {
		w.t.Errorf("%s: there are %v and %v", why, atOslo, atRome)
	}
	if len(w.rome.keys()) != 1 {
		w.t.Errorf("%s: rome has the keys %v", why, w.rome.keys())
	}
	if said := w.milan.pair(v1alpha1.NetworkProvider).Status.ConsumerPaths; len(said) > 0 {
		w.t.Errorf("%s: rome says %v still", why, said)
	}
}

func reasonOf(p *v1alpha1.NetworkPath) string {
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
func (w *lain) osloSays(reason string) {
	w.t.Helper()
	there, _ := w.ends()
	is := map[bool]string{true: "True", false: "False"}[reason == v1alpha1.ReasonReady]
	w.changeStatus(there, fmt.Sprintf(`{"status":{"publicKey":%q,"endpoints":["198.51.100.9:7105"],"port":7105,"conditions":[
		{"type":"Ready","status":%q,"reason":%q,"message":"","lastTransitionTime":"2026-11-22T12:00:00Z"}]}}`, keyOf(31).Public(), is, reason))
	w.settleAll()
}

// TestPathBehind takes a path between a tenant and a provider through its life.
func TestPathBehind(t *testing.T) {
	w := newLain(t)
	w.none("they do not talk")
	w.talks(true)
	there, here := w.ends()
	if there == nil || here == nil || here.Name != there.Name {
		t.Fatalf("they talk, and there are %v and %v", there, here)
	}
	toRome, toOslo := w.milan.pair(v1alpha1.NetworkProvider).Spec.Transit, &v1alpha1.NetworkConfig{}
	if err := w.raw.Get(ctx, client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(w.oslo), Name: v1alpha1.NetworkConsumer}, toOslo); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(here.Spec.Prefixes, toRome) || !slices.Equal(there.Spec.Prefixes, toOslo.Spec.Transit) || len(toRome) == 0 || slices.Equal(toRome, toOslo.Spec.Transit) {
		t.Errorf("it leads to %v at rome and %v at oslo, which are told of %v and %v", here.Spec.Prefixes, there.Spec.Prefixes, toRome, toOslo.Spec.Transit)
	}
	if there.Spec.OriginOwner != romesWord || here.Spec.OriginOwner != "" {
		t.Errorf("at oslo it is for %q, at rome for %q", there.Spec.OriginOwner, here.Spec.OriginOwner)
	}
	key := v1alpha1.NetworkPathKey(v1alpha1.PeeringNamespace(w.rome.peer), here.Name)
	lock := unlocked(w.rome.secret())[key]
	if reasonOf(here) != v1alpha1.ReasonWaiting || here.Status.PublicKey == "" || lock.key.Public().String() != here.Status.PublicKey || here.Status.Port != 7101 || len(here.Status.Endpoints) != 2 {
		t.Errorf("rome says %+v, with keys %v", here.Status, w.rome.keys())
	}
	if there.Spec.PublicKey != here.Status.PublicKey || !slices.Equal(there.Spec.Endpoints, here.Status.Endpoints) || here.Spec.PublicKey != "" {
		t.Errorf("oslo is told %+v, and rome %+v", there.Spec, here.Spec)
	}
	w.osloSays(v1alpha1.ReasonTunnelDown)
	if _, got := w.ends(); got.Spec.PublicKey != keyOf(31).Public().String() || !slices.Equal(got.Spec.Endpoints, []string{"198.51.100.9:7105"}) || reasonOf(got) != v1alpha1.ReasonTunnelDown {
		t.Errorf("rome is told %+v, and says %s", got.Spec, reasonOf(got))
	}
	w.rome.report(w.rome.nodes[0], map[string]v1alpha1.TunnelReport{w.rome.key(): {Alive: true}, key: {Alive: true, Used: &metav1.Time{Time: w.clock.Now().Add(-time.Minute)}}})
	w.osloSays(v1alpha1.ReasonReady)
	if _, got := w.ends(); reasonOf(got) != v1alpha1.ReasonReady || got.Status.Used == nil {
		t.Errorf("of a tunnel that is alive rome says %+v", got.Status)
	}
	if !w.milan.said(v1alpha1.ReasonDirectPathMade) {
		t.Error("nobody is told")
	}
	if wanted, alive := w.milan.network.paths.count(); wanted != 1 || alive != 1 {
		t.Errorf("%d are wanted and %d alive", wanted, alive)
	}

	w.talks(false)
	w.rome.report(w.rome.nodes[0], map[string]v1alpha1.TunnelReport{w.rome.key(): {Alive: true}, key: {Alive: true, Used: &metav1.Time{Time: w.clock.Now()}}})
	w.renewed()
	w.settleAll()
	writes := w.writes
	w.anew()
	w.settleAll()
	if w.writes != writes || w.milan.said("DirectPath") {
		t.Errorf("after a restart there are events, or writes:\n%s", w.since(writes))
	}
	_, got := w.ends()
	w.clock.Step(got.Spec.Until.Sub(w.clock.Now()) - pathRenew + time.Second)
	w.talks(true)
	atOslo, atRome := w.ends()
	if !atRome.Spec.Until.After(got.Spec.Until.Time) || !atOslo.Spec.Until.After(got.Spec.Until.Time) {
		t.Errorf("it is wanted until %s and %s still", atRome.Spec.Until, atOslo.Spec.Until)
	}

	// Without packets it ends at both.
	w.talks(false)
	w.clock.Step(pathIdle)
	w.talks(false)
	w.none("nothing goes by it")
	if !w.milan.said(v1alpha1.ReasonDirectPathEnded) {
		t.Error("nobody is told that it has ended")
	}
}

// TestPathBehindAllowed holds that each of the three, and what the gateways of the one in the middle alone know,
// keeps a path from being, and ends one.
func TestPathBehindAllowed(t *testing.T) {
	w := newLain(t)
	other := w.milan.peer + "-inn"
	w.hosts(other, "inn")
	w.world.space(w.milan.peer+"-own", nil)
	rules := &v1alpha1.NetworkRules{ObjectMeta: at(w.milan.sees[0], v1alpha1.NetworkRulesName("shop", 0)), Spec: v1alpha1.NetworkRulesSpec{Namespace: "shop", Shards: 1, Revision: path2}}
	oslo := &v1alpha1.Peering{ObjectMeta: named(w.oslo)}
	for _, c := range []struct {
		reason    string
		end, mend func()
	}{
		{"rome does not allow it", func() { w.home(false) }, func() { w.home(true) }},
		{"milan does not for rome", func() { w.tenant(false) }, func() { w.tenant(true) }},
		{"milan does not for oslo", func() { w.change(oslo, `{"spec":{"directPaths":false}}`) }, func() { w.change(oslo, `{"spec":{"directPaths":true}}`) }},
		{"oslo does not allow it", func() { w.osloSays(v1alpha1.ReasonNotAllowed) }, func() {}},
		{"they know direct paths, and not those", func() { w.know() }, func() { w.know(v1alpha1.FeaturePathsBehind) }},
		{"nobody has said whose the namespace is", func() { w.maps(map[string]string{w.space: ""}) }, func() { w.maps(map[string]string{w.space: romesWord}) }},
		{"its namespaces have two words", func() { w.maps(map[string]string{w.space: romesWord, other: path2}) }, func() { w.maps(map[string]string{w.space: romesWord, other: romesWord}) }},
		{"a namespace of others has the word", func() { w.maps(map[string]string{w.space: romesWord, w.milan.peer + "-own": romesWord}) }, func() { w.maps(map[string]string{w.space: romesWord, w.milan.peer + "-own": ""}) }},
		{"rome has policies for the namespace", func() { w.create(rules.DeepCopy()) }, func() {
			if err := w.raw.Delete(ctx, rules.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}},
		{"nothing of rome's is reached at milan", func() {
			w.change(&v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)}, `{"spec":{"reachability":"none"}}`)
		},
			func() { w.change(&v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)}, `{"spec":{"reachability":null}}`) }},
		{"nothing is offloaded", func() { w.maps(map[string]string{w.milan.peer + "-own": ""}) }, func() { w.maps(map[string]string{w.space: romesWord}) }},
	} {
		w.talks(true)
		if there, here := w.ends(); there == nil || here == nil || reasonOf(here) != v1alpha1.ReasonWaiting {
			t.Fatalf("before %s: there are %v and %v", c.reason, there, here)
		}
		c.end()
		w.settleAll()
		w.none(c.reason)
		c.mend()
		w.clock.Step(pathHeld + time.Second)
	}
	if !come().Create(event.CreateEvent{Object: rules}) || !come().Delete(event.DeleteEvent{Object: rules}) || come().Update(event.UpdateEvent{ObjectOld: rules, ObjectNew: rules}) {
		t.Error("that a tenant has policies is not looked at, or all that these say")
	}
}

// TestPathBehindTenant holds that a tenant who writes what the kind lets it makes no path behind this cluster, and
// that nobody else's ends are what it says.
func TestPathBehindTenant(t *testing.T) {
	w := newLain(t)
	w.talks(true)
	_, here := w.ends()
	faked := &v1alpha1.NetworkPath{ObjectMeta: at(w.milan.sees[0], here.Name), Spec: *here.Spec.DeepCopy()}
	faked.Spec.OriginOwner = romesWord
	w.create(faked)
	w.settleAll()
	if err := w.raw.Get(ctx, client.ObjectKeyFromObject(faked), faked); err != nil {
		t.Fatal(err)
	}
	if reasonOf(faked) != v1alpha1.ReasonPrefixesRefused || faked.Status.PublicKey != "" {
		t.Errorf("a path of its own to what milan shows it is %s", reasonOf(faked))
	}
	own := w.milan.pair(v1alpha1.NetworkProvider)
	w.rome.carrier.clock = w.clock
	w.changeStatus(own, fmt.Sprintf(`{"status":{"consumerPaths":[{"name":%q,"publicKey":"x","endpoints":["127.0.0.1:22"]},{"name":"fedcba9876543210","publicKey":%q}]}}`, here.Name, keyOf(8).Public()))
	if _, err := w.milan.decider.Reconcile(ctx, whole); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(pathRest)
	if _, err := w.pather.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: w.oslo}}); err != nil {
		t.Fatal(err)
	}
	there, _ := w.ends()
	if there == nil || there.Spec.PublicKey == "x" || slices.Contains(there.Spec.Endpoints, "127.0.0.1:22") {
		t.Errorf("oslo is told %+v", there)
	}
}

// TestReceivedConsumerPaths holds what is taken of what a provider says of paths to this cluster: all of it, or
// nothing of what it publishes.
func TestReceivedConsumerPaths(t *testing.T) {
	const good = `{"name":"0123456789abcdef","prefixes":["10.81.0.0/16"],"endpoints":["198.51.100.9:7105"],"until":"2026-11-25T06:00:00.5Z"}`
	spec := func(paths string) map[string]any { return decoded(t, `{"spec":{"consumerPaths":`+paths+`}}`) }
	s, err := receivedSpec(spec("[" + good + "]"))
	if err != nil || len(s.ConsumerPaths) != 1 || s.ConsumerPaths[0].Name != path1 || !s.ConsumerPaths[0].Until.Equal(&metav1.Time{Time: time.Date(2026, 11, 25, 6, 0, 0, 0, time.UTC)}) {
		t.Errorf("taken: %+v (%v)", s, err)
	}
	many := strings.Repeat(","+good, 17)[1:]
	for why, paths := range map[string]string{
		"is no list": `{}`, "at most 16": "[" + many + "]", "there twice": "[" + good + "," + good + "]",
		"name: is no number":      "[" + strings.Replace(good, "abcdef", "ABCDEF", 1) + "]",
		"prefixes: there is none": "[" + strings.Replace(good, `"10.81.0.0/16"`, "", 1) + "]",
		"[0].path.prefixes: one":  "[" + strings.Replace(good, `10.81.0.0/16`, strings.Repeat("1", 50), 1) + "]",
		"is not HOST:PORT":        "[" + strings.Replace(good, "198.51.100.9:7105", "127.0.0.1:22", 1) + "]",
		"until: is no time":       "[" + strings.Replace(good, "2026-11-25", "0001-01-01", 1) + "]",
		"path.publicKey":          "[" + strings.Replace(good, `"name"`, `"publicKey":"x","name"`, 1) + "]",
		"name: is no":             "[7]",
	} {
		if _, err := receivedSpec(spec(paths)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// TestJudgeBehind holds that a provider makes paths to what is not its own alone, where the owner of its Peering says so.
func TestJudgeBehind(t *testing.T) {
	const oslo, milans = "10.81.0.0/16", "10.82.0.0/16"
	for _, c := range []struct {
		prefix string
		change func(p *pair)
		want   string
		says   string
	}{
		{oslo, func(*pair) {}, "", ""},
		{oslo, func(p *pair) { p.direct = false }, v1alpha1.ReasonNotAllowed, "spec.directPaths of the Peering"},
		{oslo, func(p *pair) { p.reach = v1alpha1.ReachNone }, v1alpha1.ReasonNotAllowed, "spec.reachability of the Peering"},
		{oslo, func(p *pair) { p.provider.Spec.Transit = nil }, v1alpha1.ReasonPrefixesRefused, "spec.transit"},
		{milans, func(*pair) {}, v1alpha1.ReasonPrefixesRefused, "spec.transit"},
		{"10.42.0.0/16", func(*pair) {}, v1alpha1.ReasonPrefixesRefused, "spec.pods"},
	} {
		p := tenantOf("milan", oslo, milans)
		p.consumes, p.consumer, p.provider = true, p.provider, p.consumer
		p.provider.Spec.Transit = []string{oslo}
		c.change(p)
		if got, text := judge(askedPath("milan", path1, c.prefix).Spec, p, nil, noon); got != c.want || !strings.Contains(text, c.says) {
			t.Errorf("%s: %q: %s, want %q with %q", c.prefix, got, text, c.want, c.says)
		}
	}
}
