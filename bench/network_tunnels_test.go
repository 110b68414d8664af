package bench

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// severalMost is how much faster several tunnels may be before they are worth having.
const severalMost = 1.1

// TestTunnels measures whether a peering is faster with several tunnels: eight streams between two
// nodes through one tunnel, and spread over two and four of them, in turn. One tunnel in
// userspace has a reader for each of its ends and workers for the cipher on all cores; how many of
// these it keeps busy is how much several could gain.
func TestTunnels(t *testing.T) {
	netnstest.Root(t)
	const (
		most    = 4
		streams = 8
		rounds  = 60
	)
	world := newInternet(t)
	sides := [2]*handSide{newHandSide(t, world, "one", 42, most), newHandSide(t, world, "other", 43, most)}
	for i, s := range sides {
		for k := range most {
			name := fmt.Sprintf("t%d", k)
			s.bare(t, sides[1-i], s.Nodes[0].Place, name, 7001+k, k)
			s.Nodes[0].Address(name, fmt.Sprintf("10.99.%d.%d/24", k, i+1))
		}
	}
	server := newServer(t, sides[1].Nodes[0].Place)
	type way struct {
		tunnels int
		lines   []*line
		rates   []float64
		work    time.Duration
		took    time.Duration
	}
	var ways []*way
	for _, n := range []int{1, 2, most} {
		w := &way{tunnels: n}
		for i := range streams {
			l := &line{name: fmt.Sprintf("stream %d of %d tunnels", i, n), from: sides[0].Nodes[0].Place, server: server, at: fmt.Sprintf("10.99.%d.2", i%n)}
			l.check(t)
			w.lines = append(w.lines, l)
		}
		ways = append(ways, w)
	}
	for round := range warmRounds + rounds {
		for at := range ways {
			w := ways[(at+round)%len(ways)] // whoever is first has the machine as the last one left it
			var group errgroup.Group
			began, before := time.Now(), busy(t)
			for _, l := range w.lines {
				group.Go(func() error {
					_, err := l.piece(make([]byte, 256<<10))
					return err
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatalf("%d tunnels: %v", w.tunnels, err)
			}
			took, work := time.Since(began), busy(t)-before
			if round >= warmRounds {
				w.rates = append(w.rates, streams*streamPiece*8/took.Seconds()/1e9)
				w.work, w.took = w.work+work, w.took+took
			}
		}
	}
	for _, w := range ways {
		t.Logf("limit: %d streams through %d tunnels: %.2f Gbit/s, %.2f of one tunnel, %.2f cores busy, %.2f s of a core for a Gbit", streams, w.tunnels, median(w.rates),
			ratio(w.rates, ways[0].rates), w.work.Seconds()/w.took.Seconds(), w.work.Seconds()/(rounds*streams*streamPiece*8/1e9))
		if w.tunnels == 1 {
			continue
		}
		atMost(t, fmt.Sprintf("%d tunnels for a peering, which has one as long as this holds", w.tunnels), ratio(w.rates, ways[0].rates), severalMost, "of one")
	}
}
