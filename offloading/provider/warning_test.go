package provider

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

func at(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(d)) }

func warns(reason, message string, count int32, when time.Duration) v1alpha1.PodWarning {
	return v1alpha1.PodWarning{Reason: reason, Message: message, Count: count, LastTime: at(when)}
}

func TestWarningOf(t *testing.T) {
	about := corev1.ObjectReference{Kind: "Pod", UID: "u"}
	cases := []struct {
		reason string
		event  corev1.Event
		want   v1alpha1.PodWarning
		not    bool
	}{
		{reason: "as kubelets write them", want: warns("FailedMount", "no a", 3, time.Minute),
			event: corev1.Event{Type: "Warning", Reason: "FailedMount", Message: "no a", Count: 3, FirstTimestamp: at(0), LastTimestamp: at(time.Minute), InvolvedObject: about}},
		{reason: "as the scheduler writes them", want: warns("FailedScheduling", "no node there has room for it or fits it; there is not enough cpu", 7, time.Hour),
			event: corev1.Event{Type: "Warning", Reason: "FailedScheduling", Message: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: b}.", EventTime: metav1.NewMicroTime(noon.Add(time.Millisecond)), InvolvedObject: about,
				Series: &corev1.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(noon.Add(time.Hour))}}},
		{reason: "one without times is as old as it is", want: warns("Failed", "a b", 1, time.Second),
			event: corev1.Event{Type: "Warning", Reason: "Failed", Message: "a\nb", ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(time.Second)}, InvolvedObject: about}},
		{reason: "not a warning", not: true, event: corev1.Event{Type: "Normal", Reason: "Pulled", InvolvedObject: about}},
		{reason: "not about a pod", not: true, event: corev1.Event{Type: "Warning", Reason: "Failed", InvolvedObject: corev1.ObjectReference{Kind: "Service", UID: "u"}}},
		{reason: "about no pod for sure", not: true, event: corev1.Event{Type: "Warning", Reason: "Failed", InvolvedObject: corev1.ObjectReference{Kind: "Pod"}}},
		{reason: "who says it, and other nodes, are not told", want: warns("Failed", "[node] and [node] cannot reach [address]", 1, 0),
			event: corev1.Event{Type: "Warning", Reason: "Failed", Message: "worker-7 and worker-8 cannot reach 10.0.0.1", Source: corev1.EventSource{Host: "worker-7"},
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(0)}, InvolvedObject: about}},
		{reason: "a kubelet had no room after all", want: warns("OutOfcpu", "no node there has room for it or fits it", 1, 0),
			event: corev1.Event{Type: "Warning", Reason: "OutOfcpu", Message: "used: 950, capacity: 1000", ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(0)}, InvolvedObject: about}},
		{reason: "a policy of this cluster speaks to its owner", not: true, event: corev1.Event{Type: "Warning", Reason: "PolicyViolation", Message: "rule s3cret", InvolvedObject: about}},
		{reason: "and a kubelet of its name servers", not: true, event: corev1.Event{Type: "Warning", Reason: "DNSConfigForming", Message: "corp.example", InvolvedObject: about}},
		{reason: "no reason", not: true, event: corev1.Event{Type: "Warning", InvolvedObject: about}},
	}
	for _, c := range cases {
		got, ok := warningOf(&c.event, func(name string) bool { return name == "worker-8" })
		if diff := cmp.Diff(c.want, got); ok == c.not || !c.not && diff != "" {
			t.Errorf("%s: %v %s", c.reason, ok, diff)
		}
	}
	none := func(string) bool { return false }
	long := corev1.Event{Type: "Warning", Reason: "Failed", Message: strings.Repeat("ä", 2000) + strings.Repeat("10.0.0.1 ", 2000), InvolvedObject: about}
	if got, ok := warningOf(&long, none); !ok || len(got.Message) > maxWarning {
		t.Errorf("%v, %d bytes", ok, len(got.Message))
	}
	long.Reason = "OutOf" + strings.Repeat("R", 2000)
	if _, ok := warningOf(&long, none); ok {
		t.Error("a reason of 2 kB is told")
	}
}

