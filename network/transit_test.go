package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// consumed is a peering in which this cluster is the consumer, of some namespaces, and the
// provider has published; its views are stored.
func consumed(name string, since time.Time, spaces string, views ...string) *pair {
	p := &pair{namespace: v1alpha1.PeeringNamespace(name), key: consumerKey(name), consumes: true, peering: name, peer: name, since: since,
		wanted: true, spaces: map[string]bool{}, consumer: &v1alpha1.NetworkConfig{}, provider: &v1alpha1.NetworkConfig{}}
	for _, space := range strings.Fields(spaces) {
		p.spaces[space] = true
	}
	p.provider.Spec.PublicKey = keyOf(9).Public().String()
	for i := 0; i < len(views); i += 2 {
		p.provider.Spec.Pods = append(p.provider.Spec.Pods, views[i])
		p.provider.Status.Views = append(p.provider.Status.Views, v1alpha1.NetworkView{Real: views[i], View: views[i+1]})
	}
	return p
}

// TestDecideTransit is what of a provider's pods another one is told.
func TestDecideTransit(t *testing.T) {
	const own, at80, at81 = "10.42.0.0/16", "10.80.0.0/16", "10.81.0.0/16"
	many := func(n int) (views []string) {
		for i := range n {
			text := fmt.Sprintf("10.9.%d.0/24", i)
			views = append(views, text, text)
		}
		return views
	}
	milan := func(spaces string) *pair { return consumed("milan", noon, spaces, own, at80) }
	oslo := func(spaces string) *pair { return consumed("oslo", noon.Add(time.Hour), spaces, own, at81) }
	for _, c := range []struct {
		reason string
		pairs  []*pair
		change func(f *facts)
		want   []string // by pair: ranges in the order of the list
		untold string   // of the first pair's NetworkReady
	}{
		{"both run pods of a namespace", []*pair{milan("shop bank"), oslo("shop")}, nil, []string{own + " " + at81, own + " " + at80}, ""},
		{"none is in common", []*pair{milan("bank"), oslo("shop")}, nil, []string{own, own}, ""},
		{"one has none", []*pair{milan("shop"), oslo("")}, nil, []string{own, own}, ""},
		{"of three, those that share", []*pair{milan("a"), oslo("a b"), consumed("bern", noon.Add(2*time.Hour), "b", "10.9.0.0/16", "10.9.0.0/16")}, nil,
			[]string{own + " " + at81, own + " " + at80 + " 10.9.0.0/16", own + " " + at81}, ""},
		{"what it sees of external addresses is for itself", []*pair{milan("shop"), oslo("shop")}, func(f *facts) {
			p := f.pairs[1].provider
			p.Spec.External = []string{"10.255.0.0/24"}
			p.Status.Views = append(p.Status.Views, v1alpha1.NetworkView{Real: "10.255.0.0/24", View: "10.255.0.0/24"})
		}, []string{own + " " + at81, own + " " + at80}, ""},
		{"what a provider says to be both is external", []*pair{milan("shop"), oslo("shop")}, func(f *facts) { f.pairs[1].provider.Spec.External = []string{own} },
			[]string{own, own + " " + at80}, ""},
		{"a view that is not stored yet waits", []*pair{milan("shop"), oslo("shop")}, func(f *facts) { f.pairs[1].provider.Status.Views = nil }, []string{own, own + " " + at80}, ""},
		{"a view that moves is not told, nor the new one yet", []*pair{milan("shop"), oslo("shop")},
			func(f *facts) { f.property.Reserved = []netip.Prefix{netip.MustParsePrefix(at81)} }, []string{own, own + " " + at80}, ""},
		{"who is gone is not told of", []*pair{milan("shop"), oslo("shop")}, func(f *facts) { f.pairs[1].wanted = false }, []string{own, ""}, ""},
		{"who has not spoken has nothing", []*pair{milan("shop"), oslo("shop")}, func(f *facts) { f.pairs[1].provider = nil }, []string{own, own + " " + at80}, ""},
		{"a tenant is neither told nor told of, whatever he publishes", []*pair{milan("shop"), provided("rome", noon, at81, "10.9.0.0/16")}, func(f *facts) {
			f.pairs[1].spaces = map[string]bool{"shop": true}
		}, []string{own, own}, ""},
		{"no more than a peer takes", []*pair{milan("a"), consumed("oslo", noon.Add(time.Hour), "a", many(14)...), consumed("bern", noon.Add(2*time.Hour), "a", "10.8.0.0/16", "10.8.0.0/16")}, nil,
			[]string{own + " " + joined(many(14)) + " 10.8.0.0/16", own + " " + at80 + " 10.8.0.0/16", own + " " + at80 + " " + joined(many(14))}, ""},
		{"the oldest first, and the rest is told of", []*pair{milan("a"), consumed("oslo", noon.Add(time.Hour), "a", many(15)...), consumed("bern", noon.Add(2*time.Hour), "a", "10.8.0.0/16", "10.8.0.0/16")}, nil,
			[]string{own + " " + joined(many(15)), own + " " + at80 + " 10.8.0.0/16", own + " " + at80 + " " + joined(many(14))}, "milan is told of at most 16 ranges, so that its pods do not reach all those at bern"},
		{"its own ranges go first", []*pair{milan("shop"), oslo("shop")}, func(f *facts) { f.property.Pods = prefixes(strings.Fields(joined(many(20)))) },
			[]string{joined(many(20)), joined(many(20))}, "all those at oslo"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			f := usual(c.pairs...)
			f.agents = []agent{{node: "a", alive: true, reports: map[string]v1alpha1.TunnelReport{c.pairs[0].key: {Alive: true}}}}
			f.property.External = nil
			if c.change != nil {
				c.change(f)
			}
			d := decide(f)
			for i, p := range c.pairs {
				if got := strings.Join(d.specs[p].Pods, " "); got != c.want[i] {
					t.Errorf("%s is told %q, want %q", p.peer, got, c.want[i])
				}
			}
			if got := d.conditions[c.pairs[0].peering]; got.Status != metav1.ConditionTrue || !strings.Contains(got.Message, c.untold) || (c.untold == "") != (got.Message == "") {
				t.Errorf("NetworkReady of %s: %s %s, want %q", c.pairs[0].peer, got.Status, got.Message, c.untold)
			}
		})
	}
}

