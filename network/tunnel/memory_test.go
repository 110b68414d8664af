package tunnel

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/pelago-dev/pelago/network/netnstest"
)

func TestWindow(t *testing.T) {
	w := newWindow(time.Hour)
	w.add(windowMost - 1)
	w.wait() // has room
	w.add(10)
	entered := make(chan struct{})
	go func() { w.wait(); close(entered) }()
	w.done(1)
	select {
	case <-entered:
		t.Fatal("there was no room")
	case <-time.After(20 * time.Millisecond):
	}
	w.done(20)
	select {
	case <-entered:
	case <-time.After(netnstest.Patience):
		t.Fatal("nobody was told of the room")
	}
	w.done(10 * windowMost) // what the library sends by itself
	if n := w.under.Load(); n != 0 {
		t.Fatalf("%d under way, of none", n)
	}
	w.stall = time.Millisecond
	w.add(windowMost)
	w.wait() // dropped, all of them
	if n := w.under.Load(); n != 0 {
		t.Fatalf("%d under way, that were dropped", n)
	}
}

// TestBounded counts what may be for the device, and nothing else.
func TestBounded(t *testing.T) {
	w := newWindow(time.Hour)
	receive := bounded(w, func(_ [][]byte, sizes []int, _ []conn.Endpoint) (int, error) {
		return copy(sizes, []int{1400, device.MessageKeepaliveSize, 0, 500}), nil
	})
	if n, err := receive(nil, make([]int, 8), nil); n != 4 || err != nil || w.under.Load() != 2 {
		t.Fatalf("%d, %v, %d under way", n, err, w.under.Load())
	}
}

func TestForget(t *testing.T) {
	const whole = device.MaxMessageSize + 1
	memory, err := unix.Mmap(-1, 0, 2*whole, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	for i := range memory {
		memory[i] = 1
	}
	forget(memory[:device.MaxMessageSize-1])    // not one of the library's
	forget(memory[1 : device.MaxMessageSize+1]) // nor this
	forget(nil)
	if memory[0] != 1 || memory[whole-1] != 1 {
		t.Fatal("memory was given back that is no buffer")
	}
	forget(memory[:device.MaxMessageSize])
	if memory[0] != 0 || memory[whole-1] != 0 || memory[whole] != 1 {
		t.Fatalf("a buffer begins with %d, ends with %d, and what follows begins with %d", memory[0], memory[whole-1], memory[whole])
	}
}

func TestUnrefer(t *testing.T) {
	list := [][]byte{{1}, {2}, {3}}
	unrefer(list[:1])
	if list[0] == nil || list[1] != nil || list[2] != nil {
		t.Fatal(list)
	}
}
