package bench

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/plan"
)

// What the product promises of its paths, as parts of what a path by hand with the same
// hops carries and takes, and what translation may cost.
const (
	pathLeast      = 0.95
	pathMost       = 1.1
	translatedMost = 1.03
	// wayRounds are measured, after some that warm up.
	wayRounds   = 120
	warmRounds  = 10
	asksOfRound = 20
	// undisturbed is the quantile of windows and requests that little else has slowed down, even on a
	// busy machine: what they take is the path's own work, and tells one path from another.
	undisturbed = 0.1
)

// line is a way from a client to a server.
type line struct {
	name   string
	from   *netnstest.Place
	server *server
	at     string // the server's address as the client calls it
	clients
	// of each round
	tcp, udp []float64
	p50      sample
	// of all
	asked, windows sample
	work           time.Duration
	lost           int
}

// TestNetwork measures ways between namespaces of this machine, in turn: node to node, a
// bare tunnel, a path made by hand with the hops that ours has and nothing else, and ours, with
// and without translation, on the gateways' nodes and off them. Each end of a tunnel is a process of its own, as on
// the machines of two clusters: by hand one that does what the library's own program does, ours as an agent does.
// A round takes each way a few tens of milliseconds, forward and backward in turn, and ratios are
// medians of those of the rounds: what the machine does meanwhile falls on both sides of them. The
// path by hand is there twice: how its two differ is how far to trust the rest.
func TestNetwork(t *testing.T) {
	netnstest.Root(t)
	lines := byHand(t)
	for _, name := range []string{handOn, handOff} {
		again := *named(lines, name)
		again.name += again1
		lines = append(lines, &again)
	}
	apart := func(t *testing.T, s *fabricSide, n *netnstest.Node, tunnels []plan.Tunnel, spaces []*os.File) {
		openApart(t, s, n, tunnels, spaces)
	}
	lines = append(lines, fabric(t, apart, "as is", 42, 43)...)
	lines = append(lines, fabric(t, apart, "translated", 42, 42)...)
	// What is compared is neighbours.
	slices.SortStableFunc(lines, func(a, b *line) int { return cmp.Compare(a.place(), b.place()) })
	for _, l := range lines {
		l.check(t)
	}
	b := make([]byte, 256<<10)
	for round := range warmRounds + wayRounds {
		for _, l := range lines {
			l.measure(t, b, round >= warmRounds)
		}
		slices.Reverse(lines)
	}
	t.Logf("%-30s %8s %8s %6s %10s %10s %10s", "way", "TCP Gb/s", "UDP Gb/s", "lost", "CPU s/Gbit", "p50", "p99")
	for _, l := range lines {
		t.Logf("limit: %-30s %8.2f %8.2f %5.1f%% %10.2f %10s %10s", l.name, median(l.tcp), median(l.udp),
			100*float64(l.lost)/(wayRounds*burstWindow*burstWindows), l.work.Seconds()/(wayRounds*streamPiece*8/1e9),
			l.asked.quantile(0.5).Round(time.Microsecond), l.asked.quantile(0.99).Round(time.Microsecond))
	}
	for _, where := range []string{"on the gateway", "off the gateway"} {
		hand := named(lines, "by hand, "+where)
		again := named(lines, "by hand, "+where+again1)
		t.Logf("limit: by hand, %s, of itself: TCP %.2f, UDP %.2f, p50 %.2f", where,
			ratio(again.tcp, hand.tcp), ratio(again.udp, hand.udp), ratio(seconds(again.p50), seconds(hand.p50)))
		for _, how := range []string{"as is", "translated"} {
			l := named(lines, how+", "+where)
			t.Logf("limit: %s: TCP %.2f of node to node, %.2f of the bare tunnel", l.name,
				ratio(l.tcp, named(lines, "node to node").tcp), ratio(l.tcp, named(lines, "bare tunnel").tcp))
			atLeast(t, l.name+": TCP", ratio(l.tcp, hand.tcp), pathLeast, "of by hand")
			atLeast(t, l.name+": UDP", ratio(l.udp, hand.udp), pathLeast, "of by hand")
			atMost(t, l.name+": p50 of a request", ratio(seconds(l.p50), seconds(hand.p50)), pathMost, "of by hand")
			t.Logf("limit: %s, undisturbed: UDP %.2f of by hand, a request %.2f", l.name,
				hand.windows.quantile(undisturbed).Seconds()/l.windows.quantile(undisturbed).Seconds(),
				l.asked.quantile(undisturbed).Seconds()/hand.asked.quantile(undisturbed).Seconds())
		}
		atMost(t, "translation, "+where, 1/ratio(named(lines, "translated, "+where).tcp, named(lines, "as is, "+where).tcp), translatedMost, "of as is")
	}
}

// The paths by hand, and what the second of each is called.
const (
	handOn  = "by hand, on the gateway"
	handOff = "by hand, off the gateway"
	again1  = ", again"
)

func named(lines []*line, name string) *line {
	return lines[slices.IndexFunc(lines, func(l *line) bool { return l.name == name })]
}

// place has ways of the same hops beside each other.
func (l *line) place() int {
	switch {
	case strings.Contains(l.name, "on the gateway"):
		return 1
	case strings.Contains(l.name, "off the gateway"):
		return 2
	}
	return 0
}

// ratio is the median of the rounds' ratios: what disturbs a round disturbs both of it.
func ratio(a, b []float64) float64 {
	each := make([]float64, len(a))
	for i := range a {
		each[i] = a[i] / b[i]
	}
	return median(each)
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

func seconds(s sample) []float64 {
	each := make([]float64, len(s))
	for i, d := range s {
		each[i] = d.Seconds()
	}
	return each
}

// check waits until the way carries anything.
func (l *line) check(t *testing.T) {
	t.Helper()
	netnstest.Await(t, l.name+" carries a request", netnstest.Patience, func() bool {
		if l.call() != nil {
			return false
		}
		_, err := l.ask(1)
		if err != nil {
			l.hang()
		}
		return err == nil
	})
	t.Cleanup(l.hang)
	t.Logf("%s: from %s to %s", l.name, l.from.Name, l.at)
}

// measure takes one round.
func (l *line) measure(t *testing.T, b []byte, counts bool) {
	t.Helper()
	asked, err := l.ask(asksOfRound)
	before := busy(t)
	tcp, err2 := l.piece(b)
	work := busy(t) - before
	udp, lost, err3 := l.burst(b[:datagramSize])
	for _, err := range []error{err, err2, err3} {
		if err != nil {
			t.Fatalf("%s: %v", l.name, err)
		}
	}
	if counts {
		l.tcp, l.udp, l.p50 = append(l.tcp, tcp), append(l.udp, udp), append(l.p50, asked.quantile(0.5))
		l.asked, l.work, l.lost = append(l.asked, asked...), l.work+work, l.lost+lost
	}
}
