package namespace

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// liar is a provider that answers as it likes.
type liar struct {
	*world
	*fakePeer
	// spec is that of its copy, and says what it answers of namespaces.
	spec any
	says func() map[string]any
}

func (l *liar) Peer(string) (Peer, bool) { return l, true }
func (l *liar) Client() client.Client    { return l.world.client }
func (l *liar) Reader() client.Reader    { return l }

func (l *liar) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
func (l *liar) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	obj.(*unstructured.Unstructured).Object = map[string]any{"metadata": map[string]any{"generation": int64(1)}, "spec": l.spec,
		"status": map[string]any{"observedGeneration": int64(1), "namespaces": l.says()}}
	return nil
}

// events counts those that hold words, and forgets all.
func (w *world) events(words string) (n int) {
	for {
		select {
		case e := <-w.recorded.Events:
			if strings.Contains(e, words) {
				n++
			}
		default:
			return n
		}
	}
}

// TestChangesItsMind: a provider that answers something else ten times a second, for ten minutes, causes few writes
// and few events at home; its first change is told at once, and its last one in the end.
func TestChangesItsMind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	if w.says()["phase"] != "Ready" || w.events("Ready") != 1 {
		t.Fatalf("%v", w.says())
	}
	w.clock.Step(time.Hour)
	n, refused := 0, false
	l := &liar{world: w, fakePeer: w.peers[milan], spec: remoteSpec(w, milan), says: func() map[string]any {
		said := map[string]any{w.home: map[string]any{"phase": "Ready", "name": v1alpha1.DefaultRemoteNamespace(w.home, milan)}}
		if refused {
			said[w.home] = map[string]any{"phase": "Refused", "reason": "Full", "message": fmt.Sprintf("attempt %d", n)}
		}
		for i := range 4 {
			said[fmt.Sprint("old-", i)] = map[string]any{"phase": "Kept", "message": fmt.Sprintf("attempt %d", n)}
		}
		return said
	}}
	w.carrier = newCarrier(w.client, w.client, w.clock, l)
	key := mapOfPeer(milan)[0]

	var due time.Time
	answers, changes, told, looks := 0, 0, 0, 0
	look := func() {
		t.Helper()
		before := w.writes
		if _, err := w.carrier.Reconcile(ctx, key); err != nil {
			t.Fatal(err)
		}
		wrote := w.writes > before
		answers += w.writes - before
		if now := w.clock.Now(); wrote || !due.IsZero() && !now.Before(due) { // its event, or its own wish
			before, looks, due = w.writes, looks+1, time.Time{}
			res, err := w.offloader.Reconcile(ctx, offloadingOf(w.home))
			if err != nil {
				t.Fatal(err)
			}
			changes += w.writes - before
			if res.RequeueAfter > 0 {
				due = now.Add(res.RequeueAfter)
			}
		}
		told += w.events("")
		w.clock.Step(100 * time.Millisecond)
	}
	refused = true
	if look(); w.says()["milan Ready"] != "False/Full" || told != 1 {
		t.Errorf("%v, and %d events: the first change is told late", w.says(), told)
	}
	const steps = 10 * 60 * 10
	for n = range steps {
		refused = n%2 == 0
		look()
	}
	if most := answerBurst + 10*60/int(answerEvery.Seconds()) + 2; answers > most {
		t.Errorf("%d writes of the answer, want at most %d", answers, most)
	}
	if most := changeBurst + 10*60/int(changeEvery.Seconds()) + 2; changes > most {
		t.Errorf("%d writes of the offloading, want at most %d", changes, most)
	}
	if most := 10*60/int(tellEvery.Seconds()) + 2; told > most {
		t.Errorf("%d events, want at most %d", told, most)
	}
	t.Logf("%d writes of the answer, %d of the offloading in %d looks, %d events", answers, changes, looks, told)
	refused, told = true, 0
	for range int((answerEvery + changeEvery + tellEvery).Seconds() * 10) {
		look()
	}
	if w.says()["milan Ready"] != "False/Full" || w.says()["ready"] != "False/AllFailed" || w.offloader.memory.of[w.home].reason != "AllFailed" {
		t.Errorf("%v: the last word does not get through", w.says())
	}
	m := get(w, v1alpha1.PeeringNamespace(milan), v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{})
	for name, said := range m.Status.Namespaces {
		if name != w.home && said.Message != "" {
			t.Fatalf("%s, which nobody asked for: %+v", name, said)
		}
	}
}

