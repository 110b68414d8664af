package tunnel

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/pelago-dev/pelago/network/netnstest"
)

func TestWindow(t *testing.T) {
	w := newWindow(time.Hour)
	now := time.Unix(1e9, 0)
	w.add(windowMost-1, now)
	w.wait() // has room
	w.add(10, now.Add(silence))
	entered := make(chan struct{})
	go func() { w.wait(); close(entered) }()
	w.done(1)
	select {
	case <-entered:
		t.Fatal("there was no room")
	case <-time.After(20 * time.Millisecond):
	}
	w.done(20)
	select {
	case <-entered:
	case <-time.After(netnstest.Patience):
		t.Fatal("nobody was told of the room")
	}
	w.done(10 * windowMost) // what the library sends by itself
	if n := w.under.Load(); n != 0 {
		t.Fatalf("%d under way, of none", n)
	}
	w.stall = time.Millisecond
	w.add(windowMost, now)
	w.wait() // dropped, all of them
	if n := w.under.Load(); n != 0 {
		t.Fatalf("%d under way, that were dropped", n)
	}
	w.add(windowMost-1, now)
	w.add(1, now.Add(silence+time.Nanosecond)) // nobody waits for the others
	if n := w.under.Load(); n != 1 {
		t.Fatalf("%d under way, after a silence", n)
	}
}

// TestForgedWindow holds that of what never leaves less is taken in after a while, and as much as ever when some leaves again.
func TestForgedWindow(t *testing.T) {
	w := newWindow(time.Millisecond)
	stall := func() time.Duration {
		w.add(windowMost, time.Now())
		begun := time.Now()
		w.wait()
		return time.Since(begun)
	}
	await(t, "a longer wait", patience, func() bool { return stall() >= stallMost })
	await(t, "a short one", patience, func() bool {
		w.done(1)
		return stall() < stallMost/4
	})
}

// TestPace holds how much garbage there may be, and that readers with traffic are counted until they have
// none any more, or end.
func TestPace(t *testing.T) {
	for _, c := range []struct{ devices, busy, most int }{
		{0, 0, 4 << 20}, {1, 0, 4 << 20}, {10, 0, 4 << 20}, {15, 0, 9 << 20}, {20, 0, 14 << 20}, {60, 0, 16 << 20}, {1, 1, 16 << 20}, {10, 3, 16 << 20}, {60, 3, 16 << 20},
	} {
		alive := max(garbageMost, c.devices*deviceBuffers)
		if most := alive * percent(c.devices, c.busy) / 100; most > c.most*3/2 || most < c.most/2 {
			t.Errorf("%d devices, %d busy: %d bytes of garbage, want about %d", c.devices, c.busy, most, c.most)
		}
	}
	busy := func() int {
		pacing.Lock()
		defer pacing.Unlock()
		return pacing.busy
	}
	before, readers := busy(), []*trimmer{{}, {}}
	for _, r := range readers {
		r.trim(nil)
		r.used, r.last = trimAfter, r.last.Add(-trimEvery)
		r.trim(nil)
	}
	if n := busy() - before; n != 2 {
		t.Errorf("%d readers are busy, and two have traffic", n)
	}
	readers[0].ended(nil)
	readers[0].last = readers[0].last.Add(-trimEvery)
	readers[0].trim(nil)
	if n := busy() - before; n != 1 {
		t.Errorf("%d readers are busy, and one has traffic", n)
	}
	readers[1].ended(os.ErrClosed)
	readers[1].ended(os.ErrClosed)
	if n := busy() - before; n != 0 {
		t.Errorf("%d readers are busy, and all have ended", n)
	}
}

