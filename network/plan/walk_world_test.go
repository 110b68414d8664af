package plan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// manner is how an address is tried by a walk.
type manner byte

const (
	begins manner = iota
	datagram
	echo
	manners
)

func (m manner) String() string { return [...]string{"TCP SYN", "UDP", "ICMP echo"}[m] }

// walkPort is where all packets of walks come from, and the number of their echoes.
const walkPort = 40007

// packet says something to an address in a manner.
func (m manner) packet(from, to netip.Addr, data []byte) []byte {
	p := netnstest.Packet{From: from, To: to}
	switch m {
	case begins:
		p = p.TCP(walkPort, netnstest.Port, netnstest.SYN, 7, 0, data)
	case datagram:
		p = p.UDP(walkPort, netnstest.Port, data)
	case echo:
		p = p.Echo(walkPort, data)
	}
	return p.Bytes()
}

// step is one address that is tried in one manner.
type step struct {
	to netip.Addr
	by manner
}

func (s step) String() string { return fmt.Sprintf("%s to %s", s.by, s.to) }

// answer is what answers a step: what it is, and of whom.
type answer struct {
	what string
	of   netip.Addr
}

func (a answer) String() string {
	if a.what == "" {
		return "nobody"
	}
	return fmt.Sprintf("%s of %s", a.what, a.of)
}

// window is how many packets may be on their way at once, which is less than queues hold.
const window = 200

// walk is one attacker's way through ranges.
type walk struct {
	ears *ears
	// first is the number of the first step, in its marker.
	first uint32
	steps []step
	// met says of each step that its packet has come to the guard, and count how many have.
	met      []atomic.Bool
	count    atomic.Int64
	progress chan struct{}

	mu      sync.Mutex
	replies map[step]answer
}

// newWalk is one through steps, whose packets are numbered from first.
func newWalk(e *ears, first uint32, steps []step) *walk {
	return &walk{ears: e, first: first, steps: steps, met: make([]atomic.Bool, len(steps)), progress: make(chan struct{}, 1), replies: map[step]answer{}}
}

// guarded notes what came to the guard.
func (w *walk) guarded(id uint32) {
	if i := id - w.first; i >= uint32(len(w.steps)) || !w.met[i].CompareAndSwap(false, true) {
		return
	}
	w.count.Add(1)
	select {
	case w.progress <- struct{}{}:
	default:
	}
}

// say says the steps from i to j, no more at once than queues hold, and again what was lost on its way to
// the guard, if that is where they go.
func (w *walk) say(t *testing.T, from func(to netip.Addr) netip.Addr, i, j int, toGuard bool, out func(to netip.Addr, packet []byte)) {
	t.Helper()
	tries := 0
	for end := time.Now().Add(time.Minute); time.Now().Before(end); tries++ {
		var said, before int64
		before = w.count.Load()
		for at := i; at < j; at++ {
			if s := w.steps[at]; !w.met[at].Load() {
				out(s.to, s.by.packet(from(s.to), s.to, markerOf(w.first+uint32(at))))
				said++
			}
			if lost := said - (w.count.Load() - before) - window; toGuard && lost > 0 && !w.awaits(func() bool { return said-(w.count.Load()-before) < window }) {
				said -= lost + window // these come no more
			}
		}
		if !toGuard || said == 0 || w.awaits(func() bool { return said <= w.count.Load()-before }) && w.all(i, j) {
			return
		}
	}
	if !w.all(i, j) {
		t.Fatalf("%d of %d packets came to the guard in %d tries", w.count.Load(), j-i, tries)
	}
}

func (w *walk) all(i, j int) bool {
	for at := i; at < j; at++ {
		if !w.met[at].Load() {
			return false
		}
	}
	return true
}

// awaits waits until something holds, while packets come to the guard.
func (w *walk) awaits(holds func() bool) bool {
	const patience = 100 * time.Millisecond
	for !holds() {
		select {
		case <-w.progress:
		case <-time.After(patience):
			return holds()
		}
	}
	return true
}

