package dataplane

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// place is a network namespace of a test, which ends with it.
type place struct {
	t      *testing.T
	name   string
	file   *os.File
	kernel *netlink.Handle
}

func newPlace(t *testing.T, name string) *place {
	t.Helper()
	netnstest.Root(t)
	file, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	p := openPlace(t, name, file)
	p.must(p.kernel.LinkSetUp(p.link("lo")))
	p.sysctl("ipv6/conf/default/accept_dad", "0")
	p.sysctl("ipv6/conf/all/accept_dad", "0")
	return p
}

// openPlace takes over the file.
func openPlace(t *testing.T, name string, file *os.File) *place {
	t.Helper()
	kernel, err := netns.Netlink(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kernel.Close()
		_ = file.Close()
	})
	return &place{t: t, name: name, file: file, kernel: kernel}
}

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("in %s: %v", p.name, err)
	}
}

func (p *place) link(name string) netlink.Link {
	p.t.Helper()
	l, err := p.kernel.LinkByName(name)
	p.must(err)
	return l
}

func (p *place) has(name string) bool {
	_, err := p.kernel.LinkByName(name)
	return err == nil
}

func (p *place) sysctl(key, value string) {
	p.t.Helper()
	p.must(netns.In(p.file, func() error { return os.WriteFile("/proc/sys/net/"+key, []byte(value), 0) }))
}

// join makes a veth between two places.
func join(a *place, aName string, b *place, bName string, mtu int) {
	a.t.Helper()
	netnstest.Join(a.t, a.file, aName, b.file, bName, mtu)
}

// tunnel joins two gateways by what looks like a tunnel: a device that takes any
// destination. Both ends have one hardware address and ask for none.
func tunnel(a, b *place, mtu int) {
	a.t.Helper()
	same := mustHardware("02:00:00:00:00:01")
	join(a, tunnelName, b, tunnelName, mtu)
	for _, p := range []*place{a, b} {
		l := p.link(tunnelName)
		p.must(p.kernel.LinkSetARPOff(l))
		p.must(p.kernel.LinkSetHardwareAddr(l, same))
	}
}

func (p *place) address(device string, prefixes ...string) {
	p.t.Helper()
	for _, text := range prefixes {
		prefix := netip.MustParsePrefix(text)
		a := &netlink.Addr{IPNet: network(prefix)}
		if prefix.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		p.must(p.kernel.AddrAdd(p.link(device), a))
	}
}

func (p *place) route(prefix, via, device string) {
	p.t.Helper()
	p.must(p.kernel.RouteAdd(&netlink.Route{
		Dst: network(netip.MustParsePrefix(prefix)), Gw: netip.MustParseAddr(via).AsSlice(), LinkIndex: p.link(device).Attrs().Index,
	}))
}

// nftables runs one transaction.
func (p *place) nftables(f func(c *nftables.Conn)) error {
	return netns.In(p.file, func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		f(c)
		return c.Flush()
	})
}

// listen serves TCP: it says who the client is, and then what the client says.
func (p *place) listen(at string) {
	p.t.Helper()
	var l net.Listener
	p.must(netns.In(p.file, func() (err error) {
		l, err = net.Listen("tcp", at)
		return err
	}))
	p.t.Cleanup(func() { _ = l.Close() })
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
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return
		}
		if _, err := c.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// dial opens a connection and returns it with who the server says this is.
func (p *place) dial(to netip.Addr, patience time.Duration) (net.Conn, string, error) {
	var c net.Conn
	if err := netns.In(p.file, func() (err error) {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(to, port).String(), patience)
		return err
	}); err != nil {
		return nil, "", err
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, "", err
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