// TestQuiet holds that buffers which a few packets were in are given back, too, though not at once.
func TestQuiet(t *testing.T) {
	b, err := unix.Mmap(-1, 0, device.MaxMessageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	r := &trimmer{}
	r.trim([][]byte{b})
	look := func(packets int, passed time.Duration) bool {
		r.used = packets
		r.last, r.forgot = r.last.Add(-passed), r.forgot.Add(-passed)
		r.trim([][]byte{b})
		return b[0] == 0
	}
	b[0] = 1
	for _, c := range []struct {
		reason  string
		packets int
		passed  time.Duration
		given   bool
	}{
		{"nothing was in it", 0, 2 * quietEvery, false},
		{"some were, after which it was given back long ago", 3, quietEvery, true},
		{"some were, a moment ago", 3, quietEvery / 4, false},
		{"they were long ago", 0, quietEvery, true},
		{"there is traffic", trimAfter, trimEvery, true},
	} {
		b[0] = 1
		if got := look(c.packets, c.passed); got != c.given {
			t.Errorf("%s: given back %t, want %t", c.reason, got, c.given)
		}
	}
	r.ended(unix.EBADF)
}

// TestCalm holds that what it takes to make a device is to be given back soon, and what gathers
// after that now and then, as long as there is one.
func TestCalm(t *testing.T) {
	waits := func() bool {
		pacing.Lock()
		defer pacing.Unlock()
		return pacing.calm != nil && pacing.calm.Stop()
	}
	pace(1, 0)
	if !waits() {
		t.Error("nothing is going to give it back")
	}
	calm()
	if !waits() {
		t.Error("nothing is going to give back what gathers")
	}
	pace(-1, 0)
	calm()
	pacing.Lock()
	devices := pacing.devices
	pacing.Unlock()
	if devices == 0 && waits() {
		t.Error("without a device it goes on")
	}
}

// message is one of the library's kinds, about a session, of a size.
func message(kind, session uint32, size int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, kind)
	return append(binary.LittleEndian.AppendUint32(b, session), make([]byte, size-8)...)
}

// TestBounded counts what is for the device, and nothing else; what is for no session of its is not
// passed on.
func TestBounded(t *testing.T) {
	s := &socket{Bind: &discards{}, out: newWindow(time.Hour)}
	own, err := NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	s.sessions.is(own.Public())
	sealed := func(key Secret, kind, to uint32, size int) []byte {
		b := message(kind, 5, size)
		binary.LittleEndian.PutUint32(b[8:], to)
		var macs device.CookieGenerator
		macs.Init(device.NoisePublicKey(key.Public()))
		macs.AddMacs(b)
		return b
	}
	for _, kind := range []uint32{device.MessageInitiationType, device.MessageResponseType} {
		if err := s.Send([][]byte{message(kind, 70+kind, 100)}, &conn.StdNetEndpoint{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		reason  string
		packet  []byte
		carried int64
		passes  bool
	}{
		{"data, of its question", message(device.MessageTransportType, 71, 1400), 1, true},
		{"data, of its answer", message(device.MessageTransportType, 72, 500), 1, true},
		{"what keeps the tunnel open", message(device.MessageTransportType, 71, device.MessageKeepaliveSize), 1, true},
		{"data of no session", message(device.MessageTransportType, 73, 1400), 0, false},
		{"what is like it and empty", message(device.MessageTransportType, 73, device.MessageKeepaliveSize), 0, false},
		{"a question", sealed(own, device.MessageInitiationType, 0, device.MessageInitiationSize), 0, true},
		{"the same again", sealed(own, device.MessageInitiationType, 0, device.MessageInitiationSize), 0, false},
		{"an answer", sealed(own, device.MessageResponseType, 71, device.MessageResponseSize), 0, true},
		{"an answer to an answer", sealed(own, device.MessageResponseType, 72, device.MessageResponseSize), 0, false},
		{"an answer to nothing", sealed(own, device.MessageResponseType, 73, device.MessageResponseSize), 0, false},
		{"an answer without a seal", message(device.MessageResponseType, 71, device.MessageResponseSize), 0, false},
		{"a question of a stranger", message(device.MessageInitiationType, 5, device.MessageInitiationSize), 0, false},
		{"an answer of a stranger", message(device.MessageResponseType, 5, device.MessageResponseSize), 0, false},
		{"a question that is too long", sealed(own, device.MessageInitiationType, 0, 1400), 0, false},
		{"that somebody is busy, as to us", message(device.MessageCookieReplyType, 71, device.MessageCookieReplySize), 0, true},
		{"the same of a stranger", message(device.MessageCookieReplyType, 5, device.MessageCookieReplySize), 0, false},
		{"an unknown kind", message(9, 71, 1400), 0, true},
		{"hardly anything", []byte{4, 0}, 0, true},
	} {
		w := newWindow(time.Hour)
		receive := bounded(w, nil, &s.sessions, func(packets [][]byte, sizes []int, _ []conn.Endpoint) (int, error) {
			packets[0], sizes[0] = c.packet, len(c.packet)
			return 1, nil
		})
		sizes := make([]int, 8)
		if n, err := receive(make([][]byte, 8), sizes, make([]conn.Endpoint, 8)); n != 1 || err != nil || w.under.Load() != c.carried || (sizes[0] != 0) != c.passes {
			t.Errorf("%s: %d, %v, %d under way, size %d", c.reason, n, err, w.under.Load(), sizes[0])
		}
	}
}

// TestHandshakesMost bounds how much of who knows our key is worked for; after another key came, of who
// knows the one before, too. Answers that are waited for are not bounded.
func TestHandshakesMost(t *testing.T) {
	var s sessions
	var keys [3]Secret
	for i := range keys {
		keys[i] = newKey(t)
		s.is(keys[i].Public())
	}
	s.note(message(device.MessageInitiationType, 7, device.MessageInitiationSize))
	passed, answers := map[int]int{}, 0
	const each = 10 * questionsBurst
	began := time.Now()
	for i := range each {
		var macs device.CookieGenerator
		macs.Init(device.NoisePublicKey(keys[i%3].Public()))
		question := message(device.MessageInitiationType, uint32(i), device.MessageInitiationSize)
		answer := message(device.MessageResponseType, 5, device.MessageResponseSize)
		binary.LittleEndian.PutUint32(answer[8:], 7)
		macs.AddMacs(question)
		macs.AddMacs(answer)
		sizes := []int{len(question), len(answer)}
		from := &conn.StdNetEndpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1)}
		s.sift([][]byte{question, answer}, sizes, []conn.Endpoint{from, from})
		if sizes[0] > 0 {
			passed[i%3]++
		}
		if sizes[1] > 0 {
			answers++
		}
	}
	took := time.Since(began)
	most := questionsBurst + int(questionsRate*took.Seconds()) + 1
	if all := passed[1] + passed[2]; passed[0] != 0 || passed[1] == 0 || passed[2] == 0 || all < questionsBurst || all > most {
		t.Errorf("%v have passed, by key, in %s; at most %d of both", passed, took, most)
	}
	if answers != each/3*2 {
		t.Errorf("%d answers have passed", answers)
	}
}

