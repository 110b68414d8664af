package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// tenantOf is a pair of a tenant whose owner allows direct paths, and the views of what it publishes
// are stored.
func tenantOf(name string, ranges ...string) *pair {
	p := provided(name, noon, ranges...)
	p.direct = true
	for i, r := range ranges {
		p.consumer.Status.Views = append(p.consumer.Status.Views, v1alpha1.NetworkView{Real: r, View: fmt.Sprintf("10.%d.0.0/16", 200+i)})
	}
	return p
}

// askedPath is a path that a tenant wants.
func askedPath(tenant, name string, prefixes ...string) *v1alpha1.NetworkPath {
	return &v1alpha1.NetworkPath{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(tenant), Name: name, Generation: 3},
		Spec: v1alpha1.NetworkPathSpec{Prefixes: prefixes, Until: metav1.NewTime(noon.Add(time.Hour)), PublicKey: keyOf(9).Public().String(), Endpoints: []string{"198.51.100.7:7101"}}}
}

const path1, path2 = "0123456789abcdef", "fedcba9876543210"

// TestJudge is each reason why a path cannot be, and what its consumer is told to do.
func TestJudge(t *testing.T) {
	const oslo, bern = "10.81.0.0/16", "10.82.0.0/16"
	for _, c := range []struct {
		reason string
		change func(p *pair, s *v1alpha1.NetworkPathSpec)
		taken  []string
		want   string
		says   string
	}{
		{"all is well", nil, nil, "", ""},
		{"two prefixes", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Prefixes = []string{bern, oslo} }, nil, "", ""},
		{"nothing is said of the other end yet", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.PublicKey, s.Endpoints = "", nil }, nil, "", ""},
		{"the owner does not allow it", func(p *pair, _ *v1alpha1.NetworkPathSpec) { p.direct = false }, nil, v1alpha1.ReasonNotAllowed, "spec.directPaths"},
		{"nothing here is reached", func(p *pair, _ *v1alpha1.NetworkPathSpec) { p.reach = v1alpha1.ReachNone }, nil, v1alpha1.ReasonNotAllowed, "spec.reachability"},
		{"what is limited otherwise is fine", func(p *pair, _ *v1alpha1.NetworkPathSpec) { p.reach = v1alpha1.ReachOffloadedOnly }, nil, "", ""},
		{"its time is over now", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Until = metav1.NewTime(noon) }, nil, v1alpha1.ReasonPathEnded, "spec.until"},
		{"a second before it is not", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Until = metav1.NewTime(noon.Add(time.Second)) }, nil, "", ""},
		{"no time at all", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Until = metav1.Time{} }, nil, v1alpha1.ReasonPathEnded, "spec.until"},
		{"no prefix", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Prefixes = nil }, nil, v1alpha1.ReasonPrefixesRefused, "give 1 to 16"},
		{"too many", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Prefixes = make([]string, 17) }, nil, v1alpha1.ReasonPrefixesRefused, "there are 17"},
		{"what is none", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Prefixes = []string{"oslo\n"} }, nil, v1alpha1.ReasonPrefixesRefused, "is no prefix"},
		{"with bits of an address", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Prefixes = []string{"10.81.0.1/16"} }, nil, v1alpha1.ReasonPrefixesRefused, "is no prefix"},
		{"twice the same", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Prefixes = []string{oslo, oslo} }, nil, v1alpha1.ReasonPrefixesRefused, "twice"},
		{"a part of what is published", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Prefixes = []string{"10.81.1.0/24"} }, nil, v1alpha1.ReasonPrefixesRefused, "none of spec.pods"},
		{"more than is published", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Prefixes = []string{"10.80.0.0/15"} }, nil, v1alpha1.ReasonPrefixesRefused, "none of spec.pods"},
		{"pods of the provider's own", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Prefixes = []string{"10.42.0.0/16"} }, nil, v1alpha1.ReasonPrefixesRefused, "none of spec.pods"},
		{"external addresses", func(p *pair, s *v1alpha1.NetworkPathSpec) {
			p.consumer.Spec.External = []string{"10.9.0.0/24"}
			s.Prefixes = []string{"10.9.0.0/24"}
		}, nil, v1alpha1.ReasonPrefixesRefused, "none of spec.pods"},
		{"there is no view of it", func(p *pair, _ *v1alpha1.NetworkPathSpec) { p.consumer.Status.Views = p.consumer.Status.Views[1:] }, nil, v1alpha1.ReasonPrefixesRefused, "has no view here"},
		{"nothing is published", func(p *pair, _ *v1alpha1.NetworkPathSpec) { p.consumer = nil }, nil, v1alpha1.ReasonPrefixesRefused, "spec.pods"},
		{"another path leads there", nil, []string{bern, oslo}, v1alpha1.ReasonPrefixesRefused, "another path"},
		{"another path leads elsewhere", nil, []string{bern}, "", ""},
		{"too many endpoints", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Endpoints = make([]string, 17) }, nil, v1alpha1.ReasonInvalid, "there are 17"},
		{"an endpoint of this host", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Endpoints = []string{"127.0.0.1:7100"} }, nil, v1alpha1.ReasonInvalid, "spec.endpoints"},
		{"an endpoint without a port", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.Endpoints = []string{"198.51.100.7"} }, nil, v1alpha1.ReasonInvalid, "spec.endpoints"},
		{"a key that is none", func(_ *pair, s *v1alpha1.NetworkPathSpec) { s.PublicKey = "x" }, nil, v1alpha1.ReasonInvalid, "spec.publicKey"},
	} {
		p, o := tenantOf("rome", oslo, bern), askedPath("rome", path1, oslo)
		if c.change != nil {
			c.change(p, &o.Spec)
		}
		if got, text := judge(o.Spec, p, c.taken, noon); got != c.want || !strings.Contains(text, c.says) {
			t.Errorf("%s: %q: %s, want %q with %q", c.reason, got, text, c.want, c.says)
		}
	}
}

