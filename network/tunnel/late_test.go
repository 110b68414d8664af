package tunnel

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/pelago-dev/pelago/network/netns"
)

// relay is a way to a side for one caller: what passes is what it lets pass, each after a while.
type relay struct {
	delay time.Duration
	// drops is asked of each packet to the side.
	drops func(packet []byte) bool
}

// begin makes it, and returns the address to call.
func (r relay) begin(to *side) string {
	to.t.Helper()
	var in, out *net.UDPConn
	err := netns.In(to.host, func() (err error) {
		if in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to.at+":0"))); err == nil {
			out, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to.endpoint())))
		}
		return err
	})
	if err != nil {
		to.t.Fatal(err)
	}
	var carried sync.WaitGroup
	to.t.Cleanup(func() {
		_, _ = in.Close(), out.Close()
		carried.Wait()
	})
	var caller atomic.Pointer[netip.AddrPort]
	carry := func(from *net.UDPConn, pass func([]byte)) {
		buffer := make([]byte, 1<<16)
		for {
			n, at, err := from.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if from == in {
				caller.Store(&at)
				if r.drops != nil && r.drops(buffer[:n]) {
					continue
				}
			}
			packet := append([]byte(nil), buffer[:n]...)
			time.AfterFunc(r.delay, func() { pass(packet) })
		}
	}
	carried.Go(func() { carry(in, func(p []byte) { _, _ = out.Write(p) }) })
	carried.Go(func() {
		carry(out, func(p []byte) {
			if to := caller.Load(); to != nil {
				_, _ = in.WriteToUDPAddrPort(p, *to)
			}
		})
	})
	return in.LocalAddr().String()
}

// TestLateAnswers holds that a peer is found whose answers take longer than there is from one question to the
// next, which voids the one before.
func TestLateAnswers(t *testing.T) {
	rome, milan := newSides(t)
	milan.open(Options{}, milan.config(rome))
	const way = (tryGap + jitter) * 6 / 10 // both together are longer than a round
	romes := rome.open(Options{Userspace: true}, rome.config(milan, relay{delay: way}.begin(milan)))
	took := await(t, "a handshake", patience, func() bool { return !rome.stats(romes).Handshake.IsZero() })
	t.Logf("answers take %s, and a handshake comes after %s", 2*way, took)
	if took > 12*time.Second { // without: when there is no hurry any more, after thirty rounds
		t.Errorf("a handshake came after %s", took)
	}
}

// TestToldAgain holds that a peer uses new keys also where the first packet with them is lost, and nobody has anything to
// say but the peer. It would find out by itself, with a handshake of its own, after 15 seconds.
func TestToldAgain(t *testing.T) {
	rome, milan := newSides(t)
	milans := milan.open(Options{}, milan.config(rome))
	var empty atomic.Int32
	drops := func(packet []byte) bool {
		if packet[0] != device.MessageTransportType {
			return false
		}
		if len(packet) == device.MessageKeepaliveSize {
			return empty.Add(1) == 1
		}
		return empty.Load() < 2 // of what the kernel says by itself, as to neighbours
	}
	romes := rome.open(Options{Userspace: true}, rome.config(milan, relay{drops: drops}.begin(milan)))
	await(t, "a handshake, as rome sees it", patience, func() bool { return !rome.stats(romes).Handshake.IsZero() })
	had := time.Now()
	p := milan.ping(rome, 10*time.Millisecond)
	took := await(t, "pings", patience, func() bool { return p.answeredAfter(had) })
	t.Logf("rome was told %d times, pings are answered after %s, milan's last handshake was at %s", empty.Load(), took, milan.stats(milans).Handshake)
	if took > 10*time.Second {
		t.Errorf("pings were answered after %s", took)
	}
}

// TestTold holds when a peer is told again, and for how long.
func TestTold(t *testing.T) {
	seen := func(handshake time.Duration, received uint64) Stats {
		return Stats{Handshake: at(handshake), Received: received}
	}
	var k told
	look := func(reason string, now time.Duration, s Stats, answers uint64, again bool, watch time.Duration) {
		t.Helper()
		if got := k.again(s, answers, at(now)); got != again {
			t.Errorf("%s: the peer is told: %t", reason, got)
		}
		if got := k.watch(at(now)); got != watch {
			t.Errorf("%s: it is looked every %s, want %s", reason, got, watch)
		}
	}
	look("nobody has asked", 0, seen(0, 1), 0, false, 0)
	k = asked(at(0), at(-time.Minute), 4)
	look("it has not answered", toldEvery, seen(-time.Minute, 1), 4, false, 0)
	look("it has, and there is no handshake", toldEvery, seen(-time.Minute, 1), 5, false, toldEvery)
	look("nor is there the one before, as the peer was made anew", toldEvery, Stats{}, 5, false, toldEvery)
	look("there is one", 20*toldEvery, seen(toldEvery, 2), 5, false, toldEvery)
	look("a moment later", 20*toldEvery+1, seen(toldEvery, 2), 5, false, toldEvery)
	look("nothing is heard", 21*toldEvery, seen(toldEvery, 2), 5, true, toldEvery)
	look("as before", 22*toldEvery, seen(toldEvery, 2), 5, true, toldEvery)
	look("something is heard", 23*toldEvery, seen(toldEvery, 3), 5, false, 0)
	look("and no more", 24*toldEvery, seen(toldEvery, 3), 5, false, 0)
	k = asked(at(6*toldEvery), at(toldEvery), 5)
	look("the next question, which is not answered: the peer has asked itself", 7*toldEvery, seen(7*toldEvery, 4), 5, false, 0)
	look("but is", 7*toldEvery, seen(7*toldEvery, 4), 6, false, toldEvery)
	for i := range toldMost {
		look("nothing is heard for long", time.Duration(8+i)*toldEvery, seen(7*toldEvery, 4), 6, true, map[bool]time.Duration{true: toldEvery}[i < toldMost-1])
	}
	look("often enough", 20*toldEvery, seen(7*toldEvery, 4), 6, false, 0)
	k = asked(at(0), at(0), 0)
	look("no handshake comes", toldFor+1, seen(0, 1), 1, false, 0)
	k = asked(at(0), at(0), 0)
	look("one comes", 1, seen(1, 1), 1, false, toldEvery)
	look("it is too late", toldFor+2, seen(1, 1), 1, false, 0)
}
