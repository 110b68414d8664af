package plan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// mostHops is more than any way here has.
const mostHops = 12

// probeTrace sends a datagram of so many hops to a port where nobody listens, and returns who says by an error what
// became of it: to the socket, which takes only errors that quote what it has sent.
func probeTrace(p *netnstest.Place, to netip.Addr, hops int) (from netip.Addr, reached bool, err error) {
	fd, err := datagrams(p, to, hops, 33434+hops)
	if err != nil {
		return from, false, err
	}
	defer func() { _ = unix.Close(fd) }()
	return sayAndHear(fd, to.Is4(), byte(hops))
}

// sayAndHear is probeTrace by a socket that there is. What is said begins with a mark; errors that quote another one
// are late, and of one before.
func sayAndHear(fd int, v4 bool, mark byte) (from netip.Addr, reached bool, err error) {
	if _, err := unix.Write(fd, append([]byte{mark}, make([]byte, 31)...)); err != nil {
		return from, false, err
	}
	said, b := make([]byte, 512), make([]byte, 512)
	var n int
	for quoted := false; !quoted; {
		wait := []unix.PollFd{{Fd: int32(fd)}} // errors are always told
		if ready, err := unix.Poll(wait, int(netnstest.Silence/time.Millisecond)); ready == 0 || err != nil {
			return from, false, err
		}
		var of int
		if of, n, _, _, err = unix.Recvmsg(fd, said, b, unix.MSG_ERRQUEUE); err != nil {
			return from, false, err
		}
		quoted = of > 0 && said[0] == mark
	}
	messages, err := unix.ParseSocketControlMessage(b[:n])
	if err != nil || len(messages) == 0 {
		return from, false, fmt.Errorf("an error without a text: %w", err)
	}
	// A sock_extended_err, and the address of who says so.
	e := messages[0].Data
	errno := unix.Errno(binary.NativeEndian.Uint32(e))
	if v4 {
		from = netip.AddrFrom4([4]byte(e[16+4 : 16+8]))
	} else {
		from = netip.AddrFrom16([16]byte(e[16+8 : 16+24]))
	}
	_, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR) // which the next one would be told
	return from, errno == unix.ECONNREFUSED, nil
}

// datagrams is a socket of so many hops that is told of errors.
func datagrams(p *netnstest.Place, to netip.Addr, hops, port int) (fd int, err error) {
	domain, level, receive, limit := unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, unix.IPV6_UNICAST_HOPS
	at := unix.Sockaddr(&unix.SockaddrInet6{Port: port, Addr: to.As16()})
	if to.Is4() {
		domain, level, receive, limit = unix.AF_INET, unix.IPPROTO_IP, unix.IP_RECVERR, unix.IP_TTL
		at = &unix.SockaddrInet4{Port: port, Addr: to.As4()}
	}
	if err := netns.In(p.File, func() (err error) {
		fd, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		return 0, err
	}
	if err := errors.Join(unix.SetsockoptInt(fd, level, receive, 1), unix.SetsockoptInt(fd, level, limit, hops), unix.Connect(fd, at)); err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

// trace is who is on the way to an address, "-" where nobody says so: by one connection, of which something has come
// there already, or by one for each number of hops.
func trace(t *testing.T, p *netnstest.Place, to netip.Addr, one bool) (hops []string) {
	t.Helper()
	fd := -1
	if one {
		var err error
		fd, err = datagrams(p, to, 64, 33434)
		p.Must(err)
		defer func() { _ = unix.Close(fd) }()
		netnstest.Await(t, "something comes there", netnstest.Patience, func() bool {
			_, reached, err := sayAndHear(fd, to.Is4(), 0)
			return err == nil && reached
		})
	}
	for n := 1; n <= mostHops; n++ {
		hop := "-"
		for range 6 {
			var from netip.Addr
			var reached bool
			var err error
			if one {
				p.Must(limited(fd, to.Is4(), n))
				from, reached, err = sayAndHear(fd, to.Is4(), byte(n))
			} else {
				from, reached, err = probeTrace(p, to, n)
			}
			if err != nil && !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatalf("%s to %s by %d hops: %v", p.Name, to, n, err)
			}
			if reached {
				return append(hops, "reached "+from.String())
			}
			if from.IsValid() {
				hop = from.String()
				break
			}
		}
		hops = append(hops, hop)
	}
	return hops
}

// limited has a socket send what goes so many hops.
func limited(fd int, v4 bool, hops int) error {
	if v4 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, hops)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hops)
}

// TestTrace has pods find the way to pods of the peer as traceroute does: their nodes, their side's gateway,
// what is on the way beyond the tunnel, all of it by one address, and the pod; where ranges are translated and
// where not, and where connections do not pass by themselves.
func TestTrace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		number int
		shut   bool
	}{{"the same ranges", 42, false}, {"ranges apart", 44, false}, {"some are out of reach", 42, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorldOf(t, Consumer, Provider, c.number)
			for _, s := range []*side{w.rome, w.milan} {
				if c.shut {
					s.in.Peerings[0].ShutHere = []netip.Addr{netnstest.PodAddr(c.number, 0, 6, true)}
				}
				s.apply(t)
			}
			w.alive(t)
			w.everywhere(t, nil) // errors of all are not limited
			for _, v4 := range netnstest.Families {
				for _, way := range [][2]*side{{w.rome, w.milan}, {w.milan, w.rome}} {
					w.traces(t, way[0], way[1], v4)
				}
			}
		})
	}
}

