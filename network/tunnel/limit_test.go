package tunnel

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestLimits floods with questions for ten seconds, and has the peer ask now and then.
func TestLimits(t *testing.T) {
	const seconds = 10
	home := netip.MustParseAddr("192.0.2.1")
	one := func(text string) func(int) netip.Addr {
		return func(int) netip.Addr { return netip.MustParseAddr(text) }
	}
	many := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	within := func(network string) func(int) netip.Addr {
		return func(i int) netip.Addr {
			a := netip.MustParseAddr(network).As16()
			binary.BigEndian.PutUint64(a[8:], uint64(i))
			return netip.AddrFrom16(a)
		}
	}
	for _, c := range []struct {
		reason string
		// expected and spoken to are where the peer is taken to be, from where it asks.
		expected, spokenTo, from string
		flood                    func(int) netip.Addr
		// taken of the flood are at most so many; the peer's are all taken, or few.
		taken int
		peer  bool
	}{
		{"one address leaves the others alone", "", "", "192.0.2.1", one("203.0.113.9"), sourceBurst + seconds*sourceRate, true},
		{"so does one network of IPv6", "", "", "2001:db8:1::1", within("2001:db8::"), sourceBurst + seconds*sourceRate, true},
		{"addresses of IPv4 in ones of IPv6 are no network", "", "", "::ffff:192.0.2.1", one("::ffff:203.0.113.9"), sourceBurst + seconds*sourceRate, true},
		{"many leave what is kept for where the peer may be", "192.0.2.1", "", "192.0.2.1", many, questionsBurst + seconds*questionsRate, true},
		{"and for where it is", "198.51.100.7", "192.0.2.1", "192.0.2.1", many, questionsBurst + seconds*questionsRate, true},
		{"who speaks IPv6 may change its address", "2001:db8:1::1", "", "2001:db8:1::2", many, questionsBurst + seconds*questionsRate, true},
		{"who is elsewhere has to be lucky", "192.0.2.1", "192.0.2.2", "192.0.2.3", many, questionsBurst + seconds*questionsRate, false},
		{"and so has who asks from where others say they are", "192.0.2.1", "", "192.0.2.1", one("192.0.2.1"), sourceBurst + seconds*sourceRate, false},
	} {
		var l limits
		if c.expected != "" {
			l.expect([]netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(c.expected), 1), netip.AddrPortFrom(home.Next().Next().Next(), 1)})
		}
		if c.spokenTo != "" {
			l.spoke(netip.MustParseAddr(c.spokenTo))
		}
		now := time.Unix(1e9, 0)
		taken, asked, answered := 0, 0, 0
		var s seal
		for i := range seconds * 10_000 {
			now = now.Add(100 * time.Microsecond)
			binary.BigEndian.PutUint64(s[:], uint64(i))
			if l.take(s, c.flood(i), now) {
				taken++
			}
			if i%7_000 == 6_999 { // each tryGap
				asked++
				s[15] = 1
				if l.take(s, netip.MustParseAddr(c.from), now) {
					answered++
				}
				s[15] = 0
			}
		}
		if taken > c.taken || taken < sourceBurst || c.peer != (answered == asked) || !c.peer && answered > asked/2 {
			t.Errorf("%s: %d of the flood, %d of the peer's %d", c.reason, taken, answered, asked)
		}
		if len(l.sources.of) > sourcesMost || len(l.taken.of) > questionsMost {
			t.Errorf("%s: %d addresses and %d questions are remembered", c.reason, len(l.sources.of), len(l.taken.of))
		}
	}
}

// TestCopied takes a question once, and nobody's share for its copies.
func TestCopied(t *testing.T) {
	var l limits
	now := time.Unix(1e9, 0)
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
	if l.copied(seal{1}) || !l.take(seal{1}, at(1), now) || !l.copied(seal{1}) {
		t.Error("a question is a copy of itself")
	}
	for i := range questionsBurst {
		l.take(seal{2, byte(i)}, at(2+i), now)
	}
	if refused := (seal{3}); l.take(refused, at(500), now) || l.copied(refused) {
		t.Error("a question that was refused is not heard when it is sent again")
	}
}

// TestRecent forgets the oldest.
func TestRecent(t *testing.T) {
	var r recent[int, bool]
	for i := range 5 {
		r.add(i, true, 3)
		r.add(i, true, 3)
	}
	if len(r.of) != 3 || !r.of[2] || !r.of[3] || !r.of[4] {
		t.Error(r.of)
	}
}

// TestFlooded has a peer shake hands with a gateway that asks nothing by itself, while 10,000
// questions a second come to it from addresses of others.
func TestFlooded(t *testing.T) {
	for _, c := range []struct {
		reason string
		known  bool // where the peer asks from
		anew   bool // each question is another one, of somebody who has the gateway's public key
	}{
		{"one question that was seen, to who knows where the peer is", true, false},
		{"the same, to who does not", false, false},
		{"ever new questions, to who knows where the peer is", true, true},
	} {
		t.Run(c.reason, func(t *testing.T) {
			rome, milan := newSides(t)
			ear := milan.listen()
			romes := rome.open(Options{Userspace: true}, rome.config(milan, milan.endpoint()))
			question := make([]byte, device.MessageInitiationSize)
			if _, _, err := ear.ReadFrom(question); err != nil {
				t.Fatal(err)
			}
			_ = ear.Close()
			config := milan.config(rome)
			if c.known {
				config.Endpoints = []string{rome.endpoint()}
			}
			config.Passive = true
			f := rome.flood(milan, question, c.anew)
			milans := milan.open(Options{Userspace: true}, config)
			f.heard.Store(&sockets(milans.engine.(*userspace).socket.Bind)[0])
			took := await(t, "a handshake", floodPatience, func() bool { return !rome.stats(romes).Handshake.IsZero() })
			of := &milans.engine.(*userspace).socket.sessions.limits
			await(t, "the flood at the gateway", floodPatience, func() bool {
				of.mu.Lock()
				defer of.mu.Unlock()
				return len(of.taken.of) > 1 && (!c.anew || len(of.sources.of) == sourcesMost && of.all.Tokens() < questionsBurst/2)
			})
			if left := of.all.Tokens(); !c.anew && left < questionsBurst/2 {
				t.Errorf("of the share of everybody %.1f are left", left)
			}
			t.Logf("after %s, and %.0f questions a second", took, f.end())
		})
	}
}

