package bench

import (
	"slices"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// What the product promises of its paths, as parts of what a path by hand with the same
// hops carries and takes, and what translation may cost.
const (
	pathLeast      = 0.95
	pathMost       = 1.1
	translatedMost = 1.03
	streamSpan     = time.Second
	datagramSpan   = 500 * time.Millisecond
	wayRounds      = 7
)

// line is a way from a client to a server.
type line struct {
	name   string
	from   *netnstest.Place
	server *server
	at     string // the server's address as the client calls it
	// of each round
	tcp, udp, work []float64
	p50, p99       sample
}

// TestNetwork measures ways between namespaces of this machine, in turn: node to node, a
// bare tunnel, a path made by hand with the hops that ours has and nothing else, and ours, with
// and without translation, on the gateways' nodes and off them. All tunnels are in this process.
func TestNetwork(t *testing.T) {
	netnstest.Root(t)
	var lines []*line
	lines = append(lines, byHand(t)...)
	lines = append(lines, fabric(t, "as is", 42, 43)...)
	lines = append(lines, fabric(t, "translated", 42, 42)...)
	for _, l := range lines {
		l.check(t)
	}
	for round := range wayRounds + 1 {
		for i := range lines {
			l := lines[(i+round)%len(lines)]
			l.measure(t, round > 0)
		}
	}
	t.Logf("%-22s %8s %8s %10s %10s %10s", "way", "TCP Gb/s", "UDP Gb/s", "CPU s/Gbit", "p50", "p99")
	for _, l := range lines {
		t.Logf("limit: %-22s %8.2f %8.2f %10.2f %10s %10s", l.name, median(l.tcp), median(l.udp), median(l.work),
			l.p50.quantile(0.5).Round(time.Microsecond), l.p99.quantile(0.5).Round(time.Microsecond))
	}
	of := func(name string) *line {
		return lines[slices.IndexFunc(lines, func(l *line) bool { return l.name == name })]
	}
	for _, where := range []string{"on the gateway", "off the gateway"} {
		hand := of("by hand, " + where)
		for _, how := range []string{"as is", "translated"} {
			l := of(how + ", " + where)
			t.Logf("limit: %s: TCP %.2f of node to node, %.2f of the bare tunnel", l.name, ratio(l.tcp, of("node to node").tcp), ratio(l.tcp, of("bare tunnel").tcp))
			atLeast(t, l.name+": TCP", ratio(l.tcp, hand.tcp), pathLeast, "of by hand")
			atLeast(t, l.name+": UDP", ratio(l.udp, hand.udp), pathLeast, "of by hand")
			atMost(t, l.name+": p50 of a request", ratio(seconds(l.p50), seconds(hand.p50)), pathMost, "of by hand")
		}
		atMost(t, "translation, "+where, 1/ratio(of("translated, "+where).tcp, of("as is, "+where).tcp), translatedMost, "of as is")
	}
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
	var err error
	netnstest.Await(t, l.name+" carries a request", netnstest.Patience, func() bool {
		_, err = l.requests(1)
		return err == nil
	})
	t.Logf("%s: from %s to %s", l.name, l.from.Name, l.at)
}

// measure takes one round.
func (l *line) measure(t *testing.T, counts bool) {
	t.Helper()
	each, err := l.requests(200)
	before := busy(t)
	tcp, err2 := l.stream(streamSpan)
	work := (busy(t) - before).Seconds() / (tcp * streamSpan.Seconds())
	udp, err3 := l.datagrams(datagramSpan) // last: what is queued then is lost
	for _, err := range []error{err, err2, err3} {
		if err != nil {
			t.Fatalf("%s: %v", l.name, err)
		}
	}
	if counts {
		l.tcp, l.udp, l.work = append(l.tcp, tcp), append(l.udp, udp), append(l.work, work)
		l.p50, l.p99 = append(l.p50, each.quantile(0.5)), append(l.p99, each.quantile(0.99))
	}
}
