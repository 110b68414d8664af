package tunnel

import (
	"errors"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// The library takes 64 KiB for every packet, has 384 of these waiting in a device, and as many more
// under way as senders cause: a sender that is faster than the encryption had hundreds of
// megabytes there. What is here keeps that small from outside: windows bound how much is under
// way, so that senders wait in the kernel, whose queues are made for that; memory of waiting
// buffers is given back when they have been used; and the collector is not to wait until there is
// as much garbage as there are buffers, of which most were never touched.

const (
	// windowMost is how many packets may be under way in one direction of one device.
	windowMost = 256
	// After so long without any that left, the ones under way are taken for dropped: they are
	// counted where they come in and where they leave, and nowhere between. On the way out that
	// is when there is no session; on the way in strangers can cause it.
	stallOut, stallIn = 20 * time.Millisecond, 5 * time.Millisecond
	// Again and again without any that left, each time is twice as long, up to stallMost: who forges packets of
	// a session has fewer of them looked at.
	stallMost  = 40 * time.Millisecond
	mostStalls = 6
	// After so long without any that came in, those from before have left, or never will: single ones
	// that do not leave are not to narrow a window for ever.
	silence = 100 * time.Millisecond
	// afterError is how long nothing is read after that has failed.
	afterError = time.Millisecond
	// trimEvery is how often buffers are given back at most, and trimAfter how many packets in
	// that time are traffic.
	trimEvery = time.Second
	trimAfter = 64
	// calmAfter is how long after the last device was made is given back what that took: of so large a
	// heap the runtime keeps a tenth for later, though it was not touched.
	calmAfter = 3 * time.Second
	// restEvery is how often is given back what has gathered since, and quietEvery how often the buffers of
	// readers without traffic are: each that a single packet was in has a page for it.
	restEvery, quietEvery = 5 * time.Second, 10 * time.Second
	// garbageMost is how much garbage, in bytes, there may be before it is collected while there is
	// traffic, garbageQuiet how much while there is none, and garbageEach how much more for each device
	// beyond garbageFew: what looks after tunnels makes some for each. deviceBuffers is what a device has waiting.
	garbageMost, garbageQuiet, garbageEach, garbageFew, deviceBuffers = 16 << 20, 4 << 20, 1 << 20, 10, 25 << 20
)

// window counts the packets under way.
type window struct {
	stall time.Duration
	under atomic.Int64
	last  atomic.Int64  // when some came in, in nanoseconds
	freed chan struct{} // has room for one
	// leaving is how many writers are at it, or rest between: while there are any nothing is taken for dropped.
	leaving atomic.Int32
	// stalls is how often the ones under way were taken for dropped since some have left, up to mostStalls.
	stalls atomic.Int32
}

func newWindow(stall time.Duration) *window {
	return &window{stall: stall, freed: make(chan struct{}, 1)}
}

// wait waits until there is room.
func (w *window) wait() {
	for late := false; w.under.Load() >= windowMost; {
		stall := max(w.stall, min(w.stall<<w.stalls.Load(), stallMost))
		timer, begun := time.NewTimer(stall), time.Now()
		select {
		case <-w.freed:
		case <-timer.C:
			was := late
			late = time.Since(begun) >= 2*stall // nobody had a processor, unless it is always so
			if w.leaving.Load() == 0 && (!late || was) {
				w.under.Store(0)
				if was := w.stalls.Load(); was < mostStalls {
					w.stalls.CompareAndSwap(was, was+1)
				}
			}
		}
		timer.Stop()
	}
}

// add takes that so many have come in at a time.
func (w *window) add(n int, now time.Time) {
	if n == 0 { // handshakes alone, say
		return
	}
	if at := now.UnixNano(); at-w.last.Swap(at) > int64(silence) {
		w.under.Store(0)
	}
	w.under.Add(int64(n))
}

// done takes that so many have left. More may leave than came in, as the library has some of its own.
func (w *window) done(n int) {
	if now := w.under.Add(-int64(n)); now < 0 {
		w.under.CompareAndSwap(now, 0)
	}
	if w.stalls.Load() > 0 {
		w.stalls.Store(0)
	}
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// trimmer gives the memory of one reader's buffers back when they have been used. The reader has
// them alone while it asks for packets, and reads none of what is in them.
type trimmer struct {
	used int
	busy bool
	last time.Time
	// touched are how many packets came since forgot, when the buffers were given back last.
	touched int
	forgot  time.Time
}

func (t *trimmer) trim(buffers [][]byte) {
	now := time.Now()
	if now.Sub(t.last) < trimEvery {
		return
	}
	was, first := t.busy, t.last.IsZero() // new ones may be memory that others have used
	t.becomes(t.used >= trimAfter)
	t.touched += t.used
	t.used, t.last = 0, now
	if !was && !t.busy && !first && (t.touched == 0 || now.Sub(t.forgot) < quietEvery) {
		return
	}
	t.touched, t.forgot = 0, now
	for _, b := range buffers {
		forget(b)
	}
	if was && !t.busy { // the traffic has ended
		rest()
	}
}

// becomes takes whether there is traffic.
func (t *trimmer) becomes(busy bool) {
	if busy != t.busy {
		t.busy = busy
		pace(0, map[bool]int{true: 1, false: -1}[busy])
	}
}

// ended takes that the reader has, if err says so: it will not say that its traffic has.
func (t *trimmer) ended(err error) {
	if err != nil {
		t.becomes(false)
	}
}

var page = unix.Getpagesize()

// forget gives a buffer of the library's back, which is zero then. Such a buffer has its pages to
// itself, to the last of which it leaves one byte that nobody else has.
func forget(b []byte) {
	if len(b) == device.MaxMessageSize && uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(page) == 0 {
		_ = unix.Madvise(b, unix.MADV_DONTNEED) // else it stays
	}
}

// unrefer has the library's lists of what it sends and writes refer to nothing but that: it uses
// the same ones again, and what once filled them would stay.
func unrefer(list [][]byte) { clear(list[len(list):cap(list)]) }

// pacing is how many devices there are in this process, how many readers of theirs have traffic, which
// percentage was asked for last, and what gives back soon after one was made what that took.
var pacing struct {
	sync.Mutex
	devices, busy, percent int
	calm                   *time.Timer
}

// setting is held by who sets a percentage.
var setting sync.Mutex

// pace has the collector work when there is some garbage, however much there is that is
// none. It follows the devices and their traffic as they come and go. Where all is quiet, garbage is
// made by what looks after tunnels, and to collect it often costs little.
func pace(devices, busy int) {
	pacing.Lock()
	defer pacing.Unlock()
	pacing.devices += devices
	pacing.busy += busy
	if devices > 0 {
		if pacing.calm == nil {
			pacing.calm = time.AfterFunc(calmAfter, calm)
		} else {
			pacing.calm.Reset(calmAfter)
		}
	}
	if now := percent(pacing.devices, pacing.busy); now != pacing.percent {
		pacing.percent = now
		go setPercent() // which waits for a collection that goes on, and no packet does
	}
}

// setPercent sets what was asked for last.
func setPercent() {
	setting.Lock()
	defer setting.Unlock()
	pacing.Lock()
	now := pacing.percent
	pacing.Unlock()
	debug.SetGCPercent(now)
}

// percent is how much garbage there may be, in hundredths of what is none.
func percent(devices, busy int) int {
	most := min(garbageMost, garbageQuiet+garbageEach*max(0, devices-garbageFew))
	if busy > 0 {
		most = garbageMost
	}
	none := max(garbageMost, devices*deviceBuffers)
	return max(1, min(100, (100*most+none/2)/none))
}

// calm gives back what has gathered, now and then as long as there are devices; their traffic has its own pace.
func calm() {
	pacing.Lock()
	defer pacing.Unlock()
	if pacing.busy == 0 {
		rest()
	}
	if pacing.devices > 0 {
		pacing.calm.Reset(restEvery)
	}
}

// resting counts those who have asked for rest since it last began.
var resting atomic.Int64

// rest gives back what traffic has left, and does not wait for it. What is pooled is garbage only
// when it was not used between two collections.
func rest() {
	if resting.Add(1) > 1 {
		return // who is at it begins again
	}
	go func() {
		for asked := int64(1); asked > 0; {
			asked = resting.Load()
			runtime.GC()
			debug.FreeOSMemory()
			asked = resting.Add(-asked)
		}
	}()
}

// Read reads packets for the tunnel, as many as may be under way.
func (a *attached) Read(buffers [][]byte, sizes []int, offset int) (int, error) {
	a.out.wait()
	a.trimmer.trim(buffers)
	n, err := a.Device.Read(buffers, sizes, offset)
	a.trimmer.ended(err)
	a.trimmer.used += n
	now := time.Now()
	a.out.add(n, now)
	a.member.took(n, now)
	return n, err
}

// Write writes packets of the tunnel.
func (a *attached) Write(buffers [][]byte, offset int) (int, error) {
	unrefer(buffers)
	a.in.leaving.Add(1)
	defer a.in.leaving.Add(-1)
	return a.member.hand(buffers, pile, func(some [][]byte) (int, error) {
		n, err := a.Device.Write(some, offset)
		a.in.done(len(some))
		return n, err
	})
}

// bounded receives packets of the tunnel, as many as may be under way, and what strangers send as
// nothing.
func bounded(in *window, m *member, known *sessions, receive conn.ReceiveFunc) conn.ReceiveFunc {
	t := &trimmer{}
	return func(packets [][]byte, sizes []int, from []conn.Endpoint) (int, error) {
		in.wait()
		t.trim(packets)
		n, err := receive(packets, sizes, from)
		if err != nil && !errors.Is(err, net.ErrClosed) {
			// The library would stop reading after a few: who sends what it cannot cut, say, would end the tunnel.
			time.Sleep(afterError)
			return 0, nil
		}
		t.ended(err)
		t.used += n
		of, now := known.sift(packets[:n], sizes[:n], from[:n]), time.Now()
		in.add(of, now)
		m.took(of, now)
		return n, err
	}
}

// Open opens the socket.
func (s *socket) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	receive, port, err := s.Bind.Open(port)
	for i := range receive {
		receive[i] = bounded(s.in, s.member, &s.sessions, receive[i])
	}
	s.sessions.opened(sockets(s.Bind))
	return receive, port, err
}

var _ tun.Device = (*attached)(nil)
