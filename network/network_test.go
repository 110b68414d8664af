package network

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestTwoSides lets two clusters with the same addresses agree, and asks for everything that
// others ask.
func TestTwoSides(t *testing.T) {
	w := newWorld(t)
	w.settle()
	for _, s := range []*side{w.rome, w.milan} {
		for _, node := range s.nodes {
			s.report(node, nil)
		}
	}
	w.settle()
	far, near := w.milan.pair(v1alpha1.NetworkConsumer), w.rome.pair(v1alpha1.NetworkConsumer)
	if d := cmp.Diff(near.Spec, far.Spec); d != "" || near.Spec.PublicKey == "" {
		t.Errorf("what rome says differs at milan (-rome +milan):\n%s", d)
	}
	if d := cmp.Diff(w.milan.pair(v1alpha1.NetworkProvider).Spec, w.rome.pair(v1alpha1.NetworkProvider).Spec); d != "" {
		t.Errorf("what milan says differs at rome (-milan +rome):\n%s", d)
	}
	if d := cmp.Diff(far.Status.Views, near.Status.Views); d != "" || len(near.Status.Views) != 2 {
		t.Errorf("milan's answer differs at rome (-milan +rome):\n%s", d)
	}
	if far.Status.ObservedGeneration != far.Generation || near.Status.ObservedGeneration != near.Generation {
		t.Errorf("the answer is of %d and %d, want %d and %d", far.Status.ObservedGeneration, near.Status.ObservedGeneration, far.Generation, near.Generation)
	}
	home, away := w.rome.pair(v1alpha1.NetworkProvider), w.milan.pair(v1alpha1.NetworkProvider)
	if d := cmp.Diff(home.Status.Views, away.Status.Views); d != "" || away.Status.ObservedGeneration != away.Generation {
		t.Errorf("rome's answer differs at milan, of %d (-rome +milan):\n%s", away.Status.ObservedGeneration, d)
	}
	for _, c := range []*v1alpha1.NetworkConfig{far, near, home, away} {
		if r := readyOf(c); r == nil || r.Status != "True" || r.ObservedGeneration != c.Generation {
			t.Errorf("%s/%s is not ready: %+v", c.Namespace, c.Name, r)
		}
	}
	if d := cmp.Diff([]string{"10.42.0.0/16"}, near.Spec.Pods); d != "" {
		t.Errorf("the pods' range (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"10.255.255.0/24"}, near.Spec.External); d != "" {
		t.Errorf("the external range (-want +got):\n%s", d)
	}
	if len(near.Spec.Endpoints) != 2 || near.Spec.Port != 7100 || !slices.Contains(near.Spec.Endpoints, "198.18.0.1:7100") {
		t.Errorf("endpoints %v, port %d", near.Spec.Endpoints, near.Spec.Port)
	}
	api, coming := w.milan.network.HomeAPI(w.milan.peer)
	if near.Spec.APIServer != "10.255.255.2:443" || home.Spec.APIServer != "" || coming || api.Port() != 443 || !w.milan.network.Allows(w.milan.peer, api.Addr()) {
		t.Errorf("rome's API server is %q, and %v at milan; milan's is %q", near.Spec.APIServer, api, home.Spec.APIServer)
	}
	there, ok := w.rome.network.Translate(w.rome.peer, addr("10.42.0.7"))
	if !ok || there == addr("10.42.0.7") || there.As4()[3] != 7 || !w.milan.network.Allows(w.milan.peer, there) {
		t.Errorf("rome's 10.42.0.7 is %v at milan (%v), which allows it: %v", there, ok, w.milan.network.Allows(w.milan.peer, there))
	}
	if !w.rome.network.Carries(w.rome.peer, true) || w.rome.network.Carries(w.rome.peer, false) || w.rome.network.Carries("other", true) {
		t.Error("milan reaches rome by another family than IPv4, or others do")
	}
	view, ok := w.rome.network.View(w.rome.peer, addr("10.42.1.9"))
	if !ok || view == addr("10.42.1.9") || view.As4()[3] != 9 {
		t.Errorf("milan's 10.42.1.9 is %v at rome", view)
	}
	if _, ok := w.rome.network.Translate(w.rome.peer, view); ok {
		t.Error("what is seen here of milan's is told to milan")
	}
	if views := w.milan.network.TenantViews(w.milan.peer); !slices.ContainsFunc(views, func(p netip.Prefix) bool { return p.Contains(there) }) || !slices.ContainsFunc(views, func(p netip.Prefix) bool { return p.Contains(api.Addr()) }) {
		t.Errorf("milan sees rome by %v, without %v or %v", views, there, api)
	}
	if w.milan.network.Allows(w.milan.peer, addr("10.42.0.7")) || w.milan.network.Allows("other", there) {
		t.Error("milan lets a tenant name addresses of its own, or of another tenant")
	}
	secret := w.rome.secret()
	if _, has := secret.Data[w.rome.key()]; !has || len(secret.Data) != 1 {
		t.Errorf("the Secret holds %d keys", len(secret.Data))
	}
	all, _ := json.Marshal([]any{far, near, home, away, secret.Annotations})
	if strings.Contains(string(all), string(secret.Data[w.rome.key()])) {
		t.Error("the private key is in other objects")
	}
	w.tunnels(t)
}

// tunnels says of the tunnels what agents would, and looks at what comes of it.
func (w *world) tunnels(t *testing.T) {
	t.Helper()
	s := w.rome
	if got := s.networkReady(); !strings.HasPrefix(got, "False/Waiting: waiting for "+s.peerNode()) {
		t.Errorf("without a report: %s", got)
	}
	for _, node := range s.nodes {
		s.report(node, map[string]v1alpha1.TunnelReport{s.key(): {Alive: node == s.nodes[0]}})
	}
	w.settle()
	if got := s.networkReady(); got != "True/Ready: " || s.tunnel() != "alive" {
		t.Errorf("with a tunnel that lives: %s, %s", got, s.tunnel())
	}
	s.network.options.Domain = "rome.example"
	w.settle()
	if got := s.networkReady(); !strings.HasPrefix(got, "True/Ready: pods at "+s.name+" do not find names that end in rome.example,") {
		t.Errorf("with a domain of its own: %s", got)
	}
	s.network.options.Domain = ""
	for _, node := range s.nodes {
		s.report(node, map[string]v1alpha1.TunnelReport{s.key(): {Alive: false}})
	}
	w.settle()
	if got := s.networkReady(); !strings.HasPrefix(got, "False/TunnelDown: nothing has come back yet") || s.tunnel() != "alive" {
		t.Errorf("with a gateway that does not know yet: %s, %s", got, s.tunnel())
	}
	for _, node := range s.nodes {
		s.report(node, map[string]v1alpha1.TunnelReport{s.key(): {Since: &metav1.Time{Time: noon}}})
	}
	w.settle()
	if got := s.networkReady(); !strings.HasPrefix(got, "False/TunnelDown: nothing has come back through") || s.tunnel() != "dead" {
		t.Errorf("with a tunnel that is dead: %s, %s", got, s.tunnel())
	}
	s.report(s.nodes[0], map[string]v1alpha1.TunnelReport{s.key(): {Alive: true}})
	before := s.pair(v1alpha1.NetworkConsumer).Spec.Endpoints
	w.clock.Step(16 * time.Second)
	w.settle()
	if got := s.networkReady(); !strings.HasPrefix(got, "False/AgentsMissing: ") || s.tunnel() != "alive" {
		t.Errorf("with agents that are silent: %s, %s", got, s.tunnel())
	}
	if d := cmp.Diff(before, s.pair(v1alpha1.NetworkConsumer).Spec.Endpoints); d != "" {
		t.Errorf("endpoints change at once when agents fall silent:\n%s", d)
	}
	w.clock.Step(candidateFor)
	w.settle()
	if got := s.pair(v1alpha1.NetworkConsumer).Spec.Endpoints; len(got) != 0 {
		t.Errorf("endpoints of nodes without an agent: %v", got)
	}
}

// peerNode is what the names of a side's nodes begin with.
func (s *side) peerNode() string { return s.peer }

// TestMemory holds that restarts change nothing, and that a peer's spec that is refused costs no
// view.
func TestMemory(t *testing.T) {
	w := newWorld(t)
	w.settle()
	before := w.milan.pair(v1alpha1.NetworkConsumer)
	writes := w.writes
	w.rome.restart()
	w.milan.restart()
	w.settle()
	if w.writes != writes {
		t.Errorf("after a restart there are the writes\n%s", w.since(writes))
	}
	w.rome.config.Network.External = before.Spec.External
	w.rome.config.Network.Pods = []string{"10.42.0.0/16", "127.0.0.0/8"} // as a hostile consumer would
	w.settle()
	after := w.milan.pair(v1alpha1.NetworkConsumer)
	if d := cmp.Diff(before.Status.Views, after.Status.Views); d != "" {
		t.Errorf("views after a refusal (-before +after):\n%s", d)
	}
	r := readyOf(after)
	if r.Reason != v1alpha1.ReasonRangesRefused || !strings.Contains(r.Message, "127.0.0.0/8") {
		t.Errorf("the answer is %s: %s", r.Reason, r.Message)
	}
	if got := w.rome.networkReady(); !strings.HasPrefix(got, "False/RangesRefused: "+w.rome.peer+" says: ") {
		t.Errorf("the consumer's Peering says %s", got)
	}
	if got := w.milan.networkReady(); !strings.HasPrefix(got, "False/RangesRefused: of "+w.milan.peer) {
		t.Errorf("the provider's Peering says %s", got)
	}
}

// TestHostileProvider lets a provider publish garbage: nothing of it is taken, what was before
// goes on, and the consumer's owner is told.
func TestHostileProvider(t *testing.T) {
	w := newWorld(t)
	w.settle()
	before := w.rome.pair(v1alpha1.NetworkProvider)
	real := w.rome.carrier.fleet
	for _, spec := range []string{
		`{"pods":["10.42.0.0/16"],"publicKey":"x"}`, `{"pods":"10.0.0.0/8"}`, `{"pods":[1]}`, `{"endpoints":["127.0.0.1:22"]}`,
		`{"endpoints":["a"]}`, `{"port":70000}`, `{"port":"x"}`, `{"external":["a","b","c"]}`, fmt.Sprintf(`{"pods":[%q]}`, strings.Repeat("1", 1000)),
	} {
		w.rome.carrier.fleet = lying{real, spec}
		for range 2 {
			if err := w.look(); err != nil {
				t.Fatal(err)
			}
		}
		after := w.rome.pair(v1alpha1.NetworkProvider)
		if d := cmp.Diff(before.Spec, after.Spec); d != "" {
			t.Errorf("%s was taken:\n%s", spec, d)
		}
		if got := w.rome.networkReady(); !strings.HasPrefix(got, "False/Invalid: what "+w.rome.peer+" publishes is not taken") {
			t.Errorf("%s: the Peering says %s", spec, got)
		}
	}
	w.rome.carrier.fleet = real
	w.settle()
	if got := w.rome.networkReady(); strings.Contains(got, "Invalid") {
		t.Errorf("after the garbage: %s", got)
	}
}

// lying is a fleet whose peer shows another spec of the provider than there is.
type lying struct {
	Fleet
	spec string
}

func (l lying) Peer(name string) (Peer, bool) {
	p, ok := l.Fleet.Peer(name)
	return liar{p, l.spec}, ok
}

type liar struct {
	Peer
	spec string
}

func (l liar) Reader() client.Reader { return lies{l.Peer.Reader(), l.spec} }

// TestRotation replaces the keys of both sides without a moment in which one does not know the
// other's.
func TestRotation(t *testing.T) {
	w := newWorld(t)
	w.settle()
	old := w.rome.pair(v1alpha1.NetworkConsumer).Spec.PublicKey
	w.change(&v1alpha1.Peering{ObjectMeta: named(w.rome.name)}, `{"metadata":{"annotations":{%q:"now"}}}`, v1alpha1.AnnotationRotate)
	w.settle()
	spec := w.milan.pair(v1alpha1.NetworkConsumer).Spec
	if spec.PublicKey != old || spec.NextPublicKey == "" || spec.NextPublicKey == old {
		t.Fatalf("at milan the keys are %q and next %q, want %q and another", spec.PublicKey, spec.NextPublicKey, old)
	}
	if len(w.rome.secret().Data) != 2 {
		t.Errorf("the Secret holds %d keys, want both", len(w.rome.secret().Data))
	}
	// The gateway has left a node of milan's, which accepts the next key, and the one to which it went does not yet.
	w.milan.report(w.milan.nodes[1], map[string]v1alpha1.TunnelReport{w.milan.key(): {Alive: true, Peer: old, Knows: spec.NextPublicKey}})
	w.milan.report(w.milan.nodes[0], map[string]v1alpha1.TunnelReport{w.milan.key(): {Alive: true, Peer: old}})
	w.settle()
	if got := w.milan.pair(v1alpha1.NetworkConsumer).Spec.PublicKey; got != old {
		t.Error("the key is used though the gateway does not accept it")
	}
	w.milan.report(w.milan.nodes[1], nil)
	// Milan's gateway accepts the next key.
	w.milan.report(w.milan.nodes[0], map[string]v1alpha1.TunnelReport{w.milan.key(): {Alive: true, Peer: old, Knows: spec.NextPublicKey}})
	w.settle()
	after := w.milan.pair(v1alpha1.NetworkConsumer)
	if after.Spec.PublicKey != spec.NextPublicKey || after.Spec.NextPublicKey != "" || after.Status.NextPublicKey != "" {
		t.Errorf("after it is known the keys are %q and next %q (%q), want %q", after.Spec.PublicKey, after.Spec.NextPublicKey, after.Status.NextPublicKey, spec.NextPublicKey)
	}
	if len(w.rome.secret().Data) != 2 {
		t.Error("the old key is dropped at the moment that another is published: agents may know the one and not the other")
	}
	w.clock.Step(inUseAfter)
	w.settle()
	if len(w.rome.secret().Data) != 1 || !w.rome.said(v1alpha1.ReasonKeyRotated) {
		t.Errorf("the Secret holds %d keys, want one, and an event", len(w.rome.secret().Data))
	}
	w.rome.restart()
	w.settle()
	if got := w.rome.pair(v1alpha1.NetworkConsumer).Spec; got.PublicKey != spec.NextPublicKey || got.NextPublicKey != "" {
		t.Error("the same value of the annotation rotates again")
	}
	// The provider's key, by age.
	old = w.milan.pair(v1alpha1.NetworkProvider).Spec.PublicKey
	w.clock.Step(keyLife)
	w.settle()
	next := w.rome.pair(v1alpha1.NetworkProvider).Spec.NextPublicKey
	w.rome.report(w.rome.nodes[1], map[string]v1alpha1.TunnelReport{w.rome.key(): {Alive: true, Knows: next}})
	w.settle()
	w.milan.restart() // between what is published and what is kept
	w.settle()
	w.clock.Step(inUseAfter)
	w.settle()
	if l := unlocked(w.milan.secret())[w.milan.key()]; l.key.Public().String() != next || !l.next.IsZero() {
		t.Error("milan keeps another key than it publishes")
	}
	if got := w.rome.pair(v1alpha1.NetworkProvider).Spec; got.PublicKey != next || next == "" || next == old {
		t.Errorf("milan's key is %q after a month, was %q and next %q", got.PublicKey, old, next)
	}
}

// TestEnd lets peerings end, in every way: what was made goes, whoever holds it.
func TestEnd(t *testing.T) {
	for reason, end := range map[string]func(w *world){
		"the provider has ended it": func(w *world) {
			tenant := &v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)}
			w.change(tenant, `{"metadata":{"finalizers":[%q]}}`, v1alpha1.FinalizerTenant)
			_ = w.raw.Delete(ctx, tenant)
			w.t.Cleanup(func() { w.change(tenant, `{"metadata":{"finalizers":null}}`) })
		},
		"the consumer's network is off": func(w *world) {
			tenant := &v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)}
			if err := w.raw.Get(ctx, client.ObjectKeyFromObject(tenant), tenant); err != nil {
				w.t.Fatal(err)
			}
			tenant.Status.Cluster.Features = []string{v1alpha1.FeaturePeering}
			w.status(tenant)
		},
		"the tenant is gone": func(w *world) { _ = w.raw.Delete(ctx, &v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)}) },
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			w.change(w.milan.pair(v1alpha1.NetworkConsumer), `{"metadata":{"finalizers":["example.org/forever"]}}`)
			end(w)
			w.settle()
			if w.milan.pair(v1alpha1.NetworkConsumer) != nil || w.milan.pair(v1alpha1.NetworkProvider) != nil {
				t.Error("network configs are left at the provider")
			}
			if s := w.milan.secret(); len(s.Data) != 0 {
				t.Errorf("%d keys are left at the provider", len(s.Data))
			}
			if got := w.milan.networkReady(); got != "" {
				t.Errorf("its Peering says %s", got)
			}
			if w.milan.network.Allows(w.milan.peer, addr("10.254.0.7")) {
				t.Error("the tenant's views are still believed")
			}
			if w.rome.pair(v1alpha1.NetworkConsumer) == nil {
				t.Error("the consumer's went as well, though it has not ended")
			}
			if err := w.raw.Delete(ctx, &v1alpha1.Peering{ObjectMeta: named(w.rome.name)}); err != nil {
				t.Fatal(err)
			}
			w.settle()
			if w.rome.pair(v1alpha1.NetworkConsumer) != nil || w.rome.pair(v1alpha1.NetworkProvider) != nil || len(w.rome.secret().Data) != 0 {
				t.Error("network configs or keys are left at the consumer")
			}
		})
	}
}

