package network

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// keyOf is a private key that follows from a number.
func keyOf(n byte) tunnel.Secret {
	s, err := tunnel.SecretOf(append(make([]byte, 31), n))
	if err != nil {
		panic(err)
	}
	return s
}

// provided is a peering in which this cluster is the provider, and has published.
func provided(name string, since time.Time, ranges ...string) *pair {
	p := &pair{namespace: v1alpha1.TenantNamespace(name), key: providerKey(name), peering: name, peer: name, since: since, wanted: true,
		consumer: &v1alpha1.NetworkConfig{}, provider: &v1alpha1.NetworkConfig{}}
	p.consumer.Spec = v1alpha1.NetworkConfigSpec{Pods: ranges, PublicKey: keyOf(9).Public().String()}
	p.consumer.Generation = 1
	return p
}

// usual is what a cluster with usual ranges knows.
func usual(pairs ...*pair) *facts {
	f := &facts{now: noon, settings: home.Network{Port: 7100}, pairs: pairs, locks: map[string]lock{}, nodes: map[string]*corev1.Node{}}
	f.property = own(grounds{settings: home.Network{Pods: []string{"10.42.0.0/16"}, Services: []string{"10.43.0.0/16"}, Pools: []string{"10.80.0.0/15"}}})
	for i, p := range pairs {
		f.locks[p.key] = lock{key: keyOf(byte(i + 1)), made: noon}
		f.peerings = append(f.peerings, p.peering)
	}
	return f
}

// TestDecideTellsNothing holds that what is wrong with pools here names other peers to the
// owner, and neither them nor anything of ours to a peer.
func TestDecideTellsNothing(t *testing.T) {
	first, second := provided("naples", noon.Add(-time.Hour), "10.42.0.0/16"), provided("rome", noon, "10.42.0.0/16")
	first.consumer.Spec.External, second.consumer.Spec.External = nil, nil
	f := usual(first, second)
	d := decide(f)
	if got := d.statuses[first].Views; len(got) != 1 || got[0].View != "10.80.0.0/16" {
		t.Errorf("who was first has %v, want the /16 that has no external address", got)
	}
	s := d.statuses[second]
	c := s.Conditions[0]
	if len(s.Views) != 0 || c.Reason != v1alpha1.ReasonPoolExhausted || c.Message != "no prefix is left by which to see 10.42.0.0/16" {
		t.Errorf("who came too late is told %s: %s, and has %v", c.Reason, c.Message, s.Views)
	}
	own := d.conditions["rome"]
	if own == nil || own.Reason != v1alpha1.ReasonPoolExhausted || !strings.Contains(own.Message, "tenant-naples") || !strings.Contains(own.Message, "add a pool") {
		t.Errorf("the owner is told %+v", own)
	}
}

// TestDecideFamilies holds that ranges of a family that no pod here has get no view, unless there is
// no other.
func TestDecideFamilies(t *testing.T) {
	for _, c := range []struct {
		ranges []string
		want   int
	}{
		{[]string{"10.9.0.0/16", "fd09::/48"}, 1}, {[]string{"10.9.0.0/16"}, 1}, {[]string{"fd09::/48"}, 1},
	} {
		p := provided("rome", noon, c.ranges...)
		p.consumer.Spec.External = nil
		p.consumer.Status.Views = []v1alpha1.NetworkView{{Real: "fd09::/48", View: "fd09::/48"}}
		d := decide(usual(p))
		if got := d.statuses[p].Views; len(got) != c.want || got[0].Real != c.ranges[0] || len(d.events) != 0 {
			t.Errorf("%v are seen as %v, events %v", c.ranges, got, d.events)
		}
	}
}

