package network

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/network/ipam"
)

// told is a queue of what a source tells. Mapper, if set, is called for each name.
func told(t *testing.T, from func(func(string) []reconcile.Request) source.Source, mapper func(name string)) workqueue.TypedRateLimitingInterface[ctrl.Request] {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue[ctrl.Request](&throttle.Rests{})
	t.Cleanup(q.ShutDown)
	err := from(func(name string) []reconcile.Request {
		if mapper != nil {
			mapper(name)
		}
		return ofPeer(name)
	}).Start(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// next is the name that is told next.
func next(t *testing.T, q workqueue.TypedRateLimitingInterface[ctrl.Request]) string {
	t.Helper()
	within(t, "something is told", func() bool { return q.Len() > 0 })
	r, _ := q.Get()
	q.Done(r)
	return r.Name
}

// TestViewSource holds that exactly those are woken of whom something else is answered.
func TestViewSource(t *testing.T) {
	rome, oslo := provided("rome", noon, "10.9.0.0/16"), provided("oslo", noon, "10.7.0.0/16")
	milan := &pair{namespace: v1alpha1.PeeringNamespace("milan"), key: consumerKey("milan"), peering: "milan", peer: "milan", since: noon, consumes: true, wanted: true,
		consumer: &v1alpha1.NetworkConfig{Spec: v1alpha1.NetworkConfigSpec{Pods: []string{"10.42.0.0/16"}}},
		provider: &v1alpha1.NetworkConfig{Spec: v1alpha1.NetworkConfigSpec{Pods: []string{"10.6.0.0/16", "10.5.0.0/16"}}}}
	none := func(p *pair) func() { return func() { p.wanted = false } }
	for _, c := range []struct {
		reason            string
		change            func()
		peerings, tenants string // who is told
	}{
		{"nothing changes", func() {}, "", ""},
		{"how this cluster sees a tenant", func() { rome.consumer.Spec.Pods = []string{"10.8.0.0/16"} }, "", "rome"},
		{"where a tenant's API server is", func() {
			oslo.consumer.Spec.External, oslo.consumer.Spec.APIServer = []string{"10.3.0.0/24"}, "10.3.0.2:443"
		}, "", "oslo"},
		{"at which port it is", func() { oslo.consumer.Spec.APIServer = "10.3.0.2:6443" }, "", "oslo"},
		{"the key of a tenant", func() { rome.consumer.Spec.PublicKey = keyOf(7).Public().String() }, "", ""},
		{"how a provider sees this cluster", func() {
			milan.consumer.Status.Views = []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.77.0.0/16"}}
		}, "milan", ""},
		{"how this cluster sees a provider", func() { milan.provider.Spec.Pods = []string{"10.4.0.0/16", "10.5.0.0/16"} }, "milan", ""},
		{"the order in which a provider says his ranges", func() { milan.provider.Spec.Pods = []string{"10.5.0.0/16", "10.4.0.0/16"} }, "", ""},
		{"a network goes off", none(rome), "", "rome"},
		{"another one, of a provider", none(milan), "milan", ""},
		{"nothing changes any more", func() {}, "", ""},
	} {
		n := New(Options{})
		before := decide(usual(rome, oslo, milan)).picture
		n.learn(before)
		c.change()
		after := decide(usual(rome, oslo, milan)).picture
		for _, of := range []struct {
			prefix, want string
			from         func(func(string) []reconcile.Request) source.Source
		}{{consumerKey(""), c.peerings, n.ViewSource}, {providerKey(""), c.tenants, n.TenantViewSource}} {
			if got := strings.Join(changes(before.words, after.words, of.prefix), " "); got != of.want {
				t.Errorf("%s: %s%q is told, want %q", c.reason, of.prefix, got, of.want)
			}
			if of.want != "" {
				q := told(t, of.from, nil)
				n.learn(before)
				n.learn(after)
				if got := next(t, q); got != of.want {
					t.Errorf("%s: %s%q comes, want %s", c.reason, of.prefix, got, of.want)
				}
			}
		}
	}
}

// TestWokenSeeNew holds that who is woken is answered by what is new, always.
func TestWokenSeeNew(t *testing.T) {
	n := New(Options{})
	rome := provided("rome", noon, "10.9.0.0/16")
	pictures := []*picture{}
	for _, pods := range []string{"10.9.0.0/16", "10.8.0.0/16"} {
		rome.consumer.Spec.Pods = []string{pods}
		pictures = append(pictures, decide(usual(rome)).picture)
	}
	sees := make(chan bool)
	told(t, n.TenantViewSource, func(string) { sees <- n.Allows("rome", addr("10.9.0.7")) })
	for i := range 200 {
		n.learn(pictures[i%2])
		if got, want := <-sees, i%2 == 0; got != want {
			t.Fatalf("after change %d who is woken sees what was before: %t", i, got)
		}
	}
}

// inViews says whether an address is in a view.
func inViews(views []v1alpha1.NetworkView, a netip.Addr) bool {
	return slices.ContainsFunc(parsed(views), func(v ipam.View) bool { return v.View.Contains(a) })
}

// TestStoredBeforeTold holds that what is told to others is what is stored, so that a process
// which dies in between leaves nothing that its successor would decide otherwise.
func TestStoredBeforeTold(t *testing.T) {
	w := newWorld(t)
	w.settle()
	type seen struct {
		here   netip.Addr
		stored []v1alpha1.NetworkView
	}
	all := make(chan seen, 100)
	q := told(t, w.rome.network.ViewSource, func(string) {
		here, _ := w.rome.network.View(w.rome.peer, addr("10.99.0.7"))
		c := &v1alpha1.NetworkConfig{}
		if err := w.raw.Get(ctx, client.ObjectKey{Namespace: w.rome.sees[0], Name: v1alpha1.NetworkProvider}, c); err != nil {
			t.Error(err)
		}
		all <- seen{here, c.Status.Views}
	})
	w.settle()
	if q.Len() > 0 {
		t.Error("looks that change nothing are told")
	}
	w.milan.config.Network.Pods = []string{"10.99.0.0/16"}
	w.settle()
	if got := next(t, q); got != w.rome.peer {
		t.Errorf("%q is told, want %s", got, w.rome.peer)
	}
	for range len(all) {
		s := <-all
		if s.here.IsValid() && !inViews(s.stored, s.here) {
			t.Errorf("%s is told, and stored is %v", s.here, s.stored)
		}
	}
	if here, ok := w.rome.network.View(w.rome.peer, addr("10.99.0.7")); !ok || !inViews(w.rome.pair(v1alpha1.NetworkProvider).Status.Views, here) {
		t.Errorf("in the end it is %s, %t", here, ok)
	}
	// It dies between deciding and telling: the next one tells the same.
	was := w.rome.pair(v1alpha1.NetworkProvider).Status.Views
	w.rome.restart()
	tells := told(t, w.rome.network.ViewSource, nil)
	w.settle()
	if got := next(t, tells); got != w.rome.peer {
		t.Errorf("a new process tells %q", got)
	}
	if d := cmp.Diff(was, w.rome.pair(v1alpha1.NetworkProvider).Status.Views); d != "" {
		t.Error(d)
	}
}

// TestKnown holds that nothing is known before the first look, and that this can be told.
func TestKnown(t *testing.T) {
	n := New(Options{Clock: testingclock.NewFakePassiveClock(noon)})
	asked := make(chan bool, 1)
	go func() { asked <- n.Known() }()
	n.learn(decide(usual(provided("rome", noon, "10.9.0.0/16"))).picture)
	if !<-asked || !n.Known() {
		t.Error("nothing is known after the first look")
	}
	late := New(Options{Clock: testingclock.NewFakePassiveClock(noon)})
	close(late.impatient)
	late.waiting.Do(func() {})
	if late.Known() {
		t.Error("something is known without a look")
	}
}

// TestComing is how long the API server of a consumer may be coming.
func TestComing(t *testing.T) {
	published := func(api string) func(*pair) {
		return func(p *pair) { p.consumer.Spec.External, p.consumer.Spec.APIServer = []string{"10.254.7.0/24"}, api }
	}
	silent := func(p *pair) { p.consumer.Spec = v1alpha1.NetworkConfigSpec{} }
	for _, c := range []struct {
		reason string
		change func(*pair)
		after  time.Duration
		want   string
	}{
		{"it is there", published("10.254.7.2:443"), 0, "there"},
		{"there is none", published(""), 0, "none"},
		{"nothing has been published", silent, 0, "coming"},
		{"nor after some seconds", silent, comingFor - 1, "coming"},
		{"nor after some more", silent, comingFor, "none"},
		{"nothing was carried yet", func(p *pair) { p.consumer = nil }, 0, "coming"},
		{"it is not known whether there is a network", func(p *pair) { p.consumer, p.provider, p.wanted, p.unsure = nil, nil, false, true }, 0, "coming"},
		{"its network is off", func(p *pair) { p.consumer, p.provider, p.wanted = nil, nil, false }, 0, "none"},
		{"it has no view", published("192.0.2.1:443"), 0, "coming"},
		{"and gets none", published("192.0.2.1:443"), comingFor, "none"},
		{"it is where we provide", func(p *pair) { p.consumes = true }, 0, "none"},
	} {
		p := provided("rome", noon, "10.9.0.0/16")
		p.begun = noon
		c.change(p)
		clock := testingclock.NewFakePassiveClock(noon)
		n := New(Options{Clock: clock})
		n.learn(decide(usual(p)).picture)
		for _, look := range []bool{false, true} { // by what was known, and by what is
			clock.SetTime(noon.Add(c.after))
			if look {
				f := usual(p)
				f.now = clock.Now()
				n.learn(decide(f).picture)
			}
			at, coming := n.HomeAPI("rome")
			got := "none"
			if at.IsValid() {
				got = "there"
			} else if coming {
				got = "coming"
			}
			if got != c.want || at.IsValid() && coming {
				t.Errorf("%s, with a new look %t: %s, want %s", c.reason, look, got, c.want)
			}
		}
	}
}

// TestComingUnknown: before the first look it may be coming, though not for ever.
func TestComingUnknown(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	n := New(Options{Clock: clock})
	close(n.impatient)
	n.waiting.Do(func() { n.asked.Store(new(noon)) })
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {comingUnknown - 1, true}, {comingUnknown, false}} {
		clock.SetTime(noon.Add(c.after))
		if at, coming := n.HomeAPI("rome"); at.IsValid() || coming != c.want {
			t.Errorf("after %s: %v, coming %t", c.after, at, coming)
		}
	}
}

// TestBegin is since when a network is wanted.
func TestBegin(t *testing.T) {
	r := &decider{}
	begun := func(at time.Time, wanted, unsure bool) time.Time {
		p := &pair{key: "tenant-rome", wanted: wanted, unsure: unsure}
		r.begin(&facts{now: at, pairs: []*pair{p}})
		return p.begun
	}
	for i, c := range []struct {
		at             time.Duration
		wanted, unsure bool
		want           time.Duration
	}{
		{0, false, true, 0}, {1, false, true, 0}, {2, true, true, 2}, {3, true, false, 2}, {9, true, false, 2}, {10, false, false, -1}, {11, true, false, 11}, {5, true, false, 5},
	} {
		want := noon.Add(c.want * time.Second)
		if c.want < 0 {
			want = time.Time{}
		}
		if got := begun(noon.Add(c.at*time.Second), c.wanted, c.unsure); !got.Equal(want) {
			t.Errorf("step %d: %s, want %s", i, got, want)
		}
	}
}
