package plan

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// forge says what is in the middle of a connection to a pod that may not be called, and ends before it is there; then an
// answer to that, which no pod gave, so that tracking takes the connection for one that stands; and then begins it.
func (c *campaign) forge(t *testing.T) {
	from, to := c.peering().There[0], own(0, 6, true)
	seen, ok := c.victim.table.View(c.of, from)
	if !ok {
		t.Fatalf("%s has no view of %s", c.victim.Name, from)
	}
	c.next++
	id := c.next
	port := uint16(firstPort + id)
	c.out <- netnstest.Packet{From: from, To: to, TTL: 2}.TCP(port, netnstest.Port, netnstest.ACK, 7, 7, nil).Bytes()
	c.wall(t)
	c.out <- netnstest.Packet{From: to, To: seen}.TCP(netnstest.Port, port, netnstest.ACK, 7, 8, nil).Bytes()
	c.wall(t)
	c.out <- netnstest.Packet{From: from, To: to}.TCP(port, netnstest.Port, netnstest.SYN, 7, 0, markerOf(id)).Bytes()
	c.wall(t)
	if places := c.ears.at(id); len(places) > 0 || c.opened(id) {
		t.Errorf("what begins a connection with a pod that may not be called arrived at %v; accepted: %t", places, c.opened(id))
	}
}

// forgeAnswers says something to the pod that may be called, from the number of one here that may not and of a node, and then
// forges its answer: what that undoes are translations, so it would be for who has the number here.
func (c *campaign) forgeAnswers(t *testing.T, s *side) {
	p := c.peering()
	there := p.There
	defer func() {
		p.There = there
		s.apply(t)
	}()
	for _, v4 := range netnstest.Families {
		p.There = append(slices.Clip(p.There), own(0, 6, v4), own(0, 1, v4))
	}
	s.apply(t)
	for _, v4 := range netnstest.Families {
		for _, from := range []netip.Addr{own(0, 6, v4), own(0, 1, v4)} {
			to := own(1, 6, v4)
			seen, ok := s.table.View(c.of, from)
			if !ok {
				t.Fatalf("%s has no view of %s", s.Name, from)
			}
			c.next++
			said, port := c.next, uint16(firstPort+c.next)
			c.out <- netnstest.Packet{From: from, To: to}.UDP(port, netnstest.Port, markerOf(said)).Bytes()
			netnstest.Await(t, "what is said arrives", netnstest.Patience, func() bool { return len(c.ears.at(said)) > 0 })
			c.wall(t)
			c.next++
			c.out <- netnstest.Packet{From: to, To: seen}.UDP(netnstest.Port, port, markerOf(c.next)).Bytes()
			id := c.next
			c.wall(t)
			if places := c.ears.at(id); len(places) > 0 {
				t.Errorf("a forged answer to %s arrived at %v", from, places)
			}
		}
	}
}