// TestDecideMoved holds that a view that is lost is told to the owner with the reason.
func TestDecideMoved(t *testing.T) {
	p := provided("rome", noon, "10.9.0.0/16")
	p.consumer.Status.Views = []v1alpha1.NetworkView{{Real: "10.9.0.0/16", View: "10.42.0.0/16"}}
	d := decide(usual(p))
	if got := d.statuses[p].Views; len(got) != 1 || got[0].View != "10.9.0.0/16" {
		t.Errorf("views %v", got)
	}
	if len(d.events) != 1 || d.events[0].reason != v1alpha1.ReasonViewMoved || !strings.Contains(d.events[0].text, "it overlaps the pods here") || !strings.Contains(d.events[0].text, "10.9.0.0/16 now") {
		t.Errorf("told: %+v", d.events)
	}
}

// TestUnnamed is of whom is said that pods there do not find names of this cluster's own domain.
func TestUnnamed(t *testing.T) {
	older, current := &v1alpha1.ClusterInfo{Features: []string{v1alpha1.FeaturePeering}}, &v1alpha1.ClusterInfo{Features: []string{v1alpha1.FeatureDomains}}
	for _, c := range []struct {
		domain string
		there  *v1alpha1.ClusterInfo
		want   string
	}{
		{"", older, ""},
		{"cluster.local.", older, ""},
		{"rome.example", older, "older"},
		{"rome.example", nil, ""}, // nothing is known of it yet
		{"rome.example", current, ""},
		{strings.Repeat("a", 64), current, "63 characters"},
	} {
		if got := unnamed(c.domain, c.there); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q, %v: %q, want %q", c.domain, c.there, got, c.want)
		}
	}
}

