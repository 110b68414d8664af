package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

// cuts is what is known of the connections in a gateway's namespace that may not be any more.
type cuts struct {
	// narrowed says that there may be some that the table lets begin no more, and other that
	// there may be some that were ended and may go on.
	narrowed, other bool
	// shut are the addresses here, and at the peer, that have none any more.
	shut [2][]netip.Addr
	// line is what the Line said, if it is known.
	line  string
	lined bool
}

// applyPolicy makes a gateway's table what is wanted, and then ends the connections that may not
// be any more since the table has become narrower, or an address was shut. What a change of
// other sets keeps from beginning goes on where it has begun, over TCP; all else ends by itself (opened).
func (k *Kernel) applyPolicy(s *space, g Gateway, wanted *table) error {
	relined, err := k.writePolicy(s, g, wanted)
	if err != nil {
		s.cuts.lined = false
		return err
	}
	shut := [2][]netip.Addr{slices.Clone(g.ShutHere), slices.Clone(g.ShutThere)}
	if s.cuts.narrowed || s.cuts.other || relined || !slices.Equal(s.cuts.shut[0], shut[0]) || !slices.Equal(s.cuts.shut[1], shut[1]) {
		k.writes.Add(1)
		if err := s.end(newPassage(g), s.cuts.narrowed); err != nil {
			return err
		}
	}
	if s.cuts.narrowed {
		if err := k.applyTable(s, wanted, false); err != nil { // without the sign
			s.cuts.lined = false
			return err
		}
	}
	s.cuts = cuts{shut: shut, line: g.Line.said(), lined: true}
	return nil
}

// writePolicy makes the table what is wanted, and finds out which connections may be there that may not be
// any more. If the table has become narrower it has a sign of that until they are ended: a process
// that ends before leaves that to the next one, which finds the table as it should be.
func (k *Kernel) writePolicy(s *space, g Gateway, wanted *table) (relined bool, err error) {
	s.filter.had = nil
	is, was, left := widthOf(g, wanted.structure()), widthNone, false
	wrote, err := s.filter.apply(wanted, func(had []string) bool {
		was, left = widthOf(g, had), signed(had)
		return s.cuts.narrowed || left || is < was
	})
	if wrote {
		k.writes.Add(1)
	}
	s.cuts.narrowed = s.cuts.narrowed || left || is < was // also if it is not known whether it was written
	s.cuts.other = s.cuts.other || is > was && s.filter.had != nil
	line := g.Line.said()
	relined = s.cuts.line != line
	if !s.cuts.lined { // another process may have let some begin
		relined = line != "" || len(s.filter.had) > 0 && !slices.Equal(s.filter.had, wanted.structure())
	}
	return relined, err
}

// endingSign is a set that is in a table as long as connections are to be ended that it lets begin no more.
var endingSign = &set{name: "ending", of: portKey}

// signed says whether a table has the sign, by its structure.
func signed(lines []string) bool {
	_, is := slices.BinarySearch(lines, endingSign.text())
	return is
}

// signed is the table with the sign.
func (t *table) signed() *table {
	with := *t
	with.sets = append(slices.Clone(t.sets), endingSign)
	return &with
}

// endedMark is on connections of TCP that were ended. To forget them is not enough: what follows
// of one could pass as the middle of a connection from the other side.
const endedMark = 0x70656c61

// flows are connections to be forgotten.
type flows func(*netlink.ConntrackFlow) bool

// MatchConntrackFlow says whether a connection is one of them.
func (f flows) MatchConntrackFlow(c *netlink.ConntrackFlow) bool { return f(c) }

// end ends connections of a namespace, which has those of one peering alone, and lets those go
// on that were ended and may be again.
func (s *space) end(p passage, narrowed bool) error {
	err := netns.In(s.file, func() error {
		var failed []error
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			all, err := netns.Whole(func() ([]*netlink.ConntrackFlow, error) {
				return netlink.ConntrackTableList(netlink.ConntrackTable, family)
			})
			failed = append(failed, err)
			for _, c := range all {
				if c.Mark&mappedMask == mappedBits {
					continue // it goes with its door
				}
				if c.Mark == calledMark {
					continue // it goes with its caller
				}
				f := flowOf(c, p.gateway.Views)
				goes, mark := p.keeps(f, narrowed), uint32(0)
				switch {
				case (narrowed || c.Mark == endedMark) && p.lent(f):
					mark = calledMark
				case goes && (c.Mark == 0 || !p.keeps(f, true)), !goes && !f.tcp:
					continue
				case !goes:
					mark = endedMark
				}
				c.Mark, c.ProtoInfo = mark, nil
				if err := netlink.ConntrackUpdate(netlink.ConntrackTable, family, c); !gone(err) {
					failed = append(failed, err)
				}
			}
			_, err = netns.Whole(func() (uint, error) {
				return netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, flows(func(c *netlink.ConntrackFlow) bool {
					f := flowOf(c, p.gateway.Views)
					return c.Mark&mappedMask != mappedBits && c.Mark != calledMark && !f.tcp && !p.keeps(f, narrowed) && !p.lent(f)
				}))
			})
			failed = append(failed, err)
		}
		return errors.Join(failed...)
	})
	if err != nil {
		return fmt.Errorf("ending connections in %s: %w", s.name, err)
	}
	return nil
}

