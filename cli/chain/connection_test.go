package chain

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestConnection(t *testing.T) {
	pod := func(name, node, address string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	}
	whole := func() ConnectionFacts {
		return ConnectionFacts{
			From: pod("web", "rome-1", "10.42.0.5"), To: pod("db", "milan", "10.81.0.7"),
			At: map[string]string{"milan": "milan", "turin": "turin"},
			Links: map[string]Link{"milan": {Up: true, Gateway: "rome-1",
				Views:  []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.81.0.0/16"}},
				SeenAs: []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.90.0.0/16"}}}},
			Slices: []discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.5"}}}}},
			Mapped: []string{"milan"},
		}
	}
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
		f.From, f.Mapped = pod("web", "turin", "10.85.0.5"), append(f.Mapped, "turin")
		f.Links["turin"] = Link{Up: true, Gateway: "rome-2",
			Views:  []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.85.0.0/16"}},
			SeenAs: []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.90.0.0/16"}, {Real: "10.81.0.0/16", View: "10.91.0.0/16"}}}
		f.Slices[0].Endpoints[0].Addresses[0] = "10.81.0.7"
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
		{"no network", func(f *ConnectionFacts) { f.Links = nil }, "a network with milan", "both sides"},
		{"no view here", link(func(l *Link) { l.Views = nil }), "a network with milan", "no view here"},
		{"no view there", link(func(l *Link) { l.SeenAs = nil }), "a network with milan", "no view of this cluster"},
		{"no address here", func(f *ConnectionFacts) { f.To.Status.PodIP = "" }, "db has an address", "none here yet"},
		{"no address there", both(back, func(f *ConnectionFacts) { f.To.Status.PodIP = "10.99.0.1" }), "web has an address", "no range that milan sees"},
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
	} {
		f := whole()
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