// TestDecideReady is what the condition NetworkReady says, the first thing that is wrong.
func TestDecideReady(t *testing.T) {
	alive := func(f *facts, r v1alpha1.TunnelReport) {
		f.agents = []agent{{node: "a", alive: true, reports: map[string]v1alpha1.TunnelReport{f.pairs[0].key: r}}}
	}
	cases := []struct {
		reason string
		change func(f *facts, p *pair)
		want   string // of status/reason: message
	}{
		{"all is well", func(*facts, *pair) {}, "True/Ready: "},
		{"the ranges here are not known", func(f *facts, _ *pair) {
			f.property.reason, f.property.problem = v1alpha1.ReasonRangesUnknown, "set it"
		}, "False/RangesUnknown: set it"},
		{"pods have other addresses", func(f *facts, _ *pair) { f.stray = "pods here" }, "False/RangesUnknown: pods here"},
		{"pods have addresses of other nodes' ranges", func(f *facts, p *pair) {
			f.astray, p.consumes, p.consumer, p.provider = "pods here", true, p.provider, p.consumer
		}, "True/Ready: pods here"},
		{"this cluster has another domain than its pods are told there", func(f *facts, p *pair) {
			f.domain, p.unnamed, p.consumes, p.consumer, p.provider = "rome.example", "it is older", true, p.provider, p.consumer
		}, "True/Ready: pods at rome do not find names that end in rome.example, this cluster's own domain, as it is older;"},
		{"they are told of it", func(f *facts, p *pair) {
			f.domain, p.consumes, p.consumer, p.provider = "rome.example", true, p.provider, p.consumer
		}, "True/Ready: $"},
		{"it has another one, and is a provider only", func(f *facts, p *pair) { f.domain, p.unnamed = "rome.example", "it is older" }, "True/Ready: $"},
		{"and none is to call", func(f *facts, _ *pair) { f.astray = "pods here" }, "True/Ready: "},
		{"that and no answer from the tunnel", func(f *facts, p *pair) {
			f.astray, p.consumes, p.consumer, p.provider = "pods here", true, p.provider, p.consumer
			alive(f, v1alpha1.TunnelReport{})
		}, "False/TunnelDown: nothing has come back"},
		{"there is no key", func(f *facts, _ *pair) { f.locks = nil }, "False/Waiting: the private key"},
		{"the keys cannot be read", func(f *facts, _ *pair) { f.locks, f.unread = nil, "no answer" }, "False/Waiting: the private key of the tunnel is not known: no answer"},
		{"they were read before", func(f *facts, _ *pair) { f.unread = "no answer" }, "True/Ready: $"},
		{"the other side has not spoken", func(_ *facts, p *pair) { p.consumer.Spec = v1alpha1.NetworkConfigSpec{} }, "False/Waiting: rome has published nothing yet"},
		{"the other side's object is not there yet", func(_ *facts, p *pair) { p.consumer = nil }, "False/Waiting: rome has published nothing yet"},
		{"its ranges make no sense", func(_ *facts, p *pair) { p.consumer.Spec.Pods = []string{"0.0.0.0/0"} }, "False/RangesRefused: of rome: 0.0.0.0/0 is larger than a /8"},
		{"it refuses ours, in words of its own", func(_ *facts, p *pair) {
			p.provider.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "RangesRefused", Message: "no\x1b[31m\nway"}}
		}, "False/RangesRefused: rome says: no [31m way"},
		{"it says what means nothing here", func(_ *facts, p *pair) {
			p.provider.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "Ready"}}
		}, "True/Ready: "},
		{"nobody can be gateway", func(f *facts, _ *pair) { f.agents[0].alive = false }, "False/AgentsMissing: "},
		{"the gateway says nothing yet", func(f *facts, _ *pair) { f.agents[0].reports = nil }, "False/Waiting: waiting for a "},
		{"more may be reached than count", func(f *facts, _ *pair) { alive(f, v1alpha1.TunnelReport{Alive: true, Unreached: 7}) }, "True/Ready: 7 addresses, the highest, are not reached"},
		{"the tunnel has never lived", func(f *facts, _ *pair) { alive(f, v1alpha1.TunnelReport{}) }, "False/TunnelDown: nothing has come back yet"},
		{"the tunnel is dead", func(f *facts, _ *pair) { alive(f, v1alpha1.TunnelReport{Since: &metav1.Time{Time: noon}}) }, "since 2026-11-22T12:00:00Z"},
		{"there is no tunnel", func(f *facts, _ *pair) { alive(f, v1alpha1.TunnelReport{Problem: "no port"}) }, "False/TunnelDown: a has no tunnel to rome: no port"},
		{"a report of another tunnel is none", func(f *facts, _ *pair) {
			f.agents[0].reports = map[string]v1alpha1.TunnelReport{"tenant-other": {Alive: true}}
		}, "False/Waiting: waiting for a "},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			p := provided("rome", noon, "10.9.0.0/16")
			f := usual(p)
			alive(f, v1alpha1.TunnelReport{Alive: true})
			c.change(f, p)
			d := decide(f)
			got := d.conditions["rome"]
			if text := string(got.Status) + "/" + got.Reason + ": " + got.Message + "$"; !strings.Contains(text, c.want) {
				t.Errorf("got %s, want %s", text, c.want)
			}
			if heard(f.agents)[p.key] != (strings.HasPrefix(c.want, "True") || !strings.Contains(c.want, "Tunnel") && !strings.Contains(c.want, "since") && !strings.Contains(c.want, "Agents") && !strings.Contains(c.want, "waiting for a")) {
				t.Errorf("the tunnel lives: %v", heard(f.agents)[p.key])
			}
		})
	}
}

