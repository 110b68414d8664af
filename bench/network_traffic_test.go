package bench

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/traffic"
)

// What counting may cost: of streams, datagrams, and of connections that come and go.
const (
	countedLeast     = 0.95
	connectionsLeast = 0.9
	datagramMost     = 1.05
	dialsOfRound     = 20
	datagramsOfRound = 500
)

// TestNetworkTraffic measures one way between two clusters with connections that are counted by
// namespace, at both gateways, and with such that are not: what counts is how it was when they began. What
// the kernel does with a datagram on its way into the tunnel it does in the time of who sends it, which
// tells more than throughput of a machine that does something else as well.
func TestNetworkTraffic(t *testing.T) {
	netnstest.Root(t)
	lines, sides := fabricOf(t, openTunnels, "translated", 42, 42)
	plain := lines[0]
	counted := *plain
	plain.name, counted.name = "not counted", "counted"
	plain.check(t)
	var meters []*traffic.Meter
	told := make(chan traffic.Portion, 1<<10)
	for _, s := range sides {
		for _, space := range s.spaces {
			m, err := traffic.Open(traffic.Options{Namespace: space, Told: func(p traffic.Portion) {
				select {
				case told <- p:
				default:
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = m.Close() })
			meters = append(meters, m)
		}
	}
	counted.check(t)
	dials, spent := map[*line][]float64{}, map[*line][]float64{}
	b := make([]byte, 256<<10)
	order := []*line{plain, &counted}
	for round := range warmRounds + wayRounds {
		for _, l := range order {
			l.measure(t, b, round >= warmRounds)
			rate := l.connect(t, l == &counted, sides)
			work := l.spend(t, b[:datagramSize])
			if round >= warmRounds {
				dials[l], spent[l] = append(dials[l], rate), append(spent[l], work.Seconds()/datagramsOfRound)
			}
		}
		for _, m := range meters {
			if err := m.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		slices.Reverse(order)
	}
	if len(told) == 0 {
		t.Error("nothing was counted")
	}
	for _, l := range order {
		t.Logf("limit: %s: TCP %.2f Gb/s, UDP %.2f Gb/s, %.0f connections/s, %.2f µs for a datagram, p50 %s, CPU %.2f s/Gbit", l.name, median(l.tcp), median(l.udp), median(dials[l]),
			1e6*median(spent[l]), l.asked.quantile(0.5).Round(time.Microsecond), l.work.Seconds()/(wayRounds*streamPiece*8/1e9))
	}
	atLeast(t, "counted: TCP", ratio(counted.tcp, plain.tcp), countedLeast, "of not counted")
	atLeast(t, "counted: UDP", ratio(counted.udp, plain.udp), countedLeast, "of not counted")
	atMost(t, "counted: processor time of a datagram", ratio(spent[&counted], spent[plain]), datagramMost, "of not counted")
	atLeast(t, "counted: connections", ratio(dials[&counted], dials[plain]), connectionsLeast, "of not counted")
}

// connect opens and closes connections, counted or not, and returns how many a second.
func (l *line) connect(t *testing.T, counted bool, sides [2]*fabricSide) float64 {
	t.Helper()
	value := []byte("0")
	if counted {
		value = []byte("1")
	}
	for _, s := range sides {
		for _, space := range s.spaces {
			if err := netns.In(space, func() error {
				for _, name := range []string{"acct", "events"} {
					if err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_"+name, value, 0); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := time.Now()
	for range dialsOfRound {
		c, err := l.dial("tcp", requestPort)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	return dialsOfRound / time.Since(begin).Seconds()
}

// spend sends datagrams, whatever becomes of them, and returns the processor time that this took.
func (l *line) spend(t *testing.T, b []byte) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &before); err != nil {
		t.Fatal(err)
	}
	for range datagramsOfRound {
		if _, err := l.datagrams.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &after); err != nil {
		t.Fatal(err)
	}
	return time.Duration(after.Nano() - before.Nano())
}