// TestDecideHop is what a tenant and a provider are told of each other, who has a namespace of the tenant's too.
func TestDecideHop(t *testing.T) {
	const own, at80, at81, theirs = "10.42.0.0/16", "10.80.0.0/16", "10.81.0.0/16", "10.9.0.0/16"
	milan := func(spaces string) *pair {
		p := provided("milan", noon, own)
		p.hosts = map[string]bool{}
		for _, space := range strings.Fields(spaces) {
			p.hosts[space] = true
		}
		p.consumer.Status.Views = []v1alpha1.NetworkView{{Real: own, View: at80}}
		return p
	}
	oslo := func(spaces string) *pair { return consumed("oslo", noon.Add(time.Hour), spaces, own, at81) }
	const bare = " is not told of the pods at %s, whose addresses this cluster sees as they are: set spec.translate"
	for _, c := range []struct {
		reason string
		pairs  []*pair
		change func(f *facts)
		want   []string // by pair: ranges, and after a stroke what of these is transit
		says   []string // by pair: NetworkReady, nothing if empty
	}{
		{"a namespace of the one is at the other", []*pair{milan("shop-milan bank-milan"), oslo("inn shop-milan")}, nil, []string{own + " " + at81 + "|" + at81, own + " " + at80 + "|" + at80}, nil},
		{"none is", []*pair{milan("shop-milan"), oslo("shop")}, nil, []string{own + "|", own + "|"}, nil},
		{"the tenant has none here", []*pair{milan(""), oslo("shop-milan")}, nil, []string{own + "|", own + "|"}, nil},
		{"of two providers, the one where it is", []*pair{milan("shop-milan"), oslo("shop-milan"), consumed("bern", noon.Add(2*time.Hour), "inn", theirs, theirs)}, nil,
			[]string{own + " " + at81 + "|" + at81, own + " " + at80 + "|" + at80, own + "|"}, nil},
		{"tenants are told nothing of each other", []*pair{milan("a"), func() *pair {
			p := provided("turin", noon.Add(time.Hour), own)
			p.hosts, p.spaces = map[string]bool{"a": true}, map[string]bool{"a": true}
			p.consumer.Status.Views = []v1alpha1.NetworkView{{Real: own, View: at81}}
			return p
		}()}, nil, []string{own + "|", own + "|"}, nil},
		{"what the tenant has from others goes nowhere", []*pair{milan("shop-milan"), oslo("shop-milan")}, func(f *facts) {
			c := f.pairs[0].consumer
			c.Spec.Pods, c.Spec.Transit = append(c.Spec.Pods, theirs), []string{theirs}
			c.Status.Views = append(c.Status.Views, v1alpha1.NetworkView{Real: theirs, View: "10.7.0.0/16"})
		}, []string{own + " " + at81 + "|" + at81, own + " " + at80 + "|" + at80}, nil},
		{"nor what the provider has", []*pair{milan("shop-milan"), oslo("shop-milan")}, func(f *facts) { f.pairs[1].provider.Spec.Transit = []string{own} }, []string{own + "|", own + " " + at80 + "|" + at80}, nil},
		{"nor to another provider", []*pair{oslo("shop"), consumed("bern", noon.Add(2*time.Hour), "shop", theirs, theirs)}, func(f *facts) { f.pairs[0].provider.Spec.Transit = []string{own} },
			[]string{own + " " + theirs + "|" + theirs, own + "|"}, nil},
		{"a provider seen as it is would be shown", []*pair{milan("shop-milan"), consumed("oslo", noon.Add(time.Hour), "shop-milan", theirs, theirs)}, nil,
			[]string{own + "|", own + " " + at80 + "|" + at80}, []string{"milan" + fmt.Sprintf(bare, "oslo"), ""}},
		{"so would a tenant", []*pair{func() *pair {
			p := milan("shop-milan")
			p.consumer.Spec.Pods, p.consumer.Status.Views = []string{theirs}, []v1alpha1.NetworkView{{Real: theirs, View: theirs}}
			return p
		}(), oslo("shop-milan")}, nil, []string{own + " " + at81 + "|" + at81, own + "|"}, []string{"", "oslo" + fmt.Sprintf(bare, "milan")}},
		{"one that is to be translated moves first, and is told of when that is stored", []*pair{milan("shop-milan"), func() *pair {
			p := consumed("oslo", noon.Add(time.Hour), "shop-milan", theirs, theirs)
			p.translate = true
			return p
		}()}, nil, []string{own + "|", own + " " + at80 + "|" + at80}, nil},
		{"to other providers what is seen as it is goes on as ever", []*pair{oslo("shop"), consumed("bern", noon.Add(2*time.Hour), "shop", theirs, theirs)}, nil,
			[]string{own + " " + theirs + "|" + theirs, own + " " + at81 + "|" + at81}, nil},
		{"a tenant that ends", []*pair{milan("shop-milan"), oslo("shop-milan")}, func(f *facts) { f.pairs[0].wanted = false }, []string{"|", own + "|"}, nil},
	} {
		t.Run(c.reason, func(t *testing.T) {
			f := usual(c.pairs...)
			reports := map[string]v1alpha1.TunnelReport{}
			for _, p := range c.pairs {
				reports[p.key] = v1alpha1.TunnelReport{Alive: true}
			}
			f.agents, f.property.External = []agent{{node: "a", alive: true, reports: reports}}, nil
			if c.change != nil {
				c.change(f)
			}
			d := decide(f)
			for i, p := range c.pairs {
				if got := strings.Join(d.specs[p].Pods, " ") + "|" + strings.Join(d.specs[p].Transit, " "); got != c.want[i] {
					t.Errorf("%s is told %q, want %q", p.peer, got, c.want[i])
				}
				want := ""
				if c.says != nil {
					want = c.says[i]
				}
				if got := d.conditions[p.peering]; p.wanted && (got.Status != metav1.ConditionTrue || !strings.HasPrefix(got.Message, want) || (want == "") != (got.Message == "")) {
					t.Errorf("NetworkReady of %s: %s %s, want %q", p.peer, got.Status, got.Message, want)
				}
			}
		})
	}
}

