package offer

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
)

// usual is a tenant with one request that has not been answered.
func usual(change ...func(*facts)) facts {
	f := facts{
		now:     at(0),
		request: &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		tenant:  &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}},
		asks:    []ask{{name: "default"}},
		read:    ample(),
		settings: home.Config{
			Cluster: home.Cluster{Labels: map[string]string{"topology.kubernetes.io/region": "eu"}},
			Offer:   home.Offer{Price: &v1alpha1.Price{Amount: "1", Currency: "EUR", Period: "Hour"}},
		},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

// answered has the offer that usual leads to, made at(0).
func answered(f *facts) {
	f.offer = &v1alpha1.ResourceOffer{Spec: decide(usual()).spec}
	f.written = at(0)
	f.request.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionOffered, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOffered}}
}

func later(d time.Duration) func(*facts)        { return func(f *facts) { f.now = f.now.Add(d) } }
func state(s v1alpha1.TenantState) func(*facts) { return func(f *facts) { f.tenant.Spec.State = s } }
func decision(d v1alpha1.Decision) func(*facts) {
	return func(f *facts) { f.request.Spec.Decision = d }
}
func free(l v1alpha1.ResourceList) func(*facts) { return func(f *facts) { f.read.Free = l } }
func withheld(f *facts)                         { f.read.Free, f.read.Withheld = nil, v1alpha1.ReasonFiltered }
func unknown(f *facts)                          { f.unknown, f.read = true, Resources{} }
func limits(cpus string) func(*facts) {
	return func(f *facts) { f.tenant.Spec.Limits = &v1alpha1.TenantLimits{Resources: list(cpu, cpus)} }
}
func using(l v1alpha1.ResourceList) func(*facts) {
	return func(f *facts) { f.read.Used = map[string]v1alpha1.ResourceList{"default": l} }
}
func offeredBefore(reason string, when time.Time) func(*facts) {
	return func(f *facts) {
		c := metav1.Condition{Type: v1alpha1.ConditionOffered, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.NewTime(when)}
		if reason == v1alpha1.ReasonOffered {
			c.Status = metav1.ConditionTrue
		}
		f.request.Status.Conditions = []metav1.Condition{c}
	}
}

