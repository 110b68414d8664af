package reflection

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// needing is a world of Secrets whose guards know what its consumer does.
func needing(t *testing.T) (*world, *Guards) {
	t.Helper()
	w := newWorld(t)
	g := NewGuards(w.raw, w) // a cache, which asks for no right
	g.wake = func(_ context.Context, r reconcile.Request) {
		if peering, home, _ := split(r); peering == w.name {
			w.woken = append(w.woken, home)
		}
	}
	w.consumer.notes, w.consumer.waits = g.notes, g.waiting(w.clock)
	return w, g
}

// waitsFor fails the test if a pod waits for something else.
func (w *world) waitsFor(g *Guards, when string, pod *corev1.Pod, want string) {
	w.t.Helper()
	if got, _, err := g.Unsettled(ctx, w.name, pod); err != nil || got != want {
		w.t.Errorf("%s: waits for %q (%v), want %q", when, got, err, want)
	}
}

// TestNeeds: a pod goes once what it refers to is at the provider as it was here when the pod came, or is
// known not to go there.
func TestNeeds(t *testing.T) {
	t.Parallel()
	w, g := needing(t)
	secret := pullSecret(w.home, "pull", "s3cret-one")
	w.create(secret)
	first := w.pod("first", "pull")
	w.waitsFor(g, "nobody has read it", first, "Secret pull")
	if len(w.woken) != 1 || w.woken[0] != w.of("pull") {
		t.Errorf("woken: %v", w.woken)
	}
	w.waitsFor(g, "nor now", first, "Secret pull")
	if len(w.woken) != 1 {
		t.Errorf("woken at each question: %v", w.woken)
	}
	w.send("pull")
	w.waitsFor(g, "sent", first, "Secret pull")
	w.take("pull")
	w.waitsFor(g, "made", first, "")

	secret.Data[corev1.DockerConfigJsonKey] = login("s3cret-two")
	w.update(secret)
	w.clock.Step(time.Millisecond)
	second := w.pod("second", "pull")
	w.waitsFor(g, "changed before a second pod came", second, "Secret pull")
	w.send("pull")
	w.waitsFor(g, "changed and sent", second, "Secret pull")
	w.take("pull")
	w.waitsFor(g, "changed and made", second, "")
	if got := w.password("pull"); got != "s3cret-two" {
		t.Errorf("the second pod goes beside %q", got)
	}

	third := w.pod("third", "pull", "nowhere")
	w.waitsFor(g, "nobody has looked for one of two", third, "Secret pull")
	w.send("pull")
	w.waitsFor(g, "one is as it was", third, "Secret nowhere")
	w.send("nowhere")
	w.waitsFor(g, "the other is nowhere", third, "")

	w.create(token(w.home, "tokens"))
	fourth := w.pod("fourth", "tokens")
	w.waitsFor(g, "nobody has looked at one that stays", fourth, "Secret tokens")
	w.send("tokens")
	w.waitsFor(g, "it stays home", fourth, "")
}

// TestNeedsRefused: what the provider refuses holds no pod up, and what it has no place for yet does.
func TestNeedsRefused(t *testing.T) {
	t.Parallel()
	w, g := needing(t)
	w.create(pullSecret(w.home, "pull", "s3cret"))
	w.create(pullSecret(w.remote, "pull", "s3cret-of-somebody-else"))
	pod := w.pod("web", "pull")
	w.mapped(v1alpha1.MappedNamespace{Name: w.remote, Phase: v1alpha1.MappingPending})
	w.waitsFor(g, "first", pod, "Secret pull")
	w.both("pull")
	w.waitsFor(g, "its place may come", pod, "Secret pull")
	w.mapped(v1alpha1.MappedNamespace{Name: w.remote, Phase: v1alpha1.MappingReady})
	w.take("pull")
	if got := w.answer("pull"); got != "False/NameTaken" {
		t.Fatalf("answered %s", got)
	}
	w.waitsFor(g, "its name is taken", pod, "")
	w.clock.Step(heldFor)
	w.waitsFor(g, "it is tried again, as its provider did not take it", pod, "")
}

