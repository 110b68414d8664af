package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// newNamespace makes a network namespace that lasts as long as its file and what is in it.
func newNamespace(t testing.TB) *os.File {
	t.Helper()
	ns := netnstest.New(t)
	netnstest.Up(t, ns, "lo", true)
	return ns
}

func byName(t testing.TB, k *netlink.Handle, name string) netlink.Link {
	t.Helper()
	link, err := k.LinkByName(name)
	if err != nil {
		t.Fatalf("finding device %s: %v", name, err)
	}
	return link
}

// address gives a device an address, or takes it.
func address(t testing.TB, namespace *os.File, device, prefix string, give bool) {
	t.Helper()
	netnstest.Change(t, namespace, func(k *netlink.Handle) error {
		a, err := netlink.ParseAddr(prefix)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if give {
			return k.AddrAdd(byName(t, k, device), a)
		}
		return k.AddrDel(byName(t, k, device), a)
	})
}

// side is a host and its gateway.
type side struct {
	t             testing.TB
	name          string
	host, gateway *os.File
	at            string     // its address on the cable
	inside        netip.Addr // its address in the tunnel
	inside6       netip.Addr
	key           Secret
}

// inKernel reports whether this machine's devices are the kernel's, where nothing else is asked for.
func inKernel(t testing.TB) bool {
	t.Helper()
	has, err := kernelHas(newNamespace(t))
	if err != nil {
		t.Fatal(err)
	}
	return has
}

const (
	port       = 51820
	deviceName = "pelago-wg"
)

// newSides are two hosts joined by a cable, each with a gateway that is joined to nothing.
func newSides(t testing.TB) (rome, milan *side) {
	t.Helper()
	rome = &side{t: t, name: "rome", at: "198.18.0.1", inside: netip.MustParseAddr("10.9.0.1"), inside6: netip.MustParseAddr("fd09::1")}
	milan = &side{t: t, name: "milan", at: "198.18.0.2", inside: netip.MustParseAddr("10.9.0.2"), inside6: netip.MustParseAddr("fd09::2")}
	for _, s := range []*side{rome, milan} {
		s.host, s.gateway = newNamespace(t), newNamespace(t)
		s.key = newKey(t)
	}
	netnstest.Join(t, rome.host, "eth0", milan.host, "eth0", 1500)
	for _, s := range []*side{rome, milan} {
		address(t, s.host, "eth0", s.at+"/24", true)
	}
	return rome, milan
}

func newKey(t testing.TB) Secret {
	t.Helper()
	key, err := NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// config is towards a peer who is looked for at some endpoints.
func (s *side) config(peer *side, endpoints ...string) Config {
	return Config{
		Name: deviceName, MTU: 1420, PrivateKey: s.key, Peer: peer.key.Public(), ListenPort: port,
		Endpoints: endpoints, Keepalive: 25 * time.Second,
	}
}

func (s *side) endpoint() string { return net.JoinHostPort(s.at, fmt.Sprint(port)) }

// open makes the device of a side, with an address unless it has it already.
func (s *side) open(o Options, c Config) *Device {
	s.t.Helper()
	o.Namespace, o.Host = s.gateway, s.host
	d, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			s.t.Error(err)
		}
	})
	s.set(d, c)
	if o.TUN == nil {
		s.number()
	}
	return d
}

// number gives the device its addresses.
func (s *side) number() {
	address(s.t, s.gateway, deviceName, s.inside.String()+"/24", true)
	address(s.t, s.gateway, deviceName, s.inside6.String()+"/64", true)
}

func (s *side) set(d *Device, c Config) {
	s.t.Helper()
	if err := d.Set(c); err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) stats(d *Device) Stats {
	s.t.Helper()
	stats, err := d.Stats()
	if err != nil {
		s.t.Fatal(err)
	}
	return stats
}

// cable cuts what joins the hosts, or heals it.
func (s *side) cable(up bool) {
	s.t.Helper()
	netnstest.Up(s.t, s.host, "eth0", up)
}

// patience is the deadline of what happens at once when there is a processor for it.
const patience = 30 * time.Second

// await waits for a condition, and returns how long it took.
func await(t testing.TB, what string, within time.Duration, holds func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Since(start) > within {
			t.Fatalf("not within %s: %s", within, what)
		}
		<-tick.C
	}
	return time.Since(start)
}