func TestDecide(t *testing.T) {
	less := list(cpu, "7", memory, "50", pods, "100", "example.com/gpu", "1")
	tinyLess := list(cpu, "7999m", memory, "50", pods, "100", "example.com/gpu", "1")
	for _, c := range []struct {
		reason  string
		facts   facts
		action  action
		said    string // reason of Offered
		again   time.Duration
		stalled bool
	}{
		{reason: "the first offer", facts: usual(), action: put, said: v1alpha1.ReasonOffered, again: 12 * time.Hour},
		{reason: "nothing has changed", facts: usual(answered), action: keep, said: v1alpha1.ReasonOffered, again: 12*time.Hour + time.Second},
		{reason: "less is free", facts: usual(answered, later(2*time.Second), free(less)), action: put, said: v1alpha1.ReasonOffered, again: 12 * time.Hour},
		{reason: "less is free within the second: next second", facts: usual(answered, later(300*time.Millisecond), free(less)), action: keep, said: v1alpha1.ReasonOffered, again: 700 * time.Millisecond},
		{reason: "a tiny change waits", facts: usual(answered, later(2*time.Second), free(tinyLess)), action: keep, said: v1alpha1.ReasonOffered, again: 28 * time.Second},
		{reason: "but not for ever", facts: usual(answered, later(30*time.Second), free(tinyLess)), action: put, said: v1alpha1.ReasonOffered, again: 12 * time.Hour},
		{reason: "one pod is not tiny", facts: usual(answered, later(2*time.Second), free(list(cpu, "8", memory, "50", pods, "99", "example.com/gpu", "1"))), action: put, said: v1alpha1.ReasonOffered, again: 12 * time.Hour},
		{reason: "settings", facts: usual(answered, later(2*time.Second), func(f *facts) { f.settings.Cluster.Labels = nil }), action: put, said: v1alpha1.ReasonOffered, again: 12 * time.Hour},
		{reason: "renewed at half", facts: usual(answered, later(12*time.Hour+time.Second)), action: put, said: v1alpha1.ReasonOffered, again: 12 * time.Hour},
		{reason: "no tenant", facts: usual(func(f *facts) { f.tenant = nil }), action: keep, said: v1alpha1.ReasonWaiting},
		{reason: "a bad request loses its offer", facts: usual(answered, func(f *facts) { f.request.Spec.Resources = list(cpu, "-1") }), action: remove, said: v1alpha1.ReasonInvalid, stalled: true},
		{reason: "drained", facts: usual(answered, state(v1alpha1.TenantDrained)), action: remove, said: v1alpha1.ReasonDrained},
		{reason: "cordoned: nothing new", facts: usual(state(v1alpha1.TenantCordoned)), action: keep, said: v1alpha1.ReasonCordoned},
		{reason: "cordoned: an accepted offer is emptied", facts: usual(answered, later(2*time.Second), state(v1alpha1.TenantCordoned), decision(v1alpha1.DecisionAccepted)), action: put, said: v1alpha1.ReasonCordoned, again: 12 * time.Hour},
		{reason: "cordoned: so it is with pods running", facts: usual(answered, later(2*time.Second), state(v1alpha1.TenantCordoned), decision(v1alpha1.DecisionAccepted), using(list(cpu, "1", memory, "1", pods, "1"))), action: put, said: v1alpha1.ReasonCordoned, again: 12 * time.Hour},
		{reason: "cordoned: what nobody has accepted goes", facts: usual(answered, later(2*time.Second), state(v1alpha1.TenantCordoned)), action: remove, said: v1alpha1.ReasonCordoned},
		{reason: "all is in use by this consumer: that is an offer", facts: usual(answered, later(2*time.Second), free(nil), decision(v1alpha1.DecisionAccepted), using(list(cpu, "1", memory, "1", pods, "1"))), action: put, said: v1alpha1.ReasonOffered, again: 12 * time.Hour},
		{reason: "a pod was bound: there is as much in all as before", facts: usual(answered, later(2*time.Second), free(list(cpu, "7", memory, "40", pods, "99", "example.com/gpu", "1")), using(list(cpu, "1", memory, "10", pods, "1"))), action: keep, said: v1alpha1.ReasonOffered, again: 28 * time.Second},
		{reason: "that is told in the end", facts: usual(answered, later(30*time.Second), free(list(cpu, "7", memory, "40", pods, "99", "example.com/gpu", "1")), using(list(cpu, "1", memory, "10", pods, "1"))), action: put, said: v1alpha1.ReasonOffered, again: 12 * time.Hour},
		{reason: "the last room was taken", facts: usual(answered, later(2*time.Second), free(nil), decision(v1alpha1.DecisionAccepted), using(list(cpu, "8", memory, "50", pods, "100", "example.com/gpu", "1"))), action: put, said: v1alpha1.ReasonOffered, again: 12 * time.Hour},
		{reason: "a pod was bound, and more is taken than it has", facts: usual(answered, later(2*time.Second), free(less), using(list(cpu, "1", pods, "1"))), action: put, said: v1alpha1.ReasonOffered, again: 12 * time.Hour},
		{reason: "only what is used changes, within the second", facts: usual(answered, later(300*time.Millisecond), using(list(cpu, "1"))), action: keep, said: v1alpha1.ReasonOffered, again: 700 * time.Millisecond},
		{reason: "declined", facts: usual(answered, decision(v1alpha1.DecisionDeclined)), action: remove, said: v1alpha1.ReasonDeclined},
		{reason: "nothing free, nothing promised", facts: usual(free(nil)), action: remove, said: v1alpha1.ReasonNothingFree},
		{reason: "nothing free, not accepted", facts: usual(answered, free(nil)), action: remove, said: v1alpha1.ReasonNothingFree},
		{reason: "nothing free, accepted: emptied", facts: usual(answered, later(2*time.Second), free(nil), decision(v1alpha1.DecisionAccepted)), action: put, said: v1alpha1.ReasonNothingFree, again: 12 * time.Hour},
		{reason: "filtered", facts: usual(withheld), action: remove, said: v1alpha1.ReasonFiltered},
		{reason: "nothing known, nothing offered", facts: usual(unknown), action: keep, said: v1alpha1.ReasonWaiting, again: retryUnknown},
		{reason: "nothing known: the offer stays, even accepted ones", facts: usual(answered, unknown, decision(v1alpha1.DecisionAccepted)), action: keep, said: v1alpha1.ReasonOffered, again: retryUnknown},
		{reason: "nothing known, cordoned: what nobody has accepted goes", facts: usual(answered, unknown, state(v1alpha1.TenantCordoned)), action: remove, said: v1alpha1.ReasonCordoned, again: retryUnknown},
		{reason: "nothing known, cordoned: an accepted offer is emptied", facts: usual(answered, later(2*time.Second), unknown, state(v1alpha1.TenantCordoned), decision(v1alpha1.DecisionAccepted)), action: put, said: v1alpha1.ReasonCordoned, again: retryUnknown},
		{reason: "nothing known, cordoned within the second: next second", facts: usual(answered, unknown, state(v1alpha1.TenantCordoned), decision(v1alpha1.DecisionAccepted)), action: keep, said: v1alpha1.ReasonCordoned, again: time.Second},
		{reason: "nothing known, limits cut: less is offered", facts: usual(answered, later(2*time.Second), unknown, limits("4"), decision(v1alpha1.DecisionAccepted)), action: put, said: v1alpha1.ReasonOffered, again: retryUnknown},
		{reason: "nothing known, limits that leave nothing", facts: usual(answered, later(2*time.Second), unknown, limits("0"), decision(v1alpha1.DecisionAccepted)), action: put, said: v1alpha1.ReasonNothingFree, again: retryUnknown},
		{reason: "nothing known, limits that leave nothing, not accepted", facts: usual(answered, later(2*time.Second), unknown, limits("0")), action: remove, said: v1alpha1.ReasonNothingFree, again: retryUnknown},
		{reason: "nothing known, limits above the offer", facts: usual(answered, later(2*time.Second), unknown, limits("8")), action: keep, said: v1alpha1.ReasonOffered, again: retryUnknown},
		{reason: "deleted at the provider", facts: usual(offeredBefore(v1alpha1.ReasonOffered, at(-100))), action: keep, said: v1alpha1.ReasonWithdrawn, again: withdrawnFor},
		{reason: "nothing free: a missing offer is none withdrawn", facts: usual(offeredBefore(v1alpha1.ReasonOffered, at(-100)), free(nil)), action: remove, said: v1alpha1.ReasonNothingFree},
		{reason: "one of too many", facts: usual(answered, func(f *facts) { f.surplus = true }), action: remove, said: v1alpha1.ReasonInvalid},
		{reason: "deleted a moment ago", facts: usual(offeredBefore(v1alpha1.ReasonWithdrawn, at(-10))), action: keep, said: v1alpha1.ReasonWithdrawn, again: 20 * time.Second},
		{reason: "deleted long ago", facts: usual(offeredBefore(v1alpha1.ReasonWithdrawn, at(-30))), action: put, said: v1alpha1.ReasonOffered, again: 12 * time.Hour},
		{reason: "deleted while cordoned is not made again", facts: usual(offeredBefore(v1alpha1.ReasonWithdrawn, at(-30)), state(v1alpha1.TenantCordoned)), action: keep, said: v1alpha1.ReasonCordoned},
	} {
		got := decide(c.facts)
		if got.action != c.action || got.offered.Reason != c.said || got.again != c.again || got.stalled != c.stalled {
			t.Errorf("%s: action %d, %s, again %s, stalled %v; want %d, %s, %s, %v", c.reason,
				got.action, got.offered.Reason, got.again, got.stalled, c.action, c.said, c.again, c.stalled)
		}
	}
}

