package tunnel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Tunnels in userspace work in one process, and each as fast as it can. What one is flooded with keeps processors for
// whole turns of the kernel's scheduler, a few milliseconds, and what others carry waits for as long, several times on its
// way; with one processor for Go it waits for tenths of a second. So a tunnel that has much to hand to the kernel hands
// over little at a time and rests between, when others have something to do and there is no processor to spare: what
// it is sent meanwhile waits in its own queue, or is lost there.

const (
	// Who asks and waits for answers has no more than few packets at a time, and less than lots within lotsIn, both
	// ways together: these are handed over as ever, and count for nothing.
	few          = 8
	lots, lotsIn = 64, time.Millisecond
	// Of more, pile are handed to the device at a time, and after workMost there is a rest, which is as long as a timer
	// takes at least. Work is how long the kernel takes packets for, of which other processes may have some, and perByte for the
	// cipher, about.
	pile              = 16
	workMost, perByte = 100 * time.Microsecond, time.Nanosecond
	restFor           = time.Millisecond
	// company is how long after its last packet a tunnel counts as one that has something to do.
	company = 20 * time.Millisecond
	// spareEvery is how often is looked at the processors at most. They are busy from when less than busyBelow of
	// their time was left until more than idleAbove was: a rest leaves some, and is no reason to end it.
	spareEvery           = 200 * time.Millisecond
	busyBelow, idleAbove = 0.1, 0.5
)

// Sharing is what the tunnels of one node share its processors by.
type Sharing struct {
	mu      sync.Mutex // for joining and leaving
	members atomic.Pointer[[]*member]
	spare   spare
	// began is when it was made: clocks may be set back, and what passes since does not.
	began time.Time
	// now is time.Now, and rest time.Sleep.
	now  func() time.Time
	rest func(time.Duration)
}

// NewSharing is for Options of all tunnels of this node.
func NewSharing() *Sharing {
	s := &Sharing{spare: spare{read: processorTimes}, began: time.Now(), now: time.Now, rest: time.Sleep}
	s.members.Store(&[]*member{})
	return s
}

// member is a tunnel among those that share; nil one that does not.
type member struct {
	of *Sharing
	// last is when it had packets last, in nanoseconds since Sharing.began, and rested how many it has rested for.
	last, rested atomic.Int64
	// had is how many packets it has had since a time as of last, which is less than lotsIn ago while there are some.
	had, since atomic.Int64
	// worked is for how long it has worked since, in nanoseconds.
	worked atomic.Int64
}

// join has another tunnel share.
func (s *Sharing) join() *member {
	if s == nil {
		return nil
	}
	m := &member{of: s}
	m.last.Store(-int64(company)) // it has had none
	s.change(func(all []*member) []*member { return append(all, m) })
	return m
}

// leave ends that.
func (m *member) leave() {
	if m == nil {
		return
	}
	m.of.change(func(all []*member) []*member {
		return slices.DeleteFunc(all, func(o *member) bool { return o == m })
	})
}

// hasRested is for how long the tunnel has rested.
func (m *member) hasRested() time.Duration {
	if m == nil {
		return 0
	}
	return time.Duration(m.rested.Load())
}

// change makes the list of members anew, which readers have without a lock.
func (s *Sharing) change(with func([]*member) []*member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := *s.members.Load()
	now := with(append(make([]*member, 0, len(was)+1), was...))
	s.members.Store(&now)
}

// since is how many nanoseconds after the beginning a time is.
func (s *Sharing) since(now time.Time) int64 { return int64(now.Sub(s.began)) }

// accompanied reports whether another tunnel has something to do.
func (m *member) accompanied(now time.Time) bool {
	for _, o := range *m.of.members.Load() {
		if o != m && m.of.since(now)-o.last.Load() < int64(company) {
			return true
		}
	}
	return false
}

// took takes that so many packets have been read.
func (m *member) took(n int, now time.Time) {
	if m == nil || n == 0 {
		return
	}
	at := m.of.since(now)
	m.last.Store(at)
	if at-m.since.Load() >= int64(lotsIn) { // two readers may both begin it: it is no exact number
		m.had.Store(0)
		m.since.Store(at)
	}
	m.had.Add(int64(n))
}

// pressed reports whether others are to have their turns.
func (m *member) pressed(now time.Time) bool { return m.accompanied(now) && m.of.spare.busy(now) }

// hand has packets written. While others are to have their turns it has so many written at a time, rests between them when
// they have taken long, and goes on after errors.
func (m *member) hand(packets [][]byte, each int, write func([][]byte) (int, error)) (n int, err error) {
	if m == nil || len(packets) <= few && m.had.Load() < lots || !m.pressed(m.of.now()) {
		return write(packets)
	}
	for len(packets) > 0 {
		some := packets[:min(each, len(packets))]
		packets = packets[len(some):]
		worked := int64(0)
		for _, p := range some {
			worked += int64(len(p)) * int64(perByte)
		}
		began := m.of.now()
		k, wrong := write(some)
		n, err = n+k, errors.Join(err, wrong)
		if m.worked.Add(worked+int64(m.of.now().Sub(began))) >= int64(workMost) {
			m.rest()
		}
	}
	return n, err
}

// rest lets others go first.
func (m *member) rest() {
	m.worked.Store(0)
	began := time.Now()
	m.of.rest(restFor)
	m.rested.Add(int64(time.Since(began)))
}

// spare says whether the machine has processors to spare.
type spare struct {
	// read is how long all processors together have been idle, and how long they have been there.
	read func() (idle, all uint64, err error)

	mu        sync.Mutex
	at        time.Time
	idle, all uint64
	is        bool
}

// busy reports whether they are all in use, by what was seen last.
func (s *spare) busy(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.at) < spareEvery {
		return s.is
	}
	idle, all, err := s.read()
	if err != nil {
		s.at, s.is = now, false
		return false
	}
	if s.all > 0 && all > s.all {
		switch left := float64(max(idle, s.idle)-s.idle) / float64(all-s.all); { // idle times may shrink
		case left < busyBelow:
			s.is = true
		case left > idleAbove:
			s.is = false
		}
	}
	s.at, s.idle, s.all = now, idle, all
	return s.is
}

// processorTimes reads what the kernel has counted, in its ticks (proc_stat(5)).
func processorTimes() (idle, all uint64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	return timesIn(text)
}

// timesIn are the times in the first line of /proc/stat. What guests used is in what their hosts did.
func timesIn(text []byte) (idle, all uint64, err error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 6 || string(fields[0]) != "cpu" {
		return 0, 0, fmt.Errorf("/proc/stat begins with %.80q instead of the times of all processors", line)
	}
	for i, field := range fields {
		if i == 0 || i > 8 { // "cpu"; guest, guest_nice
			continue
		}
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return 0, 0, err
		}
		if all += n; i == 4 || i == 5 { // idle, iowait
			idle += n
		}
	}
	return idle, all, nil
}