// TestOwn is what a cluster finds out about itself.
func TestOwn(t *testing.T) {
	node := func(ip string, cidrs ...string) *corev1.Node {
		n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "x"}, {Type: corev1.NodeInternalIP, Address: ip}}
		return n
	}
	cases := []struct {
		reason         string
		g              grounds
		pods, external []string
		problem        string
	}{
		{"nodes of one /16 have that, however few they are", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.3.0/24")}},
			[]string{"10.42.0.0/16"}, []string{"10.255.255.0/24"}, ""},
		{"a larger pod network is what holds all of it", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.32.0.0/24"), node("192.168.0.2", "10.47.255.0/24")}},
			[]string{"10.32.0.0/12"}, []string{"10.255.255.0/24"}, ""},
		{"both families", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24", "fd00:42::/64"), node("192.168.0.2", "10.42.1.0/24", "fd00:42:0:1::/64")},
			settings: home.Network{Pools: []string{"10.80.0.0/12", "fd12::/40"}}},
			[]string{"10.42.0.0/16", "fd00:42::/56"}, []string{"10.95.255.0/24", "fd12:0:ff:ffff:ffff:ffff:ffff:ff00/120"}, ""},
		{"nothing else of ours is claimed with it", grounds{nodes: []*corev1.Node{node("10.0.200.1", "10.0.0.0/24", "10.0.1.0/24")}, settings: home.Network{Services: []string{"10.0.128.0/18"}}},
			[]string{"10.0.0.0/17"}, []string{"10.255.255.0/24"}, ""},
		{"settings win", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24")}, settings: home.Network{Pods: []string{"10.7.0.0/16"}, External: []string{"10.8.0.0/28"}}},
			[]string{"10.7.0.0/16"}, []string{"10.8.0.0/28"}, ""},
		{"nothing is known", grounds{nodes: []*corev1.Node{node("192.168.0.1")}}, nil, nil, "set network.pods"},
		{"nothing is known any more", grounds{nodes: []*corev1.Node{node("192.168.0.1")}, published: prefixes([]string{"10.42.0.0/16"})},
			[]string{"10.42.0.0/16"}, []string{"10.255.255.0/24"}, "set network.pods"},
		{"nodes that go narrow nothing, nor do those that go elsewhere widen it", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24", "fd00:42::/64")}, published: prefixes([]string{"fd00::/48", "10.42.0.0/15", "fd00:42::/60"}),
			settings: home.Network{Pools: []string{"10.80.0.0/12", "fd12::/40"}}},
			[]string{"10.42.0.0/15", "fd00:42::/60"}, []string{"10.95.255.0/24", "fd12:0:ff:ffff:ffff:ffff:ffff:ff00/120"}, ""},
		{"but where something else of ours has come", grounds{nodes: []*corev1.Node{node("10.43.200.1", "10.42.0.0/24")}, published: prefixes([]string{"10.42.0.0/15"})},
			[]string{"10.42.0.0/16"}, []string{"10.255.255.0/24"}, ""},
		{"and what is in no such range", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24"), node("192.168.0.2", "10.44.0.0/24")}, published: prefixes([]string{"10.42.0.0/15"})},
			[]string{"10.40.0.0/13"}, []string{"10.255.255.0/24"}, ""},
		{"external addresses stay what they were", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24")}, before: prefixes([]string{"10.42.9.0/24", "172.20.3.0/24", "172.20.4.0/24"})},
			[]string{"10.42.0.0/16"}, []string{"172.20.3.0/24"}, ""},
		{"and leave views alone", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24")}, views: prefixes([]string{"10.255.0.0/16"})},
			[]string{"10.42.0.0/16"}, []string{"10.254.255.0/24"}, ""},
		{"what nodes are connected to is no external address, and the next pool serves", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24")}, connected: prefixes([]string{"10.0.0.0/8"})},
			[]string{"10.42.0.0/16"}, []string{"172.31.255.0/24"}, ""},
		{"nor moves those that there are", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24")}, connected: prefixes([]string{"10.0.0.0/8"}), before: prefixes([]string{"10.255.255.0/24"})},
			[]string{"10.42.0.0/16"}, []string{"10.255.255.0/24"}, ""},
		{"routes of a CNI do not narrow the ranges of pods", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24"), node("192.168.0.2", "10.42.1.0/24")},
			connected: prefixes([]string{"10.42.0.0/24", "10.42.1.0/24", "10.42.200.0/24"})}, []string{"10.42.0.0/16"}, []string{"10.255.255.0/24"}, ""},
		{"nor do reserved networks that hold all pods, of which none is left out by a narrower range", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24")}, settings: home.Network{Reserved: []string{"10.0.0.0/8"}}},
			[]string{"10.42.0.0/16"}, []string{"172.31.255.0/24"}, ""},
		{"nor move them when they come", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/23")}, settings: home.Network{Reserved: []string{"10.42.0.0/23"}}, published: prefixes([]string{"10.42.0.0/16"})},
			[]string{"10.42.0.0/16"}, []string{"10.255.255.0/24"}, ""},
		{"nor do those among pods, which no range leaves out", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24"), node("192.168.0.2", "10.42.3.0/24")}, settings: home.Network{Reserved: []string{"10.42.0.0/28", "10.42.2.0/24"}}},
			[]string{"10.42.0.0/16"}, []string{"10.255.255.0/24"}, ""},
		{"but those beside pods do", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24")}, settings: home.Network{Reserved: []string{"10.0.0.0/8", "10.42.128.0/17"}}, published: prefixes([]string{"10.42.0.0/16"})},
			[]string{"10.42.0.0/17"}, []string{"172.31.255.0/24"}, ""},
		{"a cluster without room for them says so", grounds{nodes: []*corev1.Node{node("192.168.0.1", "10.42.0.0/24")}, settings: home.Network{Pools: []string{"10.42.0.0/16"}}},
			[]string{"10.42.0.0/16"}, nil, "set network.external"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			p := own(c.g)
			if d := cmp.Diff(c.pods, texts(p.Pods)); d != "" {
				t.Errorf("pods (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.external, texts(p.External)); d != "" {
				t.Errorf("external (-want +got):\n%s", d)
			}
			if (c.problem == "") != (p.problem == "") || !strings.Contains(p.problem, c.problem) {
				t.Errorf("problem %q, want %q", p.problem, c.problem)
			}
		})
	}
}