// FuzzPathSpec: whatever a consumer says of a path, one that is taken leads to what he publishes, and
// what he is told fits into a condition.
func FuzzPathSpec(f *testing.F) {
	f.Add("10.81.0.0/16", "fd00::/64", keyOf(1).Public().String(), "198.51.100.7:7100", "gw.example.org:1", int64(10))
	f.Add("10.81.0.1/16", "10.81.0.0/16", "AAAA", "[::1]:7100", "169.254.169.254:80", int64(-1))
	f.Add("::ffff:10.81.0.0/112", "\x00\xff", "", "a:b:c", ":0", int64(1)<<62)
	f.Fuzz(func(t *testing.T, first, second, key, here, there string, until int64) {
		p := tenantOf("rome", "10.81.0.0/16", "fd00::/64")
		s := v1alpha1.NetworkPathSpec{Prefixes: []string{first, second}, PublicKey: key, Endpoints: []string{here, there}, Until: metav1.NewTime(time.Unix(until, 0))}
		reason, text := judge(s, p, nil, noon)
		if !utf8.ValidString(text) || len([]rune(text)) > maxText || (reason == "") != (text == "") || reason != "" && !reasonWord.MatchString(reason) {
			t.Errorf("told %q: %q", reason, text)
		}
		if reason != "" {
			return
		}
		for _, text := range s.Prefixes {
			if !slices.Contains(p.consumer.Spec.Pods, text) {
				t.Errorf("a path to %q is taken", text)
			}
		}
		for _, e := range s.Endpoints {
			if _, port, err := tunnel.SplitEndpoint(e); err != nil || port == 0 {
				t.Errorf("endpoint %q is taken", e)
			}
		}
		if key != "" && !keyText.MatchString(key) || !noon.Before(s.Until.Time) {
			t.Errorf("taken: %+v", s)
		}
	})
}

