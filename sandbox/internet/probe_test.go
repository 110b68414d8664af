package internet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silence is how long a probe waits for an answer that should not come.
const silence = 300 * time.Millisecond

func at(a netip.Addr, port int) netip.AddrPort { return netip.AddrPortFrom(a, uint16(port)) }

// wildcard listens on every address of both families.
func wildcard(port int) string { return fmt.Sprintf("[::]:%d", port) }

// echo answers UDP and TCP on a port of the namespace until the test ends, and
// counts the UDP packets that came in.
func (n *namespace) echo(port int) *atomic.Int64 {
	n.t.Helper()
	var count atomic.Int64
	var udp net.PacketConn
	var tcp net.Listener
	n.must(n.in(func() (err error) {
		if udp, err = net.ListenPacket("udp", wildcard(port)); err == nil {
			tcp, err = net.Listen("tcp", wildcard(port))
		}
		return err
	}))
	_ = udp.(*net.UDPConn).SetReadBuffer(8 << 20)
	n.t.Cleanup(func() { _, _ = udp.Close(), tcp.Close() })
	go func() {
		buffer := make([]byte, 65535)
		for {
			size, from, err := udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			count.Add(1)
			_, _ = udp.WriteTo(buffer[:size], from)
		}
	}()
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return &count
}

// dialer dials from an address, one that the machine need not have.
func dialer(network string, from netip.AddrPort) net.Dialer {
	d := net.Dialer{Timeout: patience}
	if !from.IsValid() {
		return d
	}
	d.LocalAddr = net.UDPAddrFromAddrPort(from)
	if network == "tcp" {
		d.LocalAddr = net.TCPAddrFromAddrPort(from)
	}
	d.Control = func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			level, option := unix.SOL_IP, unix.IP_TRANSPARENT
			if from.Addr().Is6() {
				level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
			}
			err = unix.SetsockoptInt(int(fd), level, option, 1)
		}); e != nil {
			return e
		}
		return err
	}
	return d
}

func (n *namespace) dial(network string, from, to netip.AddrPort) (net.Conn, error) {
	var c net.Conn
	err := n.in(func() (err error) {
		d := dialer(network, from)
		c, err = d.Dial(network, to.String())
		return err
	})
	return c, err
}

// ping sends one UDP packet and returns how long its echo took.
func (n *namespace) ping(from, to netip.AddrPort, limit time.Duration) (time.Duration, error) {
	c, err := n.dial("udp", from, to)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	began := time.Now()
	if _, err := c.Write([]byte("ping")); err != nil {
		return 0, err
	}
	_ = c.SetReadDeadline(began.Add(limit))
	_, err = c.Read(make([]byte, 16))
	return time.Since(began), err
}

// patience is how long a probe waits for what should come, whatever else the machine does.
const patience = time.Minute

// reaches reports whether TCP and UDP to the echo of the other side work within
// a time. It fails the test if one does and the other does not.
func (n *namespace) reaches(t *testing.T, to netip.AddrPort, limit time.Duration) bool {
	t.Helper()
	var udp, tcp error
	var both sync.WaitGroup
	both.Go(func() { _, udp = n.ping(netip.AddrPort{}, to, limit) })
	both.Go(func() { tcp = n.connect(to, limit) })
	both.Wait()
	if (udp == nil) != (tcp == nil) {
		t.Errorf("%s to %s: UDP says %v, TCP says %v", n.name, to, udp, tcp)
	}
	return udp == nil
}

// connect opens a TCP connection and closes it.
func (n *namespace) connect(to netip.AddrPort, limit time.Duration) error {
	return n.in(func() error {
		d := net.Dialer{Timeout: limit}
		c, err := d.Dial("tcp", to.String())
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

// receive counts the bytes and numbered packets that arrive on a UDP port.
type receive struct {
	conn    net.PacketConn
	packets atomic.Int64
	bytes   atomic.Int64
	last    atomic.Int64 // number of the last one
	from    atomic.Pointer[net.Addr]
}

func (n *namespace) receive(port int) *receive {
	n.t.Helper()
	r := &receive{}
	n.must(n.in(func() (err error) {
		r.conn, err = net.ListenPacket("udp", wildcard(port))
		return err
	}))
	n.must(deepen(r.conn.(*net.UDPConn)))
	n.t.Cleanup(func() { _ = r.conn.Close() })
	go func() {
		buffer := make([]byte, 65535)
		for {
			size, from, err := r.conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			r.bytes.Add(int64(size))
			r.packets.Add(1) // before who sent it and its number, by which tests know that it is counted
			if size >= 8 {
				r.last.Store(int64(binary.BigEndian.Uint64(buffer)))
			}
			r.from.Store(&from)
		}
	}()
	return r
}

// deepen makes room for all that comes while its reader waits for a core.
func deepen(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) })
	return errors.Join(err, set)
}

// send sends packets of a size with the numbers from first to last, a few each millisecond.
func (n *namespace) send(to netip.AddrPort, first, last, size, perMillisecond int) {
	n.t.Helper()
	c, err := n.dial("udp", netip.AddrPort{}, to)
	n.must(err)
	defer func() { _ = c.Close() }()
	packet := make([]byte, size)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := first; i <= last; i++ {
		binary.BigEndian.PutUint64(packet, uint64(i))
		if _, err := c.Write(packet); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			n.must(err)
		}
		if i%perMillisecond == 0 {
			<-tick.C
		}
	}
}

// sink takes TCP streams on a port and counts their bytes.
func (n *namespace) sink(port int) *atomic.Int64 {
	n.t.Helper()
	var total atomic.Int64
	var l net.Listener
	n.must(n.in(func() (err error) {
		l, err = net.Listen("tcp", wildcard(port))
		return err
	}))
	n.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				buffer := make([]byte, 1<<18)
				for {
					size, err := c.Read(buffer)
					total.Add(int64(size))
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return &total
}

// pour writes a TCP stream until the returned function is called.
func (n *namespace) pour(to netip.AddrPort) (stop func()) {
	n.t.Helper()
	c, err := n.dial("tcp", netip.AddrPort{}, to)
	n.must(err)
	go func() {
		block := make([]byte, 1<<18)
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	}()
	return func() { _ = c.Close() }
}

// megabits measures how fast a counter of bytes grows.
func megabits(total *atomic.Int64, warm, during time.Duration) float64 {
	<-time.After(warm)
	first, began := total.Load(), time.Now()
	<-time.After(during)
	return float64(total.Load()-first) * 8 / 1e6 / time.Since(began).Seconds()
}
