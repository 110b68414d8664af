package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netns"
)

// What the connections of one peering's gateway, and those of its direct paths, may take together of the table
// that the node has for all of them, in which each has an entry too. A peer whose own pods answer could fill it with
// connections that stay, several could together, and nothing else on the node would begin any.
const (
	// crowdEvery is how often they are counted.
	crowdEvery = time.Second
	// crowdFull of the table's parts is when none begins any more from the peer, and crowdRoom when
	// they do again.
	crowdFull, crowdRoom = 4, 5
	// crowdAll are the parts of crowdFull that all peers may take together, and crowdHalf those from which
	// on none begins any more from peers with as much as each would have of crowdAll.
	crowdAll, crowdHalf = 3, 2
)

// crowds says which gateways here have as many connections as they may.
type crowds struct {
	spaces dataplane.Namespaces
	log    logr.Logger
	// changed is called when that is another one.
	changed func()

	mu       sync.Mutex
	gateways map[string]bool // whether they are full
}

// limit takes which gateways there are, and has those let none begin that are full.
func (c *crowds) limit(gateways []dataplane.Gateway) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := make(map[string]bool, len(gateways))
	for i := range gateways {
		g := &gateways[i]
		now[g.Peering] = c.gateways[g.Peering]
		g.Full = now[g.Peering]
	}
	c.gateways = now
}

// watch counts until ctx ends.
func (c *crowds) watch(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, crowdEvery) {
		c.look()
	}
}

// look counts the connections of each gateway.
func (c *crowds) look() {
	c.mu.Lock()
	var names []string
	for name := range c.gateways {
		names = append(names, name)
	}
	c.mu.Unlock()
	found := map[string]tally{}
	for _, name := range names {
		count, most, err := c.count(name)
		if err != nil { // it is not there yet, or not any more
			c.log.V(1).Info("connections cannot be counted", "peering", name, "error", err.Error())
			continue
		}
		found[name] = tally{count, most}
	}
	if c.judge(found) {
		c.changed()
	}
}

// tally is how many connections a gateway has, and the most that the node may have in each, 0 without a limit.
type tally struct{ count, most int }

// judge says which gateways are full, by what was counted, and reports whether those are others now.
func (c *crowds) judge(found map[string]tally) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts, all := map[string]int{}, 0
	for name, t := range found {
		counts[payer(name)] += t.count
		all += t.count
	}
	for name, t := range found {
		count := counts[payer(name)]
		was, is := c.gateways[name]
		if full := crowded(was, count, all, len(counts), t.most); is && full != was {
			c.gateways[name], news = full, true
			c.log.Info("a gateway's connections", "peering", name, "tracked", count, "of at most", t.most/crowdFull,
				"of all peers", all, "of at most together", crowdAll*t.most/crowdFull, "more may begin", !full)
		}
	}
	return news
}

// payer is whose connections those of a gateway are: of a direct path they are its consumer's, who may have
// many, and both ends of each.
func payer(gateway string) string {
	peering, _, _ := strings.Cut(gateway, ".")
	return peering
}

// crowded says whether no more connections may begin, by whether that was so, how many there are, and how
// many all peers have. Where the node has no limit, 0 of the kernel's, no share of it can be full.
func crowded(was bool, count, all, peers, most int) bool {
	if most <= 0 {
		return false
	}
	if was { // until it is less by a while
		count, all, most = count-1, all-1, most*crowdFull/crowdRoom
	}
	quarter := most / crowdFull
	return count >= quarter || all >= crowdAll*quarter || all >= crowdHalf*quarter && count >= crowdAll*quarter/peers
}

// count reads how many connections are tracked in a gateway's namespace, and how many the node may
// have in each.
func (c *crowds) count(gateway string) (count, most int, err error) {
	space, err := c.spaces.Open(gateway)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = space.Close() }()
	err = netns.In(space, func() (err error) {
		if count, err = number("nf_conntrack_count"); err != nil {
			return err
		}
		most, err = number("nf_conntrack_max")
		return err
	})
	return count, most, err
}

func number(name string) (int, error) {
	text, err := os.ReadFile(filepath.Join("/proc/sys/net/netfilter", name))
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", name, err)
	}
	return n, nil
}