// TestTakePaths holds which paths are looked at: those of tenants with a network, so many of each, and
// of two that lead to one place the first.
func TestTakePaths(t *testing.T) {
	var ranges []string
	for i := range v1alpha1.MaxNetworkPaths + 3 {
		ranges = append(ranges, fmt.Sprintf("10.81.%d.0/24", i))
	}
	rome, bonn, gone := tenantOf("rome", ranges...), tenantOf("bonn", "10.90.0.0/16"), tenantOf("gone", "10.90.0.0/16")
	gone.wanted = false
	f := usual(rome, bonn, gone, consumed("milan", noon, ""))
	var all []*v1alpha1.NetworkPath
	for i, r := range ranges {
		o := askedPath("rome", fmt.Sprintf("%016x", i), r)
		if i == 1 { // which counts for nothing
			o.Spec.Until = metav1.NewTime(noon)
		}
		all = append(all, o)
	}
	all = append(all, askedPath("bonn", path1, "10.90.0.0/16"), askedPath("bonn", path2, "10.90.0.0/16"), askedPath("gone", path1, "10.90.0.0/16"), askedPath("nobody", path1, "10.90.0.0/16"))
	f.takePaths(all)
	got := map[string]string{}
	for _, p := range f.paths {
		got[p.key] = p.reason
	}
	want := map[string]string{"tenant-bonn." + path1: "", "tenant-bonn." + path2: v1alpha1.ReasonPrefixesRefused}
	for i := range ranges {
		key := fmt.Sprintf("tenant-rome.%016x", i)
		switch {
		case i == 1:
			want[key] = v1alpha1.ReasonPathEnded
		case i > v1alpha1.MaxNetworkPaths:
			want[key] = v1alpha1.ReasonLimitExceeded
		default:
			want[key] = ""
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("reasons (-want +got):\n%s", d)
	}
}

// TestPathLock is the life of a path's key: made when it may be, there as long as it could be, and
// never another one.
func TestPathLock(t *testing.T) {
	fresh := func() (tunnel.Secret, error) { return keyOf(77), nil }
	old := lock{key: keyOf(1), made: noon.Add(-3 * keyLife)}
	for _, c := range []struct {
		why  string
		have lock
		want lock
	}{
		{"", lock{}, lock{key: keyOf(77), made: noon}},
		{"", old, old},
		{v1alpha1.ReasonPrefixesRefused, lock{}, lock{}},
		{v1alpha1.ReasonPrefixesRefused, old, old},
		{v1alpha1.ReasonInvalid, lock{}, lock{}},
		{v1alpha1.ReasonInvalid, old, old},
		{v1alpha1.ReasonNotAllowed, old, lock{}},
		{v1alpha1.ReasonPathEnded, old, lock{}},
		{v1alpha1.ReasonLimitExceeded, old, lock{}},
	} {
		p := &path{reason: c.why}
		if got, err := p.lock(c.have, noon, fresh); err != nil || !got.equal(c.want) {
			t.Errorf("%q, with a key: %t: got %v made %v (%v)", c.why, !c.have.key.IsZero(), got.key.Public(), got.made, err)
		}
	}
}

// TestAllotPaths holds that paths have the ports that peerings leave.
func TestAllotPaths(t *testing.T) {
	for _, c := range []struct {
		reason             string
		have, paths        []int32
		wantHave, wantLeft []int32
	}{
		{"in order", []int32{0}, []int32{0, 0}, []int32{7100}, []int32{7101, 7102}},
		{"what a path has it keeps", []int32{0, 0}, []int32{7100}, []int32{7101, 7102}, []int32{7100}},
		{"unless a peering has it", []int32{7100}, []int32{7100}, []int32{7100}, []int32{7101}},
		{"no paths", []int32{0}, nil, []int32{7100}, nil},
	} {
		given, left := allotPaths(7100, len(c.have), c.have, c.paths)
		if !slices.Equal(given, c.wantHave) || !slices.Equal(left, c.wantLeft) {
			t.Errorf("%s: got %v and %v", c.reason, given, left)
		}
	}
	paths := make([]int32, ports)
	for i := range paths {
		paths[i] = 7100 + int32(i)
	}
	given, left := allotPaths(7100, 2, []int32{0, 0}, paths)
	if given[0] != 7100 || given[1] != 7101 || left[0] != 0 || left[1] != 0 || left[2] != 7102 || left[ports-1] != 7100+ports-1 {
		t.Errorf("paths have all ports: peerings get %v, and paths %v ...", given, left[:3])
	}
}

// TestAnswerPath is what a consumer is told of its path.
func TestAnswerPath(t *testing.T) {
	const oslo = "10.81.0.0/16"
	own := keyOf(21).Public().String()
	key := v1alpha1.NetworkPathKey(v1alpha1.TenantNamespace("rome"), path1)
	minute := func(at time.Time) *metav1.Time { return &metav1.Time{Time: at} }
	for _, c := range []struct {
		reason string
		change func(f *facts, o *v1alpha1.NetworkPath)
		want   string // of Ready
		ported bool
		used   *metav1.Time
	}{
		{"nobody has said anything", nil, "False/TunnelDown", true, nil},
		{"it is alive", func(f *facts, _ *v1alpha1.NetworkPath) { f.agents = alives(key, v1alpha1.TunnelReport{Alive: true}) }, "True/Ready", true, nil},
		{"of an agent that lives no more", func(f *facts, _ *v1alpha1.NetworkPath) {
			f.agents = alives(key, v1alpha1.TunnelReport{Alive: true, Used: minute(noon)})
			f.agents[0].alive = false
		}, "False/TunnelDown", true, nil},
		{"the tunnel to the consumer is another one", func(f *facts, _ *v1alpha1.NetworkPath) {
			f.agents = alives("tenant-rome", v1alpha1.TunnelReport{Alive: true, Used: minute(noon)})
		}, "False/TunnelDown", true, nil},
		{"the other end has no key", func(f *facts, o *v1alpha1.NetworkPath) {
			o.Spec.PublicKey, f.agents = "", alives(key, v1alpha1.TunnelReport{Alive: true})
		}, "False/Waiting", true, nil},
		{"the other end has ours", func(_ *facts, o *v1alpha1.NetworkPath) { o.Spec.PublicKey = own }, "False/Invalid", true, nil},
		{"there is no key here", func(f *facts, _ *v1alpha1.NetworkPath) { delete(f.locks, key) }, "False/Waiting", false, nil},
		{"it is not allowed", func(f *facts, _ *v1alpha1.NetworkPath) { f.pairs[0].direct = false; delete(f.locks, key) }, "False/NotAllowed", false, nil},
		{"what is refused for now keeps its key", func(_ *facts, o *v1alpha1.NetworkPath) { o.Spec.Prefixes = []string{"10.9.0.0/16"} }, "False/PrefixesRefused", true, nil},
		{"it carried something", func(f *facts, _ *v1alpha1.NetworkPath) {
			f.agents = alives(key, v1alpha1.TunnelReport{Alive: true, Used: minute(noon.Add(-61 * time.Second))})
		}, "True/Ready", true, minute(noon.Add(-2 * time.Minute))},
		{"which does not go back", func(f *facts, o *v1alpha1.NetworkPath) {
			o.Status.Used, f.agents = minute(noon.Add(-time.Minute)), alives(key, v1alpha1.TunnelReport{Alive: true, Used: minute(noon.Add(-5 * time.Minute))})
		}, "True/Ready", true, minute(noon.Add(-time.Minute))},
		{"nor ahead, whatever the clock of a node", func(f *facts, _ *v1alpha1.NetworkPath) {
			f.agents = alives(key, v1alpha1.TunnelReport{Alive: true, Used: minute(noon.Add(time.Hour))})
		}, "True/Ready", true, minute(noon)},
		{"it stays when its gateway is gone", func(_ *facts, o *v1alpha1.NetworkPath) { o.Status.Used = minute(noon.Add(-time.Minute)) }, "False/TunnelDown", true, minute(noon.Add(-time.Minute))},
		{"no port is left", func(f *facts, _ *v1alpha1.NetworkPath) { full(f) }, "False/LimitExceeded", false, nil},
	} {
		f := usual(tenantOf("rome", oslo))
		f.nodes = map[string]*corev1.Node{"n": addressed("n", "198.18.0.1")}
		f.candidates = []string{"n"}
		f.locks[key] = lock{key: keyOf(21), made: noon}
		o := askedPath("rome", path1, oslo)
		if c.change != nil {
			c.change(f, o)
		}
		f.takePaths([]*v1alpha1.NetworkPath{o})
		s := decide(f).paths[f.paths[0]]
		ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
		if got := string(ready.Status) + "/" + ready.Reason; got != c.want || ready.ObservedGeneration != 3 || s.ObservedGeneration != 3 {
			t.Errorf("%s: Ready is %s: %s, of generation %d, want %s", c.reason, got, ready.Message, ready.ObservedGeneration, c.want)
		}
		if ported := s.PublicKey == own && s.Port == 7101 && slices.Equal(s.Endpoints, []string{"198.18.0.1:7101"}); ported != c.ported || !ported && (s.PublicKey != "" || s.Port != 0 || s.Endpoints != nil) {
			t.Errorf("%s: it is said to be at %q %d %v", c.reason, s.PublicKey, s.Port, s.Endpoints)
		}
		if !s.Used.Equal(c.used) {
			t.Errorf("%s: used %v, want %v", c.reason, s.Used, c.used)
		}
	}
}

func alives(key string, r v1alpha1.TunnelReport) []agent {
	return []agent{{node: "n", alive: true, reports: map[string]v1alpha1.TunnelReport{key: r}}}
}

func addressed(name, address string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: named(name)}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	return n
}

