package agent

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

const (
	onePath = "00000000000000aa"
	pathKey = "tenant-turin." + onePath
)

// pathAt is a path of turin's that this cluster's manager lets be.
func pathAt(name string, own, peer byte, prefixes ...string) v1alpha1.NetworkPath {
	return v1alpha1.NetworkPath{
		ObjectMeta: metav1.ObjectMeta{Namespace: atTurin, Name: name},
		Spec: v1alpha1.NetworkPathSpec{
			Prefixes: prefixes, PublicKey: secret(peer).Public().String(), Endpoints: []string{"198.51.100.7:7103"}, Until: metav1.NewTime(time.Unix(2000, 0)),
		},
		Status: v1alpha1.NetworkPathStatus{PublicKey: secret(own).Public().String(), Port: 7102, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTunnelDown},
		}},
	}
}

// pathFacts are those of a cluster whose tenant turin shows it pods at another provider, and has a
// path to these.
func pathFacts() facts {
	f := someFacts()
	f.now = time.Unix(1000, 0)
	own, turin := &f.configs[2], &f.configs[3]
	own.Status.Views = []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.90.0.0/16"}}
	turin.Spec.Pods = append(turin.Spec.Pods, "10.60.0.0/16")
	turin.Status.Views = append(turin.Status.Views, v1alpha1.NetworkView{Real: "10.60.0.0/16", View: "10.61.0.0/16"})
	f.given = append(f.given, sliceOf(labelled("x", "far", v1alpha1.LabelTenant, "turin"), "", "10.61.1.1"))
	f.keys[pathKey] = encoded(secret(31))
	f.heard = map[string]netip.Addr{pathKey: addrs("198.51.100.8")[0]}
	f.paths = []v1alpha1.NetworkPath{pathAt(onePath, 31, 32, "10.60.0.0/16")}
	return f
}

func wantedPath() *plan.Path {
	own, peer := secret(31).Public(), secret(32).Public()
	return &plan.Path{
		Key: pathKey, Prefixes: prefixes("10.60.0.0/16"), Own: []ipam.View{{Real: prefixes("10.42.0.0/16")[0], View: prefixes("10.90.0.0/16")[0]}},
		Here: addrs("10.42.2.7"), There: addrs("10.60.1.1"), First: bytes.Compare(own[:], peer[:]) < 0,
		ListenPort: 7102, Secret: pathKey, Peer: peer, Endpoints: []string{"198.51.100.7:7103"}, Heard: addrs("198.51.100.8")[0],
	}
}

