package agent

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestVersions is up to which version of a stream's pods a data plane is made.
func TestVersions(t *testing.T) {
	s := stream{tenant: "rome"}
	pod := func(version int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(version)}}
	}
	for _, c := range []struct {
		reason string
		do     func(v *versions, plan func(in ...int) func() bool)
		want   int64
	}{
		{"nothing was heard", func(*versions, func(...int) func() bool) {}, 0},
		{"a pod came, and no plan yet", func(v *versions, _ func(...int) func() bool) { v.hear(s, 10, true) }, 0},
		{"a plan of it", func(v *versions, plan func(...int) func() bool) { v.hear(s, 10, true); plan(10)() }, 10},
		{"a plan of it that is not applied yet", func(v *versions, plan func(...int) func() bool) {
			v.hear(s, 10, true)
			plan(10)()
			v.hear(s, 20, true)
			plan(20)
		}, 10},
		{"the plan was made of it before it was heard", func(v *versions, plan func(...int) func() bool) {
			apply := plan(10)
			v.hear(s, 10, true)
			apply()
		}, 10},
		{"another came while the plan was made", func(v *versions, plan func(...int) func() bool) {
			v.hear(s, 10, true)
			apply := plan(10)
			v.hear(s, 20, true)
			apply()
		}, 10},
		{"it passed without a plan", func(v *versions, plan func(...int) func() bool) {
			v.hear(s, 10, true)
			plan(10)()
			v.hear(s, 11, false)
		}, 11},
		{"it passed after one that means something", func(v *versions, plan func(...int) func() bool) {
			v.hear(s, 10, true)
			plan(10)()
			v.hear(s, 20, true)
			v.hear(s, 21, false)
		}, 10},
		{"one that means something came after it had passed", func(v *versions, plan func(...int) func() bool) {
			v.hear(s, 10, true)
			plan(10)()
			v.hear(s, 11, false)
			v.hear(s, 20, true)
		}, 11},
		{"it passed while the plan of the one before was made", func(v *versions, plan func(...int) func() bool) {
			v.hear(s, 20, true)
			apply := plan(20)
			v.hear(s, 21, false)
			apply()
		}, 21},
		{"the newest is gone", func(v *versions, plan func(...int) func() bool) {
			v.hear(s, 10, true)
			v.hear(s, 20, true)
			plan(10, 20)()
			v.hear(s, 30, true)
			plan(10)()
		}, 30},
		{"a plan in which they were not read", func(v *versions, _ func(...int) func() bool) {
			v.hear(s, 10, true)
			v.apply(read(v.begin(), nil))
		}, 0},
		{"another stream is further", func(v *versions, plan func(...int) func() bool) {
			v.hear(s, 10, true)
			v.hear(stream{node: "milan"}, 50, true)
			plan(10)()
		}, 10},
		{"it was forgotten while a plan was applied", func(v *versions, plan func(...int) func() bool) {
			v.hear(s, 1000, true)
			apply := plan(1000)
			v.forget(s)
			v.hear(s, 500, true)
			apply()
		}, 0},
		{"it was forgotten, and nothing heard since", func(v *versions, plan func(...int) func() bool) {
			v.hear(s, 1000, true)
			apply := plan(1000)
			v.forget(s)
			apply()
		}, 0},
		{"the API server was restored", func(v *versions, plan func(...int) func() bool) {
			v.hear(s, 100, true)
			plan(100)()
			v.hear(s, 5, true)
			plan(5)()
		}, 5},
	} {
		v := &versions{}
		c.do(v, func(in ...int) func() bool {
			pods := []*corev1.Pod{}
			for _, version := range in {
				pods = append(pods, pod(version))
			}
			was := read(v.begin(), map[stream][]*corev1.Pod{s: pods})
			return func() bool { return v.apply(was) }
		})
		if got := v.now(s); got != c.want {
			t.Errorf("%s: %d, want %d", c.reason, got, c.want)
		}
	}
	v := &versions{}
	v.hear(s, 10, true)
	for _, want := range []bool{true, false} {
		if got := v.apply(read(v.begin(), map[stream][]*corev1.Pod{s: nil})); got != want {
			t.Errorf("a plan with something new: %t, want %t", got, want)
		}
	}
	if v.forget(s); v.now(s) != 0 {
		t.Error("what is not followed is remembered")
	}
	if got := versionOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "x"}}); got != 0 {
		t.Errorf("no number is %d", got)
	}
}

// TestVersionsNotify is what of a pod means something to a plan.
func TestVersionsNotify(t *testing.T) {
	v := &versions{}
	changed, passed := 0, 0
	h := v.notify(hostedStream, func() { changed++ }, func() { passed++ })
	pod := func(version, address string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Labels: map[string]string{v1alpha1.LabelTenant: "rome"}}}
		if address != "" {
			p.Status.PodIPs = []corev1.PodIP{{IP: address}}
		}
		return p
	}
	want := func(reason string, c, p int, heard int64) {
		t.Helper()
		if got := v.begin()[stream{tenant: "rome"}]; changed != c || passed != p || got.heard != heard || got.changes != c {
			t.Errorf("%s: changed %d, passed %d, %+v", reason, changed, passed, got)
		}
	}
	h.OnAdd(pod("1", ""), true)
	want("it came", 1, 0, 1)
	h.OnUpdate(pod("1", ""), pod("2", "10.0.0.1"))
	want("it has an address", 2, 0, 2)
	h.OnUpdate(pod("2", "10.0.0.1"), pod("3", "10.0.0.1"))
	want("something else of it", 2, 1, 3)
	h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: pod("4", "10.0.0.1")})
	want("it is gone", 3, 1, 4)
}

// TestProgress holds that streams count as read that were, and those of tenants without pods.
func TestProgress(t *testing.T) {
	at := func(version string, labels ...string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Labels: map[string]string{v1alpha1.LabelTenant: labels[0]}}}
	}
	f := facts{
		hosted: []corev1.Pod{at("5", "rome"), at("7", "rome"), at("6", "oslo")},
		away:   map[string][]corev1.Pod{"milan": {at("3", "")}, "empty": nil},
	}
	got := f.progress(map[stream]progress{
		{tenant: "rome"}: {heard: 6, changes: 2}, {tenant: "gone"}: {heard: 9, changes: 1}, {node: "empty"}: {heard: 4, changes: 3}, {node: "unread"}: {heard: 8},
	})
	want := map[stream]progress{
		{tenant: "rome"}: {heard: 7, changes: 2}, {tenant: "oslo"}: {heard: 6}, {tenant: "gone"}: {heard: 9, changes: 1},
		{node: "milan"}: {heard: 3}, {node: "empty"}: {heard: 4, changes: 3},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