// TestTurn is the life of a key.
func TestTurn(t *testing.T) {
	fresh := func() (tunnel.Secret, error) { return keyOf(77), nil }
	one, two := lock{key: keyOf(1), made: noon, asked: "a"}, lock{key: keyOf(1), next: keyOf(2), made: noon, asked: "b"}
	cases := []struct {
		reason   string
		have     lock
		asked    string
		inUse    bool
		now      time.Time
		want     lock
		replaced bool
	}{
		{"the first key; what was asked before is answered by it", lock{}, "a", false, noon, lock{key: keyOf(77), made: noon, asked: "a"}, false},
		{"nothing is asked", one, "a", false, noon.Add(time.Hour), one, false},
		{"nothing is asked any more", one, "", false, noon, one, false},
		{"a new value asks for a next key", one, "b", false, noon, lock{key: keyOf(1), next: keyOf(77), made: noon, asked: "b"}, false},
		{"age does so too", one, "a", false, noon.Add(keyLife), lock{key: keyOf(1), next: keyOf(77), made: noon, asked: "a"}, false},
		{"so does a clock that was far ahead", one, "a", false, noon.Add(-2 * keyLife), lock{key: keyOf(1), next: keyOf(77), made: noon, asked: "a"}, false},
		{"the next key waits to be used", two, "b", false, noon.Add(time.Hour), two, false},
		{"however long, and whatever else is asked", two, "c", false, noon.Add(3 * keyLife), two, false},
		{"in use, it takes over", two, "b", true, noon.Add(time.Hour), lock{key: keyOf(2), made: noon.Add(time.Hour), asked: "b"}, true},
		{"what was asked meanwhile comes after", lock{key: keyOf(2), made: noon, asked: "b"}, "c", true, noon, lock{key: keyOf(2), next: keyOf(77), made: noon, asked: "c"}, false},
		{"a very long value is remembered as far as it is compared", lock{key: keyOf(1), made: noon, asked: strings.Repeat("x", maxRotate)}, strings.Repeat("x", 5000), false, noon,
			lock{key: keyOf(1), made: noon, asked: strings.Repeat("x", maxRotate)}, false},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			got, replaced, err := c.have.turn(c.asked, c.inUse, c.now, fresh)
			if err != nil || replaced != c.replaced || !got.equal(c.want) {
				t.Errorf("got %s next %s %v %q (%v, %v), want %s next %s %v %q", got.key.Public(), got.next.Public(), got.made, got.asked, replaced, err,
					c.want.key.Public(), c.want.next.Public(), c.want.made, c.want.asked)
			}
		})
	}
}