// remoteSpec is that of a provider's copy as it is.
func remoteSpec(w *world, peering string) any {
	w.t.Helper()
	there := remoteMap(v1alpha1.TenantNamespace(peering))
	if err := w.raw.Get(ctx, client.ObjectKeyFromObject(there), there); err != nil {
		w.t.Fatal(err)
	}
	return there.Object["spec"]
}

// TestToldOnce: an event tells of one offloading once a minute, and of the last that is so; who changes it is told at
// once. One provider causes no more events than its share, and no other's are late for that.
func TestToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := &v1alpha1.NamespaceOffloading{}
	o.Namespace, o.UID, o.Generation = "shop", "1", 1
	set := func(o *v1alpha1.NamespaceOffloading, peering, reason string) {
		o.Status.Clusters = []v1alpha1.ClusterOffloading{{Name: peering}}
		meta.SetStatusCondition(&o.Status.Clusters[0].Conditions, condition(reason))
		meta.SetStatusCondition(&o.Status.Conditions, condition(reason))
	}
	tell := func(o *v1alpha1.NamespaceOffloading) time.Duration {
		return w.offloader.announce(w.offloader.memory.get(o), &facts{now: w.clock.Now()}, o, &plan{})
	}
	tell(o)
	for _, c := range []struct {
		why, reason string
		after       time.Duration
		events      int
		again       time.Duration
	}{
		{"the first", "Ready", 0, 1, 0},
		{"the same", "Ready", time.Second, 0, 0},
		{"too soon", "AllFailed", 9 * time.Second, 0, 50 * time.Second},
		{"as it was", "Ready", time.Second, 0, 0},
		{"still too soon", "SomeFailed", time.Second, 0, 48 * time.Second},
		{"in time", "SomeFailed", 48 * time.Second, 1, 0},
		{"waiting is no event", "Pending", time.Hour, 0, 0},
		{"what follows is", "SomeFailed", time.Second, 1, 0},
	} {
		w.clock.Step(c.after)
		set(o, "milan", c.reason)
		if again, n := tell(o), w.events(""); again != c.again || n != c.events {
			t.Errorf("%s: %d events, again in %s; want %d, %s", c.why, n, again, c.events, c.again)
		}
	}
	o.Generation++
	set(o, "milan", "Ready")
	if again := tell(o); again != 0 || w.events("") != 1 {
		t.Error("what was changed by its owner is told late")
	}
	other := func(i int, peering string) time.Duration {
		o := &v1alpha1.NamespaceOffloading{}
		o.Namespace = fmt.Sprint("n", i)
		w.offloader.memory.get(o)
		set(o, peering, "AllFailed")
		return tell(o)
	}
	late := 0
	for i := range 2 * tellBurst {
		if other(i, "milan") > 0 {
			late++
		}
	}
	if n := w.events(""); n > tellBurst || n+late != 2*tellBurst {
		t.Errorf("%d events, and %d are late", n, late)
	}
	if other(2*tellBurst, "oslo") != 0 || w.events("") != 1 {
		t.Error("another provider's are late for that")
	}
	w.offloader.memory.left("milan")
	if other(2*tellBurst+1, "milan") != 0 {
		t.Error("one that is peered anew is not heard")
	}
}

// TestEditIsAnswered: what a provider answers to a change at home is stored at once, also of one that had changed its
// mind all the time, which it cannot go on with for that.
func TestEditIsAnswered(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	k := (&memory{}).get(&v1alpha1.NamespaceOffloading{})
	var stored v1alpha1.ClusterOffloading
	say := func(generation int64, reason string) bool {
		is := v1alpha1.ClusterOffloading{Name: "milan"}
		for _, c := range []metav1.Condition{{Type: v1alpha1.ConditionOffloadingRequired, Reason: "Selected"}, {Type: v1alpha1.ConditionReady, Reason: reason}} {
			c.Status, c.ObservedGeneration = metav1.ConditionTrue, generation
			setAt(&is.Conditions, now, c)
		}
		stored = k.steady(&facts{now: now}, &plan{})(stored, is)
		return meta.FindStatusCondition(stored.Conditions, v1alpha1.ConditionReady).Reason == reason
	}
	flips := func(generation int64) (n int) {
		for n < 100 && say(generation, fmt.Sprint("attempt", n)) {
			n++
		}
		return n
	}
	say(1, "Ready")
	if n := flips(1); n != changeBurst {
		t.Errorf("%d changes of the provider's are stored", n)
	}
	for _, reason := range []string{"Pending", "Refused", "Ready"} {
		if !say(2, reason) {
			t.Errorf("%s is not stored when its owner has changed it", reason)
		}
	}
	if n := flips(2); n >= answersEarned {
		t.Errorf("%d changes more are stored for that", n)
	}
}

func condition(reason string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason}
}