// ends of what is on the way, as those see them whose packets go there.
var (
	gatewayHop = map[bool]string{true: "169.254.0.2", false: "fd70:656c:6167:6f00::2"}
	beyondHop  = map[bool]string{true: "169.254.0.3", false: "fd70:656c:6167:6f00::3"}
)

// traces has the pods and nodes of a side trace their ways to the other one's pods.
func (w *world) traces(t *testing.T, here, there *side, v4 bool) {
	t.Helper()
	for i, n := range here.Nodes {
		for j := range there.Nodes {
			to := here.seen(t, netnstest.PodAddr(there.Number, j, 5, v4))
			want := []string{netnstest.PodAddr(here.Number, i, 1, v4).String()}
			if g := here.gateway(t); i != g {
				want = append(want, "the gateway's node")
			}
			want = append(want, gatewayHop[v4], beyondHop[v4], beyondHop[v4])
			if j != there.gateway(t) {
				want = append(want, beyondHop[v4])
			}
			want = append(want, "reached "+to.String())
			// To one place by connections of their own as well, of which the peer's gateway says nothing.
			one := here.Name == "milan" || i != here.gateway(t) || j != there.gateway(t)
			if !one {
				want[2] = "-"
			}
			var got []string
			for range 3 { // on a busy machine all answers of a hop may come too late once
				got = trace(t, n.Pod, to, one)
				if i != here.gateway(t) && len(got) > 1 && w.ofNode(here, here.gateway(t), got[1]) {
					got[1] = "the gateway's node"
				}
				if slices.Equal(got, want) {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("from %s to %s: %q, want %q", n.Pod.Name, to, got, want)
			}
		}
	}
}

// ofNode says whether an address is one of a node.
func (w *world) ofNode(s *side, i int, a string) bool {
	for _, v4 := range netnstest.Families {
		if a == netnstest.NodeAddr(i, v4).String() || a == netnstest.PodAddr(s.Number, i, 1, v4).String() {
			return true
		}
	}
	return false
}

// TestTraceNot: a gateway tells of itself to pods alone, not to nodes, from which sources come that nobody has looked
// at, and to one pod not as often as that asks.
func TestTraceNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rome.apply(t)
	w.milan.apply(t)
	w.alive(t)
	g := w.rome.gateway(t)
	node := w.rome.Nodes[g]
	for _, v4 := range netnstest.Families {
		to := w.rome.seen(t, netnstest.PodAddr(42, 1, 5, v4))
		before := w.rome.dropped(t, "milan", dataplane.DropLocal)
		if from, _, err := probeTrace(node.Place, to, 1); err != nil || from.IsValid() {
			t.Errorf("a node hears of its gateway from %s, %v", from, err)
		}
		// Counted beside it is what the kernel says unasked, when it likes, which nobody hears either.
		netnstest.Await(t, "what the node would be told is dropped", netnstest.Patience, func() bool {
			return w.rome.dropped(t, "milan", dataplane.DropLocal) > before
		})
		const asked, most = 500, 100
		if told := burst(t, node.Pod, to, asked); told == 0 || told > most {
			t.Errorf("IPv4 %t: of %d packets a pod was told %d times, want 1 to %d", v4, asked, told, most)
		}
	}
}

// burst sends datagrams of two hops and counts what is told of them.
func burst(t *testing.T, p *netnstest.Place, to netip.Addr, asked int) (told int) {
	t.Helper()
	fd, err := datagrams(p, to, 2, 33434)
	p.Must(err)
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 512)
	for range asked {
		_, _ = unix.Write(fd, make([]byte, 32)) // an error of one before it may be told here
		if _, _, _, _, err := unix.Recvmsg(fd, nil, b, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT); err == nil {
			told++
		}
	}
	for {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, int(netnstest.Silence/time.Millisecond)); n == 0 || err != nil {
			return told
		}
		if _, _, _, _, err := unix.Recvmsg(fd, nil, b, unix.MSG_ERRQUEUE); err == nil {
			told++
		}
	}
}

// TestTraceFurther does the same between two providers, by way of home and by a direct path.
func TestTraceFurther(t *testing.T) {
	t.Parallel()
	w := newShortcut(t)
	w.everywhere(t, nil)
	for _, path := range []bool{false, true} {
		for _, s := range []*side{w.milan, w.rome, w.oslo} {
			if s != w.rome {
				s.in.Peerings[0].Paths[0].Alive = path
			}
			s.apply(t)
		}
		for _, v4 := range netnstest.Families {
			to, node := w.at(1, 5, v4), netnstest.PodAddr(42, 0, 1, v4).String()
			got := trace(t, w.caller, to, true)
			beyond := 6 // at home two gateways with its nodes, and oslo's
			if path {
				beyond = 2
			}
			first := slices.Index(got, gatewayHop[v4])
			want := slices.Concat([]string{gatewayHop[v4]}, slices.Repeat([]string{beyondHop[v4]}, beyond), []string{"reached " + to.String()})
			if first < 1 || got[0] != node || !slices.Equal(got[first:], want) {
				t.Errorf("by a path: %t: %q, want at last %q", path, got, want)
			}
		}
	}
}