func TestInputPaths(t *testing.T) {
	none := func(*plan.Path) *plan.Path { return nil }
	not := func(reason string) func(*facts) {
		return func(f *facts) { f.paths[0].Status.Conditions[0].Reason = reason }
	}
	long := strings.Repeat("x", 5000)
	const unseen = "has not said by which views"
	for _, c := range []struct {
		reason  string
		facts   func(*facts)
		path    func(*plan.Path) *plan.Path // nil is as ever
		problem string                      // parts of each, in order; "" is none
	}{
		{reason: "all of it"},
		// Whether it may be.
		{reason: "it is going", facts: func(f *facts) { f.paths[0].DeletionTimestamp = &metav1.Time{} }, path: none},
		{reason: "its time has come", facts: func(f *facts) { f.now = time.Unix(2000, 0) }, path: none},
		{reason: "a moment before", facts: func(f *facts) { f.now = time.Unix(1999, 999) }},
		{reason: "until never", facts: func(f *facts) { f.paths[0].Spec.Until = metav1.Time{} }, path: none},
		{reason: "the owner does not want it", facts: not(v1alpha1.ReasonNotAllowed), path: none},
		{reason: "it leads where it may not", facts: not(v1alpha1.ReasonPrefixesRefused), path: none},
		{reason: "it has ended", facts: not(v1alpha1.ReasonPathEnded), path: none},
		{reason: "the manager has said nothing of it but its key", facts: func(f *facts) { f.paths[0].Status.Conditions = nil }},
		{reason: "the manager has made no key", facts: func(f *facts) { f.paths[0].Status.PublicKey = "" }, path: none},
		{reason: "the key is another one", facts: func(f *facts) { f.keys[pathKey] = encoded(secret(33)) }, path: none, problem: "has no private key"},
		{reason: "the peering's key is not the path's", facts: func(f *facts) {
			delete(f.keys, pathKey)
			f.paths[0].Status.PublicKey = f.configs[2].Spec.PublicKey
		}, path: none, problem: "has no private key"},
		{reason: "nothing may pass at all", facts: func(f *facts) { f.configs[2].Spec.Reachability = v1alpha1.ReachNone }, path: none},
		{reason: "all may pass to the consumer, and by the path what ever may", facts: func(f *facts) { f.configs[2].Spec.Reachability = v1alpha1.ReachFull }},
		{reason: "in a namespace of nobody, and of a provider", facts: func(f *facts) {
			for _, namespace := range []string{"default", atMilan, "pelago-tenant-genoa"} {
				other := pathAt("00000000000000bb", 31, 32, "10.60.0.0/16", "10.42.0.0/16")
				other.Namespace = namespace
				f.keys[v1alpha1.NetworkPathKey(namespace, other.Name)] = encoded(secret(31))
				f.paths = append(f.paths, other)
			}
		}},
		{reason: "a name that is that of a key", facts: func(f *facts) {
			f.paths[0].Name = "next"
			f.keys["tenant-turin.next"] = encoded(secret(31))
		}, path: none, problem: `the name "next"`},
		// Where it leads.
		{reason: "to a part of what is published", facts: func(f *facts) { f.paths[0].Spec.Prefixes = []string{"10.60.1.0/24"} }, path: none, problem: "spec.prefixes"},
		{reason: "to more than that", facts: func(f *facts) { f.paths[0].Spec.Prefixes = []string{"10.0.0.0/8"} }, path: none, problem: "spec.prefixes"},
		{reason: "to what has a view and is not published", facts: func(f *facts) { f.configs[3].Spec.Pods = f.configs[3].Spec.Pods[:1] }, path: none, problem: "spec.prefixes"},
		{reason: "to what is published and has no view", facts: func(f *facts) { f.configs[3].Status.Views = f.configs[3].Status.Views[:1] }, path: none, problem: "spec.prefixes"},
		{reason: "to the view itself, that is this cluster's", facts: func(f *facts) { f.paths[0].Spec.Prefixes = []string{"10.61.0.0/16"} }, path: none, problem: "spec.prefixes"},
		{reason: "to this cluster's pods", facts: func(f *facts) { f.paths[0].Spec.Prefixes = []string{"10.42.0.0/16"} }, path: none, problem: "spec.prefixes"},
		{reason: "to what another peering is about", facts: func(f *facts) { f.paths[0].Spec.Prefixes = []string{"10.81.0.0/16"} }, path: none, problem: "spec.prefixes"},
		{reason: "to nonsense as well", facts: func(f *facts) { f.paths[0].Spec.Prefixes = []string{long, "10.60.0.0/16"} }, problem: "spec.prefixes"},
		{reason: "to one thing twice", facts: func(f *facts) { f.paths[0].Spec.Prefixes = []string{"10.60.0.0/16", "10.60.0.0/16"} }},
		{reason: "to too many", facts: func(f *facts) { f.paths[0].Spec.Prefixes = slices.Repeat([]string{"10.60.0.0/16"}, 17) }, path: none, problem: "17 of them"},
		// As whom pods go by it.
		{reason: "the consumer has not said how it sees us", facts: func(f *facts) { f.configs[2].Status.Views = nil }, path: none, problem: unseen},
		{reason: "it sees what is not ours", facts: func(f *facts) { f.configs[2].Status.Views[0].Real = "10.43.0.0/16" }, path: none, problem: unseen},
		{reason: "it sees what was published to another peer alone", facts: func(f *facts) {
			f.configs[0].Spec.Pods = append(f.configs[0].Spec.Pods, "10.45.0.0/16")
			f.configs[2].Status.Views = append(f.configs[2].Status.Views, v1alpha1.NetworkView{Real: "10.45.0.0/16", View: "10.95.0.0/16"})
		}},
		{reason: "it sees us in another size", facts: func(f *facts) { f.configs[2].Status.Views[0].View = "10.90.0.0/24" }, path: none, problem: "10.42.0.0/16 as|" + unseen},
		{reason: "in another family", facts: func(f *facts) { f.configs[2].Status.Views[0].View = "fd00::/16" }, path: none, problem: "10.42.0.0/16 as|" + unseen},
		{reason: "with bits of hosts", facts: func(f *facts) { f.configs[2].Status.Views[0].View = "10.90.0.1/16" }, path: none, problem: "10.42.0.0/16 as|" + unseen},
		{reason: "where nobody is", facts: func(f *facts) { f.configs[2].Status.Views[0].View = "127.0.0.0/16" }, path: none, problem: "10.42.0.0/16 as|" + unseen},
		{reason: "in two ways", facts: func(f *facts) {
			f.configs[2].Status.Views = append(f.configs[2].Status.Views, v1alpha1.NetworkView{Real: "10.42.0.0/16", View: "10.91.0.0/16"})
		}, problem: "overlaps another one"},
		{reason: "external addresses are no pods", facts: func(f *facts) {
			f.configs[2].Spec.External = []string{"10.43.0.0/24"}
			f.configs[2].Status.Views = append(f.configs[2].Status.Views, v1alpha1.NetworkView{Real: "10.43.0.0/24", View: "10.90.0.0/24"})
		}},
		// Who may.
		{reason: "a pod that has gone", facts: func(f *facts) { f.hosted[0].Status.Phase = corev1.PodFailed }, path: func(p *plan.Path) *plan.Path { p.Here = nil; return p }},
		{reason: "a pod whose namespace nothing reaches", facts: func(f *facts) {
			o := v1alpha1.NamespaceOffloading{ObjectMeta: labelled("x", v1alpha1.OffloadingName), Spec: v1alpha1.NamespaceOffloadingSpec{Reachability: v1alpha1.ReachNone}}
			f.offloaded = append(f.offloaded, o)
			f.inside = map[string][]corev1.Pod{"x": {f.hosted[0]}}
		}, path: func(p *plan.Path) *plan.Path { p.Here = nil; return p }},
		{reason: "no Service leads there", facts: func(f *facts) { f.given = f.given[:2] }, path: func(p *plan.Path) *plan.Path { p.There = nil; return p }},
		// The tunnel.
		{reason: "it can be relied upon", facts: func(f *facts) { f.carrying = map[string]bool{pathKey: true} }, path: func(p *plan.Path) *plan.Path { p.Alive = true; return p }},
		{reason: "the other end has no key yet", facts: func(f *facts) { f.paths[0].Spec.PublicKey = "" }, path: none},
		{reason: "the other end's key is none", facts: func(f *facts) { f.paths[0].Spec.PublicKey = long }, path: none, problem: "spec.publicKey"},
		{reason: "the other end says that it is we", facts: func(f *facts) { f.paths[0].Spec.PublicKey = f.paths[0].Status.PublicKey }, path: none, problem: "spec.publicKey"},
		{reason: "the other end calls", facts: func(f *facts) { f.paths[0].Spec.Endpoints = nil }, path: func(p *plan.Path) *plan.Path { p.Endpoints = nil; return p }},
		{reason: "a name", facts: func(f *facts) { f.paths[0].Spec.Endpoints = []string{"gateway.oslo.example:7100"} },
			path: func(p *plan.Path) *plan.Path { p.Endpoints = []string{"gateway.oslo.example:7100"}; return p }},
		{reason: "too many endpoints", facts: func(f *facts) { f.paths[0].Spec.Endpoints = slices.Repeat([]string{"a:1"}, 99) },
			path: func(p *plan.Path) *plan.Path { p.Endpoints = slices.Repeat([]string{"a:1"}, 16); return p }},
		{reason: "a port out of range", facts: func(f *facts) { f.paths[0].Status.Port = 1 << 20 }, path: func(p *plan.Path) *plan.Path { p.ListenPort = 65535; return p }},
	} {
		f := pathFacts()
		if c.facts != nil {
			c.facts(&f)
		}
		want := wantedPath()
		if c.path != nil {
			want = c.path(want)
		}
		k := input(f)
		var got *plan.Path
		for i, p := range k.input.Peerings {
			if p.Key != "tenant-turin" && len(p.Paths) > 0 || len(p.Paths) > 1 {
				t.Errorf("%s: %s has the paths %v", c.reason, p.Key, p.Paths)
			} else if len(p.Paths) > 0 {
				got = &k.input.Peerings[i].Paths[0]
			}
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
		if got != nil && k.secrets[got.Secret].IsZero() {
			t.Errorf("%s: there is no secret for the path", c.reason)
		}
		var problems []string
		if c.problem != "" {
			problems = strings.Split(c.problem, "|")
		}
		for i, p := range k.problems {
			if len(k.problems) != len(problems) || !strings.Contains(p.Text, problems[i]) || len(p.String()) > 400 {
				t.Errorf("%s: problem %s", c.reason, p)
			}
		}
		if len(k.problems) < len(problems) {
			t.Errorf("%s: problems are %v", c.reason, k.problems)
		}
		// Whatever a path is, the peering is as it was.
		without := f
		without.paths = nil
		bare := input(without).input
		for i := range k.input.Peerings {
			k.input.Peerings[i].Paths = nil
		}
		if d := cmp.Diff(bare, k.input, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, netip.AddrPort{}), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: beside the path (-without +with):\n%s", c.reason, d)
		}
	}
}

