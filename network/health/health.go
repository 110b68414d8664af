// Package health knows whether the tunnel of a peering is alive, how long a packet takes
// through it and back, and how many get lost. A Prober asks the other side every half
// second and a Responder answers; both sides do both. What to make of questions and
// answers is State, which is pure. This package never acts on what it finds out: it
// calls whoever asked to be told.
//
// The other side is not trusted. It can only say that it is dead, or slower than it is:
// an answer counts once, for a question that was asked and with the Prober's random
// session, so an answer cannot come before its question. It can make us keep nothing
// but where it asked from last, and send no more than an answer and a number for each question.
//
// Beside answers a Responder tells one number to who asks, at once when it changes, again with
// the next answers and then with every tenth. What it means is for whoever asked to be told.
package health

import (
	"net/netip"
	"time"
)

// When a tunnel is dead, alive or about to die.
const (
	// Interval is the longest time between two probes; the shortest is nine tenths of
	// it, so that the probes of many peerings do not go in step.
	Interval = 500 * time.Millisecond
	// DeadWithin is the longest time from the last answer to the report that the tunnel
	// is dead. One that loses every third packet loses five in a row in 0.4 % of cases,
	// one that loses every tenth in 0.001 %.
	DeadWithin = deadAfter*Interval + patience
	// patience is how long an answer may take before a probe counts against the tunnel.
	// Where answers take longer, fewer than deadAfter have really been lost; as any answer
	// takes everything back, a tunnel is alive with a latency of up to two seconds.
	patience  = 250 * time.Millisecond
	deadAfter = 5
	// SilentWithin is the longest time from the last answer to the report that the tunnel is
	// silent, which it is sooner than dead: for who would leave a peer to somebody else
	// rather than ask it. Of one that loses every twentieth packet each way it is said every ten
	// minutes, of one that loses every hundredth once in eighteen hours.
	SilentWithin = silentAfter*Interval + patience
	silentAfter  = 3
	kickAfter    = 2
	kickPause    = time.Second
	// kickAgain is from one kick to the next in one silence, twice as long each time until it is
	// kickMost: where a tunnel carries all but probes, what a kick does to it is a loss.
	kickAgain = 2 * time.Second
	kickMost  = 8 * time.Second

	// A dead tunnel is alive again after aliveAfter answers in a row, to probes sent since
	// it died. Each time it dies within calm of its coming back, it takes aliveStep more,
	// at most aliveMost: 3 s, which leaves time for what else must happen within 5 s.
	aliveAfter = 2
	aliveStep  = 2
	aliveMost  = 6
	calm       = time.Minute

	// window is the number of probes that loss and latency are about: a minute's.
	window = 120
	// lostAfter is when a probe without an answer counts as lost in the report. A later
	// answer takes it back.
	lostAfter = 2 * time.Second
)

// Report is what is known of a tunnel.
type Report struct {
	// Known is false until the first answer, or until too many probes had none. Until
	// then nothing should be concluded from Alive.
	Known bool
	// Alive says whether the tunnel carries packets both ways.
	Alive bool
	// Silent says that some probes in a row, sent since the last answer or the beginning, had none.
	Silent bool
	// Since is when Known or Alive became what they are.
	Since time.Time
	// Heard is when the last answer came; zero if none did.
	Heard time.Time
	// Latency of the answers to the last minute's probes, there and back.
	Latency Latency
	// Loss is the part of the last minute's probes that had no answer, of those that
	// were answered or sent long enough ago: 0 to 1, and 0 if there is none.
	Loss float64
}

// Latency is zero while no answer is known.
type Latency struct {
	// P50 is the median.
	P50 time.Duration
	// Last is that of the answer that came last.
	Last time.Duration
	// Jitter is the mean difference between one answered probe and the next.
	Jitter time.Duration
}

// Conn is what is needed of a UDP socket in the namespace of the tunnel; *net.UDPConn
// has it. It is not net.PacketConn, since that allocates for each datagram received.
type Conn interface {
	ReadFromUDPAddrPort(b []byte) (n int, from netip.AddrPort, err error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (n int, err error)
	SetWriteDeadline(at time.Time) error
	Close() error
}

// sendWithin is how long a datagram may wait to be sent: a device that takes nothing must
// not keep us from noticing that.
const sendWithin = 50 * time.Millisecond
