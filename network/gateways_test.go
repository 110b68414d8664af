package network

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/throttle"
)

// knowing is what a gateway of the peering milan says of pods; a peer of -1 says nothing.
func knowing(away, peer int64) map[string]v1alpha1.AppliedPods {
	known := v1alpha1.AppliedPods{Away: map[string]int64{"milan": away}}
	if peer >= 0 {
		known.Peer = &peer
	}
	return map[string]v1alpha1.AppliedPods{"peering-milan": known}
}

// TestBehind is who does not know a pod of version 10 here and 20 there.
func TestBehind(t *testing.T) {
	gateway := func(alive bool, r v1alpha1.TunnelReport, applied map[string]v1alpha1.AppliedPods) agent {
		a := reporter(alive, r)
		a.applied = applied
		return a
	}
	for _, c := range []struct {
		reason string
		agents []agent
		want   string
	}{
		{"nobody says anything", nil, ""},
		{"its gateway is of an older build", []agent{reporter(true, lives)}, ""},
		{"neither knows it", []agent{gateway(true, lives, knowing(9, 19))}, "home provider"},
		{"home does not", []agent{gateway(true, lives, knowing(9, 20))}, "home"},
		{"the provider does not", []agent{gateway(true, lives, knowing(10, 19))}, "provider"},
		{"both do", []agent{gateway(true, lives, knowing(10, 20))}, ""},
		{"both know more", []agent{gateway(true, lives, knowing(100, 200))}, ""},
		{"the provider is of an older build", []agent{gateway(true, lives, knowing(10, -1))}, ""},
		{"the provider is of an older build, and home does not know it", []agent{gateway(true, lives, knowing(9, -1))}, "home"},
		{"home knows nothing yet of the virtual node", []agent{gateway(true, lives, map[string]v1alpha1.AppliedPods{"peering-milan": {}})}, "home"},
		{"the tunnel is dead", []agent{gateway(true, dead, knowing(9, 19))}, ""},
		{"who says so is gone", []agent{gateway(false, lives, knowing(9, 19))}, ""},
		{"it moves, and one of two does not know it", []agent{gateway(true, lives, knowing(10, 20)), gateway(true, lives, knowing(9, 20))}, "home"},
		{"it moves, and one of two is of an older build", []agent{gateway(true, lives, knowing(10, 20)), reporter(true, lives)}, ""},
		{"it moves to one whose tunnel does not live yet", []agent{gateway(true, lives, knowing(10, 20)), gateway(true, begins, knowing(0, -1))}, ""},
	} {
		home, provider := lacking(applied(c.agents)["peering-milan"], "milan", 10, 20)
		if got := who(home, provider); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
	if home, provider := lacking(applied([]agent{gateway(true, lives, knowing(0, 0))})["peering-milan"], "milan", 0, 0); home || provider {
		t.Error("who is not asked is behind")
	}
}

// TestForetold is who knows a pod of version 10 here and 20 there from what the provider's gateway has told.
func TestForetold(t *testing.T) {
	says := func(away, after, upTo int64) v1alpha1.AppliedPods {
		return v1alpha1.AppliedPods{Away: map[string]int64{"milan": away}, Peer: ptr.To(max(upTo, 20)), Heralded: &v1alpha1.HeraldedPods{After: after, UpTo: upTo}}
	}
	lower := says(10, 0, 20)
	lower.Peer = ptr.To[int64](19)
	older := v1alpha1.AppliedPods{Away: map[string]int64{"milan": 10}}
	for _, c := range []struct {
		reason     string
		said       []v1alpha1.AppliedPods
		known, may bool
	}{
		{"nobody says anything", nil, false, false},
		{"the provider is of an older build", []v1alpha1.AppliedPods{older}, false, false},
		{"it was told", []v1alpha1.AppliedPods{says(10, 19, 20)}, true, false},
		{"its numbers have gone down since", []v1alpha1.AppliedPods{lower}, false, true},
		{"much was told", []v1alpha1.AppliedPods{says(100, 0, 200)}, true, false},
		{"it was not told yet", []v1alpha1.AppliedPods{says(10, 0, 19)}, false, true},
		{"home does not know yet that it is on the node", []v1alpha1.AppliedPods{says(9, 0, 20)}, false, true},
		{"what was told of it was lost", []v1alpha1.AppliedPods{says(10, 20, 30)}, false, false},
		{"it moves, and both were told", []v1alpha1.AppliedPods{says(10, 0, 20), says(10, 10, 20)}, true, false},
		{"it moves, and one of two was not told yet", []v1alpha1.AppliedPods{says(10, 0, 20), says(10, 10, 19)}, false, true},
		{"it moves, and one of two never was", []v1alpha1.AppliedPods{says(10, 0, 20), says(10, 20, 20)}, false, false},
		{"it moves, and one of two is of an older build", []v1alpha1.AppliedPods{says(10, 0, 20), older}, false, false},
	} {
		known, may := foretold(c.said, "milan", 10, 20)
		if known != c.known || may != c.may {
			t.Errorf("%s: known %t, may be %t; want %t, %t", c.reason, known, may, c.known, c.may)
		}
	}
	if known, may := foretold([]v1alpha1.AppliedPods{says(10, 0, 20)}, "milan", 10, 0); known || may {
		t.Error("a pod is known of which the provider does not say since when")
	}
}

func who(home, provider bool) string {
	var all []string
	if home {
		all = append(all, "home")
	}
	if provider {
		all = append(all, "provider")
	}
	return strings.Join(all, " ")
}

// saying is the event of a Lease that says something of the tunnel to milan and of its pods.
func saying(renewed time.Time, alive bool, pods string) event.CreateEvent {
	text := `{"peering-milan":{"alive":false}}`
	if alive {
		text = `{"peering-milan":{"alive":true,"since":"2026-11-22T12:00:00Z"}}`
	}
	e := created(text, renewed)
	if pods != "" {
		e.Object.GetAnnotations()[v1alpha1.AnnotationAppliedPods] = pods
	}
	return e
}

// TestGateways is what is remembered of gateways, who is told of it when, and that nobody looks at
// everything because of it.
func TestGateways(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	n := New(Options{})
	d := newDecider(n, nil, nil, nil)
	n.learn(&picture{views: nothing.views, there: nothing.there, tunnels: map[string]bool{"peering-milan": true}})
	queue := func() workqueue.TypedRateLimitingInterface[ctrl.Request] {
		q := workqueue.NewTypedRateLimitingQueue[ctrl.Request](&throttle.Rests{})
		context.AfterFunc(ctx, q.ShutDown)
		return q
	}
	waiting, looks := queue(), queue()
	if err := n.GatewaySource(ofPeer).Start(ctx, waiting); err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	d.agents.handler().Create(ctx, saying(at, true, ""), looks) // the first sight is news
	d.agents.now()
	if looks.Len() != 1 {
		t.Fatalf("%d looks", looks.Len())
	}
	first, _ := looks.Get()
	looks.Done(first)
	took, _ := waiting.Get() // it has a gateway now
	waiting.Done(took)
	for _, c := range []struct {
		reason string
		alive  bool
		pods   string
		told   bool
		look   bool
		want   string
	}{
		{"it says something of pods", true, `{"peering-milan":{"away":{"milan":9},"peer":19}}`, true, false, "home provider"},
		{"the same", true, `{"peering-milan":{"away":{"milan":9},"peer":19}}`, false, false, "home provider"},
		{"one is further", true, `{"peering-milan":{"away":{"milan":10},"peer":19}}`, true, false, "provider"},
		{"of another peering", true, `{"peering-milan":{"away":{"milan":10},"peer":19},"peering-oslo":{}}`, false, false, "provider"},
		{"its tunnel dies", false, `{"peering-milan":{"away":{"milan":10},"peer":20}}`, false, true, "provider"},
		{"and lives", true, `{"peering-milan":{"away":{"milan":10},"peer":20}}`, true, true, ""},
		{"numbers fall, as after a restore", true, `{"peering-milan":{"away":{"milan":1},"peer":2}}`, true, false, "home provider"},
		{"what cannot be read", true, `x`, true, false, ""},
	} {
		at = at.Add(time.Millisecond)
		d.agents.handler().Create(ctx, saying(at, c.alive, c.pods), looks)
		d.agents.now()
		home, provider := n.Behind("milan", "milan", 10, 20)
		if got := who(home, provider); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
		if c.told {
			r, _ := waiting.Get()
			if waiting.Done(r); r.Name != "milan" {
				t.Errorf("%s: %q is told", c.reason, r.Name)
			}
		}
		if (looks.Len() > 0) != c.look {
			t.Errorf("%s: %d looks at everything", c.reason, looks.Len())
		}
		for looks.Len() > 0 {
			r, _ := looks.Get()
			looks.Done(r)
		}
	}
	d.agents.handler().Create(ctx, saying(at.Add(time.Second), true, `{"peering-milan":{"away":{"milan":1}}}`), looks)
	n.tunnels.want(nil)
	n.tunnels.want(map[string]bool{"peering-milan": true})
	if home, _ := n.Behind("milan", "milan", 10, 0); home {
		t.Error("what was said of a peering that has ended is remembered")
	}
	r, _ := waiting.Get()
	if waiting.Done(r); waiting.Len() > 0 {
		t.Error("more is told than has changed")
	}
}