// TestNotAsked holds that nothing happens with a peer that does not say the word, nor where it
// is not known yet what it says.
func TestNotAsked(t *testing.T) {
	w := newWorld(t)
	p := &v1alpha1.Peering{}
	if err := w.raw.Get(ctx, client.ObjectKey{Name: w.rome.name}, p); err != nil {
		t.Fatal(err)
	}
	older := p.Status.Remote.DeepCopy()
	older.Features = []string{v1alpha1.FeaturePeering}
	for _, remote := range []*v1alpha1.ClusterInfo{nil, older} {
		p.Status.Remote = remote
		w.status(p)
		for range 3 {
			if _, err := w.rome.decider.Reconcile(ctx, whole); err != nil {
				t.Fatal(err)
			}
			w.clock.Step(lookEvery)
		}
		if w.writes != 0 {
			t.Errorf("%d writes for a peer that says %v", w.writes, remote)
		}
	}
	if _, ok := w.rome.network.Translate(w.rome.peer, addr("10.42.0.7")); ok {
		t.Error("an address is translated for it")
	}
}

// TestUnsure holds that what there is stays while it is not known what the peer can, as after a
// restart of who finds out.
func TestUnsure(t *testing.T) {
	w := newWorld(t)
	w.settle()
	p := &v1alpha1.Peering{}
	if err := w.raw.Get(ctx, client.ObjectKey{Name: w.rome.name}, p); err != nil {
		t.Fatal(err)
	}
	p.Status.Remote = nil
	w.status(p)
	before := w.rome.pair(v1alpha1.NetworkConsumer)
	w.settle()
	if after := w.rome.pair(v1alpha1.NetworkConsumer); after == nil || after.UID != before.UID {
		t.Error("the network config went")
	}
}

