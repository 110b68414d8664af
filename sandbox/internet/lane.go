package internet

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// slot is the size of pooled buffers; larger packets are rare and get their own.
	slot = 2048
	// spare is how many unused buffers a lane keeps.
	spare = 1024
	// laneLimit is how many packets a lane holds at most, in the queue and under
	// way: 48 MB of full-size ones.
	laneLimit = 32768
)

// held is a packet that was admitted and has not arrived.
type held struct {
	departure time.Duration
	packet    []byte
}

// lane carries packets in one direction, in order. A packet arrives a delay
// after its departure; the delay is looked at on arrival, so a change holds at
// once for what is under way. All methods may be called at the same time.
type lane struct {
	drops atomic.Uint64
	// wake has room for one notice that the head of the lane may have changed.
	wake chan struct{}

	mu     sync.Mutex
	shaper shaper
	queue  []held // from head on
	head   int
	free   [][]byte
}

func newLane(chance func() float64) *lane {
	l := &lane{wake: make(chan struct{}, 1), shaper: shaper{chance: chance}}
	slab := make([]byte, 64*slot)
	for i := range 64 {
		l.free = append(l.free, slab[i*slot:(i+1)*slot:(i+1)*slot])
	}
	return l
}

// push takes a copy of the packet, or drops it.
func (l *lane) push(now time.Duration, packet []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue)-l.head >= laneLimit {
		l.drops.Add(1)
		return
	}
	departure, f := l.shaper.admit(now, len(packet))
	if f != carried {
		l.drops.Add(1)
		return
	}
	l.queue = append(l.queue, held{departure, append(l.buffer(len(packet)), packet...)})
	if len(l.queue)-l.head == 1 {
		l.notify()
	}
}

// pop returns the next packet if it has arrived. Otherwise wait is the time
// until one may, negative if the lane is empty. The caller gives the packet back.
func (l *lane) pop(now time.Duration) (packet []byte, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.head == len(l.queue) {
		return nil, -1
	}
	next := &l.queue[l.head]
	if arrival := next.departure + l.shaper.shape.delay; arrival > now {
		return nil, arrival - now
	}
	packet, next.packet = next.packet, nil
	l.head++
	if l.head == len(l.queue) || l.head > laneLimit {
		l.queue = l.queue[:copy(l.queue, l.queue[l.head:])]
		l.head = 0
	}
	return packet, 0
}

// giveBack takes the buffer of a packet that pop returned.
func (l *lane) giveBack(packet []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cap(packet) == slot && len(l.free) < spare {
		l.free = append(l.free, packet[:0])
	}
}

func (l *lane) buffer(size int) []byte {
	if size > slot {
		return make([]byte, 0, size)
	}
	if n := len(l.free); n > 0 {
		b := l.free[n-1]
		l.free = l.free[:n-1]
		return b[:0]
	}
	return make([]byte, 0, slot)
}

// reshape changes what the lane does, for packets in it too.
func (l *lane) reshape(now time.Duration, sh shape) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shaper.shape == sh {
		return
	}
	l.shaper.reset(sh)
	for i := l.head; i < len(l.queue); i++ {
		if h := &l.queue[i]; h.departure > now {
			h.departure = l.shaper.again(now, len(h.packet))
		}
	}
	l.notify()
}

// empty says that nothing is under way.
func (l *lane) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head == len(l.queue)
}

func (l *lane) notify() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