// joined is every other one, as in views.
func joined(views []string) string {
	var all []string
	for pair := range slices.Chunk(views, 2) {
		all = append(all, pair[0])
	}
	return strings.Join(all, " ")
}

// told holds, after each write, that what who has two peers publishes beside its own range is a view
// that is stored: agents would take anything else for its own.
func (s *side) told() {
	s.world.t.Helper()
	if len(s.sees) < 2 {
		return
	}
	stored := map[string]bool{"10.42.0.0/16": true}
	var configs []v1alpha1.NetworkConfig
	for _, namespace := range s.sees {
		list := &v1alpha1.NetworkConfigList{}
		if err := s.world.raw.List(ctx, list, client.InNamespace(namespace)); err != nil {
			s.world.t.Fatal(err)
		}
		configs = append(configs, list.Items...)
	}
	own := func(c v1alpha1.NetworkConfig) bool {
		return strings.HasPrefix(c.Namespace, v1alpha1.TenantNamespacePrefix) == (c.Name == v1alpha1.NetworkProvider)
	}
	for _, c := range configs {
		for _, v := range c.Status.Views {
			stored[v.View] = stored[v.View] || !own(c)
		}
	}
	for _, c := range configs {
		for _, r := range c.Spec.Pods {
			if own(c) && !stored[r] {
				s.world.t.Errorf("%s is told of %s, which is no view that is stored", c.Namespace, r)
			}
		}
	}
}

