package throttle

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Turns bounds how many workers one peer keeps busy. What finds none free stands in a line
// without a worker, and its head is called when one is: nobody asks again and again.
type Turns struct {
	most int
	mu   sync.Mutex
	busy map[string]int
	line map[string][]reconcile.Request
	in   map[place]bool
	// called are those that were called, by whose turn it was, and have neither taken a turn since nor passed.
	called map[reconcile.Request]string
	// call asks for another look.
	call func(reconcile.Request)
}

// place is one in a peer's line: what is asked for may be another peer's meanwhile.
type place struct {
	peer string
	key  reconcile.Request
}

// NewTurns lets one peer keep so many workers busy at most.
func NewTurns(most int) *Turns {
	return &Turns{
		most: most, busy: map[string]int{}, line: map[string][]reconcile.Request{}, in: map[place]bool{},
		called: map[reconcile.Request]string{}, call: func(reconcile.Request) {},
	}
}

// Source gives the turns the queue of the controller.
func (t *Turns) Source() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		t.Call(q.Add)
		return nil
	})
}

// Call has those called by this.
func (t *Turns) Call(call func(reconcile.Request)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.call = call
}

// Take reports whether a worker may work for a peer now; if so, Give ends it. If not, the
// request is called later.
func (t *Turns) Take(peer string, key reconcile.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if by, was := t.called[key]; was {
		if delete(t.called, key); by != peer {
			t.next(by)
		}
	}
	if t.busy[peer] < t.most {
		t.busy[peer]++
		return true
	}
	if at := (place{peer, key}); !t.in[at] {
		t.in[at] = true
		t.line[peer] = append(t.line[peer], key)
	}
	return false
}

// Give ends a turn, and calls who is next.
func (t *Turns) Give(peer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy[peer]--; t.busy[peer] <= 0 {
		delete(t.busy, peer)
	}
	t.next(peer)
}

// Pass ends a look that may not have needed a turn: if it was called for one, who is next is. It is
// called at the end of each look that does not take a turn whatever it finds.
func (t *Turns) Pass(key reconcile.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if peer, was := t.called[key]; was {
		delete(t.called, key)
		t.next(peer)
	}
}

// next calls the head of a line. The caller holds the lock.
func (t *Turns) next(peer string) {
	line := t.line[peer]
	if len(line) == 0 {
		return
	}
	if t.line[peer] = line[1:]; len(line) == 1 {
		delete(t.line, peer)
	}
	delete(t.in, place{peer, line[0]})
	by, was := t.called[line[0]]
	t.called[line[0]] = peer
	t.call(line[0])
	if was && by != peer { // it comes once, and takes no turn of the other one
		t.next(by)
	}
}
