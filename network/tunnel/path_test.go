package tunnel

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestNarrowPath moves much through a tunnel whose packets are larger than what the path takes: the kernel cuts them, but
// not what the library has joined.
func TestNarrowPath(t *testing.T) {
	netnstest.Root(t)
	rome, milan, _, _ := pair(t, Options{Userspace: true})
	for _, s := range []*side{rome, milan} {
		netnstest.Change(t, s.host, func(k *netlink.Handle) error {
			all, err := k.RouteList(byName(t, k, "eth0"), netlink.FAMILY_V4)
			for _, r := range all {
				r.MTU = 1000
				err = errors.Join(err, k.RouteReplace(&r))
			}
			return err
		})
	}
	transfer(t, rome, milan, milan.inside, 8<<20)
}

// narrow is a socket on a path that takes no more than single packets.
type narrow struct {
	conn.Bind
	refuses error
	sent    []byte // the first byte of each
	failing byte
}

func (n *narrow) Send(packets [][]byte, _ conn.Endpoint) error {
	if len(packets) > 1 {
		return n.refuses
	}
	if packets[0][0] == n.failing {
		return unix.EPERM
	}
	n.sent = append(n.sent, packets[0][0])
	return nil
}

// TestSocketSendsOneByOne has each packet sent where the kernel does not take them together, and only there.
func TestSocketSendsOneByOne(t *testing.T) {
	to, err := conn.NewStdNetBind().ParseEndpoint("198.18.0.2:51820")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		refuses error
		failing byte
		sent    []byte
		want    error
	}{
		{unix.EMSGSIZE, 0, []byte{4, 5, 6}, nil},
		{unix.EINVAL, 0, []byte{4, 5, 6}, nil}, // of older kernels
		{unix.EMSGSIZE, 5, []byte{4, 6}, unix.EPERM},
		{unix.EPERM, 0, nil, unix.EPERM},
	} {
		n := &narrow{refuses: c.refuses, failing: c.failing}
		err := (&socket{Bind: n, out: newWindow(stallOut)}).Send([][]byte{{4}, {5}, {6}}, to)
		if !slices.Equal(n.sent, c.sent) || !errors.Is(err, c.want) || err != nil && c.want == nil {
			t.Errorf("%v: sent %v, %v", c.refuses, n.sent, err)
		}
	}
}

// TestUncuttable has somebody without a key send what the kernel joins and the library cannot cut: that ends no reader.
func TestUncuttable(t *testing.T) {
	netnstest.Root(t)
	rome, milan, _, _ := pair(t, Options{Userspace: true})
	const most, older, size = 128, 64, 17 // as many as kernels join; the library cuts what older ones do
	stranger, to := datagrams(t, milan.host, netip.MustParseAddr(milan.at)), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(rome.endpoint()))
	raw, err := stranger.(*net.UDPConn).SyscallConn()
	if err == nil {
		if failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size) }); failed != nil {
			err = failed
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		_, err := stranger.WriteTo(make([]byte, most*size), to)
		if errors.Is(err, unix.EINVAL) {
			_, err = stranger.WriteTo(make([]byte, older*size), to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p, start := milan.ping(rome, 20*time.Millisecond), time.Now()
	took := await(t, "an answer", patience, func() bool { return p.answeredAfter(start) }) // which never comes when no reader is left
	t.Logf("an answer after %s", took)
}

// TestEndedByItself holds that a device which has ended is made anew while somebody else has its TUN device too.
func TestEndedByItself(t *testing.T) {
	netnstest.Root(t)
	rome, milan, romes, _ := pair(t, Options{Userspace: true})
	held, err := copyOf(romes.File())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	u := romes.engine.(*userspace)
	if err := u.tun.Device.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "the device ends", patience, func() bool { return !u.running() })
	rome.set(romes, rome.config(milan, milan.endpoint()))
	p, start := rome.ping(milan, 20*time.Millisecond), time.Now()
	await(t, "an answer", patience, func() bool { return p.answeredAfter(start) })
}
