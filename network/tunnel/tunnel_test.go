package tunnel

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// pair are two devices, rome's knowing where milan is, between which a ping has passed.
func pair(t testing.TB, o Options) (rome, milan *side, romes, milans *Device) {
	t.Helper()
	rome, milan = newSides(t)
	milans = milan.open(o, milan.config(rome))
	romes = rome.open(o, rome.config(milan, milan.endpoint()))
	p := rome.ping(milan, 20*time.Millisecond)
	start := time.Now()
	await(t, "a first ping", patience, func() bool { return p.answeredAfter(start) })
	p.end()
	return rome, milan, romes, milans
}

// transfer sends size bytes by TCP from one gateway to the other and has them
// summed there.
func transfer(t testing.TB, from, to *side, at netip.Addr, size int64) time.Duration {
	t.Helper()
	var listener net.Listener
	var client net.Conn
	err := netns.In(to.gateway, func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(at.String(), "0"))
		return err
	})
	if err == nil {
		defer func() { _ = listener.Close() }()
		err = netns.In(from.gateway, func() (err error) {
			client, err = net.DialTimeout("tcp", listener.Addr().String(), patience)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		sum [32]byte
		err error
	}
	heard := make(chan result, 1)
	go func() {
		server, err := listener.Accept()
		if err != nil {
			heard <- result{err: err}
			return
		}
		defer func() { _ = server.Close() }()
		_ = server.SetDeadline(time.Now().Add(2 * time.Minute))
		hash := sha256.New()
		_, err = io.Copy(hash, server)
		heard <- result{[32]byte(hash.Sum(nil)), err}
	}()
	_ = client.SetDeadline(time.Now().Add(2 * time.Minute))
	start := time.Now()
	hash := sha256.New()
	block := make([]byte, 1<<20)
	_, _ = rand.Read(block)
	for left := size; left > 0; {
		n := min(left, int64(len(block)))
		hash.Write(block[:n])
		if _, err := client.Write(block[:n]); err != nil {
			t.Fatal(err)
		}
		left -= n
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	r := <-heard
	if r.err != nil || r.sum != [32]byte(hash.Sum(nil)) {
		t.Fatalf("%d bytes did not arrive as they were sent: %v", size, r.err)
	}
	return time.Since(start)
}

func TestTunnel(t *testing.T) {
	rome, milan, romes, milans := pair(t, Options{})
	transfer(t, rome, milan, milan.inside, 8<<20)
	transfer(t, milan, rome, rome.inside, 8<<20)
	transfer(t, rome, milan, milan.inside6, 1<<20)
	for _, s := range []struct {
		*side
		d    *Device
		want string
	}{{rome, romes, milan.endpoint()}, {milan, milans, rome.endpoint()}} {
		stats := s.stats(s.d)
		if stats.Received < 8<<20 || stats.Sent < 8<<20 || stats.Endpoint.String() != s.want || stats.ListenPort != port || stats.Listed != (s.side == rome) || time.Since(stats.Handshake) > time.Minute {
			t.Errorf("%s: %+v", s.name, stats)
		}
		netnstest.Change(t, s.host, func(k *netlink.Handle) error {
			if _, err := k.LinkByName(deviceName); !errors.As(err, &netlink.LinkNotFoundError{}) {
				t.Errorf("%s: the host sees the device, or: %v", s.name, err)
			}
			return nil
		})
	}
}

// TestSetAgain holds that a second Set is none: the kernel reports no change of the device,
// the socket is the same one, and nobody has shaken hands.
func TestSetAgain(t *testing.T) {
	rome, milan, romes, _ := pair(t, Options{})
	before, sockets := rome.stats(romes), udpSockets(t, rome.host)
	updates := make(chan netlink.LinkUpdate, 16)
	done := make(chan struct{})
	defer close(done)
	if err := netns.In(rome.gateway, func() error { return netlink.LinkSubscribe(updates, done) }); err != nil {
		t.Fatal(err)
	}
	config := rome.config(milan, milan.endpoint())
	for range 3 {
		rome.set(romes, config)
	}
	p, since := rome.ping(milan, 10*time.Millisecond), time.Now()
	await(t, "an answer after the same was set", patience, func() bool { return p.answeredAfter(since) })
	p.end()
	// A change that is one ends the wait for others.
	config.MTU = 1400
	rome.set(romes, config)
	select {
	case u := <-updates:
		if u.Attrs().MTU != 1400 {
			t.Errorf("a Set of the same changed the device: %+v", u.Attrs())
		}
	case <-time.After(patience):
		t.Error("the kernel did not report another MTU")
	}
	after := rome.stats(romes)
	if !after.Handshake.Equal(before.Handshake) {
		t.Errorf("a Set of the same shook hands: %s, before %s", after.Handshake, before.Handshake)
	}
	if now := udpSockets(t, rome.host); !bytes.Equal(now, sockets) {
		t.Errorf("a Set of the same opened another socket:\n%s\nbefore:\n%s", now, sockets)
	}
	transfer(t, rome, milan, milan.inside, 1<<20)
}

// udpSockets are the inodes of a namespace's UDP sockets.
func udpSockets(t testing.TB, namespace *os.File) (inodes []byte) {
	t.Helper()
	if err := netns.In(namespace, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/udp")
		for line := range bytes.Lines(text) {
			if fields := bytes.Fields(line); len(fields) > 9 {
				inodes = append(append(inodes, fields[9]...), '\n')
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return inodes
}

// TestRepair holds that what was taken down or removed by hand comes back with Set.
func TestRepair(t *testing.T) {
	rome, milan, romes, _ := pair(t, Options{})
	config := rome.config(milan, milan.endpoint())
	netnstest.Up(t, rome.gateway, deviceName, false)
	rome.set(romes, config)
	transfer(t, milan, rome, rome.inside, 1<<10)
	netnstest.Change(t, rome.gateway, func(k *netlink.Handle) error { return k.LinkDel(byName(t, k, deviceName)) })
	rome.set(romes, config)
	rome.number()
	p := rome.ping(milan, 20*time.Millisecond)
	start := time.Now()
	took := await(t, "a ping over the new device", patience, func() bool { return p.answeredAfter(start) })
	t.Logf("a removed device carried again %s after Set", took)
}

func TestRefused(t *testing.T) {
	rome, milan := newSides(t)
	d := rome.open(Options{}, rome.config(milan))
	other := rome.config(milan)
	other.Name = "other"
	if err := d.Set(other); err == nil {
		t.Error("the name could be changed")
	}
	// The port is the host's, and taken.
	gateway := newNamespace(t)
	second, err := New(Options{Namespace: gateway, Host: rome.host})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	config := rome.config(milan)
	if err := second.Set(config); err == nil {
		t.Error("two devices have one port")
	}
	config.ListenPort = 0
	if err := second.Set(config); err != nil {
		t.Errorf("after a failure: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if d.Set(rome.config(milan)) == nil || d.Kick() == nil {
		t.Error("a closed device can be set, or kicked")
	}
	netnstest.Change(t, rome.gateway, func(k *netlink.Handle) error {
		if _, err := k.LinkByName(deviceName); !errors.As(err, &netlink.LinkNotFoundError{}) {
			t.Errorf("the closed device is there, or: %v", err)
		}
		return nil
	})
}