// flow is a connection that a gateway has translated, by the real addresses of both ends.
type flow struct {
	// called says that the peer has begun it; at is where it was called, in its words.
	called       bool
	ours, theirs netip.Addr
	at           netip.AddrPort
	tcp          bool
	// ported says that it is of a protocol with ports, whose marks the kernel lets us change.
	ported bool
	// from and to are the ends of its first packet, as that was, and answers is where answers come from.
	from        netip.Addr
	to, answers netip.AddrPort
}

// flowOf reads a connection: those that begin here go to a view, and their answers come from
// what that stands for.
func flowOf(c *netlink.ConntrackFlow, views []View) flow {
	from, to := addressOf(c.Forward.SrcIP), addressOf(c.Forward.DstIP)
	f := flow{called: true, ours: to, theirs: from, at: netip.AddrPortFrom(to, c.Forward.DstPort), tcp: c.Forward.Protocol == unix.IPPROTO_TCP}
	f.ported = f.tcp || c.Forward.Protocol == unix.IPPROTO_UDP
	f.from, f.to, f.answers = from, f.at, netip.AddrPortFrom(addressOf(c.Reverse.SrcIP), c.Reverse.SrcPort)
	for _, v := range views {
		if v.View.Contains(to) {
			f.called, f.ours, f.theirs = false, from, addressOf(c.Reverse.SrcIP)
			f.at = netip.AddrPortFrom(f.theirs, c.Forward.DstPort)
		}
	}
	return f
}

// passage is what a gateway lets pass.
type passage struct {
	gateway             Gateway
	here, there         map[netip.Addr]bool
	callers, open       map[netip.Addr]bool
	shutHere, shutThere map[netip.Addr]bool
}

func newPassage(g Gateway) passage {
	of := func(list []netip.Addr) map[netip.Addr]bool {
		all := map[netip.Addr]bool{}
		for _, a := range list {
			all[a] = true
		}
		return all
	}
	return passage{gateway: g, here: of(g.Here), there: of(g.There), shutHere: of(g.ShutHere), shutThere: of(g.ShutThere), callers: of(g.Callers), open: of(g.Open)}
}

// keeps says whether a connection goes on: with narrowed if the rules would let it begin,
// else unless an end of it is shut.
func (p passage) keeps(f flow, narrowed bool) bool {
	g := p.gateway
	if is, goes := p.line(f); is {
		return goes
	}
	switch {
	case p.probe(f) || p.door(f):
		return true
	case p.shutFlow(f):
		return false
	case !narrowed:
		return true
	case g.Closed:
		return false
	case !g.Limited && !containedIn(g.Transit, f.ours):
		return true
	case f.called:
		return p.here[f.ours] && (!g.FromThere || p.there[f.theirs])
	}
	return p.there[f.theirs] && (!g.FromHere || p.here[f.ours])
}

// probe says whether it is between the two ends of the tunnel themselves.
func (p passage) probe(f flow) bool {
	at, _ := p.gateway.ends(f.ours.Is4())
	return at.IsValid() && (f.ours == at || f.theirs == at)
}

// door says whether it goes through a door of either side.
func (p passage) door(f flow) bool {
	if !f.tcp {
		return false
	}
	if !f.called {
		return slices.Contains(p.gateway.Calls, f.at) && p.here[f.ours]
	}
	return slices.ContainsFunc(p.gateway.Doors, func(d Door) bool { return d.At == f.at })
}

// shutFlow says whether one of its ends is shut: there and here may have the same addresses.
func (p passage) shutFlow(f flow) bool {
	return p.shutHere[f.ours] || p.shutThere[f.theirs]
}

func containedIn(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

func addressOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