// TestSessions forgets the oldest when there are too many.
func TestSessions(t *testing.T) {
	var s sessions
	for i := range uint32(sessionsMost + 1) {
		s.note(message(device.MessageInitiationType, i, device.MessageInitiationSize))
		s.note(message(device.MessageInitiationType, i, device.MessageInitiationSize)) // to another address
	}
	for session, want := range map[uint32]int{0: 0, 1: 1, sessionsMost: 1} {
		if got := s.sift([][]byte{message(device.MessageTransportType, session, 100)}, []int{100}, make([]conn.Endpoint, 1)); got != want {
			t.Errorf("%d packets of session %d pass", got, session)
		}
	}
	if len(s.known.of) != sessionsMost {
		t.Errorf("%d are remembered", len(s.known.of))
	}
}

// discards sends nothing.
type discards struct{ conn.Bind }

func (*discards) Send([][]byte, conn.Endpoint) error { return nil }

func TestForget(t *testing.T) {
	const whole = device.MaxMessageSize + 1
	memory, err := unix.Mmap(-1, 0, 2*whole, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	for i := range memory {
		memory[i] = 1
	}
	forget(memory[:device.MaxMessageSize-1])    // not one of the library's
	forget(memory[1 : device.MaxMessageSize+1]) // nor this
	forget(nil)
	if memory[0] != 1 || memory[whole-1] != 1 {
		t.Fatal("memory was given back that is no buffer")
	}
	forget(memory[:device.MaxMessageSize])
	if memory[0] != 0 || memory[whole-1] != 0 || memory[whole] != 1 {
		t.Fatalf("a buffer begins with %d, ends with %d, and what follows begins with %d", memory[0], memory[whole-1], memory[whole])
	}
}

func TestUnrefer(t *testing.T) {
	list := [][]byte{{1}, {2}, {3}}
	unrefer(list[:1])
	if list[0] == nil || list[1] != nil || list[2] != nil {
		t.Fatal(list)
	}
}