func TestPerReason(t *testing.T) {
	cases := []struct {
		reason     string
		have, want []v1alpha1.PodWarning
	}{
		{reason: "none"},
		{reason: "an image that cannot be pulled: what is wrong with it is told, not that it is wrong",
			have: []v1alpha1.PodWarning{warns("Failed", "Failed to pull image x: not found", 2, 0), warns("Failed", "Error: ErrImagePull", 2, 0), warns("Failed", "Error: ImagePullBackOff", 9, 5*time.Minute)},
			want: []v1alpha1.PodWarning{warns("Failed", "Failed to pull image x: not found", 13, 5*time.Minute)}},
		{reason: "what was long ago is not told any more",
			have: []v1alpha1.PodWarning{warns("FailedMount", "configmap long-name not found", 2, 0), warns("FailedMount", "no b", 1, 11*time.Minute)},
			want: []v1alpha1.PodWarning{warns("FailedMount", "no b", 3, 11*time.Minute)}},
		{reason: "the last first",
			have: []v1alpha1.PodWarning{warns("A", "a", 1, 0), warns("B", "b", 1, time.Second)},
			want: []v1alpha1.PodWarning{warns("B", "b", 1, time.Second), warns("A", "a", 1, 0)}},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, perReason(c.have)); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}

func TestTellWarnings(t *testing.T) {
	var six []v1alpha1.PodWarning
	for i := range 6 {
		six = append(six, warns(fmt.Sprintf("R%d", i), "m", 1, time.Duration(i)*time.Second))
	}
	list := func(all ...v1alpha1.PodWarning) []v1alpha1.PodWarning { return all }
	cases := []struct {
		reason           string
		told, have, want []v1alpha1.PodWarning
		now, again       time.Duration
	}{
		{reason: "the first is told at once", have: list(warns("A", "a", 1, 0)), want: list(warns("A", "a", 1, 0))},
		{reason: "the same is told once", told: list(warns("A", "a", 1, 0)), have: list(warns("A", "a", 1, 0)), want: list(warns("A", "a", 1, 0)), now: time.Hour},
		{reason: "again soon after, it waits", told: list(warns("A", "a", 1, 0)), have: list(warns("A", "a", 2, 20*time.Second)), want: list(warns("A", "a", 1, 0)),
			now: 20 * time.Second, again: 40 * time.Second},
		{reason: "and then it is told", told: list(warns("A", "a", 1, 0)), have: list(warns("A", "a2", 2, 20*time.Second)), want: list(warns("A", "a2", 2, 20*time.Second)), now: time.Minute},
		{reason: "a clock that was turned back keeps nobody waiting for long", told: list(warns("A", "a", 1, time.Hour)), have: list(warns("A", "a", 2, 2*time.Hour)),
			want: list(warns("A", "a", 1, time.Hour)), again: time.Minute},
		{reason: "what was told stays though its event is gone", told: list(warns("A", "a", 1, 0)), have: list(warns("B", "b", 1, time.Minute)),
			want: list(warns("A", "a", 1, 0), warns("B", "b", 1, time.Minute)), now: 2 * time.Hour},
		{reason: "the last five", told: six[:5], have: six[5:], want: six[1:]},
		{reason: "and no older one comes back", told: six[1:], have: six[:1], want: six[1:]},
	}
	for _, c := range cases {
		got, again := tellWarnings(c.told, c.have, noon.Add(c.now))
		if diff := cmp.Diff(c.want, got); diff != "" || again != c.again {
			t.Errorf("%s: again in %s, want %s: %s", c.reason, again, c.again, diff)
		}
	}
}

func TestUnreadySince(t *testing.T) {
	ready := func(status corev1.ConditionStatus, when time.Duration) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: at(when)}}
	}
	cases := []struct {
		reason     string
		conditions []corev1.PodCondition
		want       time.Duration
		ready      bool
	}{
		{reason: "a new pod never was ready"},
		{reason: "nor was one whose kubelet says so first", conditions: ready("False", 0)},
		{reason: "it was ready, and is not any more", conditions: ready("False", time.Hour), want: time.Hour},
		{reason: "it is ready", conditions: ready("True", 0), ready: true},
	}
	for _, c := range cases {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(0)}, Status: corev1.PodStatus{Conditions: c.conditions}}
		if got, unready := unreadySince(pod); unready == c.ready || unready && !got.Equal(noon.Add(c.want)) {
			t.Errorf("%s: %v %s", c.reason, unready, got)
		}
	}
}

