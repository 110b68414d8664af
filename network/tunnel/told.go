package tunnel

import "time"

// Who has asked for a handshake and is answered has new keys at once, and the other side uses them from when it has
// received something with them, which is one packet, empty if there is nothing else. Where that is lost, and who has
// asked has nothing to say, the other side goes on with keys that nobody has any more, as after a restart, and finds out
// after 15 seconds. So the packet is sent again until something is heard, a few times.

const (
	// toldFor is for how long, after a question, it is looked whether something is heard, each toldEvery.
	toldFor   = 3 * time.Second
	toldEvery = 250 * time.Millisecond
	// toldMost is how often it is said again.
	toldMost = 6
)

// told is what is known of that. It is a decision alone; who asks it sends.
type told struct {
	// askedAt is when we asked last, old the last handshake before, and before how many answers had come by then.
	askedAt, old time.Time
	before       uint64
	// handshake is the last that came of it, received what was since, and at when that was said last, times how often.
	handshake time.Time
	received  uint64
	at        time.Time
	times     int
}

// asked takes that we ask.
func (t *told) asked(now, handshake time.Time, answers uint64) {
	t.askedAt, t.old, t.before, t.times = now, handshake, answers, 0
}

// watch is how soon it is to be looked again, 0 if it need not.
func (t *told) watch(now time.Time) time.Duration {
	if t.askedAt.IsZero() || now.Sub(t.askedAt) > toldFor || t.times >= toldMost {
		return 0
	}
	return toldEvery
}

// again reports whether the peer is to be told now, by what was seen of it and how many answers have come.
func (t *told) again(seen Stats, answers uint64, now time.Time) bool {
	switch {
	case t.askedAt.IsZero() || answers == t.before || seen.Handshake.Equal(t.old) || now.Sub(t.askedAt) > toldFor:
		return false // it has not answered, or asked itself
	case !seen.Handshake.Equal(t.handshake):
		t.handshake, t.received, t.at, t.times = seen.Handshake, seen.Received, now, 0
		return false // which was said with it
	case seen.Received != t.received:
		t.times = toldMost // it is heard
		return false
	case t.times >= toldMost || now.Sub(t.at) < toldEvery:
		return false
	}
	t.at, t.times = now, t.times+1
	return true
}
