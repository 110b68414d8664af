package tunnel

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// roleVariable makes the test binary hold a tunnel instead of running tests.
const roleVariable = "PELAGO_TUNNEL_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "hold" {
		if err := hold(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// order is what a child reads from its input: it gets secrets as a Secret of Kubernetes
// would hold them.
type order struct {
	Private   string
	Peer      PublicKey
	Endpoints []string
	Last      netip.AddrPort
	Keepalive time.Duration
}

// hold is a child that has the tunnel until it is killed. Its files are the gateway's
// namespace, the host's, and the TUN device.
func hold() error {
	var o order
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil {
		return err
	}
	private, err := ParseSecret(o.Private)
	if err != nil {
		return err
	}
	d, err := New(Options{
		Namespace: os.NewFile(3, "gateway"), Host: os.NewFile(4, "host"), TUN: os.NewFile(5, "tun"),
		Last: o.Last,
	})
	if err != nil {
		return err
	}
	err = d.Set(Config{Name: deviceName, MTU: 1420, PrivateKey: private, Peer: o.Peer, ListenPort: port, Endpoints: o.Endpoints, Keepalive: o.Keepalive})
	if err != nil {
		return err
	}
	fmt.Println("set")
	_, err = io.Copy(io.Discard, in)
	return err
}

// child starts a holder of a side's tunnel and waits until it is set.
func (s *side) child(tun *os.File, o order) *exec.Cmd {
	s.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=hold", "GORACE=atexit_sleep_ms=0")
	cmd.ExtraFiles = []*os.File{s.gateway, s.host, tun}
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.kill(cmd) })
	text, err := json.Marshal(o)
	if err == nil {
		_, err = input.Write(append(text, '\n'))
	}
	if err == nil {
		_, err = bufio.NewReader(output).ReadString('\n')
	}
	if err != nil {
		s.t.Fatalf("the child did not begin: %v", err)
	}
	return cmd
}

func (s *side) kill(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// TestRestart holds that a process with a tunnel may be killed, and the next one goes on
// with the same device: its addresses stay, and at most a second is lost. Neither the
// child nor the other side has a list; the child is told where the peer was. A busy machine
// takes most of a second to begin a process, which is not counted, and so may be late at times, though not by
// seconds, as who has to wait for the peer would be.
func TestRestart(t *testing.T) {
	rome, milan, romes, milans := pair(t, Options{Userspace: true})
	last := rome.stats(romes).Endpoint
	// The parent holds the device, as it would one that was sent to it.
	fd, err := copyOf(romes.File())
	if err != nil {
		t.Fatal(err)
	}
	tun := os.NewFile(uintptr(fd), deviceName)
	defer func() { _ = tun.Close() }()
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("the device is not non-blocking while it is used: flags %#x, %v", flags, err)
	}
	milan.set(milans, milan.config(rome)) // as it is: no list
	if err := romes.Close(); err != nil {
		t.Fatal(err)
	}
	o := order{Private: private(rome.key), Peer: milan.key.Public(), Last: last, Keepalive: 25 * time.Second}
	first := rome.child(tun, o)
	p := milan.ping(rome, 10*time.Millisecond)
	start := time.Now()
	await(t, "pings of the first child", patience, func() bool { return p.answeredAfter(start) })
	const wanted, most = 3, 10
	inTime := 0
	for i := 0; i < most && inTime < wanted; i++ {
		rome.kill(first)
		killed := time.Now()
		first = rome.child(tun, o)
		running := time.Now()
		await(t, "pings of the next child", patience, func() bool { return p.answeredAfter(running) })
		lost := p.until(killed)
		t.Logf("a child was killed and another set after %s; pings %s later; %d lost in a row", running.Sub(killed), time.Since(running), lost)
		if lost > 400 {
			t.Fatalf("%d lost in a row, more than four seconds; milan: %+v, now %s", lost, milan.stats(milans), time.Now())
		}
		if lost-int(running.Sub(killed)/(10*time.Millisecond)) <= 100 {
			inTime++
		}
	}
	if inTime < wanted {
		t.Errorf("of %d times %d lost no more than a second, want %d", most, inTime, wanted)
	}
}

func private(s Secret) string {
	key := s.Reveal()
	return base64.StdEncoding.EncodeToString(key[:])
}

// TestFileOutlivesClose holds that a device that File gave out can be closed and begun
// again in the same process, and that a TUN that somebody removed is made anew instead.
func TestFileOutlivesClose(t *testing.T) {
	rome, milan, romes, _ := pair(t, Options{Userspace: true})
	again := func(remove bool) *Device {
		fd, err := copyOf(romes.File())
		if err != nil {
			t.Fatal(err)
		}
		held := os.NewFile(uintptr(fd), deviceName)
		defer func() { _ = held.Close() }()
		_ = romes.File().Fd() // as os/exec does, which makes some kinds of files block
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("the device blocks after Fd, and Close would wait for a packet: flags %#x, %v", flags, err)
		}
		if err := romes.Close(); err != nil {
			t.Fatal(err)
		}
		if remove {
			netnstest.Change(t, rome.gateway, func(k *netlink.Handle) error { return k.LinkDel(byName(t, k, deviceName)) })
		}
		return rome.open(Options{TUN: held}, rome.config(milan, milan.endpoint()))
	}
	romes = again(false)
	p := rome.ping(milan, 10*time.Millisecond)
	start := time.Now()
	await(t, "pings over the device that was kept", patience, func() bool { return p.answeredAfter(start) })
	romes = again(true)
	rome.number()
	start = time.Now()
	await(t, "pings over a new device", patience, func() bool { return p.answeredAfter(start) })
}
