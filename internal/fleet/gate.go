package fleet

import (
	"context"
	"io"
	"time"
)

// gate lets as many through at a time as it has room for, in the order in which they came.
// One that is nil lets everybody through.
type gate chan struct{}

// decoding is for whoever decodes more than smallCost, of any peer. Nobody waits for a peer
// inside, so none can keep others out: 2 × maxCost is what all of them have decoded at once
// before it is trimmed and weighed.
var decoding = make(gate, 2)

// enter waits until there is room.
func (g gate) enter(ctx context.Context) error {
	if g == nil {
		return ctx.Err()
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave makes room.
func (g gate) leave() {
	if g != nil {
		<-g
	}
}

// decode has work done that decodes something of such a cost, with few others at a time.
func decode(ctx context.Context, cost int, work func() error) error {
	if cost > smallCost {
		if err := decoding.enter(ctx); err != nil {
			return err
		}
		defer decoding.leave()
	}
	return work()
}

// smallText is how much of an answer is read whatever else is read from the same peer. Of
// more than that there is one at a time, until it is decoded: what a peer begins to
// send and does not end takes maxAnswer, and smallText for each kind.
const smallText = 64 << 10

// turn reads an answer, and waits at the gate before what is more than smallText. Who is
// inside for callTimeout is read no more, so that who sends half an answer keeps no other out.
type turn struct {
	ctx   context.Context
	r     io.Reader
	gate  gate
	used  int
	early *time.Timer // of who has not come to the gate, if not nil
	limit *time.Timer // of who is inside, else nil
}

// Read reads what is there when it is its turn. It never reads more than smallText at once:
// that is more than what can be left of it when an event is over.
func (t *turn) Read(p []byte) (int, error) {
	p = p[:min(len(p), smallText)]
	if t.limit == nil && t.used >= smallText {
		if t.early != nil {
			t.early.Stop() // its turn is the others' to give
		}
		if err := t.gate.enter(t.ctx); err != nil {
			return 0, err
		}
		t.limit = time.AfterFunc(callTimeout, func() {
			if c, ok := t.r.(io.Closer); ok {
				c.Close()
			}
		})
	}
	if t.limit == nil {
		p = p[:min(len(p), smallText-t.used)]
	}
	n, err := t.r.Read(p)
	t.used += n
	if err != nil && t.limit != nil && !t.limit.Stop() {
		err = errNoAnswer
	}
	return n, err
}

// end is called when what was read is needed no more but for so many bytes.
func (t *turn) end(left int) {
	t.used = left
	if t.limit != nil {
		t.limit.Stop()
		t.limit = nil
		t.gate.leave()
	}
}