func TestBook(t *testing.T) {
	b := newBook()
	for i := range 3 * maxNoted {
		b.note("rome", "a", fmt.Sprint(i), warns(fmt.Sprint(i), "m", 1, time.Duration(i)*time.Second))
	}
	b.note("rome", "a", fmt.Sprint(3*maxNoted-1), warns("again", "m", 2, time.Hour))
	got := b.of("a")
	if len(got) != maxNoted || perReason(got)[0].Reason != "again" || perReason(got)[maxNoted-1].Reason != fmt.Sprint(2*maxNoted) {
		t.Errorf("%d are remembered: %v", len(got), got)
	}
	b.note("rome", "b", "x", warns("B", "m", 1, 0))
	if b.sweep(noon.Add(time.Hour + time.Minute)); len(b.of("a")) != 1 || len(b.pods) != 1 {
		t.Errorf("what is old stays: %v", b.pods)
	}
	if b.drop("a"); len(b.pods)+len(b.count) != 0 {
		t.Errorf("what is gone stays: %v %v", b.pods, b.count)
	}
	for i := range maxPods + 10 {
		b.note("rome", types.UID(fmt.Sprint(i)), "x", warns("B", "m", 1, 0))
	}
	if len(b.pods) != maxPods {
		t.Errorf("%d pods are remembered, want %d", len(b.pods), maxPods)
	}
	b.note("oslo", "c", "x", warns("C", "m", 1, 0))
	if len(b.of("c")) != 1 {
		t.Error("one tenant pushes out another's")
	}
	b.drop("0")
	b.note("rome", "d", "x", warns("D", "m", 1, 0))
	if len(b.of("d")) != 1 {
		t.Error("the place of one that is gone is not taken")
	}
}

// TestNextSpaces: each tenant has places for so many namespaces, and the first get them.
func TestNextSpaces(t *testing.T) {
	spaces := map[string]*space{}
	for i := range maxSpaces + 3 {
		spaces[fmt.Sprint("rome-", i)] = &space{tenant: "rome", came: i}
	}
	spaces["oslo-0"] = &space{tenant: "oslo", came: 1000}
	begin := func() []string {
		names := next(spaces)
		for _, name := range names {
			spaces[name].stop = func() {}
		}
		return names
	}
	if names := begin(); len(names) != maxSpaces+1 || names[0] != "rome-0" || names[maxSpaces-1] != fmt.Sprint("rome-", maxSpaces-1) || names[maxSpaces] != "oslo-0" {
		t.Errorf("%d are listened in: %v", len(names), names)
	}
	if names := begin(); len(names) != 0 {
		t.Errorf("more than there is room for: %v", names)
	}
	delete(spaces, "rome-7")
	delete(spaces, fmt.Sprint("rome-", maxSpaces)) // the next one is the one after
	if names := begin(); len(names) != 1 || names[0] != fmt.Sprint("rome-", maxSpaces+1) {
		t.Errorf("the place that is free gets %v", names)
	}
}