func TestCompose(t *testing.T) {
	f := usual(func(f *facts) {
		f.asks[0].named = amounts{cpu: 2000}
		f.read.StorageClasses = []v1alpha1.ClassOffer{{Name: "ssd", Default: true}}
	})
	got := decide(f).spec
	if diff := cmp.Diff(amounts{cpu: 2000, memory: 50, pods: 100, "example.com/gpu": 1}, amountsOf(got.Resources)); diff != "" {
		t.Errorf("resources (-want +got)\n%s", diff)
	}
	for _, l := range got.Shapes[0].Largest {
		if amountsOf(l)[cpu] > 2000 {
			t.Errorf("a largest pod of %v in an offer of 2 CPUs", l)
		}
	}
	if got.Labels["topology.kubernetes.io/region"] != "eu" || got.Price == nil || len(got.StorageClasses) != 1 ||
		got.SchedulingTimeout.Duration != defaultSchedulingTimeout || !got.Expires.Time.Equal(at(0).Add(lifetime)) {
		t.Errorf("the rest of the offer: %+v", got)
	}
	f.read.Problem = "old"
	if a := decide(f); a.offered.Message != "old" {
		t.Errorf("the problem of a reader is not told: %q", a.offered.Message)
	}
}

// What is used is stated beside what is free, whatever the state of the tenant; limits
// bound the sum of all requests, by the newer of two counts.
func TestUsed(t *testing.T) {
	used := list(cpu, "1", memory, "10", pods, "2")
	limited := func(status v1alpha1.ResourceList, named string) func(*facts) {
		return func(f *facts) {
			f.tenant.Spec.Limits, f.tenant.Status.Used = &v1alpha1.TenantLimits{Resources: list(named, "4")}, status
		}
	}
	other := func(f *facts) { f.read.Used["other"] = list(cpu, "1") }
	for _, c := range []struct {
		reason string
		facts  facts
		free   int64
	}{
		{"beside", usual(using(used)), 8000},
		{"a cordoned tenant", usual(answered, later(2*time.Second), using(used), state(v1alpha1.TenantCordoned), decision(v1alpha1.DecisionAccepted)), 0},
		{"limits, though the status is late", usual(using(used), limited(nil, cpu)), 3000},
		{"limits, and pods that are not bound", usual(using(used), limited(list(cpu, "2"), cpu)), 2000},
		{"limits, of all requests", usual(using(used), other, limited(nil, cpu)), 2000},
	} {
		got := decide(c.facts)
		if amountsOf(got.spec.Resources)[cpu] != c.free {
			t.Errorf("%s: free %v, want %d", c.reason, got.spec.Resources, c.free)
		}
		if diff := cmp.Diff(amountsOf(used), amountsOf(got.spec.Used)); diff != "" {
			t.Errorf("%s: used (-want +got)\n%s", c.reason, diff)
		}
	}
}

