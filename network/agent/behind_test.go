package agent

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

const (
	behindKey  = "peering-milan." + onePath
	oneOwner   = "00000000000000ff"
	otherOwner = "00000000000000ee"
)

// behindFacts are those of a cluster with pods at a third one, behind its provider milan, that has made a path there.
func behindFacts() facts {
	f := pathFacts()
	f.paths, f.heard = nil, nil
	own, milan := &f.configs[0], &f.configs[1]
	own.Status.Views = []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.93.0.0/16"}}
	milan.Spec.Pods, milan.Spec.Transit = append(milan.Spec.Pods, "10.70.0.0/16"), []string{"10.70.0.0/16"}
	milan.Status.Views = append(milan.Status.Views, v1alpha1.NetworkView{Real: "10.70.0.0/16", View: "10.71.0.0/16"})
	of := pathAt(onePath, 31, 32, "10.70.0.0/16")
	milan.Spec.ConsumerPaths = []v1alpha1.ConsumerPath{{Name: onePath, NetworkPathSpec: of.Spec}}
	milan.Status.ConsumerPaths = []v1alpha1.ConsumerPathStatus{{Name: onePath, NetworkPathStatus: of.Status}}
	f.keys[behindKey] = encoded(secret(31))
	f.away["milan"] = append(f.away["milan"], podAt(labelled("shop", "far"), "milan", "10.71.5.5"))
	return f
}

// TestInputBehind holds what a path behind a provider is, and that the provider's word alone makes none.
func TestInputBehind(t *testing.T) {
	one, two := secret(31).Public(), secret(32).Public()
	usual := plan.Path{
		Key: behindKey, Prefixes: prefixes("10.70.0.0/16"), Own: []ipam.View{{Real: prefixes("10.42.0.0/16")[0], View: prefixes("10.93.0.0/16")[0]}},
		Here: addrs("10.42.1.5"), There: addrs("10.70.5.5"), First: bytes.Compare(one[:], two[:]) < 0,
		ListenPort: 7102, Secret: behindKey, Peer: two, Endpoints: []string{"198.51.100.7:7103"},
	}
	for _, c := range []struct {
		reason  string
		facts   func(f *facts, milan *v1alpha1.NetworkConfig)
		path    func(p *plan.Path) // nil is as ever
		none    bool
		problem string
	}{
		{reason: "all of it"},
		{reason: "it can be relied upon", facts: func(f *facts, _ *v1alpha1.NetworkConfig) { f.carrying = map[string]bool{behindKey: true} }, path: func(p *plan.Path) { p.Alive = true }},
		{reason: "the manager has not answered", facts: func(_ *facts, m *v1alpha1.NetworkConfig) { m.Status.ConsumerPaths = nil }, none: true},
		{reason: "the owner does not want it", facts: func(_ *facts, m *v1alpha1.NetworkConfig) {
			m.Status.ConsumerPaths[0].Conditions[0].Reason = v1alpha1.ReasonNotAllowed
		}, none: true},
		{reason: "its time has come", facts: func(f *facts, m *v1alpha1.NetworkConfig) { f.now = m.Spec.ConsumerPaths[0].Until.Time }, none: true},
		{reason: "nothing may pass", facts: func(f *facts, _ *v1alpha1.NetworkConfig) { f.configs[0].Spec.Reachability = v1alpha1.ReachNone }, none: true},
		{reason: "to what is the provider's own", facts: func(_ *facts, m *v1alpha1.NetworkConfig) { m.Spec.Transit = nil }, none: true, problem: "spec.prefixes"},
		{reason: "an object of the kind, in the peering's namespace", facts: func(f *facts, m *v1alpha1.NetworkConfig) {
			m.Spec.ConsumerPaths = nil
			n := pathAt(onePath, 31, 32, "10.70.0.0/16")
			n.Namespace = atMilan
			f.paths = append(f.paths, n)
		}, none: true},
		{reason: "a tenant's pod there", facts: func(f *facts, _ *v1alpha1.NetworkConfig) {
			f.away["milan"] = append(f.away["milan"], podAt(labelled("x", "theirs", v1alpha1.LabelTenant, "turin"), "milan", "10.71.5.6"))
		}},
		{reason: "a pod of a namespace that nothing reaches", facts: func(f *facts, _ *v1alpha1.NetworkConfig) {
			f.offloaded = append(f.offloaded, v1alpha1.NamespaceOffloading{ObjectMeta: labelled("shop", v1alpha1.OffloadingName), Spec: v1alpha1.NamespaceOffloadingSpec{Reachability: v1alpha1.ReachNone}})
			f.inside = map[string][]corev1.Pod{"shop": {podAt(labelled("shop", "back"), "a", "10.42.1.5")}}
		}, path: func(p *plan.Path) { p.Here, p.There = nil, nil }},
	} {
		f := behindFacts()
		if c.facts != nil {
			c.facts(&f, &f.configs[1])
		}
		k := input(f)
		var got []plan.Path
		for _, p := range k.input.Peerings {
			got = append(got, p.Paths...)
		}
		var want []plan.Path
		if !c.none {
			want = []plan.Path{usual}
			if c.path != nil {
				c.path(&want[0])
			}
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
		if (c.problem == "") != (len(k.problems) == 0) || c.problem != "" && !strings.Contains(k.problems[0].Text, c.problem) {
			t.Errorf("%s: problems are %v", c.reason, k.problems)
		}
	}
	f := behindFacts()
	if !f.pathKeys()[behindKey] {
		t.Error("what a path is is not known by its key")
	}
	n := f.configs[1].DeepCopy()
	n.Status.ConsumerPaths[0].Used = &metav1.Time{Time: f.now}
	want := input(f).input
	f.configs[1] = *trimmed(t, n)
	if d := cmp.Diff(want, input(f).input, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, netip.AddrPort{})); d != "" {
		t.Errorf("of what agents keep (-want +got):\n%s", d)
	}
	if f.configs[1].Status.ConsumerPaths[0].Used != nil {
		t.Error("that a path is used makes a plan")
	}
}