// TestNeedsBounded: a pod waits ten seconds for what cannot be found out.
func TestNeedsBounded(t *testing.T) {
	t.Parallel()
	w, g := needing(t)
	w.create(pullSecret(w.home, "pull", "s3cret"))
	pod := w.pod("web", "pull")
	w.forbidden = true
	w.waitsFor(g, "first", pod, "Secret pull")
	w.send("pull")
	w.waitsFor(g, "it may not be read", pod, "Secret pull")
	w.clock.Step(heldFor)
	w.waitsFor(g, "for long", pod, "")
}

// TestNeedsSoon: what a pod waits for is read sooner than what is read anyway, once for all pods that came
// until then, and no more often when they are served.
func TestNeedsSoon(t *testing.T) {
	t.Parallel()
	w, g := needing(t)
	w.create(pullSecret(w.home, "pull", "s3cret"))
	wakers := wakers{cache: w.raw, fleet: w, waits: w.consumer.waits, spaces: w.consumer.spaces}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	came := func(name string) *corev1.Pod {
		p := w.pod(name, "pull")
		wakers.pods().Create(ctx, event.CreateEvent{Object: p}, q)
		return p
	}
	look := func() time.Duration {
		res, err := w.consumer.Reconcile(ctx, at(w.name, w.of("pull")))
		if err != nil {
			t.Fatal(err)
		}
		return res.RequeueAfter
	}
	first := came("first")
	look()
	w.take("pull")
	w.waitsFor(g, "the first", first, "")
	reads := w.reads
	look() // an event of the answer
	second := came("second")
	look()
	if w.reads != reads+1 {
		t.Errorf("%d reads for a pod that comes after a while", w.reads-reads)
	}
	w.waitsFor(g, "the second", second, "")
	w.clock.Step(10 * time.Millisecond)
	pods := []*corev1.Pod{came("third"), came("fourth")}
	reads = w.reads
	if got := look(); got <= 0 || got > awaitedEvery || w.reads != reads {
		t.Errorf("asked for right after it was read: again in %s, %d reads more", got, w.reads-reads)
	}
	w.clock.Step(awaitedEvery)
	look()
	if w.reads != reads+1 {
		t.Errorf("%d reads for two pods", w.reads-reads)
	}
	for _, p := range pods {
		w.waitsFor(g, "one of two", p, "")
	}
	w.clock.Step(awaitedEvery)
	if got := look(); got <= awaitedEvery || w.reads != reads+1 {
		t.Errorf("nobody waits: again in %s, %d reads more", got, w.reads-reads-1)
	}
	fifth := w.pod("fifth", "pull")
	w.clock.Step(readEvery)
	look() // for another reason
	w.clock.Step(awaitedEvery)
	wakers.pods().Create(ctx, event.CreateEvent{Object: fifth}, q)
	look()
	if w.reads != reads+2 {
		t.Errorf("%d reads for a pod that was seen before its event", w.reads-reads-1)
	}
	w.waitsFor(g, "the one whose event is late", fifth, "")
}

// TestWaits: what is remembered of pods and objects is bounded, and is not lost while it is young.
func TestWaits(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Now())
	w := newWaits(clock)
	pod := func(uid string) *corev1.Pod {
		p := &corev1.Pod{}
		p.UID, p.Status.Phase = types.UID(uid), corev1.PodPending
		return p
	}
	object := func(name string) reconcile.Request {
		return at("milan", v1alpha1.HomeObject{Kind: kindSecret, Namespace: "shop", Name: name})
	}
	running := pod("running")
	running.Status.Phase = corev1.PodRunning
	w.begin(running, []reconcile.Request{object("x")})
	w.begin(pod("needs nothing"), nil)
	if len(w.pods)+len(w.objects) != 0 {
		t.Errorf("pods that wait for nothing: %v, %v", w.pods, w.objects)
	}
	for i := range maxWaits {
		w.begin(pod(string(rune(i))), []reconcile.Request{object(string(rune(i)))})
	}
	clock.Step(waitsKept + time.Second)
	young := pod("young")
	w.begin(young, []reconcile.Request{object("young")})
	if len(w.pods) != 1 || len(w.objects) != 1 {
		t.Errorf("%d pods and %d objects are remembered", len(w.pods), len(w.objects))
	}
	if since, first := w.since(young); first || !since.Equal(clock.Now()) {
		t.Errorf("the young one is lost: %s, %t", since, first)
	}
}