// A pod that does not get ready tells why, after a while; the next pod of the name
// begins without a word.
func TestWarnings(t *testing.T) {
	b := newBench(t)
	node := b.node(corev1.ConditionTrue)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.bind(node.Name)
	b.status(func(s *corev1.PodStatus) { s.Phase = corev1.PodPending })
	pod := b.pod()
	b.clock.SetTime(pod.CreationTimestamp.Add(3 * time.Second))
	now := func() metav1.Time { return metav1.NewTime(b.clock.Now().Truncate(time.Second)) }
	b.book.note(b.tenant, pod.UID, "x", v1alpha1.PodWarning{Reason: "FailedMount", Message: "no configmap", Count: 1, LastTime: now()})
	b.settle()
	if got := b.get(b.uid).Status.Warnings; got != nil {
		t.Errorf("a start is warned of: %v", got)
	}
	again, err := b.once(b.uid)
	if err != nil || again <= 0 || again > warnAfter {
		t.Errorf("it looks again in %s, %v", again, err)
	}
	b.clock.SetTime(b.clock.Now().Add(warnAfter))
	b.settle()
	if got := b.get(b.uid).Status.Warnings; len(got) != 1 || got[0].Reason != "FailedMount" || got[0].Message != "no configmap" || got[0].Count != 1 {
		t.Fatalf("it tells %v", got)
	}
	picture := b.picture(b.uid)
	b.book.note(b.tenant, pod.UID, "x", v1alpha1.PodWarning{Reason: "FailedMount", Message: "no configmap", Count: 2, LastTime: now()})
	b.settle()
	if b.picture(b.uid) != picture {
		t.Error("the same is told again at once")
	}
	b.restart(b.c)
	b.settle()
	if b.picture(b.uid) != picture {
		t.Error("a restart changes what is told")
	}

	b.status(running)
	b.book.note(b.tenant, pod.UID, "y", v1alpha1.PodWarning{Reason: "DNSConfigForming", Message: "three name servers", Count: 1, LastTime: now()})
	b.clock.SetTime(b.clock.Now().Add(time.Hour))
	b.settle()
	if got := b.get(b.uid).Status.Warnings; len(got) != 1 {
		t.Errorf("of a pod that is ready: %v", got)
	}
	b.must(b.c.Delete(t.Context(), pod))
	b.kubeletDone()
	b.settle()
	b.settle()
	if s := b.get(b.uid).Status; len(s.Warnings) != 0 || s.Replaced != 1 {
		t.Errorf("the next pod is told of as %v", s)
	}
}

// event plays a kubelet that says something about a pod.
func (b *bench) event(pod *corev1.Pod, kind, reason, message string) *corev1.Event {
	b.t.Helper()
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: pod.Name + "."},
		Type:       kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source:         corev1.EventSource{Component: "kubelet"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	b.must(b.c.Create(b.t.Context(), e))
	return e
}

