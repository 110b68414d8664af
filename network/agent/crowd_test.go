package agent

import (
	"fmt"
	"net"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

func TestCrowded(t *testing.T) {
	for _, c := range []struct {
		was               bool
		count, all, peers int
		want              bool
	}{
		{false, 0, 0, 1, false}, {false, 249, 249, 1, false}, {false, 250, 250, 1, true}, {false, 1000, 1000, 1, true},
		{true, 250, 250, 1, true}, {true, 201, 201, 1, true}, {true, 200, 200, 1, false}, {true, 0, 0, 1, false},
		// of ten, of which each would have 75
		{false, 75, 499, 10, false}, {false, 75, 500, 10, true}, {false, 74, 749, 10, false}, {false, 0, 750, 10, true},
		{true, 0, 601, 10, true}, {true, 60, 600, 10, false}, {true, 61, 401, 10, true}, {true, 61, 400, 10, false},
	} {
		if got := crowded(c.was, c.count, c.all, c.peers, 1000); got != c.want {
			t.Errorf("was %t, and %d of 1000, %d of all %d: %t", c.was, c.count, c.all, c.peers, got)
		}
		for _, most := range []int{0, -1} { // the kernel has no limit then, or one of more than 2^31
			if crowded(c.was, c.count, c.all, c.peers, most) {
				t.Errorf("was %t, and %d of any number, said as %d: it is full", c.was, c.count, most)
			}
		}
	}
}

// TestCrowdsOfPaths holds that direct paths have no more room than their tenant has without them: it
// says how many there are, and has both ends of each.
func TestCrowdsOfPaths(t *testing.T) {
	const rome, one, two, other = "tenant-rome", "tenant-rome.0000000000000001", "tenant-rome.0000000000000002", "tenant-rome-2"
	c := &crowds{log: logr.Discard()}
	gateways := []dataplane.Gateway{{Peering: rome}, {Peering: one}, {Peering: two}, {Peering: other}}
	c.limit(gateways)
	for _, step := range []struct {
		counts [4]int
		news   bool
		full   [4]bool
	}{
		{[4]int{100, 100, 49, 200}, false, [4]bool{}},
		{[4]int{100, 100, 50, 200}, true, [4]bool{true, true, true, false}},
		{[4]int{0, 201, 0, 200}, false, [4]bool{true, true, true, false}},
		{[4]int{0, 200, 0, 250}, true, [4]bool{false, false, false, true}},
	} {
		found := map[string]tally{}
		for i, g := range gateways {
			found[g.Peering] = tally{step.counts[i], 1000}
		}
		news := c.judge(found)
		c.limit(gateways)
		for i, g := range gateways {
			if g.Full != step.full[i] {
				t.Errorf("with %v of 1000 %s is full: %t", step.counts, g.Peering, g.Full)
			}
		}
		if news != step.news {
			t.Errorf("with %v of 1000 there is news: %t", step.counts, news)
		}
	}
}

// TestCrowdsTogether holds that however many peers begin as many connections as they can, these are never
// more than three quarters, and those with few of them begin theirs for longer.
func TestCrowdsTogether(t *testing.T) {
	const peers, hogs, most = 12, 6, 1200
	c := &crowds{log: logr.Discard()}
	var gateways []dataplane.Gateway
	for i := range peers {
		gateways = append(gateways, dataplane.Gateway{Peering: fmt.Sprintf("tenant-%d", i)})
	}
	c.limit(gateways)
	var counts [peers]int
	sum := 0
	for range 100 * most { // one connection after another
		begun := false
		for i := range gateways {
			if gateways[i].Full || i >= hogs && counts[i] >= 20 {
				continue
			}
			counts[i]++
			sum, begun = sum+1, true
			found := map[string]tally{}
			for j, g := range gateways {
				found[g.Peering] = tally{counts[j], most}
			}
			c.judge(found)
			c.limit(gateways)
		}
		if !begun {
			break
		}
	}
	if sum > most*3/4 || sum < most/2 {
		t.Errorf("there are %d of %d: %v", sum, most, counts)
	}
	for i := hogs; i < peers; i++ {
		if counts[i] < 20 {
			t.Errorf("%s has %d only: %v", gateways[i].Peering, counts[i], counts)
		}
	}
}

// TestCrowds fills the table of one of two gateways, and empties it again.
func TestCrowds(t *testing.T) {
	netnstest.Root(t)
	held := &netns.Held{}
	var places []*netnstest.Place
	for _, name := range []string{"oslo", "milan"} {
		space, err := held.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := held.Remove(name); err != nil {
				t.Error(err)
			}
		})
		p := netnstest.OpenPlace(t, name, space)
		p.Up("lo", true)
		p.Must(p.Nftables(func(c *nftables.Conn) { // which has the kernel track connections
			table := c.AddTable(&nftables.Table{Name: "track", Family: nftables.TableFamilyINet})
			chain := c.AddChain(&nftables.Chain{Name: "all", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Ct{Register: 1, Key: expr.CtKeySTATE}}})
		}))
		places = append(places, p)
	}
	told := 0
	c := &crowds{spaces: held, log: logr.Discard(), changed: func() { told++ }}
	full := func(want int, oslo bool) {
		t.Helper()
		c.look()
		gateways := []dataplane.Gateway{{Peering: "oslo"}, {Peering: "milan"}}
		c.limit(gateways)
		if told != want || gateways[0].Full != oslo || gateways[1].Full {
			t.Fatalf("told %d times, want %d; oslo is full: %t, want %t; milan: %t", told, want, gateways[0].Full, oslo, gateways[1].Full)
		}
	}
	full(0, false)
	full(0, false)
	_, most, err := c.count("oslo")
	if err != nil {
		t.Fatal(err)
	}
	places[0].In(func() error { // each socket begins connections to all ports
		for begun := 0; begun <= most/crowdFull; begun += 1<<16 - 1 {
			from, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				return err
			}
			for port := 1; port < 1<<16; port++ {
				_, _ = from.WriteTo([]byte{1}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}) // refused, as nobody listens
			}
			if err := from.Close(); err != nil {
				return err
			}
		}
		return nil
	})
	full(1, true)
	full(1, true)
	places[0].In(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	full(2, false)
}
