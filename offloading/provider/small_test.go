package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func metaOf(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// Losses in a row are waited for ever longer, others not at all.
func TestLossBackoff(t *testing.T) {
	var n note
	now := noon
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for i, seconds := range want {
		n.made(types.UID(rune('a'+i)), now)
		now = now.Add(time.Second)
		n.lose(now)
		n.lose(now.Add(time.Minute)) // asked again, it stays
		if got := n.next.Sub(now); got != seconds*time.Second {
			t.Fatalf("after %d losses it waits %s, want %ds", i+1, got, seconds)
		}
		now = n.next
	}
	n.made("z", now)
	now = now.Add(quickly)
	n.lose(now)
	if n.next.After(now) {
		t.Errorf("a pod that ran for a minute waits %s", n.next.Sub(now))
	}
	n = note{}
	n.saw("x")
	n.lose(now)
	if n.next.After(now) {
		t.Error("a pod of before the restart waits")
	}
}

// A tenant that changes everything all the time waits; others do not.
func TestPaceOfTenants(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(noon)
	p := newPace(clock)
	for range tenantBurst {
		if wait := p.delay("mad"); wait > 0 {
			t.Fatalf("an ordinary burst waits %s", wait)
		}
	}
	longest := time.Duration(0)
	for range 100 * tenantBurst {
		longest = max(longest, p.delay("mad"))
	}
	if longest < time.Second || longest > tenantLag {
		t.Errorf("the longest wait is %s", longest)
	}
	if wait := p.delay("quiet"); wait > 0 {
		t.Errorf("the quiet tenant waits %s", wait)
	}
	clock.SetTime(noon.Add(forgetAfter))
	p.delay("quiet")
	clock.SetTime(noon.Add(2 * forgetAfter))
	if p.delay("new"); len(p.tenants) != 1 {
		t.Errorf("%d tenants are remembered", len(p.tenants))
	}
}

// A tenant that has pods refused all the time does not fill this cluster with events, and
// costs others none of theirs.
func TestBudgetOfEvents(t *testing.T) {
	clock, heard := clocktesting.NewFakePassiveClock(noon), events.NewFakeRecorder(1000)
	r := newReconciler(nil, nil, Options{Clock: clock})
	r.events = heard
	refusals := 0
	refuse := func(tenant string) {
		refusals++
		f := facts{now: clock.Now(), tenant: tenant, shadow: &v1alpha1.ShadowPod{ObjectMeta: metaOf("pelago-tenant-"+tenant, "a")}}
		var p plan
		p.refuse(f, v1alpha1.ReasonLimitExceeded, fmt.Sprintf("number %d", refusals))
		r.announce(f, p)
	}
	told := func(want int, when string) {
		t.Helper()
		if n := len(heard.Events); n != want {
			t.Errorf("%s: %d events, want %d", when, n, want)
		}
		for len(heard.Events) > 0 {
			<-heard.Events
		}
	}
	for range 10 * eventBurst {
		refuse("mad")
	}
	told(eventBurst, "all at once")
	refuse("quiet")
	told(1, "another tenant")
	clock.SetTime(noon.Add(2 * eventEvery))
	for range 10 {
		refuse("mad")
	}
	told(2, "a little later")
	all := prometheus.NewRegistry()
	if err := all.Register(r.metrics.refused); err != nil {
		t.Fatal(err)
	}
	families, err := all.Gather()
	if err != nil || len(families) != 1 || len(families[0].Metric) != 6 {
		t.Fatalf("%v, %v: want each reason counted from the beginning", families, err)
	}
	for _, m := range families[0].Metric {
		if reason := m.Label[0].GetValue(); (m.Counter.GetValue() == float64(refusals)) != (reason == v1alpha1.ReasonLimitExceeded) {
			t.Errorf("%v refused as %s, and there were %d as %s", m.Counter.GetValue(), reason, refusals, v1alpha1.ReasonLimitExceeded)
		}
	}

	w := &watcher{client: nowhere{}, pace: newPace(clock), budget: r.budget}
	w.pace.delay("mad")
	w.tenants().Delete(t.Context(), event.DeleteEvent{Object: &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "mad"}}}, nil)
	if len(w.budget.tenants) != 1 || w.budget.tenants["quiet"] == nil || len(w.pace.tenants) != 0 {
		t.Errorf("a tenant that is gone is remembered: %v, %v", w.budget.tenants, w.pace.tenants)
	}
	if full := time.Duration(eventBurst) * eventEvery; forgetAfter <= full {
		t.Errorf("who is silent for %s gains more than by waiting: the budget is full after %s", forgetAfter, full)
	}
}

// nowhere is a cache that has not begun.
type nowhere struct{ client.Reader }

func (nowhere) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("it has not begun")
}

func TestStates(t *testing.T) {
	m := newMemory()
	m.set(types.NamespacedName{Namespace: "pelago-tenant-rome", Name: "a"}, note{state: "Running"})
	m.set(types.NamespacedName{Namespace: "pelago-tenant-rome", Name: "b"}, note{state: "Running"})
	m.set(types.NamespacedName{Namespace: "pelago-tenant-oslo", Name: "b"}, note{state: "Refused"})
	got := m.states()
	if len(got) != 2 || got[[2]string{"pelago-tenant-rome", "Running"}] != 2 {
		t.Errorf("got %v", got)
	}
}

func FuzzBounded(f *testing.F) {
	f.Add("plain")
	f.Add("line\nline\x00\x1b[31m")
	f.Add(strings.Repeat("ä", 3000))
	f.Add("\xff\xfe")
	f.Fuzz(func(t *testing.T, text string) {
		got := bounded(text, maxMessage)
		if len(got) > maxMessage || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\x00\x1b") {
			t.Errorf("%q is not fit for a message", got)
		}
	})
}

// Whatever a consumer writes, reading its restart policy ends well.
func FuzzWanted(f *testing.F) {
	f.Add(podText(corev1.RestartPolicyNever))
	f.Add(`{"restartPolicy":{}}`)
	f.Add(strings.Repeat("[", 10000))
	f.Fuzz(func(t *testing.T, text string) {
		facts{shadow: &v1alpha1.ShadowPod{Spec: v1alpha1.ShadowPodSpec{Pod: text}}}.wanted()
	})
}

// A status of ours that cannot be read is as good as none.
func TestLastStatus(t *testing.T) {
	for _, text := range []string{"", "{", `{"phase":3}`} {
		if got := lastStatus(&v1alpha1.ShadowPod{Status: v1alpha1.ShadowPodStatus{Pod: text}}); got.Phase != "" {
			t.Errorf("%q: %v", text, got)
		}
	}
}