// replied notes an answer: a packet of IP without its header, and of whom it is.
func (w *walk) replied(v4 bool, protocol byte, of netip.Addr, b []byte) {
	if len(b) < 8 {
		return
	}
	source, port := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	switch {
	case protocol == unix.IPPROTO_TCP && len(b) >= 14 && source == netnstest.Port && port == walkPort:
		w.note(step{of, begins}, fmt.Sprintf("TCP %#x", b[13]), of)
	case protocol == unix.IPPROTO_UDP && source == netnstest.Port && port == walkPort:
		w.note(step{of, datagram}, "UDP", of)
	case protocol == icmp(v4) && binary.BigEndian.Uint16(b[4:]) == walkPort && (b[0] == 0 && v4 || b[0] == 129 && !v4):
		w.note(step{of, echo}, "echo", of)
	case protocol == icmp(v4):
		if s, is := quoted(v4, b[8:]); is {
			w.note(s, fmt.Sprintf("ICMP %d/%d", b[0], b[1]), of)
		}
	}
}

func icmp(v4 bool) byte {
	if v4 {
		return unix.IPPROTO_ICMP
	}
	return unix.IPPROTO_ICMPV6
}

// quoted is the step whose packet an error quotes.
func quoted(v4 bool, b []byte) (s step, is bool) {
	protocol, length := 9, 20
	if !v4 {
		protocol, length = 6, 40
	}
	if len(b) < length+8 {
		return s, false
	}
	if s.to = netip.AddrFrom4([4]byte(b[16:20])); !v4 {
		s.to = netip.AddrFrom16([16]byte(b[24:40]))
	}
	own := binary.BigEndian.Uint16(b[length:]) == walkPort
	switch b[protocol] {
	case unix.IPPROTO_TCP:
		return s, own
	case unix.IPPROTO_UDP:
		s.by = datagram
		return s, own
	case icmp(v4):
		s.by = echo
		return s, binary.BigEndian.Uint16(b[length+4:]) == walkPort && (b[length] == 8 || b[length] == 128)
	}
	return s, false
}

func (w *walk) note(s step, what string, of netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replies[s] = answer{what, of}
}

func (w *walk) reply(s step) answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replies[s]
}

// socket is one of a place, closed when the test ends.
func socket(t *testing.T, p *netnstest.Place, family, protocol int) (fd int) {
	t.Helper()
	p.In(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		return err
	})
	p.Must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20))
	p.Must(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50000}))
	return fd
}

// allProtocols is for sockets that hear all that a place hears and says.
var allProtocols = int(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL)))

// read takes what comes to a socket until end is called, at the latest when the test ends: what has come by then is
// taken first.
func read(t *testing.T, fd int, take func(b []byte, from unix.Sockaddr)) (end func()) {
	t.Helper()
	const most = 1 << 17 // of what comes meanwhile
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 1<<16)
		for left := most; left > 0; {
			n, from, err := unix.Recvfrom(fd, b, 0)
			if err == nil {
				take(b[:n], from)
			}
			select {
			case <-stop:
				if left--; err != nil {
					return
				}
			default:
			}
		}
	}()
	end = sync.OnceFunc(func() {
		close(stop)
		<-ended
		_ = unix.Close(fd)
	})
	t.Cleanup(end)
	return end
}

// mouth is how packets are said as they are from a place, as a process there may.
type mouth struct {
	*netnstest.Place
	four, six int
	refused   int
}

