package netnstest

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

// Times of tests.
const (
	// Patience is the deadline of what happens at once when there is a processor for it.
	Patience = 30 * time.Second
	// Silence is how long nothing has to come through before it counts as dropped.
	Silence = 300 * time.Millisecond
)

// Place is a network namespace of a test, which ends with it.
type Place struct {
	T      *testing.T
	Name   string
	File   *os.File
	Kernel *netlink.Handle
}

// NewPlace makes a namespace. It needs root.
func NewPlace(t *testing.T, name string) *Place {
	t.Helper()
	Root(t)
	file, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	p := OpenPlace(t, name, file)
	p.Must(p.Kernel.LinkSetUp(p.Link("lo")))
	p.Sysctl("ipv6/conf/default/accept_dad", "0")
	p.Sysctl("ipv6/conf/all/accept_dad", "0")
	return p
}

// OpenPlace takes over the file of a namespace that there is.
func OpenPlace(t *testing.T, name string, file *os.File) *Place {
	t.Helper()
	kernel, err := netns.Netlink(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kernel.Close()
		_ = file.Close()
	})
	return &Place{T: t, Name: name, File: file, Kernel: kernel}
}

// Must ends the test on an error.
func (p *Place) Must(err error) {
	p.T.Helper()
	if err != nil {
		p.T.Fatalf("in %s: %v", p.Name, err)
	}
}

// In runs f in the namespace.
func (p *Place) In(f func() error) {
	p.T.Helper()
	p.Must(netns.In(p.File, f))
}

// Link returns a device that has to be there.
func (p *Place) Link(name string) netlink.Link {
	p.T.Helper()
	l, err := p.Kernel.LinkByName(name)
	p.Must(err)
	return l
}

// Has reports whether a device is there.
func (p *Place) Has(name string) bool {
	_, err := p.Kernel.LinkByName(name)
	return err == nil
}

// Up takes a device up or down.
func (p *Place) Up(device string, up bool) {
	p.T.Helper()
	Up(p.T, p.File, device, up)
}

// Sysctl writes a setting below net.
func (p *Place) Sysctl(key, value string) {
	p.T.Helper()
	p.In(func() error { return os.WriteFile("/proc/sys/net/"+key, []byte(value), 0) })
}

// Join makes a veth to another place.
func (p *Place) Join(device string, to *Place, toDevice string, mtu int) {
	p.T.Helper()
	Join(p.T, p.File, device, to.File, toDevice, mtu)
}

// Address gives a device addresses.
func (p *Place) Address(device string, prefixes ...string) {
	p.T.Helper()
	for _, text := range prefixes {
		prefix := netip.MustParsePrefix(text)
		a := &netlink.Addr{IPNet: ipNet(prefix)}
		if prefix.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		p.Must(p.Kernel.AddrAdd(p.Link(device), a))
	}
}

// Unaddress takes an address from a device.
func (p *Place) Unaddress(device string, prefix netip.Prefix) {
	p.T.Helper()
	p.Must(p.Kernel.AddrDel(p.Link(device), &netlink.Addr{IPNet: ipNet(prefix)}))
}

// Route adds a route.
func (p *Place) Route(prefix, via, device string) {
	p.T.Helper()
	p.Must(p.Kernel.RouteAdd(&netlink.Route{
		Dst: ipNet(netip.MustParsePrefix(prefix)), Gw: netip.MustParseAddr(via).AsSlice(), LinkIndex: p.Link(device).Attrs().Index,
	}))
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Nftables runs one transaction.
func (p *Place) Nftables(f func(c *nftables.Conn)) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(p.File.Fd())))
	if err != nil {
		return err
	}
	f(c)
	return c.Flush()
}

// Listen serves TCP at Port of all addresses: it says who the client is, and then what the client says.
func (p *Place) Listen() {
	p.T.Helper()
	var l net.Listener
	p.In(func() (err error) {
		l, err = net.ListenTCP("tcp", &net.TCPAddr{Port: Port})
		return err
	})
	p.T.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go echo(c)
		}
	}()
}

func echo(c net.Conn) {
	defer func() { _ = c.Close() }()
	from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String()
	if _, err := c.Write([]byte(from + "\n")); err != nil {
		return
	}
	_, _ = io.Copy(struct{ io.Writer }{c}, c) // not spliced: what was read is in this process
}

// Dial opens a connection to who listens and returns it with who the server says this is.
func (p *Place) Dial(to netip.Addr, patience time.Duration) (net.Conn, string, error) {
	var c net.Conn
	if err := netns.In(p.File, func() (err error) {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(to, Port).String(), patience)
		return err
	}); err != nil {
		return nil, "", err
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, "", errors.Join(err, c.Close())
	}
	line := make([]byte, 0, 64)
	for b := make([]byte, 1); ; {
		if _, err := c.Read(b); err != nil {
			return nil, "", errors.Join(err, c.Close())
		}
		if b[0] == '\n' {
			return c, string(line), nil
		}
		line = append(line, b[0])
	}
}

// Await polls until a condition holds, and returns how long that took.
func Await(t *testing.T, what string, limit time.Duration, holds func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Since(start) > limit {
			t.Fatalf("not within %s: %s", limit, what)
		}
		<-tick.C
	}
	return time.Since(start)
}

// Quiet ends what is left of connections of IPv4 that processes have closed. The kernel sends such an end
// until the other side has it, and each time that there is no way for it spends one of the errors that a
// sender gets: a burst of five, and one in two seconds after that. A kernel without
// CONFIG_INET_DIAG_DESTROY has to be waited for.
func (p *Place) Quiet() {
	p.T.Helper()
	Await(p.T, p.Name+" has no ends of connections to tell", Patience, func() bool {
		quiet := true
		p.In(func() error {
			open, err := netlink.SocketDiagTCP(unix.AF_INET)
			if errors.Is(err, netlink.ErrDumpInterrupted) {
				quiet, err = false, nil
			}
			for _, s := range open {
				switch s.State {
				case netlink.TCP_FIN_WAIT1, netlink.TCP_CLOSING, netlink.TCP_LAST_ACK, netlink.TCP_CLOSE_WAIT:
					quiet = false
					_ = netlink.SocketDestroy(&net.TCPAddr{IP: s.ID.Source, Port: int(s.ID.SourcePort)}, &net.TCPAddr{IP: s.ID.Destination, Port: int(s.ID.DestinationPort)})
				}
			}
			return err
		})
		return quiet
	})
}
