package offer

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestPace(t *testing.T) {
	var p pace
	key := types.NamespacedName{Name: "a"}
	if got := p.wait(key, at(0)); got != 0 {
		t.Errorf("the first write waits %s", got)
	}
	p.note(key, at(0))
	for after, want := range map[time.Duration]time.Duration{
		0: time.Second, 300 * time.Millisecond: 700 * time.Millisecond, time.Second: 0, -time.Hour: 0,
	} {
		if got := p.wait(key, at(0).Add(after)); got != want {
			t.Errorf("%s after a write the next one waits %s, want %s", after, got, want)
		}
	}
	for i := range 1000 {
		p.note(types.NamespacedName{Name: fmt.Sprint(i)}, at(1))
	}
	if p.note(key, at(61)); len(p.last) != 1 {
		t.Errorf("%d writes are remembered after a minute, want the last one", len(p.last))
	}
}

// A consumer that changes its mind all the time has the provider write once a second,
// and is right in the end.
func TestFlippingConsumer(t *testing.T) {
	w := newWorld(t)
	w.ask(w.there("default"), v1alpha1.ResourceRequestSpec{})
	w.provide("default")
	decide := func(d v1alpha1.Decision) {
		w.patch(&v1alpha1.ResourceRequest{}, w.there("default"), `{"spec":{"decision":"`+string(d)+`"}}`)
	}
	writes := w.writes
	for range 5 {
		for _, d := range []v1alpha1.Decision{v1alpha1.DecisionDeclined, v1alpha1.DecisionAccepted} {
			decide(d)
			writes++ // that one
			if res := w.provide("default"); res.RequeueAfter <= 0 || res.RequeueAfter > writeEvery {
				t.Errorf("the next look is in %s", res.RequeueAfter)
			}
		}
	}
	decide(v1alpha1.DecisionDeclined)
	if writes++; w.writes != writes {
		t.Errorf("the provider wrote %d times within the second", w.writes-writes)
	}
	w.clock.Step(writeEvery)
	w.provide("default")
	w.expect("a second later", w.there("default"), isTaken, "False/Declined")
	decide(v1alpha1.DecisionAccepted)
	w.pass(w.provide("default"))
	if w.offer(w.there("default")) != nil {
		t.Error("an offer was made within the second of its removal")
	}
	w.provide("default")
	w.expect("at rest", w.there("default"), offered, "True/Offered", isTaken, yesTaken)

	if err := w.client.Delete(ctx, w.request(w.there("default"))); err != nil {
		t.Fatal(err)
	}
	w.provide("default")
	w.ask(w.there("default"), v1alpha1.ResourceRequestSpec{})
	w.pass(w.provide("default"))
	if w.offer(w.there("default")) != nil {
		t.Error("a request of the same name got an offer within the second")
	}
	if w.provide("default"); w.offer(w.there("default")) == nil {
		t.Error("a request of the same name gets no offer")
	}
}

// A provider that changes its offer all the time is followed once a second, to where
// it ends.
func TestFlippingProvider(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	w.settle("default")
	w.clock.Step(writeEvery)
	copied := func() int64 { return amountsOf(w.offer(w.here("default")).Spec.Resources)[cpu] }
	for i := range 5 {
		w.patch(kindOf("ResourceOffer"), w.there("default"), fmt.Sprintf(`{"spec":{"resources":{"cpu":"%d"}}}`, i+1))
		res := w.consume("default")
		if got := copied(); got != 1000 {
			t.Errorf("change %d within a second is at home: %d", i+1, got)
		}
		if i > 0 && (res.RequeueAfter <= 0 || res.RequeueAfter > writeEvery) {
			t.Errorf("change %d: the next look is in %s", i+1, res.RequeueAfter)
		}
	}
	w.clock.Step(writeEvery)
	if w.consume("default"); copied() != 5000 {
		t.Errorf("at home is %d of the last 5000", copied())
	}
	if err := w.client.Delete(ctx, w.offer(w.there("default"))); err != nil {
		t.Fatal(err)
	}
	w.pass(w.consume("default"))
	if w.consume("default"); w.offer(w.here("default")) != nil {
		t.Error("the copy of an offer that is gone stays")
	}
}

// Of too many requests the oldest are looked at, and the next one when one of them goes.
func TestTooManyRequests(t *testing.T) {
	w := newWorld(t)
	w.reader.set(func() { w.reader.answer.Free = list(cpu, "8", memory, "1000", pods, "1000") })
	for i := range maxRequests + 2 {
		w.ask(w.there(fmt.Sprintf("r%02d", i)), v1alpha1.ResourceRequestSpec{Resources: list(cpu, "1m", memory, "1", pods, "1")})
	}
	all := &v1alpha1.ResourceRequestList{}
	if err := w.client.List(ctx, all, client.InNamespace(w.there("").Namespace)); err != nil {
		t.Fatal(err)
	}
	order := oldest(all.Items, len(all.Items))
	last, first := order[maxRequests].Name, order[0].Name
	w.provide(last)
	w.expect("one too many", w.there(last), offered, "False/Invalid", isTaken, "False/Invalid")
	w.provide(first)
	w.expect("the oldest", w.there(first), offered, "True/Offered")
	if got := len(eldestIn(ctx, w.client, w.there("").Namespace)); got != maxRequests+1 {
		t.Errorf("a change has %d requests looked at, want %d", got, maxRequests+1)
	}
	if err := w.client.Delete(ctx, w.request(w.there(first))); err != nil {
		t.Fatal(err)
	}
	w.pass(w.provide(last))
	w.provide(last)
	w.expect("one has gone", w.there(last), offered, "True/Offered")
}