// TestPublished is what of keys is said to the other side.
func TestPublished(t *testing.T) {
	first, second, other := keyOf(1).Public().String(), keyOf(2).Public().String(), keyOf(3).Public().String()
	one, two := lock{key: keyOf(1)}, lock{key: keyOf(1), next: keyOf(2)}
	for _, c := range []struct {
		reason        string
		l             lock
		before, known string
		key, next     string
	}{
		{"one key", one, "", "", first, ""},
		{"whatever was said before", one, other, other, first, ""},
		{"the next one is told of", two, first, "", first, second},
		{"another that is known is not it", two, first, other, first, second},
		{"known, it takes over", two, first, second, second, ""},
		{"and stays, though the other side has nothing to know any more", two, second, "", second, ""},
	} {
		if key, next := c.l.published(c.before, c.known); key != c.key || next != c.next {
			t.Errorf("%s: got %s next %s, want %s next %s", c.reason, key, next, c.key, c.next)
		}
	}
}

// TestLocked stores keys as WireGuard's tools write them, reads them back, and shows them in no
// other way.
func TestLocked(t *testing.T) {
	locks := map[string]lock{"peering-milan": {key: keyOf(1), next: keyOf(2), made: noon, asked: "x"}, "tenant-rome": {key: keyOf(3), made: noon.Add(-time.Hour)}}
	s := &corev1.Secret{Data: map[string][]byte{"old": []byte("x"), "tenant-gone": []byte("y")}}
	if err := locked(s, locks); err != nil {
		t.Fatal(err)
	}
	got := unlocked(s)
	if len(s.Data) != 3 || len(got) != 2 || !got["peering-milan"].equal(locks["peering-milan"]) || !got["tenant-rome"].equal(locks["tenant-rome"]) {
		t.Errorf("%d entries, read back as %d", len(s.Data), len(got))
	}
	text := base64.StdEncoding.EncodeToString(append(make([]byte, 31), 1))
	if string(s.Data["peering-milan"]) != text {
		t.Error("the key is not in base64")
	}
	if shown := fmt.Sprintf("%v %+v %#v", locks, locks, s.Annotations); strings.Contains(shown, text) || strings.Contains(shown, "31 0 0") {
		t.Errorf("a private key is shown: %s", shown)
	}
	s.Data["tenant-rome"] = []byte("garbage")
	if _, has := unlocked(s)["tenant-rome"]; has {
		t.Error("garbage is taken for a key")
	}
}

// TestEndpoints is where peers are told to find the gateway.
func TestEndpoints(t *testing.T) {
	nodes := map[string]*corev1.Node{}
	var names []string
	for i := range 12 {
		n := &corev1.Node{}
		n.Name = fmt.Sprintf("n%d", i)
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", i)}, {Type: corev1.NodeExternalIP, Address: fmt.Sprintf("198.51.100.%d", i)}}
		nodes[n.Name] = n
		names = append(names, n.Name)
	}
	milan := &pair{key: "peering-milan"}
	of := func(candidates, away []string) []string {
		return (&facts{candidates: candidates, away: away, nodes: nodes}).endpoints(milan, 7103)
	}
	got := of(names, nil)
	if len(got) != maxEndpoints || !strings.HasPrefix(got[0], "198.51.100.") || !strings.HasPrefix(got[1], "10.0.0.") || !strings.HasSuffix(got[0], ":7103") {
		t.Errorf("endpoints %v", got)
	}
	slices.Reverse(names)
	if d := cmp.Diff(got, of(names, nil)); d != "" {
		t.Errorf("the order of nodes matters:\n%s", d)
	}
	if got := of([]string{"gone"}, nil); got != nil {
		t.Errorf("endpoints of a node that is gone: %v", got)
	}
	first, last := names[:1], names[1:2]
	for _, these := range [][2][]string{{first, last}, {last, first}} {
		want := slices.Concat(of(these[0], nil), of(these[1], nil))
		if d := cmp.Diff(want, of(these[0], these[1])); d != "" || len(want) != 4 {
			t.Errorf("a node whose agent is away (-want +got):\n%s", d)
		}
	}
	if got := of(first, names[1:]); len(got) != 2*(1+maxAway) {
		t.Errorf("%d endpoints of a node and of those whose agents are away: %v", len(got), got)
	}
	if got := of(nil, names); got != nil {
		t.Errorf("endpoints though all agents are away: %v", got)
	}
	f := &facts{settings: home.Network{Endpoints: []string{"gw.example.org", "198.51.100.7:51820", "2001:db8::1"}}, candidates: names, nodes: nodes}
	if d := cmp.Diff([]string{"gw.example.org:7103", "198.51.100.7:51820", "[2001:db8::1]:7103"}, f.endpoints(milan, 7103)); d != "" {
		t.Errorf("what the owner says (-want +got):\n%s", d)
	}
}