// another gives a side one provider more, of the same addresses.
func (w *world) another(s *side) (name string) {
	w.t.Helper()
	name = s.peer + "-oslo"
	namespace := v1alpha1.PeeringNamespace(name)
	w.space(namespace, map[string]string{v1alpha1.LabelPeering: name})
	s.sees = append(s.sees, namespace)
	p := w.create(&v1alpha1.Peering{ObjectMeta: named(name), Spec: v1alpha1.PeeringSpec{ClusterID: string(uuid.NewUUID()),
		Consume: &v1alpha1.Consume{AuthURL: "https://192.0.2.1:1", CASHA256: v1alpha1.TokenHash("x")}}}).(*v1alpha1.Peering)
	p.Status.Remote = &v1alpha1.ClusterInfo{ID: p.Spec.ClusterID, Name: "x", Features: []string{v1alpha1.FeatureNetwork}}
	w.status(p)
	w.settle()
	c := &v1alpha1.NetworkConfig{ObjectMeta: at(namespace, v1alpha1.NetworkProvider)}
	w.change(c, `{"spec":{"pods":["10.42.0.0/16"],"external":["10.255.255.0/24"],"publicKey":%q}}`, keyOf(7).Public())
	w.settle()
	return name
}

// offloads says which namespaces may run at a provider.
func (w *world) offloads(peering string, spaces ...string) {
	w.t.Helper()
	m := &v1alpha1.NamespaceMap{ObjectMeta: at(v1alpha1.PeeringNamespace(peering), "namespaces")}
	m.Spec.Namespaces = map[string]v1alpha1.NamespaceMapping{}
	for _, space := range spaces {
		m.Spec.Namespaces[space] = v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName}
	}
	_ = w.raw.Delete(ctx, m.DeepCopy())
	if len(spaces) > 0 {
		w.create(m)
	}
	w.settle()
}

