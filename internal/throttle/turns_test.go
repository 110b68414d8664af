package throttle

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func named(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// TestTurns holds that one peer has so many workers at most, that who finds none is called in order, and that
// another peer has its own.
func TestTurns(t *testing.T) {
	turns := NewTurns(2)
	var called []string
	turns.Call(func(r reconcile.Request) { called = append(called, r.Name) })
	for i, name := range []string{"0", "1", "2", "3", "2"} { // the last asks again
		if got := turns.Take("a", named(name)); got != (i < 2) {
			t.Errorf("turn %d of a peer: %v", i, got)
		}
	}
	if !turns.Take("b", named("b")) {
		t.Error("another peer has no turn")
	}
	turns.Give("a")
	if !turns.Take("a", named("2")) {
		t.Error("what was given back cannot be taken")
	}
	for range 2 {
		turns.Give("a")
	}
	for _, name := range []string{"2", "3"} {
		turns.Pass(named(name))
	}
	turns.Give("b")
	if len(turns.busy)+len(turns.line)+len(turns.in)+len(turns.called) != 0 {
		t.Errorf("something is left: %v %v %v %v", turns.busy, turns.line, turns.in, turns.called)
	}
	if want := []string{"2", "3"}; !slices.Equal(called, want) {
		t.Errorf("called: %v, want %v", called, want)
	}
}

// TestTurnsOfAnotherPeer holds that what is another peer's when it is called, as a pod that was made anew there under the
// same name, neither stops the line that it stood in nor waits for that peer alone.
func TestTurnsOfAnotherPeer(t *testing.T) {
	turns := NewTurns(1)
	var called []string
	turns.Call(func(r reconcile.Request) { called = append(called, r.Name) })
	for _, name := range []string{"0", "moved", "1"} {
		turns.Take("a", named(name))
	}
	turns.Give("a")
	if !turns.Take("b", named("moved")) {
		t.Error("it has no turn at its new peer")
	}
	if want := []string{"moved", "1"}; !slices.Equal(called, want) {
		t.Errorf("called: %v, want %v", called, want)
	}
	turns.Take("a", named("1"))
	turns.Take("a", named("2"))
	turns.Take("b", named("2"))
	turns.Give("b")
	if want := []string{"moved", "1", "2"}; !slices.Equal(called, want) {
		t.Errorf("called: %v, want %v", called, want)
	}
}

// TestTurnsOfTwoPeers holds that one that two peers call before it comes keeps neither's line back.
func TestTurnsOfTwoPeers(t *testing.T) {
	turns := NewTurns(1)
	var called []string
	turns.Call(func(r reconcile.Request) { called = append(called, r.Name) })
	for _, name := range []string{"0", "both", "1"} {
		turns.Take("a", named(name))
	}
	for _, name := range []string{"2", "both"} {
		turns.Take("b", named(name))
	}
	turns.Give("a")
	turns.Give("b")
	if want := []string{"both", "both", "1"}; !slices.Equal(called, want) {
		t.Errorf("called: %v, want %v", called, want)
	}
}

// TestTurnsPass holds that the line goes on where one that was called needs no turn any more.
func TestTurnsPass(t *testing.T) {
	turns := NewTurns(1)
	var called []string
	turns.Call(func(r reconcile.Request) { called = append(called, r.Name) })
	for _, name := range []string{"0", "1", "2", "3"} {
		turns.Take("a", named(name))
	}
	turns.Pass(named("3")) // a look for another reason, before its turn
	turns.Give("a")
	turns.Pass(named("1"))
	if !turns.Take("a", named("2")) {
		t.Error("the next one has no turn")
	}
	turns.Pass(named("2"))
	if want := []string{"1", "2"}; !slices.Equal(called, want) {
		t.Errorf("called: %v, want %v", called, want)
	}
}
