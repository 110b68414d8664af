package netns_test

import (
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// own is the namespace of the thread that asks.
const own = "/proc/thread-self/ns/net"

func here(t *testing.T) string {
	t.Helper()
	name, err := os.Readlink(own)
	if err != nil {
		t.Error(err)
	}
	return name
}

// in is the name of a namespace as seen from inside.
func in(t *testing.T, ns *os.File) (name string) {
	t.Helper()
	err := netns.In(ns, func() (err error) {
		name, err = os.Readlink(own)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return name
}

func TestIn(t *testing.T) {
	home, a, b := here(t), netnstest.New(t), netnstest.New(t)
	if nameA, nameB := in(t, a), in(t, b); nameA == home || nameB == home || nameA == nameB {
		t.Errorf("%s, and the two that were made: %s and %s", home, nameA, nameB)
	}
	if got := in(t, nil); got != home {
		t.Errorf("without one it is %s, want %s", got, home)
	}
	for of, want := range map[*os.File]string{nil: home, a: in(t, a)} {
		copied, err := netns.Copy(of)
		if err != nil {
			t.Fatal(err)
		}
		if got := in(t, copied); got != want {
			t.Errorf("the copy is of %s, want %s", got, want)
		}
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
		if got := in(t, of); got != want {
			t.Errorf("without its copy it is %s, want %s", got, want)
		}
	}
}

// TestInComesBack holds that no thread stays in another namespace, whatever the function
// did, and that none is begun there.
func TestInComesBack(t *testing.T) {
	home, ns := here(t), netnstest.New(t)
	var entered, looked sync.WaitGroup
	failure := errors.New("no")
	for range 16 {
		entered.Go(func() {
			for range 50 {
				_ = in(t, ns)
				if err := netns.In(ns, func() error { return failure }); !errors.Is(err, failure) {
					t.Errorf("error %v", err)
				}
				if err := netns.In(ns, func() error { runtime.Goexit(); return nil }); err == nil {
					t.Error("a function that ended its goroutine has done its work")
				}
			}
		})
		looked.Go(func() {
			for range 200 {
				if got := here(t); got != home {
					t.Errorf("a goroutine is in %s, home is %s", got, home)
					return
				}
				runtime.Gosched()
			}
		})
	}
	entered.Wait()
	looked.Wait()
	for range 200 {
		looked.Go(func() {
			runtime.LockOSThread() // a thread each
			defer runtime.UnlockOSThread()
			if got := here(t); got != home {
				t.Errorf("a thread is in %s, home is %s", got, home)
			}
		})
	}
	looked.Wait()
}

// TestOpened takes one port in two namespaces, and a third time, which is refused: what a
// function opens is where the function was.
func TestOpened(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	listen := func(ns *os.File) error {
		return netns.In(ns, func() error {
			conn, err := net.ListenPacket("udp", "0.0.0.0:4100")
			if err == nil {
				t.Cleanup(func() { _ = conn.Close() })
			}
			return err
		})
	}
	for _, ns := range []*os.File{a, b} {
		if err := listen(ns); err != nil {
			t.Fatal(err)
		}
	}
	if err := listen(a); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("the port is taken there, and yet: %v", err)
	}
}

// TestNetlink takes a device up in one of two namespaces.
func TestNetlink(t *testing.T) {
	a, b := netnstest.New(t), netnstest.New(t)
	netnstest.Up(t, a, "lo", true)
	for ns, want := range map[*os.File]bool{a: true, b: false} {
		netnstest.Change(t, ns, func(k *netlink.Handle) error {
			lo, err := k.LinkByName("lo")
			if err == nil && (lo.Attrs().RawFlags&unix.IFF_UP != 0) != want {
				t.Errorf("up is not %v: %+v", want, lo.Attrs())
			}
			return err
		})
	}
}

func TestErrors(t *testing.T) {
	netnstest.Root(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if err := netns.In(null, func() error { t.Error("it ran"); return nil }); err == nil {
		t.Error("/dev/null is a namespace")
	}
}