// pings are echo requests sent at a steady pace, which a kernel answers.
type pings struct {
	t      testing.TB
	socket net.PacketConn
	to     net.Addr
	stop   chan struct{}
	group  sync.WaitGroup

	mu   sync.Mutex
	sent []time.Time          // by sequence number
	back map[uint16]time.Time // when they were answered
}

// ping sends an echo request every gap from a side's gateway to another's.
func (s *side) ping(to *side, gap time.Duration) *pings {
	s.t.Helper()
	return s.pingFrom(s.gateway, to.inside, gap)
}

// carries waits until an echo request from a side's host is answered by an address on the cable, and returns when it was:
// a kernel that has much to do takes its time with what it was told of the cable and of addresses.
func (s *side) carries(to string) time.Time {
	s.t.Helper()
	since, p := time.Now(), s.pingFrom(s.host, netip.MustParseAddr(to), 10*time.Millisecond)
	defer p.end()
	await(s.t, "the cable carries to "+to, patience, func() bool { return p.answeredAfter(since) })
	return time.Now()
}

func (s *side) pingFrom(ns *os.File, to netip.Addr, gap time.Duration) *pings {
	s.t.Helper()
	p := &pings{t: s.t, to: &net.IPAddr{IP: to.AsSlice()}, stop: make(chan struct{}), back: map[uint16]time.Time{}}
	err := netns.In(ns, func() (err error) {
		p.socket, err = net.ListenPacket("ip4:icmp", "0.0.0.0")
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	p.group.Go(func() { p.send(gap) })
	p.group.Go(p.hear)
	s.t.Cleanup(p.end)
	return p
}

const echoID = 0x70e1

func (p *pings) send(gap time.Duration) {
	tick := time.NewTicker(gap)
	defer tick.Stop()
	for {
		p.mu.Lock()
		seq := uint16(len(p.sent))
		p.sent = append(p.sent, time.Now())
		p.mu.Unlock()
		request := []byte{8, 0, 0, 0, echoID >> 8, echoID & 0xff, byte(seq >> 8), byte(seq)}
		var sum uint32
		for i := 0; i < len(request); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(request[i:]))
		}
		binary.BigEndian.PutUint16(request[2:], ^uint16(sum+sum>>16))
		_, _ = p.socket.WriteTo(request, p.to) // lost, if it is
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
	}
}

func (p *pings) hear() {
	buffer := make([]byte, 100)
	for {
		n, _, err := p.socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && n >= 8 && buffer[0] == 0 && binary.BigEndian.Uint16(buffer[4:]) == echoID {
			p.mu.Lock()
			p.back[binary.BigEndian.Uint16(buffer[6:])] = time.Now()
			p.mu.Unlock()
		}
	}
}

// answeredAfter reports whether a request that was sent after a time has been answered.
func (p *pings) answeredAfter(at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for seq, sent := range p.sent {
		if _, ok := p.back[uint16(seq)]; ok && sent.After(at) {
			return true
		}
	}
	return false
}

func (p *pings) end() {
	select {
	case <-p.stop:
	default:
		close(p.stop)
		_ = p.socket.Close()
		p.group.Wait()
	}
}

// until counts the requests that were sent after a time and before the first of those that
// was answered. Unlike a time it does not grow when this process gets no processor.
func (p *pings) until(after time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for seq, sent := range p.sent {
		if !sent.After(after) {
			continue
		}
		if _, ok := p.back[uint16(seq)]; ok {
			break
		}
		n++
	}
	return n
}

// late is the longest time between two requests: how long this process got no processor.
func (p *pings) late() (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 1; i < len(p.sent); i++ {
		longest = max(longest, p.sent[i].Sub(p.sent[i-1]))
	}
	return longest
}

// lost ends it, a second after the last request at the latest, and returns which were not
// answered, of how many, and how many of them in a row at most.
func (p *pings) lost() (missing []int, of, row int) {
	p.t.Helper()
	p.mu.Lock()
	of = len(p.sent)
	p.mu.Unlock()
	deadline := time.Now().Add(time.Second)
	await(p.t, "the last answers", patience, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		_, ok := p.back[uint16(of-1)]
		return ok || time.Now().After(deadline)
	})
	p.end()
	now := 0
	for seq := range of {
		if _, ok := p.back[uint16(seq)]; ok {
			now = 0
			continue
		}
		missing = append(missing, seq)
		now++
		row = max(row, now)
	}
	return missing, of, row
}
