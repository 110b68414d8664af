package chain

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// pod is one of namespace shop that is ready.
func pod(name, node string, addresses ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: addresses[0], Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	for _, a := range addresses {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	return p
}

// connected is a pod here that can reach one at milan, and be reached by it.
func connected() ConnectionFacts {
	return ConnectionFacts{
		From: pod("web", "rome-1", "10.42.0.5"), To: pod("db", "milan", "10.81.0.7"),
		At: map[string]string{"milan": "milan", "turin": "turin"},
		Links: map[string]Link{"milan": {Up: true, Gateway: "rome-1", Policies: true,
			Views:  []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.81.0.0/16"}},
			SeenAs: []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.90.0.0/16"}}}},
		Slices: []discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.5"}}}}},
		Mapped: map[string][]string{"shop": {"milan"}},
		Spaces: map[string]map[string]string{"shop": {"team": "a"}},
	}
}

func TestConnection(t *testing.T) {
	link := func(change func(*Link)) func(*ConnectionFacts) {
		return func(f *ConnectionFacts) {
			l := f.Links["milan"]
			change(&l)
			f.Links["milan"] = l
		}
	}
	back := func(f *ConnectionFacts) { f.From, f.To = f.To, f.From }
	both := func(a, b func(*ConnectionFacts)) func(*ConnectionFacts) {
		return func(f *ConnectionFacts) { a(f); b(f) }
	}
	// From runs at turin, which sees milan's pods by way of home.
	turin := func(f *ConnectionFacts) {
		f.From, f.Mapped["shop"] = pod("web", "turin", "10.85.0.5"), append(f.Mapped["shop"], "turin")
		f.Links["turin"] = Link{Up: true, Gateway: "rome-2",
			Views:  []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.85.0.0/16"}},
			SeenAs: []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.90.0.0/16"}, {Real: "10.81.0.0/16", View: "10.91.0.0/16"}}}
		f.Slices[0].Endpoints[0].Addresses[0] = "10.81.0.7"
	}
	// Both have addresses of both families, and so do both sides of the network.
	dual := both(link(func(l *Link) {
		l.Views = append(l.Views, v1alpha1.NetworkView{Real: "fd42::/64", View: "fd81::/64"})
		l.SeenAs = append(l.SeenAs, v1alpha1.NetworkView{Real: "fd42::/64", View: "fd90::/64"})
	}), func(f *ConnectionFacts) {
		f.From, f.To = pod("web", "rome-1", "10.42.0.5", "fd42::5"), pod("db", "milan", "10.81.0.7", "fd81::7")
	})
	six := func(f *ConnectionFacts) {
		f.Slices = append(f.Slices, discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"fd42::5"}}}})
	}
	for _, c := range []struct {
		reason string
		change func(*ConnectionFacts)
		fact   string // at which it stops; "" if nowhere
		says   string
	}{
		{"all is well", func(*ConnectionFacts) {}, "", "10.81.0.7"},
		{"and back", back, "", "10.90.0.5"},
		{"within home", func(f *ConnectionFacts) { f.To.Spec.NodeName = "rome-2" }, "", "both are here"},
		{"within a provider", func(f *ConnectionFacts) { f.From.Spec.NodeName = "milan" }, "", "both are at milan"},
		{"it does not run", func(f *ConnectionFacts) { f.To.Status.Phase = corev1.PodPending }, "db runs", "Pending"},
		{"it is not ready", func(f *ConnectionFacts) { f.From.Status.Conditions = nil }, "web runs", "explain pod web"},
		{"the one there is not ready, and its tunnel is down", both(link(func(l *Link) { l.Up, l.Problem, l.Remedy = false, "nothing comes back", "see UDP" }), func(f *ConnectionFacts) {
			f.To.Status.Conditions[0].Status = corev1.ConditionFalse
		}), "the tunnel to milan", "nothing comes back"},
		{"it is not ready, and its tunnel is well", func(f *ConnectionFacts) {
			f.To.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "containers with unready status: [db]"}}
		}, "db runs and is ready", "it runs, and is not ready: ContainersNotReady"},
		{"no network", func(f *ConnectionFacts) { f.Links = nil }, "a network with milan", "both sides"},
		{"no view here", link(func(l *Link) { l.Views = nil }), "a network with milan", "no view here"},
		{"no view there", link(func(l *Link) { l.SeenAs = nil }), "a network with milan", "no view of this cluster"},
		{"no address here", func(f *ConnectionFacts) { f.To.Status.PodIP, f.To.Status.PodIPs = "", nil }, "db has an address", "none here yet"},
		{"no address there", both(back, func(f *ConnectionFacts) { f.To = pod("web", "rome-1", "10.99.0.1") }), "web has an address", "no range that milan sees"},
		{"a node's address", both(back, func(f *ConnectionFacts) {
			f.To = pod("web", "rome-1", "192.168.0.1")
			f.To.Spec.HostNetwork = true
		}), "web has an address", "it has hostNetwork"},
		{"the tunnel is down", link(func(l *Link) { l.Up, l.Problem, l.Remedy = false, "nothing comes back", "see UDP" }), "the tunnel to milan", "nothing comes back"},
		{"nothing offloaded there", both(back, func(f *ConnectionFacts) { f.Mapped = nil }), "let it begin", "not offloaded to milan"},
		{"no Service", both(back, func(f *ConnectionFacts) { f.Slices = nil }), "let it begin", "no Service selects web"},
		{"the peer's own choice is not known", func(*ConnectionFacts) {}, "", "the peer may let less pass, by the Tenant's spec.reachability at milan"},
		{"this cluster lets none be reached by the provider", link(func(l *Link) { l.Reach = v1alpha1.ReachNone }), "lets its pods take part", "own choice closes the way: Peering milan"},
		{"nor the other way round", both(back, link(func(l *Link) { l.Reach = v1alpha1.ReachNone })), "lets its pods take part", "pelago peer milan --reachability"},
		{"the namespace lets none be reached", func(f *ConnectionFacts) { f.ToSpace = v1alpha1.ReachNone }, "lets its pods take part", "the NamespaceOffloading of shop"},
		{"no Service, and the namespace lets all be reached", both(back, func(f *ConnectionFacts) { f.Slices, f.ToSpace = nil, v1alpha1.ReachFull }), "", "namespace shop lets all of its pods"},
		{"no Service, and the cluster lets all be reached", both(back, both(link(func(l *Link) { l.Reach = v1alpha1.ReachFull }), func(f *ConnectionFacts) { f.Slices, f.Mapped = nil, nil })), "", "lets milan reach all of its pods"},
		{"two providers", turin, "", "10.91.0.7"},
		{"two providers, and no way through home", both(turin, func(f *ConnectionFacts) {
			l := f.Links["turin"]
			l.SeenAs = l.SeenAs[:1]
			f.Links["turin"] = l
		}), "db has an address", "is in no range that turin sees"},
		{"two providers, of which the other one is cut off", both(turin, link(func(l *Link) { l.Up, l.Problem, l.Remedy = false, "nothing comes back", "see UDP" })), "the tunnel to milan", "nothing comes back"},
		{"two providers, one without a network", func(f *ConnectionFacts) { f.From.Spec.NodeName = "turin" }, "a network with turin", "both sides"},
		{"both families", dual, "", "fd81::7"},
		{"both families and back", both(both(dual, six), back), "", "fd90::5"},
		{"both families, and there is no view of IPv6", both(both(dual, both(six, back)), link(func(l *Link) { l.SeenAs = l.SeenAs[:1] })), "runs, by IPv6", "fd42::5 is in no range that milan sees"},
		{"a Service of IPv4 alone", both(dual, back), "", "have no address of IPv6, so nothing at milan"},
		{"no Service of either family", both(both(dual, back), func(f *ConnectionFacts) { f.Slices = nil }), "let it begin, by IPv4", "no Service selects web"},
		{"no family in common", func(f *ConnectionFacts) { f.To = pod("db", "milan", "fd81::7") }, "db has an address", "family in common"},
	} {
		f := connected()
		c.change(&f)
		got := Connection(f)
		stop, all := got.First(), ""
		for _, s := range got.Steps {
			all += s.Evidence + "; " + s.Remedy + "\n"
		}
		switch {
		case c.fact == "" && stop != nil:
			t.Errorf("%s: it stops at %+v", c.reason, stop)
		case c.fact != "" && (stop == nil || !strings.Contains(stop.Fact, c.fact) || stop.Remedy == ""):
			t.Errorf("%s: it stops at %+v, want %s", c.reason, stop, c.fact)
		}
		if !strings.Contains(all, c.says) {
			t.Errorf("%s: nothing says %q:\n%s", c.reason, c.says, all)
		}
	}
}
