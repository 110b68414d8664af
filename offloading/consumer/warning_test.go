package consumer

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

func warns(reason, message string, count int32, last time.Duration) v1alpha1.PodWarning {
	return v1alpha1.PodWarning{Reason: reason, Message: message, Count: count, LastTime: metav1.NewTime(noon.Add(last))}
}

func TestWarnings(t *testing.T) {
	var many []v1alpha1.PodWarning
	for i := range 9 {
		many = append(many, warns(fmt.Sprint("R", i), "m", 1, 0))
	}
	cases := []struct {
		reason string
		told   []v1alpha1.PodWarning
		want   []warning
	}{
		{reason: "none"},
		{reason: "as they are told", told: []v1alpha1.PodWarning{warns("FailedMount", "no a", 3, -time.Minute)}, want: []warning{{"FailedMount", "no a", 3, noon.Add(-time.Minute)}}},
		{reason: "what cannot be shown goes", told: []v1alpha1.PodWarning{warns("Bad\x1b[31m", "a\nb\x00", -4, 0)}, want: []warning{{"Bad[31m", "a b", 1, noon}}},
		{reason: "without a reason it is none", told: []v1alpha1.PodWarning{warns("\x00", "a", 1, 0)}},
		{reason: "one per reason", told: []v1alpha1.PodWarning{warns("A", "a", 1, 0), warns("A", "b", 1, 0)}, want: []warning{{"A", "a", 1, noon}}},
		{reason: "from a provider whose clock is ahead", told: []v1alpha1.PodWarning{warns("A", "a", 1, 100*365*24*time.Hour)}, want: []warning{{"A", "a", 1, noon}}},
		{reason: "of long ago", told: []v1alpha1.PodWarning{warns("A", "a", 1, -2*time.Hour)}},
		{reason: "five at most", told: many, want: []warning{{"R0", "m", 1, noon}, {"R1", "m", 1, noon}, {"R2", "m", 1, noon}, {"R3", "m", 1, noon}, {"R4", "m", 1, noon}}},
	}
	for _, c := range cases {
		got := warnings(&v1alpha1.ShadowPod{Status: v1alpha1.ShadowPodStatus{Warnings: c.told}}, noon)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(warning{})); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}

func TestDue(t *testing.T) {
	one := warning{reason: "A", message: "a", count: 1}
	more := warning{reason: "A", message: "a", count: 2}
	full := map[string]warned{}
	for i := range maxReasons {
		full[fmt.Sprint(i)] = warned{}
	}
	cases := []struct {
		reason string
		said   map[string]warned
		all    []warning
		want   []warning
		again  time.Duration
	}{
		{reason: "the first", all: []warning{one}, want: []warning{one}},
		{reason: "the same", said: map[string]warned{"A": {one, noon.Add(-time.Hour)}}, all: []warning{one}},
		{reason: "again too soon", said: map[string]warned{"A": {one, noon.Add(-20 * time.Second)}}, all: []warning{more}, again: 40 * time.Second},
		{reason: "again in time", said: map[string]warned{"A": {one, noon.Add(-time.Minute)}}, all: []warning{more}, want: []warning{more}},
		{reason: "our clock was turned back", said: map[string]warned{"A": {one, noon.Add(time.Hour)}}, all: []warning{more}, again: time.Minute},
		{reason: "ever new reasons", said: full, all: []warning{one}},
		{reason: "another reason", said: map[string]warned{"B": {one, noon}}, all: []warning{one}, want: []warning{one}},
	}
	for _, c := range cases {
		got, again := due(c.said, c.all, noon)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(warning{})); diff != "" || again != c.again {
			t.Errorf("%s: again in %s, want %s: %s", c.reason, again, c.again, diff)
		}
	}
}

// warn writes what a provider warns of.
func (w *world) warn(p *corev1.Pod, all ...v1alpha1.PodWarning) {
	w.t.Helper()
	s := w.shadow(p)
	s.Status.Warnings = all
	if err := w.admin.Status().Update(ctx, s); err != nil {
		w.t.Fatal(err)
	}
}

// events are those of Pelago about a pod that the API server has.
func (w *world) events(p *corev1.Pod) []corev1.Event {
	w.t.Helper()
	list := &corev1.EventList{}
	if err := w.admin.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingFields{"involvedObject.uid": string(p.UID), "type": "Warning"}); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// TestProviderWarning holds that what a provider warns of is an event at home: one per