// full has every port taken.
func full(f *facts) {
	f.settings.Port = 7100
	for i := range ports {
		p := provided(fmt.Sprintf("tenant%d", i), noon.Add(time.Duration(i)), "10.9.0.0/16")
		p.provider.Spec.Port = 7100 + int32(i)
		f.pairs = append(f.pairs, p)
	}
	f.pairs[0].provider.Spec.Port = 7101
	f.pairs[0].since = noon.Add(-time.Hour)
}

// TestPathFront holds that a path is called where the gateway of its peering is, by a Service of its
// own, and that this goes with it.
func TestPathFront(t *testing.T) {
	const oslo = "10.81.0.0/16"
	f := usual(tenantOf("rome", oslo))
	f.settings.Service = corev1.ServiceTypeNodePort
	key := v1alpha1.NetworkPathKey(v1alpha1.TenantNamespace("rome"), path1)
	f.locks[key] = lock{key: keyOf(21), made: noon}
	f.nodes = map[string]*corev1.Node{"a": addressed("a", "198.18.0.1"), "b": addressed("b", "198.18.0.2")}
	f.takePaths([]*v1alpha1.NetworkPath{askedPath("rome", path1, oslo)})
	name := pathFront(key)
	if errs := validation.IsDNS1035Label(name); len(errs) > 0 || name == pathFront(v1alpha1.NetworkPathKey(v1alpha1.TenantNamespace("bonn"), path1)) {
		t.Fatalf("the Service is called %s: %v", name, errs)
	}
	for _, gateway := range []string{"a", "b"} {
		other := "a"
		if gateway == other {
			other = "b"
		}
		f.agents = []agent{{node: gateway, alive: true, reports: map[string]v1alpha1.TunnelReport{"tenant-rome": {Alive: true}}},
			{node: other, alive: true, reports: map[string]v1alpha1.TunnelReport{key: {Alive: true}}}}
		f.services = map[string]*corev1.Service{}
		front{name: name, port: 7101}.shape(serviceAt(f, name), f.settings)
		found := false
		for _, x := range decide(f).fronts {
			if x.name == name {
				found = x.port == 7101 && x.slice != nil && *x.slice.Endpoints[0].NodeName == gateway
			}
		}
		if !found {
			t.Errorf("the path's Service does not lead to %s, the gateway of the peering", gateway)
		}
	}
	if left := f.leftFronts(); len(left) != 0 {
		t.Errorf("the Service of a path is left over: %v", left)
	}
	locks := f.locks
	f.locks, f.paths[0].reason = nil, v1alpha1.ReasonPrefixesRefused
	if left := f.leftFronts(); len(left) != 0 {
		t.Errorf("while keys are not known the Service of a path is left over: %v", left)
	}
	f.locks = locks
	f.pairs[0].direct, f.paths = false, nil
	f.takePaths([]*v1alpha1.NetworkPath{askedPath("rome", path1, oslo)})
	if left := f.leftFronts(); len(left) != 1 {
		t.Errorf("the Service of a path that is not allowed stays: %v", left)
	}
}

func serviceAt(f *facts, name string) *corev1.Service {
	f.services[name] = &corev1.Service{}
	return f.services[name]
}

// TestTenantAllows holds that a Tenant which allows direct paths, or does no more, is looked at at once.
func TestTenantAllows(t *testing.T) {
	was, is := &v1alpha1.Tenant{}, &v1alpha1.Tenant{}
	is.Spec.DirectPaths = true
	if !tenantChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) || !tenantChanged().Update(event.UpdateEvent{ObjectOld: is, ObjectNew: was}) {
		t.Error("spec.directPaths causes no look")
	}
	if tenantChanged().Update(event.UpdateEvent{ObjectOld: is, ObjectNew: is.DeepCopy()}) {
		t.Error("what has not changed causes a look")
	}
}
