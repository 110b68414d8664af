package netns

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
)

// requireRoot skips a test that needs network namespaces, but never where a skip would
// go unseen.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("needs root to make network namespaces")
	}
	t.Skip("needs root to make network namespaces; run as root")
}

func made(t *testing.T) *os.File {
	t.Helper()
	ns, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

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
	err := In(ns, func() (err error) {
		name, err = os.Readlink(own)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return name
}

func TestIn(t *testing.T) {
	requireRoot(t)
	home, a, b := here(t), made(t), made(t)
	if nameA, nameB := in(t, a), in(t, b); nameA == home || nameB == home || nameA == nameB {
		t.Errorf("%s, and the two that were made: %s and %s", home, nameA, nameB)
	}
	current, err := Current()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = current.Close() }()
	if got := in(t, current); got != home {
		t.Errorf("the current one is %s, want %s", got, home)
	}
	process, err := OfProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = process.Close() }()
	if got := in(t, process); got != home {
		t.Errorf("that of this process is %s, want %s", got, home)
	}
}

// TestInComesBack holds that no thread stays in another namespace, whatever the function
// did, and that none is begun there.
func TestInComesBack(t *testing.T) {
	requireRoot(t)
	home, ns := here(t), made(t)
	var entered, looked sync.WaitGroup
	failure := errors.New("no")
	for range 16 {
		entered.Go(func() {
			for range 50 {
				_ = in(t, ns)
				if err := In(ns, func() error { return failure }); !errors.Is(err, failure) {
					t.Errorf("error %v", err)
				}
				if err := In(ns, func() error { runtime.Goexit(); return nil }); !errors.Is(err, errUnfinished) {
					t.Errorf("error %v", err)
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

// TestListenUDP opens the same address twice, which one namespace refuses.
func TestListenUDP(t *testing.T) {
	requireRoot(t)
	a, b := made(t), made(t)
	at := netip.MustParseAddrPort("0.0.0.0:4100")
	for _, ns := range []*os.File{a, b} {
		conn, err := ListenUDP(ns, at)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	var taken *net.OpError
	if conn, err := ListenUDP(a, at); !errors.As(err, &taken) || conn != nil {
		t.Errorf("the address is taken there, and yet: %v, %v", conn, err)
	}
}

func TestErrors(t *testing.T) {
	requireRoot(t)
	if _, err := OfProcess(-1); err == nil {
		t.Error("a process that cannot be has a namespace")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if err := In(null, func() error { t.Error("it ran"); return nil }); err == nil {
		t.Error("/dev/null is a namespace")
	}
}
