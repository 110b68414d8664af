package tunnel

import "time"

// Who has asked for a handshake and is answered has new keys at once, and the other side uses them from when it has
// received something with them, which is one packet, empty if there is nothing else. Where that is lost, and who has
// asked has nothing to say, the other side goes on with keys that nobody has any more, as after a restart, and finds out
// after 15 seconds. So the packet is sent again until something is heard, a few times.

const (
	// toldEvery is from one time to the next, of at most toldMost, within toldFor.
	toldEvery = 250 * time.Millisecond
	toldMost  = 6
	toldFor   = 10 * time.Second
)

// told is what is known of that. It is a decision alone; who asks it sends.
type told struct {
	// since is when we asked last, or saw what came of it; old the last handshake before, and before how many
	// answers had come by then. Answered says that more have.
	since, old time.Time
	before     uint64
	answered   bool
	// handshake is what came of it, and received what had been heard by then. It was said last at a time, and again
	// so many times.
	handshake time.Time
	received  uint64
	at        time.Time
	times     int
}

// asked is when we have just asked.
func asked(now, handshake time.Time, answers uint64) told {
	return told{since: now, old: handshake, before: answers}
}

// watch is how soon it is to be looked again, 0 if it need not.
func (t *told) watch(now time.Time) time.Duration {
	if !t.answered || t.times >= toldMost || now.Sub(t.since) > toldFor {
		return 0
	}
	return toldEvery
}

// again reports whether the peer is to be told now, by what was seen of it and how many answers have come.
func (t *told) again(seen Stats, answers uint64, now time.Time) bool {
	if t.since.IsZero() || answers == t.before {
		return false // it has not answered: it may have asked itself
	}
	t.answered = true
	switch {
	case seen.Handshake.IsZero() || seen.Handshake.Equal(t.old):
		return false // nothing has come of it yet
	case !seen.Handshake.Equal(t.handshake):
		t.since, t.handshake, t.received, t.at, t.times = now, seen.Handshake, seen.Received, now, 0
		return false // which was said with it
	case seen.Received != t.received:
		t.times = toldMost // it is heard
		return false
	case t.times >= toldMost || now.Sub(t.at) < toldEvery || now.Sub(t.since) > toldFor:
		return false
	}
	t.at, t.times = now, t.times+1
	return true
}