// listen hears at a side's port, before its device is there.
func (s *side) listen() (ear net.PacketConn) {
	s.t.Helper()
	err := netns.In(s.host, func() (err error) {
		ear, err = net.ListenPacket("udp4", s.endpoint())
		return err
	})
	if err == nil {
		err = ear.SetDeadline(time.Now().Add(patience))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return ear
}

// floodPatience is longer than the quick tries of a peer, of which a busy machine may be late for all; it may also
// take so long to read a thousand questions.
const floodPatience = quickRounds*(tryGap+jitter) + patience

// flood is questions that come all the time.
type flood struct {
	// heard is where they come to, once it is there. A machine too busy to read them all has them wait
	// there, and the peer's own behind them, for longer than it waits for an answer: limits help nothing
	// against that. So no more are sent than are read.
	heard atomic.Pointer[syscall.RawConn]
	stop  chan struct{}
	ended chan float64
	raw   int
	done  bool
}

// floodWaiting is how many bytes of questions wait at most, with what the kernel needs for them.
const floodWaiting = 64 << 10

// waits reports whether so many questions are not read yet that more would be too many.
func (f *flood) waits() bool {
	heard := f.heard.Load()
	if heard == nil {
		return false
	}
	var memory [9]uint32 // SK_MEMINFO_VARS, of which the first is what waits
	size := uint32(unsafe.Sizeof(memory))
	_ = (*heard).Control(func(fd uintptr) { // once it is closed, nothing waits
		_, _, _ = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&memory)), uintptr(unsafe.Pointer(&size)), 0)
	})
	return memory[0] > floodWaiting
}

// end ends it, and returns how many there were a second.
func (f *flood) end() float64 {
	f.done = true
	close(f.stop)
	defer func() { _ = unix.Close(f.raw) }()
	return <-f.ended
}

// flood sends questions to another side, from ever other addresses, until the test ends.
func (s *side) flood(to *side, question []byte, anew bool) *flood {
	s.t.Helper()
	var raw int
	err := netns.In(s.host, func() (err error) {
		raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	if err != nil {
		s.t.Fatal(fmt.Errorf("a raw socket: %w", err))
	}
	netnstest.Change(s.t, to.host, func(k *netlink.Handle) error { // where a check of sources finds them
		return k.RouteAdd(&netlink.Route{
			LinkIndex: byName(s.t, k, "eth0").Attrs().Index, Dst: &net.IPNet{IP: net.IPv4(198, 19, 0, 0), Mask: net.CIDRMask(16, 32)},
		})
	})
	target := netip.MustParseAddr(to.at).As4()
	packet := make([]byte, 28, 28+len(question))
	packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_UDP
	copy(packet[16:], target[:])
	binary.BigEndian.PutUint16(packet[20:], port)
	binary.BigEndian.PutUint16(packet[22:], port)
	binary.BigEndian.PutUint16(packet[24:], uint16(8+len(question)))
	packet = append(packet, question...)
	var macs device.CookieGenerator
	macs.Init(device.NoisePublicKey(to.key.Public()))
	f := &flood{stop: make(chan struct{}), ended: make(chan float64, 1), raw: raw}
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		start, sent := time.Now(), 0
		for {
			// What it was too late for is not made up for: it would be more than the test says.
			for most := sent + 20; sent < most && !f.waits() && float64(sent) < 10_000*time.Since(start).Seconds(); sent++ {
				copy(packet[12:], []byte{198, 19, byte(sent >> 8), byte(sent)})
				if anew {
					_, _ = rand.Read(packet[28+8 : 28+40])
					macs.AddMacs(packet[28:])
				}
				_ = unix.Sendto(raw, packet, 0, &unix.SockaddrInet4{Addr: target}) // lost, if it is
			}
			select {
			case <-f.stop:
				f.ended <- float64(sent) / time.Since(start).Seconds()
				return
			case <-tick.C:
			}
		}
	}()
	s.t.Cleanup(func() {
		if !f.done {
			f.end()
		}
	})
	return f
}

// TestFollow takes the peer for where packets of a session go, and nobody for where questions and
// the library's cookies do.
func TestFollow(t *testing.T) {
	s := &socket{Bind: &discards{}, out: newWindow(time.Hour)}
	for i, c := range []struct {
		kind uint32
		want string
	}{
		{device.MessageInitiationType, "invalid IP"},
		{device.MessageCookieReplyType, "invalid IP"},
		{device.MessageResponseType, "192.0.2.2"},
		{device.MessageTransportType, "192.0.2.3"},
		{device.MessageInitiationType, "192.0.2.3"},
	} {
		to := &conn.StdNetEndpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 1)}
		if err := s.Send([][]byte{message(c.kind, 1, 100)}, to); err != nil {
			t.Fatal(err)
		}
		if got := s.sessions.limits.spokenTo.String(); got != c.want {
			t.Errorf("after kind %d to %s the peer is at %s, not %s", c.kind, to.DstIP(), got, c.want)
		}
	}
}
