package internet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestInternet(t *testing.T) {
	w := newWorld(t)
	for _, n := range []*namespace{w.host, w.rome, w.milan, w.oslo, w.wall} {
		n.echo(7)
	}
	t.Run("reach", func(t *testing.T) { testReach(t, w) })
	t.Run("spoof", func(t *testing.T) { testSpoof(t, w) })
	t.Run("cut and heal", func(t *testing.T) { testCut(t, w) })
	t.Run("packet too big", func(t *testing.T) { testTooBig(t, w) })
	t.Run("bad config", func(t *testing.T) { testBadConfig(t, w) })
	t.Run("stats", func(t *testing.T) { testStats(t, w) })
	t.Run("socket", func(t *testing.T) { testSocket(t, w) })
	t.Run("failure", func(t *testing.T) { testFailure(t, w) })
	t.Run("nothing is left", func(t *testing.T) { testLeftovers(t, w) })
}

func testReach(t *testing.T, w *world) {
	var probes sync.WaitGroup
	for _, c := range []struct {
		reason string
		from   *namespace
		to     []netip.Addr
		want   bool
	}{
		{"a cluster reaches nodes of another", w.rome, milanAt, true},
		{"and back", w.milan, romeAt, true},
		{"a cluster behind NAT calls out", w.oslo, romeAt, true},
		{"but is not called by its private address", w.rome, osloAt, false},
		{"nor by its public one", w.rome, publicAt, false},
		{"nor by a router that has the way: the NAT box lets nobody in but the host", w.internet, osloAt, false},
		{"the host reaches a cluster", w.host, romeAt, true},
		{"the host reaches a cluster behind NAT by its private address", w.host, osloAt, true},
		{"the host reaches the NAT box", w.host, publicAt, true},
		{"pod addresses do not cross, even where there is a route", w.host, podAt, false},
	} {
		for _, to := range c.to {
			probes.Go(func() {
				limit := silence
				if c.want {
					limit = patience
				}
				if got := c.from.reaches(t, at(to, 7), limit); got != c.want {
					t.Errorf("%s: %s reaches %s: %v", c.reason, c.from.name, to, got)
				}
			})
		}
	}
	for _, host := range hostAt {
		probes.Go(func() {
			if err := w.rome.connect(at(host, 7), silence); err == nil {
				t.Errorf("rome opened a TCP connection to the host at %s", host)
			}
		})
	}
	probes.Wait()
}

// testSpoof proves a drop by what comes after: a packet that may pass, sent
// later on the same way, arrives first.
func testSpoof(t *testing.T, w *world) {
	got := w.milan.receive(9)
	probe := func(from netip.AddrPort, to netip.Addr) {
		t.Helper()
		c, err := w.rome.dial("udp", from, at(to, 9))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, setting := range []struct {
		reason string
		links  []Link
	}{{"plain link", nil}, {"WAN link", []Link{{A: "milan", B: "rome", Delay: time.Millisecond}}}} {
		w.set(setting.links...)
		for family, to := range milanAt {
			for _, c := range []struct {
				reason string
				from   netip.Addr
				arrive int64
			}{
				{"a pod's source", podAt[family], 0},
				{"the receiver's own network", milanAt[family].Next(), 0},
				{"another cluster's address", publicAt[family], 0},
				{"the host's address", hostAt[family], 0},
				{"another address of its own network", romeAt[family].Next(), 1},
			} {
				before := got.packets.Load()
				probe(at(c.from, 4000), to)
				probe(at(romeAt[family], 4001), to)
				w.await("the lawful packet arrives", func() bool {
					from := got.from.Load()
					return from != nil && strings.HasSuffix((*from).String(), ":4001") && got.packets.Load() > before
				})
				if n := got.packets.Load() - before - 1; n != c.arrive {
					t.Errorf("%s, %s to %s: %d arrived", setting.reason, c.reason, to, n)
				}
				probe(at(romeAt[family], 4002), to) // so that the next wait sees a change
				w.await("the last packet arrives", func() bool {
					return strings.HasSuffix((*got.from.Load()).String(), ":4002")
				})
			}
		}
	}
	w.set()
}

// testCut cuts under an open connection, which goes on after the heal.
func testCut(t *testing.T, w *world) {
	for _, c := range []struct {
		reason string
		link   Link
	}{
		{"plain link", Link{A: "milan", B: "rome"}},
		{"WAN link", Link{A: "milan", B: "rome", Delay: 5 * time.Millisecond}},
	} {
		cut := c.link
		cut.Cut = true
		w.set(c.link)
		for _, to := range milanAt {
			conn, err := w.rome.dial("tcp", netip.AddrPort{}, at(to, 7))
			if err != nil {
				t.Fatal(err)
			}
			say := func(limit time.Duration) error {
				_ = conn.SetReadDeadline(time.Now().Add(limit))
				_, err := io.ReadFull(conn, make([]byte, 4))
				return err
			}
			write := func() {
				if _, err := conn.Write([]byte("word")); err != nil {
					t.Fatal(err)
				}
			}
			write()
			if err := say(patience); err != nil {
				t.Errorf("%s: before the cut: %v", c.reason, err)
			}
			w.set(cut)
			write()
			if err := say(silence); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: an open connection to %s during the cut: %v", c.reason, to, err)
			}
			if w.rome.reaches(t, at(to, 7), silence) || !w.oslo.reaches(t, at(to, 7), patience) {
				t.Errorf("%s: the cut is not between rome and milan alone", c.reason)
			}
			w.set(c.link)
			if err := say(patience); err != nil {
				t.Errorf("%s: an open connection to %s after the heal: %v", c.reason, to, err)
			}
			_ = conn.Close()
		}
		if !w.milan.reaches(t, at(romeAt[0], 7), patience) {
			t.Errorf("%s: not healed", c.reason)
		}
	}
	w.set()
}

// testTooBig sends packets that the other port cannot take and looks for the
// answer that tells the sender.
func testTooBig(t *testing.T, w *world) {
	for _, setting := range []struct {
		reason string
		links  []Link
	}{{"plain link", nil}, {"WAN link", []Link{{A: "milan", B: "rome", Delay: time.Millisecond}}}} {
		w.set(setting.links...)
		w.rome.run("", "ip", "route", "flush", "cache")
		w.rome.run("", "ip", "-6", "route", "flush", "cache")
		for _, to := range milanAt {
			c, err := w.rome.dial("udp", netip.AddrPort{}, at(to, 9))
			if err != nil {
				t.Fatal(err)
			}
			forbidFragments(t, c, to)
			w.await(setting.reason+": the sender hears that packets to "+to.String()+" are too big", func() bool {
				_, err := c.Write(make([]byte, 1430))
				return errors.Is(err, unix.EMSGSIZE)
			})
			_ = c.Close()
		}
	}
	w.set()
}

func forbidFragments(t *testing.T, c net.Conn, to netip.Addr) {
	t.Helper()
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		if to.Is4() {
			set = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			return
		}
		set = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	}); err != nil || set != nil {
		t.Fatal(err, set)
	}
}