// TestPathOwner holds that at a provider a path is for the pods of one owner, and of nobody who has none.
func TestPathOwner(t *testing.T) {
	mapped := func(name, owner string) corev1.Namespace {
		n := corev1.Namespace{ObjectMeta: labelled("", name, v1alpha1.LabelTenant, "turin", v1alpha1.LabelHomeNamespace, name)}
		if owner != "" {
			n.Labels[v1alpha1.LabelOriginOwner] = owner
		}
		return n
	}
	f := pathFacts()
	f.namespaces = []corev1.Namespace{mapped("x", ""), mapped("shop", oneOwner), mapped("inn", otherOwner)}
	f.hosted = append(f.hosted, podAt(labelled("shop", "web", v1alpha1.LabelTenant, "turin"), "b", "10.42.2.9"), podAt(labelled("inn", "bed", v1alpha1.LabelTenant, "turin"), "b", "10.42.2.10"))
	for owner, want := range map[string][]netip.Addr{"": addrs("10.42.2.7"), oneOwner: addrs("10.42.2.9"), otherOwner: addrs("10.42.2.10"), "00000000000000dd": nil} {
		f.paths[0].Spec.OriginOwner = owner
		if got := input(f).input.Peerings[1].Paths[0].Here; !slices.Equal(got, want) {
			t.Errorf("a path of %q is for %v, want %v", owner, got, want)
		}
	}
	f.hosted = append(f.hosted, podAt(labelled("inn", "late", v1alpha1.LabelTenant, "turin"), "b", "10.42.2.9"))
	f.paths[0].Spec.OriginOwner = oneOwner
	if got := input(f).input.Peerings[1].Paths[0].Here; len(got) > 0 {
		t.Errorf("an address of two owners' pods is on the path: %v", got)
	}
	n := f.namespaces[1]
	if got := trimmed(t, &n).Labels[v1alpha1.LabelOriginOwner]; got != oneOwner {
		t.Errorf("agents do not keep whose a namespace is: %q", got)
	}
}

// FuzzBehind holds the same as FuzzPath of what a provider writes of a path to this cluster.
func FuzzBehind(f *testing.F) {
	f.Add(onePath, "10.70.0.0/16", secret(32).Public().String(), "198.51.100.7:7103", "10.93.0.0/16", int64(2000))
	f.Add("", "0.0.0.0/0", "", ":", "0.0.0.0/0", int64(-1))
	f.Add(onePath+".x", "10.42.0.0/16", secret(31).Public().String(), "192.168.0.1:22", "10.70.0.0/16", int64(1<<62))
	f.Add("../../00000000aa", "10.96.0.0/12", "x", "[::1%25x]:0", "::/0", int64(1001))
	f.Fuzz(func(t *testing.T, name, prefix, key, endpoint, view string, until int64) {
		facts := behindFacts()
		own, milan := &facts.configs[0], &facts.configs[1]
		spec, status := milan.Spec.ConsumerPaths, milan.Status.ConsumerPaths
		milan.Spec.ConsumerPaths, milan.Status.ConsumerPaths = nil, nil
		before := plan.Compute(input(facts).input)
		spec[0].Prefixes, spec[0].PublicKey, spec[0].Endpoints, spec[0].Until = []string{prefix, prefix}, key, []string{endpoint, endpoint}, metav1.NewTime(time.Unix(until, 0))
		again := *spec[0].DeepCopy()
		again.Name = name
		milan.Spec.ConsumerPaths, milan.Status.ConsumerPaths = append(spec, again), status
		milan.Spec.Transit, milan.Spec.Pods = append(milan.Spec.Transit, prefix), append(milan.Spec.Pods, prefix)
		own.Status.Views = append(own.Status.Views, v1alpha1.NetworkView{Real: "10.42.0.0/16", View: view})
		facts.carrying = map[string]bool{behindKey: true}
		k := input(facts)
		p := plan.Compute(k.input)
		if err := p.Config.Check(); err != nil {
			t.Error(err)
		}
		theirs := func(p plan.Plan) (tunnels []plan.Tunnel) {
			for _, t := range p.Tunnels {
				if !isPath(t.Peering) && t.Peering != "peering-milan" {
					tunnels = append(tunnels, t)
				}
			}
			return tunnels
		}
		if d := cmp.Diff(theirs(before), theirs(p), cmp.Comparer(tunnel.Secret.Equal)); d != "" || len(theirs(p)) == 0 {
			t.Errorf("the tunnels of others: %s", d)
		}
		for _, peering := range k.input.Peerings {
			for _, path := range peering.Paths {
				if path.Key != behindKey && !isPath(path.Key) {
					t.Errorf("the key %q", path.Key)
				}
			}
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