// TestPathEndpoints holds that no consumer has this cluster send to itself by naming where the other
// end of a path is.
func TestPathEndpoints(t *testing.T) {
	f := pathFacts()
	f.configs[2].Spec.External = []string{"10.43.0.0/24"}
	f.nodes[1].Spec.PodCIDRs = []string{"10.44.2.0/24"}
	for _, c := range []struct {
		endpoint string
		want     bool
	}{
		{"198.51.100.7:7103", true},
		{"[2001:db8::7]:7103", true},
		{"oslo.example:7103", true},
		{"192.168.0.1:7103", false}, // a node
		{"[::ffff:192.168.0.2]:1", false},
		{"203.0.113.1:7103", false}, // a node, for others
		{"10.42.1.5:53", false},     // a pod
		{"10.44.2.5:53", false},     // in the range of a node
		{"10.43.0.9:443", false},    // an external address
		{"10.43.0.9", false},
		{":7100", false},
		{"192.168.0.1%eth0:7103", true}, // a name, of which what is found is looked at
		{"[192.168.0.1%25]:7103", true},
		{strings.Repeat("x", 300) + ":1", false},
	} {
		f.paths[0].Spec.Endpoints = []string{c.endpoint, "198.51.100.9:1"}
		k := input(f)
		p := plan.Compute(k.input)
		want := []string{"198.51.100.9:1"}
		if c.want {
			want = []string{c.endpoint, "198.51.100.9:1"}
		}
		i := slices.IndexFunc(p.Tunnels, func(t plan.Tunnel) bool { return t.Peering == pathKey })
		if got := p.Tunnels[i].Config.Endpoints; !slices.Equal(got, want) || (len(k.problems)+len(p.Problems) == 0) != c.want {
			t.Errorf("%s: %q, with problems %v %v", short(c.endpoint), got, k.problems, p.Problems)
		}
	}
}