// TestTransit: two providers are told of each other's pods as long as they share a namespace, and
// rome tells each where it reaches those of the other.
func TestTransit(t *testing.T) {
	w := newWorld(t)
	w.settle()
	milan, oslo := w.rome.peer, w.another(w.rome)
	ranges := func(peering string) []string {
		t.Helper()
		c := &v1alpha1.NetworkConfig{}
		if err := w.raw.Get(ctx, client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(peering), Name: v1alpha1.NetworkConsumer}, c); err != nil {
			t.Fatal(err)
		}
		return c.Spec.Pods
	}
	view := func(peering string) string {
		t.Helper()
		a, ok := w.rome.network.View(peering, addr("10.42.0.0"))
		if !ok {
			t.Fatalf("rome has no view of %s", peering)
		}
		return a.String() + "/16"
	}
	published := func(reason string, toMilan, toOslo []string) {
		t.Helper()
		if d := cmp.Diff(toMilan, ranges(milan)); d != "" {
			t.Errorf("%s: to milan (-want +got):\n%s", reason, d)
		}
		if d := cmp.Diff(toMilan, w.milan.pair(v1alpha1.NetworkConsumer).Spec.Pods); d != "" {
			t.Errorf("%s: at milan (-want +got):\n%s", reason, d)
		}
		if d := cmp.Diff(toOslo, ranges(oslo)); d != "" {
			t.Errorf("%s: to oslo (-want +got):\n%s", reason, d)
		}
		if d := cmp.Diff([]string{"10.42.0.0/16"}, w.milan.pair(v1alpha1.NetworkProvider).Spec.Pods); d != "" {
			t.Errorf("%s: milan, of itself (-want +got):\n%s", reason, d)
		}
	}
	const own = "10.42.0.0/16"
	alone := []string{own}
	published("nothing is offloaded", alone, alone)
	w.offloads(milan, "shop", "bank")
	published("one has nothing", alone, alone)
	w.offloads(oslo, "inn")
	published("they have different namespaces", alone, alone)
	w.offloads(oslo, "shop", "inn")
	published("they share one", []string{own, view(oslo)}, []string{own, view(milan)})
	if view(oslo) == own || view(milan) == own || view(milan) == view(oslo) {
		t.Fatalf("rome sees milan as %s and oslo as %s", view(milan), view(oslo))
	}
	here, _ := w.rome.network.View(oslo, addr("10.42.3.4"))
	there, ok := w.rome.network.Translate(milan, here)
	if !ok || there.As4()[3] != 4 || !w.milan.network.Allows(w.milan.peer, there) {
		t.Errorf("a pod of oslo's, %v at rome, is %v at milan (%v)", here, there, ok)
	}
	if _, ok := w.rome.network.Translate(oslo, here); ok {
		t.Error("a pod of oslo's has an address of rome's at oslo")
	}
	before := w.writes
	w.rome.restart()
	w.settle()
	if w.writes != before {
		t.Errorf("a new process writes\n%s", w.since(before))
	}
	for _, peering := range []string{oslo, milan} { // the younger one, and the older one
		was := view(peering)
		w.rome.config.Network.Reserved = append(w.rome.config.Network.Reserved, was)
		w.settle()
		if view(peering) == was {
			t.Fatalf("rome sees %s as %s still", peering, was)
		}
		published("a view has moved", []string{own, view(oslo)}, []string{own, view(milan)})
	}
	here, _ = w.rome.network.View(oslo, addr("10.42.3.4"))
	if _, ok := w.rome.network.Translate(milan, here); !ok {
		t.Error("milan has no address of oslo's pods by the new view")
	}
	w.offloads(milan, "bank")
	published("they share none any more", alone, alone)
	if _, ok := w.rome.network.Translate(milan, here); ok {
		t.Error("milan has an address of oslo's pods still")
	}
	w.offloads(milan, "shop")
	published("they share one again", []string{own, view(oslo)}, []string{own, view(milan)})
	p := &v1alpha1.Peering{ObjectMeta: named(oslo)}
	if err := w.raw.Delete(ctx, p); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if d := cmp.Diff(alone, ranges(milan)); d != "" {
		t.Errorf("oslo is gone (-want +got):\n%s", d)
	}
}