func newMouth(t *testing.T, p *netnstest.Place) *mouth {
	t.Helper()
	m := &mouth{Place: p, four: socket(t, p, unix.AF_INET, unix.IPPROTO_RAW), six: socket(t, p, unix.AF_INET6, unix.IPPROTO_RAW)}
	p.Must(unix.SetsockoptInt(m.four, unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
	for _, fd := range []int{m.four, m.six} {
		p.Must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 32<<20))
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
	return m
}

// say sends a packet, which the kernel here may refuse.
func (m *mouth) say(to netip.Addr, packet []byte) {
	var err error
	switch {
	case to.Is4():
		err = unix.Sendto(m.four, packet, 0, &unix.SockaddrInet4{Addr: to.As4()})
	case to.IsLinkLocalUnicast():
		err = unix.Sendto(m.six, packet, 0, &unix.SockaddrInet6{Addr: to.As16(), ZoneId: uint32(m.Link("eth0").Attrs().Index)})
	default:
		err = unix.Sendto(m.six, packet, 0, &unix.SockaddrInet6{Addr: to.As16()})
	}
	if err != nil {
		m.refused++
	}
}

// hears notes what answers a walk at the place that it is said from.
func (m *mouth) hears(t *testing.T, w *walk) {
	t.Helper()
	for _, v4 := range netnstest.Families {
		family := unix.AF_INET6
		if v4 {
			family = unix.AF_INET
		}
		for _, protocol := range []byte{unix.IPPROTO_TCP, icmp(v4)} {
			read(t, socket(t, m.Place, family, int(protocol)), func(b []byte, from unix.Sockaddr) {
				switch a := from.(type) {
				case *unix.SockaddrInet4:
					if header := int(b[0]&15) * 4; len(b) >= header {
						w.replied(v4, protocol, netip.AddrFrom4(a.Addr), b[header:])
					}
				case *unix.SockaddrInet6:
					w.replied(v4, protocol, netip.AddrFrom16(a.Addr), b)
				}
			})
		}
	}
	var c *net.UDPConn
	m.In(func() (err error) {
		c, err = net.ListenUDP("udp", &net.UDPAddr{Port: walkPort})
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		for b := make([]byte, 1<<16); ; {
			_, from, err := c.ReadFromUDPAddrPort(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && from.Port() == netnstest.Port {
				w.note(step{from.Addr().Unmap(), datagram}, "UDP", from.Addr().Unmap())
			}
		}
	}()
}

// watch tells the walk what comes to a gateway, or leaves it, until end is called.
func watch(t *testing.T, p *netnstest.Place, w *walk) (end func()) {
	t.Helper()
	return read(t, socket(t, p, unix.AF_PACKET, allProtocols), func(b []byte, _ unix.Sockaddr) {
		for _, id := range marked(b) {
			w.guarded(id)
		}
	})
}

// forgetConnections has places forget the connections that they track: a walk makes as many as one may have.
func forgetConnections(places []*netnstest.Place) {
	for _, p := range places {
		p.In(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	}
}

// hasty has a node and its pods give up soon what does not answer, as the machine has room for few of those, and the node drop by
// itself what the router does, by routes that come after all of ours.
func hasty(n *netnstest.Node) {
	for _, p := range []*netnstest.Place{n.Place, n.Pod, n.Other} {
		for _, version := range []string{"ipv4", "ipv6"} {
			p.Sysctl(version+"/neigh/eth0/retrans_time_ms", "50")
		}
	}
	n.Sysctl("ipv4/neigh/cni0/retrans_time_ms", "50")
	n.Sysctl("ipv6/neigh/cni0/retrans_time_ms", "50")
	for _, p := range prefixes("10.42.0.0/16", "10.96.0.0/16", "169.254.0.0/16") {
		_, nowhere, err := net.ParseCIDR(p.String())
		n.Must(err)
		n.Must(n.Kernel.RouteAdd(&netlink.Route{Dst: nowhere, Type: unix.RTN_BLACKHOLE}))
	}
}

// steps are all addresses of ranges of IPv4 that have no more than most, so many of others, and those besides, in all
// manners.
func steps(most int, ranges []netip.Prefix, besides []netip.Addr) (all []step) {
	seen := map[netip.Addr]bool{}
	add := func(to netip.Addr) {
		for by := manner(0); by < manners && !seen[to]; by++ {
			all = append(all, step{to, by})
		}
		seen[to] = true
	}
	for _, p := range ranges {
		if !p.Addr().Is4() || 1<<(32-p.Bits()) > most {
			for _, a := range sample(p) {
				add(a)
			}
			continue
		}
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			add(a)
		}
	}
	for _, a := range besides {
		add(a)
	}
	return all
}

// sample is a few addresses of a range, always the same.
func sample(p netip.Prefix) (all []netip.Addr) {
	random := rand.New(rand.NewPCG(seed, uint64(p.Bits())))
	for range few {
		b := p.Addr().AsSlice()
		for i := p.Bits() / 8; i < len(b); i++ {
			b[i] = byte(random.Uint32())
		}
		a, _ := netip.AddrFromSlice(b)
		all = append(all, a)
	}
	return all
}
