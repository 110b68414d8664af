package network

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestAgents goes by when Leases are seen to change, and not by what their clocks say.
func TestAgents(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	a := newAgents(clock)
	lease := func(renewed time.Time, text string) *coordinationv1.Lease {
		at := metav1.NewMicroTime(renewed)
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{v1alpha1.AnnotationTunnels: text}},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: new("n"), LeaseDurationSeconds: new(int32(2)), RenewTime: &at}}
	}
	see := func(l *coordinationv1.Lease) bool { news, _ := a.see(l); return news }
	alive := func() bool { all, _, _ := a.now(); return len(all) == 1 && all[0].alive }
	long := noon.Add(-time.Hour) // their clock is behind
	if !see(lease(long, "")) || !alive() {
		t.Error("the first sight of an agent tells nothing")
	}
	clock.SetTime(noon.Add(time.Second))
	if see(lease(long.Add(600*time.Millisecond), "")) {
		t.Error("a renewal alone wakes everybody")
	}
	clock.SetTime(noon.Add(2500 * time.Millisecond))
	if !alive() {
		t.Error("a renewal does not count")
	}
	if !see(lease(long.Add(600*time.Millisecond), `{"tenant-rome":{"alive":true}}`)) {
		t.Error("a new report wakes nobody")
	}
	clock.SetTime(noon.Add(3100 * time.Millisecond))
	if alive() {
		t.Error("a report without a renewal keeps an agent alive")
	}
	_, candidates, _ := a.now()
	if d := cmp.Diff([]string{"n"}, candidates); d != "" {
		t.Errorf("who was alive a moment ago is no candidate:\n%s", d)
	}
	if !see(lease(long.Add(5*time.Second), "")) || !alive() {
		t.Error("an agent that comes back wakes nobody")
	}
	clock.SetTime(noon.Add(3*time.Second + 2*time.Second + candidateFor + time.Second))
	if !a.differs(clock.Now()) {
		t.Error("that it is gone is not noticed")
	}
	if _, candidates, away := a.now(); candidates != nil || !slices.Equal(away, []string{"n"}) {
		t.Errorf("candidates %v and away %v long after the last sight", candidates, away)
	}
	empty := lease(long.Add(time.Minute), "")
	empty.Spec.HolderIdentity = new("")
	see(empty)
	if alive() {
		t.Error("a Lease that was let go of keeps an agent alive")
	}
	see(lease(long.Add(2*time.Minute), "no JSON"))
	if all, _, _ := a.now(); !all[0].alive || all[0].reports != nil {
		t.Errorf("a report that cannot be read makes of it %+v", all)
	}
	a.gone("n")
	if all, _, _ := a.now(); len(all) != 0 {
		t.Errorf("left: %+v", all)
	}
}

// TestNear holds that a look is asked for when a node is connected to something else, and not when
// its Lease is renewed.
func TestNear(t *testing.T) {
	a := newAgents(testingclock.NewFakePassiveClock(noon))
	lease := func(text string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{v1alpha1.AnnotationNetworks: text}}}
	}
	a.see(lease(""))
	a.now()
	for _, c := range []struct {
		text string
		news bool
		want []string
	}{
		{"10.0.0.0/8 192.168.1.0/24", true, []string{"10.0.0.0/8", "192.168.1.0/24"}},
		{"10.0.0.0/8 192.168.1.0/24", false, []string{"10.0.0.0/8", "192.168.1.0/24"}},
		{"no prefix", true, nil},
		{"", true, nil},
	} {
		if news, _ := a.see(lease(c.text)); news != c.news {
			t.Errorf("%q is new: %v", c.text, news)
		}
		all, _, _ := a.now()
		if d := cmp.Diff(c.want, texts(all[0].networks)); d != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, d)
		}
	}
}
