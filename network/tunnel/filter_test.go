package tunnel

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/device"

	"github.com/pelago-dev/pelago/network/netns"
)

// TestFilter runs filters of ever so many numbers over packets as sockets see them.
func TestFilter(t *testing.T) {
	const other = 0x04000000 // on the wire it begins as what data begins with
	for _, count := range []uint32{0, 1, 2, jumpMost - 1, jumpMost, jumpMost + 1, 3*jumpMost + 7, sessionsMost} {
		numbers := make([]uint32, count)
		for i := range numbers {
			numbers[i] = 0x1020304 + uint32(i)
		}
		raw, err := filter(numbers)
		if err != nil {
			t.Fatal(err)
		}
		instructions, all := bpf.Disassemble(raw)
		vm, err := bpf.NewVM(instructions)
		if !all || err != nil {
			t.Fatalf("%d numbers: the filter is no program: %v", count, err)
		}
		for _, c := range []struct {
			reason string
			packet []byte
			passes bool
		}{
			{"data of no session", message(device.MessageTransportType, other, 100), false},
			{"data of the number after the last", message(device.MessageTransportType, 0x1020304+count, 100), false},
			{"a question", message(device.MessageInitiationType, other, device.MessageInitiationSize), true},
			{"an answer", message(device.MessageResponseType, other, device.MessageResponseSize), true},
			{"that somebody is busy", message(device.MessageCookieReplyType, other, device.MessageCookieReplySize), true},
			{"an unknown kind", message(4<<24, other, 100), true},
			{"several, joined to one, of which the first is of no session", message(device.MessageTransportType, other, 2*1452), true},
			{"data without a number", []byte{4, 0, 0, 0, 4, 3, 2}, false},
			{"hardly anything", []byte{1, 0}, false},
			{"nothing", nil, false},
		} {
			if n, err := vm.Run(append(make([]byte, 8), c.packet...)); err != nil || (n >= len(c.packet)+8) != c.passes {
				t.Errorf("%d numbers, %s: %d bytes pass, %v", count, c.reason, n, err)
			}
		}
		for i, n := range numbers {
			if n, err := vm.Run(append(make([]byte, 8), message(device.MessageTransportType, n, 1400)...)); err != nil || n < 1408 {
				t.Errorf("%d numbers: of data of the %dth, %d bytes pass, %v", count, i, n, err)
			}
		}
	}
}

// TestNumbers holds that a number is let in as long as a session can last, from before the peer knows it.
func TestNumbers(t *testing.T) {
	var s sessions
	s.note(message(device.MessageInitiationType, 1, device.MessageInitiationSize))
	asked := s.known.of[1].at
	for after, want := range map[time.Duration]int{0: 1, device.RejectAfterTime + device.RekeyAttemptTime/2: 1, numberFor: 0} {
		if got := s.numbers(asked.Add(after)); len(got) != want {
			t.Errorf("after %s: %v", after, got)
		}
	}
	for n := range uint32(2 * admitted) { // more than fit, each later than the one before
		s.known.add(10+n, number{at: asked.Add(time.Duration(n) * time.Millisecond)}, sessionsMost)
	}
	if got := s.numbers(asked.Add(time.Second)); len(got) != admitted || got[0] != 10+2*admitted-1 || slices.Contains(got, 1) {
		t.Errorf("%d numbers, the latest %d", len(got), got[0])
	}
}

// TestNoise has somebody send what looks like data to a tunnel: the kernel drops what is of none of its sessions,
// and nothing of what is, after other handshakes and at other ports, too.
func TestNoise(t *testing.T) {
	rome, milan, romes, milans := pair(t, Options{Userspace: true})
	at := map[string]string{"IPv4": milan.at, "IPv6": "fd19::2"}
	address(t, rome.host, "eth0", "fd19::1/64", true)
	address(t, milan.host, "eth0", at["IPv6"]+"/64", true)
	send := func(to string, port uint16, count int, packet []byte) {
		t.Helper()
		if err := netns.In(rome.host, func() error {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(to), port)))
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			raw, err := c.SyscallConn()
			if err != nil {
				return err
			}
			// What is longer than a packet leaves as several, and comes as one: as what the kernel joins.
			var set error
			if err := errors.Join(raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1200) }), set); err != nil {
				return err
			}
			for range count {
				if _, err := c.Write(packet); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	own := func() (n uint32) {
		s := &milans.engine.(*userspace).socket.sessions
		s.mu.RLock()
		defer s.mu.RUnlock()
		last := s.known.order[(s.known.next+len(s.known.order)-1)%len(s.known.order)]
		if !slices.Contains(s.numbers(time.Now()), last) {
			t.Error("its last session is not let in")
		}
		return last
	}
	dropped := func(side *side, d *Device) uint64 { return side.stats(d).Dropped }
	const count = 500
	knock := func(t *testing.T, port uint16) {
		t.Helper()
		another := own() + 1
		for family, to := range at {
			for _, c := range []struct {
				reason string
				packet []byte
				want   uint64
			}{
				{"data of no session", message(device.MessageTransportType, another, 1200), count},
				{"empty data of none", message(device.MessageTransportType, another, device.MessageKeepaliveSize), count},
				{"data of its session", message(device.MessageTransportType, own(), 1200), 0},
				{"a question", message(device.MessageInitiationType, another, device.MessageInitiationSize), 0},
				{"data of no session, and of one", append(message(device.MessageTransportType, another, 1200), message(device.MessageTransportType, own(), 1200)...), 0},
			} {
				before := dropped(milan, milans)
				marked := func(more uint64) { // all that was sent before has come, too, and who is at an address is known
					send(to, port, 1, message(device.MessageTransportType, another, 100))
					await(t, c.reason+" has come by "+family, patience, func() bool { return dropped(milan, milans) >= before+more })
				}
				marked(1)
				send(to, port, count, c.packet)
				marked(c.want + 2)
				if got := dropped(milan, milans) - before - 2; got != c.want {
					t.Errorf("%s by %s: %d of %d were dropped", c.reason, family, got, count)
				}
			}
		}
	}
	flow := func(t *testing.T) {
		t.Helper()
		before := [2]uint64{dropped(rome, romes), dropped(milan, milans)}
		transfer(t, rome, milan, milan.inside, 1<<20)
		transfer(t, milan, rome, rome.inside6, 1<<20)
		if now := [2]uint64{dropped(rome, romes), dropped(milan, milans)}; now != before {
			t.Errorf("of what the tunnel carries, %d and %d were dropped", now[0]-before[0], now[1]-before[1])
		}
	}
	knock(t, port)
	flow(t)
	for i := range 4 {
		asks, d := rome, romes
		if i%2 == 1 {
			asks, d = milan, milans
		}
		before := asks.stats(d).Handshake
		if err := d.Kick(); err != nil {
			t.Fatal(err)
		}
		await(t, "another handshake", patience, func() bool { return asks.stats(d).Handshake.After(before) })
		flow(t)
	}
	knock(t, port)
	config := milan.config(rome, rome.endpoint())
	config.ListenPort = port + 1
	milan.set(milans, config)
	await(t, "a handshake from another port", patience, func() bool { return rome.stats(romes).Endpoint.Port() == port+1 })
	flow(t)
	knock(t, port+1)
}