// The ear hears of warnings in namespaces of tenants with pods in them, before and after
// it begins to listen, and of nothing else; it wakes the ShadowPod.
func TestEar(t *testing.T) {
	b := newBench(t)
	mgr, err := ctrl.NewManager(kubetest.Server(t).Config, ctrl.Options{Scheme: b.c.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	b.must(err)
	e, err := newEar(mgr, newBook(), b.clock)
	b.must(err)
	b.run(mgr)
	woken := make(chan string, 100)
	go func() {
		for {
			select {
			case it := <-e.heard:
				woken <- it.Object.GetLabels()[v1alpha1.LabelHomeUID]
			case <-t.Context().Done():
				return
			}
		}
	}()
	listening := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.spaces[b.space] != nil
	}
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	pod := b.pod()
	first := b.event(pod, "Warning", "Failed", "before")
	b.event(pod, "Normal", "Pulled", "nothing")
	b.event(pod, "Warning", "PolicyViolation", "of another's")
	b.wait("the first warning", func() bool { return len(e.book.of(pod.UID)) == 1 })
	select {
	case uid := <-woken:
		b.want("who is woken", uid, b.uid)
	case <-time.After(time.Minute):
		t.Error("nobody is woken")
	}
	first.Message, first.Count = "again", 2
	b.must(b.c.Update(t.Context(), first))
	b.wait("the warning to go on", func() bool { got := e.book.of(pod.UID); return got[0].Message == "again" && got[0].Count == 2 })

	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Server(t).Namespace(t), Name: "other", UID: "stranger",
		Labels: map[string]string{v1alpha1.LabelTenant: b.tenant, v1alpha1.LabelHomeUID: b.uid}}, Spec: pod.Spec}
	stranger.Spec.ServiceAccountName, stranger.Spec.NodeName = "", ""
	b.event(stranger, "Warning", "Failed", "of no tenant")
	b.event(pod, "Warning", "FailedMount", "then")
	b.wait("the later one", func() bool { return len(e.book.of(pod.UID)) == 2 })
	if got := e.book.of("stranger"); len(got) != 0 {
		t.Errorf("it hears of %v", got)
	}

	gone := pod.DeepCopy()
	gone.UID = "gone"
	b.event(gone, "Warning", "Failed", "of a pod that is gone")
	b.event(pod, "Warning", "Unhealthy", "then")
	b.wait("the last one", func() bool { return len(e.book.of(pod.UID)) == 3 })
	if got := e.book.of("gone"); len(got) != 0 {
		t.Errorf("it remembers %v", got)
	}

	e.sweep(t.Context())
	if !listening() {
		t.Error("it does not listen any more though there is a pod that is not ready")
	}
	ready := func(s corev1.ConditionStatus) {
		t.Helper()
		pod := b.pod()
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: s, LastTransitionTime: metav1.Now()}}
		b.must(b.c.Status().Update(t.Context(), pod))
	}
	ready(corev1.ConditionTrue)
	b.wait("the pod to be seen ready", func() bool {
		seen := &corev1.Pod{}
		b.must(e.cache.Get(t.Context(), client.ObjectKeyFromObject(pod), seen))
		return !waits(seen)
	})
	if e.sweep(t.Context()); !listening() {
		t.Error("it listens no more where all is well, though nobody wants the place")
	}
	e.mu.Lock()
	e.spaces["wants-the-place"] = &space{tenant: b.tenant}
	e.mu.Unlock()
	if e.sweep(t.Context()); listening() {
		t.Error("it listens where all is well, and another namespace wants the place")
	}
	ready(corev1.ConditionFalse)
	b.wait("it to listen where it is not", listening)
	b.must(b.c.Delete(t.Context(), b.get(b.uid)))
	b.settle()
	b.wait("the pod to be forgotten", func() bool { return len(e.book.of(pod.UID)) == 0 })
	b.wait("nobody to listen", func() bool { e.sweep(t.Context()); return !listening() })
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.wait("it to listen again", listening)

	// The namespace is mapped for another tenant before anybody has looked.
	pod = b.pod()
	n := &corev1.Namespace{}
	b.must(b.c.Get(t.Context(), client.ObjectKey{Name: b.space}, n))
	n.Labels[v1alpha1.LabelTenant] = "oslo"
	b.must(b.c.Update(t.Context(), n))
	next := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.space, Name: "next",
		Labels: map[string]string{v1alpha1.LabelTenant: "oslo", v1alpha1.LabelHomeUID: "uid-of-next"}}, Spec: pod.Spec}
	next.Spec.NodeName = ""
	b.must(b.c.Create(t.Context(), next))
	b.event(next, "Warning", "Failed", "of the next tenant's")
	b.wait("the next tenant's warning", func() bool {
		next.Labels["touched"] = fmt.Sprint(time.Now().UnixNano()) // a pod changes as it starts
		b.must(b.c.Update(t.Context(), next))
		return len(e.book.of(next.UID)) == 1
	})
}

// TestEarTells: the log says once of whom more is to be heard than is listened to.
func TestEarTells(t *testing.T) {
	var said []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{}))
	e := &ear{spaces: map[string]*space{}, told: map[string]bool{}}
	for i, tenant := range []string{"rome", "rome", "oslo"} {
		e.spaces[fmt.Sprint("space-", i)] = &space{tenant: tenant}
	}
	e.spaces["space-2"].stop = func() {}
	e.tell(ctx)
	e.tell(ctx)
	if len(said) != 1 || !strings.Contains(said[0], `"tenant"="rome"`) || !strings.Contains(said[0], `"others"=2`) {
		t.Errorf("says %q", said)
	}
	e.close("space-0")
	e.close("space-1")
	e.tell(ctx)
	e.spaces["space-0"] = &space{tenant: "rome"}
	e.tell(ctx)
	if len(said) != 2 {
		t.Errorf("then says %q", said)
	}
}
