package internet

import "time"

// What a line of limited rate may hold: as much as it sends in queueTime, but
// not less than queueBytes, so that slow lines still take a burst.
const (
	queueTime  = 200 * time.Millisecond
	queueBytes = 256 << 10
	// grace is how much sooner than it was read a packet may have come: a relay
	// that had to wait for a core finds packets late, and a line that counted
	// that time as idle would be too slow on a busy machine.
	grace = 10 * time.Millisecond
)

// fate is what a line does with a packet.
type fate int

const (
	carried fate = iota // sent and delivered
	lost                // sent and lost on the way
	refused             // dropped at the tail of a full queue
)

// shaper decides when packets leave one direction of a link, and which are
// lost. It is pure: moments are durations since any fixed one, and chance is a
// source of numbers in [0, 1). The delay comes after departure and is not its
// business.
type shaper struct {
	shape  shape
	chance func() float64
	free   time.Duration // when the line has sent all it holds
}

// admit takes a packet of size bytes at a moment not before that of the last
// one. departure is when its last bit leaves, unless it was refused; never
// before now.
func (s *shaper) admit(now time.Duration, size int) (departure time.Duration, f fate) {
	sent := max(now-grace, s.free) + s.sending(size)
	if s.shape.rate > 0 && sent-now > s.patience() {
		return 0, refused
	}
	s.free = sent
	departure = max(now, sent)
	if s.shape.loss > 0 && s.chance() < s.shape.loss {
		return departure, lost
	}
	return departure, carried
}

// again takes up a packet that was admitted under another shape and has not
// left at the moment now. It is neither lost nor refused a second time.
func (s *shaper) again(now time.Duration, size int) (departure time.Duration) {
	s.free = max(now, s.free) + s.sending(size)
	return s.free
}

// reset empties the line and gives it another shape.
func (s *shaper) reset(sh shape) { s.shape, s.free = sh, 0 }

// sending is how long the line is busy with so many bytes.
func (s *shaper) sending(size int) time.Duration {
	if s.shape.rate == 0 {
		return 0
	}
	return time.Duration(int64(size) * 8 * int64(time.Second) / s.shape.rate)
}

// patience is how long the last byte of a full queue waits.
func (s *shaper) patience() time.Duration { return max(queueTime, s.sending(queueBytes)) }