// What is cut of an offer while nothing is known is cut of its largest pods as well; what it
// says is used counts for limits, and neither that nor its end changes.
func TestLastGood(t *testing.T) {
	old := decide(usual(using(list(cpu, "1", memory, "10", pods, "2")))).spec
	f := usual(later(2*time.Second), unknown, limits("4"))
	f.offer, f.written = &v1alpha1.ResourceOffer{Spec: *old.DeepCopy()}, at(0)
	got := decide(f)
	if got.action != put || amountsOf(got.spec.Resources)[cpu] != 3000 || amountsOf(got.spec.Resources)[memory] != 50 {
		t.Fatalf("limits of 4 CPUs of which 1 is used: action %d, %v", got.action, got.spec.Resources)
	}
	for _, l := range got.spec.Shapes[0].Largest {
		if amountsOf(l)[cpu] > 3000 {
			t.Errorf("a largest pod of %v in an offer of 3 CPUs", l)
		}
	}
	got.spec.Resources, got.spec.Shapes = old.Resources, old.Shapes
	if diff := cmp.Diff(old, got.spec); diff != "" {
		t.Errorf("the rest of the offer (-want +got)\n%s", diff)
	}
	f = usual(later(2*time.Second), unknown, state(v1alpha1.TenantCordoned), decision(v1alpha1.DecisionAccepted))
	f.offer, f.written = &v1alpha1.ResourceOffer{Spec: *old.DeepCopy()}, at(0)
	if got := decide(f).spec; usable(got) || len(got.Shapes) > 0 || amountsOf(got.Used)[cpu] != 1000 {
		t.Errorf("a cordoned tenant is offered %v, with %v used", got.Resources, got.Used)
	}
}