// reason, brought up to date once a minute at most, and no other one after a restart.
func TestProviderWarning(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web")
	w.reconcile(p)
	starting := &corev1.PodStatus{Phase: corev1.PodPending}
	w.tell(p, starting, accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(p)
	if n := len(w.events(p)); n != 0 {
		t.Fatalf("a pod that starts has %d events", n)
	}
	mount := v1alpha1.PodWarning{Reason: "FailedMount", Message: "configmap \"web\"\nnot found", Count: 4, LastTime: metav1.NewTime(w.clock.Now().Add(-time.Second))}
	w.warn(p, mount)
	w.reconcile(p)
	got := w.events(p)
	if len(got) != 1 {
		t.Fatalf("%d events, want one", len(got))
	}
	e := got[0]
	if want := w.peering + `: FailedMount: configmap "web" not found`; e.Message != want || e.Reason != v1alpha1.ReasonProviderWarning ||
		e.Count != 4 || e.ReportingController != component || !e.LastTimestamp.Equal(&mount.LastTime) {
		t.Errorf("the event is %+v", e)
	}

	writes := w.total
	w.reconcile(p)
	mount.Count++
	w.warn(p, mount)
	if again := w.reconcile(p).RequeueAfter; again <= 0 || again > warnEvery || w.total != writes {
		t.Errorf("soon again: %d writes, and it looks again in %s", w.total-writes, again)
	}
	w.clock.Step(warnEvery)
	w.reconcile(p)
	if got := w.events(p); len(got) != 1 || got[0].Count != 5 || got[0].UID != e.UID {
		t.Errorf("a minute later: %+v", got)
	}
	before := w.events(p)[0]
	w.restart()
	w.reconcile(p)
	if got := w.events(p); len(got) != 1 || got[0].ResourceVersion != before.ResourceVersion {
		t.Errorf("after a restart: %+v, was %+v", got, before)
	}

	pull := v1alpha1.PodWarning{Reason: "Failed", Message: "no image", Count: 1, LastTime: metav1.NewTime(w.clock.Now())}
	w.warn(p, mount, pull)
	w.reconcile(p)
	if got := w.events(p); len(got) != 2 {
		t.Errorf("%d events of two reasons", len(got))
	}
	w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	pull.Count, pull.Reason = 9, "Other"
	w.warn(p, pull)
	w.reconcile(p)
	if got := w.events(p); len(got) != 2 {
		t.Errorf("%d events though it is ready", len(got))
	}
}

// TestWarningBudget holds that a provider cannot fill the API server with events, that
// what is left is told later, and that a pod which must not have any is no harm.
func TestWarningBudget(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web")
	w.reconcile(p)
	w.tell(p, &corev1.PodStatus{Phase: corev1.PodPending}, accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	for range fleet.EventBurst {
		w.pods.budget.Take(w.peering, w.clock.Now())
	}
	w.warn(p, v1alpha1.PodWarning{Reason: "Failed", Message: "x", LastTime: metav1.NewTime(w.clock.Now())})
	if again := w.reconcile(p).RequeueAfter; again <= 0 || again > 2*warnEvery || len(w.events(p)) != 0 {
		t.Errorf("without a budget: %d events, again in %s", len(w.events(p)), again)
	}
	w.clock.Step(time.Second)
	w.reconcile(p)
	if n := len(w.events(p)); n != 1 {
		t.Errorf("with a budget: %d events", n)
	}
	long := p.DeepCopy()
	long.Name, long.Namespace = strings.Repeat("a", 199)+"."+strings.Repeat("b", 53), w.home
	if err := w.pods.writeEvent(ctx, warningEvent(long, w.peering, warning{reason: "A", count: 1, last: noon})); err != nil || len(w.events(p)) != 2 {
		t.Errorf("of a pod with the longest name: %v", err)
	}
	long.Namespace = "none-of-these"
	if err := w.pods.writeEvent(ctx, warningEvent(long, w.peering, warning{reason: "A", count: 1, last: noon})); err != nil {
		t.Errorf("of a namespace that is gone: %v", err)
	}
}

// What is left of a provider's budget is remembered while there is a connection to it, and why it sends
// pods home is counted so long, from zero.
func TestPeeringsThatComeAndGo(t *testing.T) {
	links := &fakePeer{}
	r := &reconciler{fleet: links, budget: fleet.NewBudget(), meter: newMeter()}
	series := func() (all, pods int) {
		t.Helper()
		registry := prometheus.NewRegistry()
		registry.MustRegister(r.meter.sent)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				all, pods = all+1, pods+int(m.GetCounter().GetValue())
			}
		}
		return all, pods
	}
	for range fleet.EventBurst {
		r.budget.Take("milan", noon)
	}
	if r.linked("milan"); r.budget.Take("milan", noon) {
		t.Error("a provider that is there begins anew")
	}
	if all, pods := series(); all != len(sentReasons) || pods != 0 {
		t.Errorf("of a new provider there are %d series with %d pods", all, pods)
	}
	r.meter.sentHome("milan", v1alpha1.ReasonUnschedulable)
	r.meter.sentHome("milan", "a reason of its own")
	if all, pods := series(); all != len(sentReasons) || pods != 2 {
		t.Errorf("a provider has made %d series with %d pods", all, pods)
	}
	links.missing = true
	if r.linked("milan"); !r.budget.Take("milan", noon) {
		t.Error("a provider that is gone is remembered")
	}
	if all, _ := series(); all != 0 {
		t.Errorf("a provider that is gone has %d series", all)
	}
}

// Whatever a provider writes as warnings, home shows lines of text that are bounded.
func FuzzWarnings(f *testing.F) {
	f.Add("FailedMount", "configmap not found", int32(3), int64(0))
	f.Add("\x1b]0;x\a", strings.Repeat("ä\n", 3000), int32(-1), int64(1)<<62)
	f.Add("\xff", "\u202e\u0000", int32(0), int64(-1)<<62)
	f.Fuzz(func(t *testing.T, reason, message string, count int32, seconds int64) {
		one := v1alpha1.PodWarning{Reason: reason, Message: message, Count: count, LastTime: metav1.Unix(seconds, 0)}
		s := &v1alpha1.ShadowPod{Status: v1alpha1.ShadowPodStatus{Warnings: []v1alpha1.PodWarning{one, one, {Reason: reason + "2"}, one, {Reason: "x"}, {Reason: "y"}}}}
		all := warnings(s, noon)
		if len(all) > maxWarnings {
			t.Errorf("%d warnings", len(all))
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}}
		for _, w := range all {
			e := warningEvent(pod, "milan", w)
			bad := strings.ContainsFunc(e.Message, func(r rune) bool { return !unicode.IsPrint(r) })
			if bad || !utf8.ValidString(e.Message) || len(e.Message) > 700 || e.Count < 1 || e.LastTimestamp.After(noon) || noon.Sub(e.LastTimestamp.Time) > warnWithin {
				t.Errorf("%q, %d times, last %s", e.Message, e.Count, e.LastTimestamp)
			}
		}
	})
}
