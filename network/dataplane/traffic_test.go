package dataplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

func equal(a, b []uint64) bool { return slices.Equal(a, b) }

// pair opens a connection between two pods of which the test has both ends.
func (w *world) pair(t *testing.T, from, to *place, at netip.Addr) (client, server net.Conn) {
	t.Helper()
	var l net.Listener
	to.Must(netns.In(to.File, func() (err error) {
		l, err = net.Listen("tcp", ":0")
		return err
	}))
	defer func() { _ = l.Close() }()
	from.Must(netns.In(from.File, func() (err error) {
		client, err = net.DialTimeout("tcp", netip.AddrPortFrom(at, l.Addr().(*net.TCPAddr).AddrPort().Port()).String(), patience)
		return err
	}))
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	return client, server
}

// exchangeOnce sends a line one way.
func exchangeOnce(t *testing.T, from, to net.Conn) {
	t.Helper()
	const line = "are you there?"
	if _, err := from.Write([]byte(line)); err != nil {
		t.Fatal(err)
	}
	if err := to.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(line))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != line {
		t.Errorf("from %s to %s: got %q: %v", from.LocalAddr(), to.LocalAddr(), got, err)
	}
}

// send sends some datagrams straight into the tunnel and returns how many.
func send(t *testing.T, p *place, from, to netip.Addr) int {
	t.Helper()
	const count = 10 // more than the kernel says by itself meanwhile
	defer wayTo(p, to)()
	p.Must(netns.In(p.File, func() error {
		d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), Control: byDevice(tunnelName)}
		c, err := d.Dial("udp", netip.AddrPortFrom(to, 9).String())
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		for range count {
			if _, err := c.Write([]byte("hello")); err != nil {
				return err
			}
		}
		return nil
	}))
	return count
}

// isCounted waits until so many that were sent are counted beside those before, none of them twice. What the kernel
// says by itself on that way, when it likes, is counted too.
func isCounted(t *testing.T, what string, dropped func() uint64, before uint64, sent int) {
	t.Helper()
	netnstest.Await(t, what+" is counted", patience, func() bool { return dropped() >= before+uint64(sent) })
	if after := dropped(); after >= before+2*uint64(sent) {
		t.Errorf("%s: %d dropped, %d sent", what, after-before, sent)
	}
}

// wayTo leads to an address by the tunnel until what it returns is called: in IPv6 a device alone is no way.
func wayTo(p *place, to netip.Addr) (end func()) {
	p.T.Helper()
	r := &netlink.Route{Dst: network(single(to)), LinkIndex: p.Link(tunnelName).Attrs().Index}
	if to.Is4() || errors.Is(p.Kernel.RouteAdd(r), unix.EEXIST) {
		return func() {}
	}
	return func() { p.Must(p.Kernel.RouteDel(r)) }
}

// leftovers are things of ours in a node's namespace.
func (n *worldNode) leftovers(t *testing.T) []string {
	t.Helper()
	var left []string
	links, err := n.kernel.host.links()
	n.Must(err)
	for name, l := range links {
		if ourDevice(name, l.Type()) {
			left = append(left, "device "+name)
		}
	}
	_, names, err := n.kernel.host.indexes()
	n.Must(err)
	routes, err := n.kernel.host.ourRoutes(names)
	n.Must(err)
	for r := range routes {
		left = append(left, r.String())
	}
	for _, v4 := range families {
		list, err := n.Place.Kernel.RouteListFiltered(familyOf(v4), &netlink.Route{Table: viewTable}, netlink.RT_FILTER_TABLE)
		n.Must(err)
		left = append(left, texts(list)...)
	}
	rules, odd, err := n.kernel.host.ourRules()
	n.Must(err)
	for r := range rules {
		left = append(left, r.String())
	}
	left = append(left, texts(odd)...)
	for _, v4 := range families {
		list, err := n.Place.Kernel.RuleList(familyOf(v4))
		n.Must(err)
		for _, r := range list {
			if r.Priority >= viewPriority && r.Priority <= landPriority {
				left = append(left, r.String())
			}
		}
	}
	filter := &filter{at: n.File, name: n.Name}
	n.Must(filter.open())
	defer filter.close()
	read, err := filter.read()
	n.Must(err)
	if read.there {
		left = append(left, "table inet pelago")
	}
	held, err := n.held.List()
	n.Must(err)
	return append(left, held...)
}

func texts[T fmt.Stringer](list []T) []string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		out = append(out, v.String())
	}
	return out
}

// byDevice binds a socket to a device, so that its packets leave by it wherever routes lead.
func byDevice(name string) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var inner error
		err := raw.Control(func(fd uintptr) { inner = unix.BindToDevice(int(fd), name) })
		return errors.Join(err, inner)
	}
}
