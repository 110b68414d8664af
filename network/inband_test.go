package network

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// opened is the NetworkConfig of a tunnel before there is a peering, nil if there is none.
func (s *side) opened(name string) *v1alpha1.NetworkConfig {
	s.world.t.Helper()
	c := &v1alpha1.NetworkConfig{}
	err := s.world.raw.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, c)
	if client.IgnoreNotFound(err) != nil {
		s.world.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return c
}

// keys are the names of the private keys that a side has.
func (s *side) keys() (names []string) {
	s.world.t.Helper()
	if secret := s.secret(); secret != nil {
		for name := range secret.Data {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// changeStatus patches the status of an object by a merge patch.
func (w *world) changeStatus(obj client.Object, text string) {
	w.t.Helper()
	if err := w.raw.Status().Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
		w.t.Fatal(err)
	}
}

// system sees to it that there is Pelago's own namespace.
func (w *world) system() {
	w.t.Helper()
	if err := w.raw.Create(ctx, &corev1.Namespace{ObjectMeta: named(v1alpha1.SystemNamespace)}); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

// TestInBand takes a peering from its invitation to a tunnel of its own, and through restarts: by
// which addresses the consumer calls never changes, and the way there is never away.
func TestInBand(t *testing.T) {
	for _, c := range []struct{ name, pods, external, want string }{
		{"IPv4", "10.42.0.0/16", "10.255.255.0/24", "10.255.255.254"},
		{"IPv6", "fd42::/48", "fd43::/120", "fd43::ff"},
		{"both", "10.42.0.0/16 fd42::/48", "fd43::/120 10.255.255.0/24", "10.255.255.254 fd43::ff"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testInBand(t, strings.Fields(c.pods), strings.Fields(c.external), strings.Fields(c.want))
		})
	}
}

func testInBand(t *testing.T, pods, external, called []string) {
	var want []netip.Addr
	for _, a := range called {
		want = append(want, addr(a))
	}
	by := &v1alpha1.NetworkInBand{Address: called[0]}
	if len(called) > 1 {
		by.OtherAddress = called[1]
	}
	token := base64.RawURLEncoding.EncodeToString(append(make([]byte, 31), 7))
	_, public, err := v1alpha1.InBandKey(token)
	if err != nil {
		t.Fatal(err)
	}
	const secretName = "in-band-token"
	w := peeredBy(t, &v1alpha1.Consume{CASHA256: v1alpha1.TokenHash("x"), TokenSecret: secretName, InBand: &v1alpha1.InBand{
		PublicKey: keyOf(77).Public().String(), Endpoints: []string{"198.18.1.1:7100"}}})
	w.rome.config.Network.Pods, w.rome.config.Network.External = pods, external
	w.rome.restart()
	peering := &v1alpha1.Peering{ObjectMeta: named(w.rome.name)}
	w.changeStatus(peering, `{"status":{"remote":null}}`) // nothing has been heard of it
	w.away = true
	introduction := v1alpha1.IntroductionPrefix + w.rome.peer
	invitation := w.create(&v1alpha1.Invitation{ObjectMeta: metav1.ObjectMeta{Name: w.milan.peer + "-1", Labels: map[string]string{v1alpha1.LabelPeering: w.milan.peer}}, Spec: v1alpha1.InvitationSpec{
		TokenSHA256: v1alpha1.TokenHash(token), Expires: metav1.NewTime(w.clock.Now().Add(time.Hour)), InBand: &v1alpha1.InvitationInBand{PublicKey: public}}}).(*v1alpha1.Invitation)
	for _, s := range []*side{w.rome, w.milan} {
		for _, node := range s.nodes {
			s.report(node, nil)
		}
	}
	w.settle()
	if at, why := w.rome.network.InBand(w.rome.peer); len(at) > 0 || why == "" || w.rome.opened(introduction) != nil {
		t.Errorf("without a token the provider is called at %v (%q)", at, why)
	}
	w.system()
	w.create(&corev1.Secret{ObjectMeta: at(v1alpha1.SystemNamespace, secretName), StringData: map[string]string{"token": token}})
	w.settle()

	theirs := w.milan.opened(v1alpha1.InvitationPrefix + invitation.Name)
	if theirs == nil || theirs.Spec.InBand == nil || theirs.Spec.InBand.PublicKey != public || theirs.Spec.Port == 0 || len(theirs.Spec.Endpoints) != 2 || theirs.Spec.PublicKey == "" {
		t.Fatalf("the provider says of its invitation %+v", theirs)
	}
	ours := w.rome.opened(introduction)
	if ours == nil || ours.Spec.PublicKey != public || ours.Spec.Port == 0 || len(ours.Spec.Endpoints) != 2 {
		t.Fatalf("the consumer says of its introduction %+v", ours)
	}
	if len(theirs.Spec.InBand.Endpoints) > 0 {
		t.Errorf("the provider calls a consumer at %v, of which nobody has told it", theirs.Spec.InBand.Endpoints)
	}
	// The provider's owner has it call the consumer.
	patch := func(spec string) error {
		return w.raw.Patch(ctx, invitation.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`)))
	}
	for _, spec := range []string{
		`{"inBand":null}`, `{"inBand":{"publicKey":"QKrQ6rIlxWRnmhIQbXKXiR5oSSsYIyuOZqdKGvVeVBk="}}`, `{"consumer":"x"}`, `{"tenant":{}}`,
		`{"expires":"2030-01-01T00:00:00Z"}`, `{"inBand":{"endpoints":["198.18.0.1"]}}`, `{"inBand":{"endpoints":["a/b:1"]}}`,
	} {
		if err := patch(spec); !apierrors.IsInvalid(err) {
			t.Errorf("an invitation is changed by %s: %v", spec, err)
		}
	}
	if err := patch(fmt.Sprintf(`{"inBand":{"endpoints":[%q]}}`, ours.Spec.Endpoints[0])); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if theirs = w.milan.opened(theirs.Name); !slices.Equal(theirs.Spec.InBand.Endpoints, ours.Spec.Endpoints[:1]) || theirs.Spec.Port == 0 {
		t.Errorf("the provider calls at %v", theirs.Spec.InBand)
	}
	first := by.DeepCopy()
	first.PublicKey, first.Endpoints = keyOf(77).Public().String(), []string{"198.18.1.1:7100"}
	if d := cmp.Diff(first, ours.Spec.InBand); d != "" {
		t.Errorf("the way to the provider (-want +got):\n%s", d)
	}
	isCalled := func(when string) {
		t.Helper()
		if at, why := w.rome.network.InBand(w.rome.peer); !slices.Equal(at, want) || why != "" {
			t.Errorf("%s the provider is called at %v (%q)", when, at, why)
		}
	}
	isCalled("with an introduction")
	w.rome.report(w.rome.nodes[0], map[string]v1alpha1.TunnelReport{introduction: {Since: &metav1.Time{Time: noon}}})
	w.settle()
	if _, why := w.rome.network.InBand(w.rome.peer); !strings.Contains(why, "nothing comes back") {
		t.Errorf("of a dead tunnel is said %q", why)
	}
	w.rome.report(w.rome.nodes[0], map[string]v1alpha1.TunnelReport{introduction: {Alive: true}})

	// The provider answers, and both make a tunnel of the peering.
	w.away = false
	w.changeStatus(peering, `{"status":{"remote":{"id":"8f14e45f-ceea-4e7a-9c1d-0d5f3b6a1c2e","name":"x","features":["network/v1"]}}}`)
	writes := w.writes
	w.rome.restart()
	for _, node := range w.rome.nodes {
		w.rome.report(node, map[string]v1alpha1.TunnelReport{introduction: {Alive: true}})
	}
	w.settle()
	if w.writes == writes {
		t.Fatal("nothing comes of an answer")
	}
	if own := w.rome.pair(v1alpha1.NetworkConsumer); own == nil || own.Spec.InBand != nil || w.rome.opened(introduction) == nil {
		t.Errorf("the tunnel of the peering leads before it lives: %+v", own)
	}
	isCalled("while the new tunnel is made")
	if got := w.milan.pair(v1alpha1.NetworkProvider); got.Spec.InBand == nil {
		t.Error("the provider's agents are not told that the tenant calls")
	}
	w.rome.report(w.rome.nodes[0], map[string]v1alpha1.TunnelReport{introduction: {Alive: true}, w.rome.key(): {Alive: true}})
	w.settle()
	own := w.rome.pair(v1alpha1.NetworkConsumer)
	if d := cmp.Diff(by, own.Spec.InBand); d != "" {
		t.Errorf("where the tunnel of the peering leads (-want +got):\n%s", d)
	}
	if w.rome.opened(introduction) != nil {
		t.Error("the introduction is still there")
	}
	if d := cmp.Diff([]string{w.rome.key()}, w.rome.keys()); d != "" {
		t.Errorf("the consumer's keys (-want +got):\n%s", d)
	}
	if far := w.milan.pair(v1alpha1.NetworkConsumer); far.Spec.InBand != nil || w.rome.pair(v1alpha1.NetworkProvider).Spec.InBand != nil {
		t.Error("the other side is told of what is for agents here")
	}
	isCalled("by its own tunnel")

	// It stays so, also when the tunnel is dead and the manager has forgotten everything.
	w.rome.report(w.rome.nodes[0], map[string]v1alpha1.TunnelReport{w.rome.key(): {Since: &metav1.Time{Time: noon}}})
	w.settle()
	w.rome.restart()
	w.settle()
	if w.rome.pair(v1alpha1.NetworkConsumer).Spec.InBand == nil || w.rome.opened(introduction) != nil {
		t.Error("after a restart with a dead tunnel another one leads")
	}
	if at, _ := w.rome.network.InBand(w.rome.peer); !slices.Equal(at, want) {
		t.Errorf("with a dead tunnel the provider is called at %v", at)
	}
	if err := w.raw.Delete(ctx, invitation); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if w.milan.opened(v1alpha1.InvitationPrefix+invitation.Name) != nil || len(w.milan.keys()) != 1 {
		t.Errorf("of an invitation that has gone there is left %v", w.milan.keys())
	}

	// A tenant that ends is to hear of it: its tunnel stays for that, and for nothing else.
	tenant := &v1alpha1.Tenant{ObjectMeta: named(w.milan.peer)}
	w.change(tenant, `{"metadata":{"finalizers":["pelago.dev/tenant"]}}`)
	t.Cleanup(func() { w.change(tenant, `{"metadata":{"finalizers":null}}`) })
	if err := w.raw.Delete(ctx, tenant); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if ends := w.milan.pair(v1alpha1.NetworkProvider); ends == nil || ends.Spec.InBand == nil || ends.Spec.Reachability != v1alpha1.ReachNone {
		t.Errorf("while a tenant ends its network is %+v", ends)
	}
}

// TestInBandAddress holds which address leads to a provider: the one that it has, as long as that may
// be, else the highest that nobody has.
func TestInBandAddress(t *testing.T) {
	consumes := func(name, has string) *pair {
		p := &pair{namespace: v1alpha1.PeeringNamespace(name), key: consumerKey(name), peering: name, peer: name, consumes: true, inBand: true, since: noon}
		if has != "" {
			first, other, _ := strings.Cut(has, " ")
			p.consumer = &v1alpha1.NetworkConfig{Spec: v1alpha1.NetworkConfigSpec{InBand: &v1alpha1.NetworkInBand{Address: first, OtherAddress: other}}}
		}
		return p
	}
	for _, c := range []struct {
		reason string
		pairs  []*pair
		mapped []string
		none   bool
		want   []string
		pods   string // of IPv4 if empty
	}{
		{"the highest", []*pair{consumes("a", ""), consumes("b", "")}, nil, false, []string{"10.81.255.254", "10.81.255.253"}, ""},
		{"what one has stays", []*pair{consumes("a", ""), consumes("b", "10.81.255.254")}, nil, false, []string{"10.81.255.253", "10.81.255.254"}, ""},
		{"what is mapped is taken, unless one has it", []*pair{consumes("a", ""), consumes("b", "10.81.255.253")}, []string{"10.81.255.254", "10.81.255.253"}, false, []string{"10.81.255.252", "10.81.255.253"}, ""},
		{"of another range", []*pair{consumes("a", "10.9.0.7")}, nil, false, []string{"10.81.255.254"}, ""},
		{"one that stands for nodes", []*pair{consumes("a", "10.81.255.1")}, nil, false, []string{"10.81.255.254"}, ""},
		{"of two with one the older keeps it", []*pair{consumes("a", "10.81.255.254"), consumes("b", "10.81.255.254")}, nil, false, []string{"10.81.255.254", "10.81.255.253"}, ""},
		{"there is no range", []*pair{consumes("a", "")}, nil, true, []string{""}, ""},
		{"of IPv6 where pods have that alone", []*pair{consumes("a", ""), consumes("b", "")}, []string{"fd81::ff"}, false, []string{"fd81::fe", "fd81::fd"}, "fd42::/48"},
		{"of both where pods have both", []*pair{consumes("a", "")}, nil, false, []string{"10.81.255.254 fd81::ff"}, "10.42.0.0/16 fd42::/48"},
		{"of an older build, that has one", []*pair{consumes("a", "10.81.255.9")}, nil, false, []string{"10.81.255.9 fd81::ff"}, "10.42.0.0/16 fd42::/48"},
		{"both stay", []*pair{consumes("a", "fd81::7 10.81.255.9")}, nil, false, []string{"10.81.255.9 fd81::7"}, "10.42.0.0/16 fd42::/48"},
		{"what one has stays, whatever pods have now", []*pair{consumes("a", "10.81.255.9")}, nil, false, []string{"10.81.255.9 fd81::ff"}, "fd42::/48"},
		{"there is no range of IPv6", []*pair{consumes("a", "")}, nil, true, []string{""}, "fd42::/48"},
	} {
		f := usual(c.pairs...)
		if c.pods != "" {
			f.property.Pods = prefixes(strings.Fields(c.pods))
		}
		if f.property.External = prefixes([]string{"10.81.255.0/24", "fd81::/120"}); c.none {
			f.property.External = nil
		}
		for _, text := range c.mapped {
			f.mapped = append(f.mapped, addr(text))
		}
		d := decide(f)
		for i, p := range c.pairs {
			if got := strings.Trim(fmt.Sprint(d.lines[p.key]), "[]"); got != c.want[i] {
				t.Errorf("%s: %s is called at %s, want %s", c.reason, p.peer, got, c.want[i])
			}
		}
		said := d.picture.lacking[c.pairs[0].key]
		c.pairs[0].wanted = true
		if ready := decide(f).conditions[c.pairs[0].peering]; c.none != (ready.Reason == v1alpha1.ReasonPoolExhausted && strings.Contains(ready.Message, "network.external")) {
			t.Errorf("%s: NetworkReady says %s: %s", c.reason, ready.Reason, ready.Message)
		}
		if c.none && strings.Contains(said, "IPv6") != strings.Contains(c.pods, ":") {
			t.Errorf("%s: said is %q", c.reason, said)
		}
		if c.none != (said != "") {
			t.Errorf("%s: said is %q", c.reason, d.picture.lacking)
		}
	}
}

// TestInBandTrouble holds that what cannot be read now takes no provider away: a stored way stays, and
// the token of one introduction is no matter of others.
func TestInBandTrouble(t *testing.T) {
	p := &pair{namespace: v1alpha1.PeeringNamespace("milan"), key: consumerKey("milan"), peering: "milan", peer: "milan", consumes: true, inBand: true, wanted: true, since: noon,
		consumer: &v1alpha1.NetworkConfig{Spec: v1alpha1.NetworkConfigSpec{InBand: &v1alpha1.NetworkInBand{Address: "10.81.255.254"}}}}
	opened := &pair{namespace: v1alpha1.PeeringNamespace("oslo"), key: consumerKey("oslo"), peering: "oslo", peer: "oslo", consumes: true, inBand: true, since: noon}
	f := usual(p, opened)
	f.property.External, f.locks = prefixes([]string{"10.81.255.0/24"}), nil
	f.openings = []*opening{{name: v1alpha1.IntroductionPrefix + "oslo", consumes: true, peering: "oslo", since: noon,
		have: &v1alpha1.NetworkConfig{Spec: v1alpha1.NetworkConfigSpec{InBand: &v1alpha1.NetworkInBand{Address: "10.81.255.253"}}}}}
	d := decide(f)
	if got := d.picture.lines; fmt.Sprint(got[p.key], got[opened.key]) != "[10.81.255.254] [10.81.255.253]" {
		t.Errorf("without keys providers are called at %v", got)
	}

	r := &decider{live: unreadable{}, network: New(Options{})}
	was := lock{key: keyOf(3), made: noon}
	o := &opening{name: "introduction-oslo", consumes: true, peering: "oslo", token: "x", since: noon}
	if got, err := r.openingLock(ctx, o, was, noon); err == nil || !got.equal(was) {
		t.Errorf("a token that cannot be read makes %v, %v", got, err)
	}
	o.since = noon.Add(time.Minute)
	if got, err := r.openingLock(ctx, o, was, noon); err == nil || !got.key.IsZero() {
		t.Errorf("the key of an earlier Peering is taken, %v", err)
	}
}

// unreadable is a reader of nothing.
type unreadable struct{ client.Reader }

func (unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("the API server does not answer")
}
