package network

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/network/netnstest"
)

func TestTurns(t *testing.T) {
	var turns turns
	now := time.Unix(1000, 0)
	want := func(what, provider string, at time.Time, wait time.Duration) {
		t.Helper()
		if got := turns.take(provider, at); got != wait {
			t.Errorf("%s: wait %s, want %s", what, got, wait)
		}
	}
	want("nobody is there", "milan", now, 0)
	want("somebody is there", "milan", now, turnWait)
	want("another provider", "oslo", now, 0)
	turns.give("milan", now, errors.New("it refuses"))
	want("it has answered", "milan", now, 0)
	turns.give("milan", now, fmt.Errorf("writing: %w", context.DeadlineExceeded))
	want("it has not answered", "milan", now.Add(time.Second), slowRest-time.Second)
	turns.give("oslo", now, nil)
	want("which is not another one's", "oslo", now, 0)
	want("the clock was set back", "milan", now.Add(-time.Hour), 0)
	turns.give("milan", now, context.DeadlineExceeded)
	want("it was left alone long enough", "milan", now.Add(slowRest), 0)
}

// TestTurnPanics holds that who panics in his turn does not keep it: controllers go on after that.
func TestTurnPanics(t *testing.T) {
	var turns turns
	now := time.Unix(1000, 0)
	if wait := turns.take("milan", now); wait != 0 {
		t.Fatalf("wait %s", wait)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is not to be seen")
			}
		}()
		_ = turns.within("milan", func() time.Time { return now }, func() error { panic("of a list without an end") })
	}()
	if wait := turns.take("milan", now); wait != 0 {
		t.Errorf("the turn of who panicked is not over: wait %s", wait)
	}
	if err := turns.within("milan", func() time.Time { return now }, func() error { return context.DeadlineExceeded }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what came of it is %v", err)
	}
	if wait := turns.take("milan", now); wait != slowRest {
		t.Errorf("who has not answered is asked again after %s", wait)
	}
}

// TestRulesHang has a provider answer no write: one look at it waits, and others come back later.
func TestRulesHang(t *testing.T) {
	w := newRuled(t)
	w.reconcile()
	w.policy(dbFromWeb)
	real := w.ruler.fleet
	h := &mute{Client: w.rome.client, begun: make(chan struct{}, 8), over: make(chan struct{})}
	w.ruler.fleet = muteFleet{real, h}
	w.clock.Step(ruleRest)
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: w.space, Name: w.rome.peer}}
	ended := make(chan error, 1)
	go func() {
		_, err := w.ruler.Reconcile(ctx, request)
		ended <- err
	}()
	<-h.begun
	w.clock.Step(ruleRest)
	if result, err := w.ruler.Reconcile(ctx, request); err != nil || result.RequeueAfter != turnWait {
		t.Errorf("while one waits another one gets %v, %v", result, err)
	}
	close(h.over)
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who waited got %v", err)
	}
	w.ruler.fleet = real
	w.clock.Step(ruleRest)
	if result, err := w.ruler.Reconcile(ctx, request); err != nil || result.RequeueAfter != slowRest-ruleRest {
		t.Errorf("a provider that hung is asked again after %v, %v", result, err)
	}
	w.clock.Step(slowRest)
	netnstest.Await(t, "the rules are there", netnstest.Patience, func() bool {
		w.reconcile()
		return w.rules(w.there()) != ""
	})
}

// muteFleet is one whose provider answers no write until that is over.
type muteFleet struct {
	Fleet
	client client.Client
}

func (f muteFleet) Peer(name string) (Peer, bool) {
	p, ok := f.Fleet.Peer(name)
	return mutePeer{p, f.client}, ok
}

type mutePeer struct {
	Peer
	client client.Client
}

func (p mutePeer) Client() client.Client { return p.client }

type mute struct {
	client.Client
	begun, over chan struct{}
}

func (h *mute) wait() error {
	h.begun <- struct{}{}
	<-h.over
	return context.DeadlineExceeded
}

func (h *mute) Create(context.Context, client.Object, ...client.CreateOption) error {
	return h.wait()
}
func (h *mute) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return h.wait()
}
func (h *mute) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return h.wait()
}
