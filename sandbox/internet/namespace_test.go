package internet

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespace is a network namespace held by a process that ends with the test.
type namespace struct {
	t      *testing.T
	name   string
	pid    int
	orders io.WriteCloser
	kernel *netlink.Handle
}

// play starts the test binary in a role, outside a namespace of its own if flags are 0.
func play(t *testing.T, role string, flags uintptr) (pid int, orders io.WriteCloser) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	// The race detector would wait a second at every exit.
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	orders, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = orders.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("role %s: %v", role, err)
		}
		if stderr.Len() > 0 {
			t.Logf("role %s said:\n%s", role, stderr.String())
		}
	})
	return cmd.Process.Pid, orders
}

func newNamespace(t *testing.T, name, role string) *namespace {
	t.Helper()
	n := &namespace{t: t, name: name}
	n.pid, n.orders = play(t, role, syscall.CLONE_NEWNET|syscall.CLONE_NEWNS)
	at, err := netns.GetFromPid(n.pid)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = at.Close() }()
	if n.kernel, err = netlink.NewHandleAt(at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kernel.Close)
	n.must(n.kernel.LinkSetUp(n.link("lo")))
	n.must(n.in(func() error { // link-local addresses are usable at once
		return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0)
	}))
	return n
}

func (n *namespace) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("in namespace %s: %v", n.name, err)
	}
}

func (n *namespace) link(name string) netlink.Link {
	n.t.Helper()
	l, err := n.kernel.LinkByName(name)
	n.must(err)
	return l
}

// join makes a veth between two namespaces.
func join(a *namespace, aName string, b *namespace, bName string, mtu int) {
	a.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = aName, mtu
	a.must(a.kernel.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: bName, PeerNamespace: netlink.NsPid(b.pid)}))
	b.must(b.kernel.LinkSetMTU(b.link(bName), mtu))
	a.must(a.kernel.LinkSetUp(a.link(aName)))
	b.must(b.kernel.LinkSetUp(b.link(bName)))
}

func (n *namespace) address(device string, prefixes ...string) {
	n.t.Helper()
	for _, p := range prefixes {
		prefix := netip.MustParsePrefix(p)
		ip := &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
		a := &netlink.Addr{IPNet: ip}
		if prefix.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		n.must(n.kernel.AddrAdd(n.link(device), a))
	}
}

// route sends a prefix by way of an address on a device.
func (n *namespace) route(prefix, via, device string) {
	n.t.Helper()
	r := &netlink.Route{
		Dst: network(netip.MustParsePrefix(prefix)), Gw: net.ParseIP(via), LinkIndex: n.link(device).Attrs().Index,
		Flags: int(netlink.FLAG_ONLINK),
	}
	n.must(n.kernel.RouteAdd(r))
}

// in runs f on a thread in the namespace; sockets and processes that it makes
// belong there.
func (n *namespace) in(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		at, err := netns.GetFromPid(n.pid)
		if err == nil {
			err = netns.Set(at)
			_ = at.Close()
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// run runs a command in the namespace and returns its output.
func (n *namespace) run(input string, command ...string) string {
	n.t.Helper()
	var out []byte
	n.must(n.in(func() (err error) {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Stdin = strings.NewReader(input)
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
		}
		return err
	}))
	return string(out)
}