// What a request uses is part of what it names; the rest is what it still gets.
func TestSharersUse(t *testing.T) {
	r := &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.ResourceRequestSpec{Resources: list(cpu, "4", memory, "1")}}
	got := sharers([]*v1alpha1.ResourceRequest{r}, nil, "a", "", map[string]v1alpha1.ResourceList{"a": list(cpu, "1", memory, "2", pods, "1")})
	if diff := cmp.Diff(amounts{cpu: 3000, memory: 0}, got[0].named); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDecideChoice(t *testing.T) {
	offered := func(a amounts) *received { return &received{resources: a, expires: at(60)} }
	full, empty := offered(amounts{cpu: 1, memory: 1, pods: 1}), offered(amounts{cpu: 1, memory: 1})
	spec := func(a v1alpha1.Acceptance, d v1alpha1.Decision) v1alpha1.ResourceRequestSpec {
		return v1alpha1.ResourceRequestSpec{Acceptance: a, Decision: d}
	}
	const auto, manual = v1alpha1.AcceptanceAutomatic, v1alpha1.AcceptanceManual
	const yes, no = v1alpha1.DecisionAccepted, v1alpha1.DecisionDeclined
	for _, c := range []struct {
		reason string
		spec   v1alpha1.ResourceRequestSpec
		offer  *received
		before v1alpha1.Decision
		now    time.Time
		want   v1alpha1.Decision
		said   string
	}{
		{"automatic takes what has something", spec(auto, ""), full, "", at(0), yes, v1alpha1.ReasonAccepted},
		{"the default is automatic", spec("", ""), full, "", at(0), yes, v1alpha1.ReasonAccepted},
		{"not what has nothing", spec(auto, ""), empty, "", at(0), "", v1alpha1.ReasonNothingFree},
		{"what is all in use is an offer", spec(auto, ""), &received{used: full.resources, expires: at(60)}, "", at(0), yes, v1alpha1.ReasonAccepted},
		{"what became empty stays accepted", spec(auto, ""), empty, yes, at(0), yes, v1alpha1.ReasonAccepted},
		{"what has expired does not", spec(auto, ""), full, yes, at(60), "", v1alpha1.ReasonExpired},
		{"no offer", spec(auto, ""), nil, yes, at(0), "", v1alpha1.ReasonWaiting},
		{"manual waits", spec(manual, ""), full, "", at(0), "", v1alpha1.ReasonUndecided},
		{"manual accepts", spec(manual, yes), full, "", at(0), yes, v1alpha1.ReasonAccepted},
		{"manual takes back", spec(manual, ""), full, yes, at(0), "", v1alpha1.ReasonUndecided},
		{"declined, whoever accepts", spec(auto, no), full, yes, at(0), no, v1alpha1.ReasonDeclined},
		{"declined before there is an offer", spec(manual, no), nil, "", at(0), no, v1alpha1.ReasonDeclined},
	} {
		got := decideChoice(c.spec, c.offer, c.before, c.now)
		if got.decision != c.want || got.reason != c.said || got.accepted != (c.want == yes) {
			t.Errorf("%s: %+v, want %q, %s", c.reason, got, c.want, c.said)
		}
	}
}

func TestPlainText(t *testing.T) {
	long := make([]byte, 5000)
	for i := range long {
		long[i] = 'x'
	}
	for _, c := range [][2]string{{"a\nb\x1b[31m", "a b [31m"}, {"\xff\xfeok", "?ok"}, {string(long), string(long[:maxMessage])}} {
		if got := plainText(c[0]); got != c[1] {
			t.Errorf("plainText(%.20q) = %.40q, want %.40q", c[0], got, c[1])
		}
	}
}