// TestPodsUnknown holds that no view is given while it is not known what it could cover.
func TestPodsUnknown(t *testing.T) {
	w := newWorld(t)
	for _, name := range w.milan.nodes {
		n := &corev1.Node{ObjectMeta: named(name)}
		if err := w.raw.Delete(ctx, n); err != nil {
			t.Fatal(err)
		}
		w.create(&corev1.Node{ObjectMeta: named(name)})
	}
	w.settle()
	c := w.milan.pair(v1alpha1.NetworkConsumer)
	if len(c.Status.Views) != 0 || readyOf(c).Reason != v1alpha1.ReasonWaiting {
		t.Errorf("views %v, %+v", c.Status.Views, readyOf(c))
	}
	if got := w.milan.networkReady(); !strings.HasPrefix(got, "False/RangesUnknown: ") || !strings.Contains(got, "set network.pods") {
		t.Errorf("the Peering says %s", got)
	}
	w.milan.config.Network.Pods = []string{"10.42.0.0/16"}
	w.settle()
	if c := w.milan.pair(v1alpha1.NetworkConsumer); len(c.Status.Views) != 2 {
		t.Errorf("with network.pods set the views are %v", c.Status.Views)
	}
}

// TestLater holds that fields which a later build has written stay.
func TestLater(t *testing.T) {
	w := newWorld(t)
	w.settle()
	far := &v1alpha1.NetworkConfig{ObjectMeta: named(v1alpha1.NetworkConsumer)}
	far.Namespace = w.milan.sees[0]
	kept := kubetest.Later(t, w.raw, far)
	w.rome.config.Network.Pods = []string{"10.42.0.0/17", "10.42.128.0/17"}
	w.settle()
	kept()
}