// TestInTurn is in which order nodes are gateway: those of which the peer has not heard come last.
func TestInTurn(t *testing.T) {
	const key = "tenant-rome"
	all := plan.Order(key, []string{"a", "b", "c", "d"})
	best, second, third, last := all[0], all[1], all[2], all[3]
	for _, c := range []struct {
		name             string
		candidates, told []string
		heard            bool
		want             []string
	}{
		{"nothing was said yet", []string{last, second, best}, nil, false, []string{best, second, last}},
		{"a new one that would be the first", []string{best, second, last}, []string{second, last}, true, []string{second, last, best}},
		{"it was said, and not heard", []string{best, second, last}, []string{second, last, best}, false, []string{second, last, best}},
		{"it was heard", []string{best, second, last}, []string{second, last, best}, true, []string{best, second, last}},
		{"two new ones", []string{best, second, third, last}, []string{last, third}, true, []string{third, last, best, second}},
		{"one more while another is not heard of", []string{best, second, last}, []string{last, second}, false, []string{last, second, best}},
		{"one that is away and was told is no candidate", []string{second, last}, []string{best, second, last}, true, []string{second, last}},
		{"one that was away and last is back", []string{best, second}, []string{second, best}, true, []string{best, second}},
		{"the peer knows of none that is left", []string{third, best}, []string{second}, false, []string{best, third}},
	} {
		if d := cmp.Diff(c.want, inTurn(key, c.candidates, c.told, c.heard)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// TestAllot gives ports.
func TestAllot(t *testing.T) {
	for _, c := range []struct {
		reason     string
		first      int32
		have, want []int32
	}{
		{"in order", 7100, []int32{0, 0}, []int32{7100, 7101}},
		{"what one has it keeps, and no two have one", 7100, []int32{7102, 0, 7102, 0}, []int32{7102, 7100, 7101, 7103}},
		{"another first port moves all", 8000, []int32{7100, 7101}, []int32{8000, 8001}},
		{"the VXLAN's is not given away", 7076, []int32{0, 0, 7077}, []int32{7076, 7078, 7079}},
	} {
		if d := cmp.Diff(c.want, allot(c.first, c.have)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
	if got := allot(7100, make([]int32, ports+3)); got[ports-1] == 0 || got[ports+2] != 0 {
		t.Error("more peerings than ports: want 0 for the last")
	}
}

// TestBelieved takes of what a peer says only what can be.
func TestBelieved(t *testing.T) {
	p := netip.MustParsePrefix
	said := []ipam.View{
		{Real: p("10.42.0.0/16"), View: p("10.80.0.0/15")}, {Real: p("10.42.0.0/16"), View: p("fd00::/16")}, {Real: p("10.42.0.0/16"), View: p("10.81.0.0/16")},
		{Real: p("10.42.0.0/16"), View: p("10.82.0.0/16")}, {Real: p("0.0.0.0/0"), View: p("0.0.0.0/0")},
	}
	got := believed(said, []netip.Prefix{p("10.42.0.0/16"), p("10.254.7.0/24")})
	if len(got) != 1 || got[0] != said[2] {
		t.Errorf("believed %v", got)
	}
}