// TestManyPaths holds that as many count as may, the first ones by their names, and of two to one
// prefix the first.
func TestManyPaths(t *testing.T) {
	f := pathFacts()
	f.paths = nil
	for i := range byte(20) {
		name := fmt.Sprintf("%016x", 100-i)
		f.paths = append(f.paths, pathAt(name, 40+i, 80+i, fmt.Sprintf("10.60.%d.0/24", i/2)))
		f.keys["tenant-turin."+name] = encoded(secret(40 + i))
		if i%2 == 0 {
			f.configs[3].Spec.Pods = append(f.configs[3].Spec.Pods, fmt.Sprintf("10.60.%d.0/24", i/2))
			f.configs[3].Status.Views = append(f.configs[3].Status.Views, v1alpha1.NetworkView{Real: fmt.Sprintf("10.60.%d.0/24", i/2), View: fmt.Sprintf("10.62.%d.0/24", i/2)})
		}
	}
	for i := range byte(20) { // which the manager does not count either
		ended := pathAt(fmt.Sprintf("%016x", i), 40, 80, "10.60.0.0/24")
		ended.Spec.Until = metav1.NewTime(f.now)
		f.paths = append(f.paths, ended)
	}
	k := input(f)
	var got, want []string
	for _, p := range k.input.Peerings[1].Paths {
		got = append(got, p.Key)
	}
	for i := 19; i >= 4; i -= 2 {
		want = append(want, fmt.Sprintf("tenant-turin.%016x", 100-i))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	var problems []string
	for _, p := range k.problems {
		problems = append(problems, p.Text)
	}
	if len(problems) != 9 || !strings.Contains(strings.Join(problems, "\n"), "20 direct paths, of which only the first 16 count") || strings.Count(strings.Join(problems, "\n"), "another path leads to") != 8 {
		t.Errorf("problems are %q", problems)
	}
}

func TestTrimPath(t *testing.T) {
	f := pathFacts()
	n := f.paths[0].DeepCopy()
	n.Status.Used, n.Status.Endpoints = &metav1.Time{Time: f.now}, []string{"192.0.2.1:7102"}
	want := input(f).input
	f.paths[0] = *trimmed(t, n)
	if d := cmp.Diff(want, input(f).input, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); d != "" {
		t.Error(d)
	}
	for _, c := range []struct {
		reason string
		change func(*v1alpha1.NetworkPath)
		want   bool
	}{
		{"nothing", func(*v1alpha1.NetworkPath) {}, true},
		{"when it was used", func(n *v1alpha1.NetworkPath) { n.Status.Used = nil }, true},
		{"whether it is alive", func(n *v1alpha1.NetworkPath) {
			n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = metav1.ConditionTrue, v1alpha1.ReasonReady
		}, true},
		{"whether it is allowed", func(n *v1alpha1.NetworkPath) { n.Status.Conditions[0].Reason = v1alpha1.ReasonNotAllowed }, false},
		{"its key", func(n *v1alpha1.NetworkPath) { n.Status.PublicKey = "x" }, false},
		{"its port", func(n *v1alpha1.NetworkPath) { n.Status.Port++ }, false},
		{"where it leads", func(n *v1alpha1.NetworkPath) { n.Spec.Prefixes = nil }, false},
		{"until when", func(n *v1alpha1.NetworkPath) { n.Spec.Until = metav1.NewTime(f.now) }, false},
		{"that it is going", func(n *v1alpha1.NetworkPath) { n.DeletionTimestamp = &metav1.Time{} }, false},
	} {
		other := n.DeepCopy()
		c.change(other)
		if got := same(trimmed(t, n), trimmed(t, other)); got != c.want {
			t.Errorf("%s: the same is %t", c.reason, got)
		}
	}
}

// TestIsPath holds which keys are those of paths, whatever tenants and invitations are called.
func TestIsPath(t *testing.T) {
	for key, want := range map[string]bool{
		pathKey: true, "tenant-turin": false, "peering-milan": false, "invitation-x.y": false, "introduction-x.y": false, "": false, behindKey: true,
		v1alpha1.NetworkPathKey(v1alpha1.TenantNamespacePrefix+"x", onePath): true,
	} {
		if got := isPath(key); got != want {
			t.Errorf("%q is a path: %t", key, got)
		}
	}
	if consumes(pathKey) || consumes(behindKey) {
		t.Error("a path is told no numbers")
	}
}

// FuzzPath holds that whatever a consumer writes of a path, the plan is one that the data plane takes,
// and other peerings are as they were.
func FuzzPath(f *testing.F) {
	f.Add("10.60.0.0/16", secret(32).Public().String(), "198.51.100.7:7103", "10.42.0.0/16", "10.90.0.0/16", "10.61.1.1", int64(2000))
	f.Add("0.0.0.0/0", "", ":", "0.0.0.0/0", "0.0.0.0/0", "::", int64(-1))
	f.Add("10.50.0.0/16", secret(31).Public().String(), "192.168.0.1:1", "10.42.0.0/16", "10.60.0.0/16", "10.42.2.7", int64(1<<62))
	f.Add("10.61.0.0/16", "x", "[::1%25x]:0", "::/0", "10.61.0.0/16", "x", int64(1001))
	f.Fuzz(func(t *testing.T, prefix, key, endpoint, real, view, address string, until int64) {
		facts := pathFacts()
		facts.paths = nil
		before := plan.Compute(input(facts).input)
		again := pathAt("00000000000000bb", 31, 33, prefix, prefix)
		facts.keys["tenant-turin.00000000000000bb"] = encoded(secret(31))
		facts.paths = []v1alpha1.NetworkPath{pathAt(onePath, 31, 32, prefix, "10.60.0.0/16"), again}
		for i := range facts.paths {
			n := &facts.paths[i]
			n.Spec.PublicKey, n.Spec.Endpoints, n.Spec.Until = key, []string{endpoint, endpoint}, metav1.NewTime(time.Unix(until, 0))
		}
		facts.configs[2].Status.Views = []v1alpha1.NetworkView{{Real: real, View: view}, {Real: "10.42.0.0/16", View: view}}
		facts.configs[3].Spec.Pods = append(facts.configs[3].Spec.Pods, prefix)
		facts.given[2].Endpoints[0].Addresses[0] = address
		facts.carrying = map[string]bool{pathKey: true}
		k := input(facts)
		p := plan.Compute(k.input)
		if err := p.Config.Check(); err != nil {
			t.Error(err)
		}
		milan := func(p plan.Plan) (tunnels []plan.Tunnel) {
			for _, t := range p.Tunnels {
				if !isPath(t.Peering) {
					tunnels = append(tunnels, t)
				}
			}
			return tunnels
		}
		if d := cmp.Diff(milan(before), milan(p), cmp.Comparer(tunnel.Secret.Equal)); d != "" || len(milan(p)) != 2 {
			t.Errorf("the peerings' tunnels: %s", d)
		}
		for _, made := range p.Tunnels {
			for _, e := range made.Config.Endpoints {
				host, _, err := tunnel.SplitEndpoint(e)
				if a, not := netip.ParseAddr(host); err != nil || not == nil && p.Places.Refuse(a, isPath(made.Peering)) != "" {
					t.Errorf("the endpoint %q", e)
				}
			}
		}
	})
}

// TestPathsAreRead holds, at a real API server, that a path which a consumer writes and the manager
// lets be is known, and ends by time alone.
func TestPathsAreRead(t *testing.T) {
	server := kubetest.Server(t)
	api := server.Client(t)
	tenant := server.Name(t, "turin")
	at := v1alpha1.TenantNamespacePrefix + tenant
	key := v1alpha1.NetworkPathKey(at, onePath)
	create := func(o client.Object) {
		t.Helper()
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(context.Background(), o) })
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: at}})
	for i, name := range []string{"provider", "consumer"} {
		c := networkConfig(at, name, byte(i+1), []string{"10.42.0.0/16", "10.60.0.0/16"}[i])
		create(&c)
		c.Status.Views = []v1alpha1.NetworkView{{Real: c.Spec.Pods[0], View: []string{"10.90.0.0/16", "10.61.0.0/16"}[i]}}
		if err := api.Status().Update(t.Context(), &c); err != nil {
			t.Fatal(err)
		}
	}
	create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at, Name: v1alpha1.NetworkKeysName}, Data: map[string][]byte{
		v1alpha1.NetworkKey(at): encoded(secret(1)), key: encoded(secret(31)),
	}})
	c, changed := begun(t, server.Config, at)
	var f facts
	var k known
	paths := func() []plan.Path {
		c.rations.Begin(time.Now())
		f = c.facts() // of the server's, which is that of other tests too
		f.configs = slices.DeleteFunc(f.configs, func(n v1alpha1.NetworkConfig) bool { return n.Namespace != at })
		f.paths = slices.DeleteFunc(f.paths, func(n v1alpha1.NetworkPath) bool { return n.Namespace != at })
		k = input(f)
		for _, p := range k.input.Peerings {
			if p.Key == v1alpha1.NetworkKey(at) {
				return p.Paths
			}
		}
		return nil
	}
	until := func(what string, holds func([]plan.Path) bool) {
		t.Helper()
		limit := time.After(20 * time.Second)
		for !holds(paths()) {
			select {
			case <-changed:
			case <-time.After(k.wait(time.Minute, time.Now())): // as an agent does
			case <-limit:
				t.Fatalf("not within 20 s: %s; problems are %v", what, k.problems)
			}
		}
	}
	n := pathAt(onePath, 31, 32, "10.60.0.0/16")
	n.Namespace, n.Spec.Until = at, metav1.NewTime(time.Now().Add(time.Hour))
	status := n.Status
	status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Now())
	create(&n)
	until("it is there, and the manager has said nothing yet", func(p []plan.Path) bool { return len(f.paths) > 0 && len(p) == 0 })
	n.Status = status
	if err := api.Status().Update(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	until("it may be", func(p []plan.Path) bool {
		return len(p) == 1 && p[0].Key == key && len(p[0].Own) == 1 && k.secrets[p[0].Secret].Equal(secret(31))
	})
	n.Spec.Until = metav1.NewTime(time.Now().Add(2 * time.Second))
	if err := api.Update(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	until("its time has come", func(p []plan.Path) bool { return len(p) == 0 })
	if f.now.Before(n.Spec.Until.Time) || len(f.paths) != 1 {
		t.Errorf("it has ended at %s, before its time, %s, or was removed: there are %v; problems are %v", f.now, n.Spec.Until, f.paths, k.problems)
	}
}
