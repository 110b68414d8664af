package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// hop is rome between milan, which offloads to it, and oslo, to which it offloads: milan's pod runs
// at oslo, called, and another one of rome's own beside it, lodger. All addresses are the same.
type hop struct {
	*chained
	lodger                           *netnstest.Place
	atMilan, toMilan, toOslo, atOslo *Peering
}

func newHop(t *testing.T) *hop {
	t.Helper()
	w := &hop{chained: newChain(t, newWorldAs(t, Provider, Consumer))}
	w.caller, w.called, w.lodger = w.milan.Nodes[0].Pod, w.oslo.Nodes[1].Pod, w.oslo.Nodes[0].Pod
	w.atMilan, w.toMilan, w.toOslo, w.atOslo = &w.milan.in.Peerings[0], &w.rome.in.Peerings[0], &w.rome.in.Peerings[1], &w.oslo.in.Peerings[0]
	w.toOslo.Parties = []dataplane.Party{{Ranges: w.toOslo.Transit}}
	for _, v4 := range netnstest.Families {
		w.hosts(t, own(1, 5, v4), true)
		w.serves(t, own(0, 5, v4))
		w.toOslo.There, w.atOslo.Here = append(w.toOslo.There, own(0, 5, v4)), append(w.atOslo.Here, own(0, 5, v4)) // lodger
		w.toOslo.Here, w.atOslo.There = append(w.toOslo.Here, own(0, 5, v4)), append(w.atOslo.There, own(0, 5, v4)) // what rome's own Services have at rome
	}
	w.begin(t)
	return w
}

// hosts says to all gateways on the way that a pod at oslo is milan's.
func (w *hop) hosts(t *testing.T, pod netip.Addr, party bool) {
	t.Helper()
	w.each(t, true, pod)(w.atMilan, w.toMilan, w.toOslo, w.atOslo)
	if party {
		w.toOslo.Parties[0].There = append(w.toOslo.Parties[0].There, pod)
	}
}

// serves says to all that milan's Services have a pod of milan.
func (w *hop) serves(t *testing.T, pod netip.Addr) {
	t.Helper()
	w.each(t, false, pod)(w.atMilan, w.toMilan, w.toOslo, w.atOslo)
}

// each is how gateways are told of a pod, of oslo's or of milan's.
func (w *hop) each(t *testing.T, atOslo bool, pod netip.Addr) func(...*Peering) {
	t.Helper()
	key := "milan"
	if atOslo {
		key = w.key
	}
	seen := w.at(t, key, pod)
	return func(gates ...*Peering) {
		for _, p := range gates {
			switch {
			case p == w.atMilan && atOslo, p == w.atOslo && !atOslo:
				p.There = append(slices.Clone(p.There), seen)
			case p == w.toMilan && atOslo, p == w.toOslo && !atOslo:
				p.Here = append(slices.Clone(p.Here), seen)
			case p == w.toMilan, p == w.toOslo:
				p.There = append(slices.Clone(p.There), pod)
			default:
				p.Here = append(slices.Clone(p.Here), pod)
			}
		}
	}
}

// seenAt is by which address milan sees a pod of oslo's, and seenBack the other way round.
func (w *hop) seenAt(t *testing.T, i, last int, v4 bool) netip.Addr {
	t.Helper()
	return w.milan.seen(t, w.at(t, w.key, own(i, last, v4)))
}

func (w *hop) seenBack(t *testing.T, i, last int, v4 bool) netip.Addr {
	t.Helper()
	return w.oslo.seen(t, w.at(t, "milan", own(i, last, v4)))
}

func (w *hop) apply(t *testing.T) {
	t.Helper()
	for _, s := range []*side{w.rome, w.milan, w.oslo} {
		s.apply(t)
	}
}

// TestHop lets milan's pods and one of its that rome has had run at oslo speak with each other through rome, and
// nobody else.
func TestHop(t *testing.T) {
	t.Parallel()
	w := newHop(t)
	reaches := func(t *testing.T) {
		t.Helper()
		for _, v4 := range netnstest.Families {
			w.seen(t, w.caller, w.seenAt(t, 1, 5, v4), w.seenBack(t, 0, 5, v4))
			w.seen(t, w.called, w.seenBack(t, 0, 5, v4), w.seenAt(t, 1, 5, v4))
		}
	}
	t.Run("they reach each other, and see who calls", func(t *testing.T) { reaches(t) })
	t.Run("much goes through, and large packets", func(t *testing.T) {
		for _, v4 := range netnstest.Families {
			w.transfer(t, w.seenAt(t, 1, 5, v4))
			if err := w.caller.Ping(own(0, 5, v4), w.seenAt(t, 1, 5, v4), 9000, netnstest.Patience); err != nil {
				t.Errorf("a packet larger than any MTU: %v", err)
			}
		}
	})
	t.Run("neither has ever an address of the other", func(t *testing.T) { w.opaque(t) })
	t.Run("rome's own pods go on as if there were no others", func(t *testing.T) {
		for _, v4 := range netnstest.Families {
			w.seen(t, w.rome.Nodes[0].Pod, w.at(t, w.key, own(0, 5, v4)), w.oslo.seen(t, own(0, 5, v4)))
			w.seen(t, w.lodger, w.oslo.seen(t, own(0, 5, v4)), w.at(t, w.key, own(0, 5, v4)))
		}
	})
	for _, c := range w.forbidden(t) {
		t.Run(c.reason, func(t *testing.T) { w.held(t, c) })
	}
	t.Run("all is as it was", func(t *testing.T) { reaches(t) })
	t.Run("it ends when rome lets nothing through any more", func(t *testing.T) {
		w.toMilan.Transit = nil
		w.rome.apply(t)
		for _, v4 := range netnstest.Families {
			w.silent(t, "no transit", w.caller, w.seenAt(t, 1, 5, v4))
		}
	})
}

// opaque holds that gateways of milan and oslo have seen no addresses but their own, those of rome's numbering, and
// by which they see these.
func (w *hop) opaque(t *testing.T) {
	t.Helper()
	for _, of := range []struct {
		side *side
		may  func(v4 bool) []netip.Addr
	}{
		{w.milan, func(v4 bool) []netip.Addr {
			return []netip.Addr{own(0, 5, v4), w.at(t, w.key, own(1, 5, v4)), w.seenAt(t, 1, 5, v4)}
		}},
		{w.oslo, func(v4 bool) []netip.Addr {
			return []netip.Addr{own(1, 5, v4), w.at(t, "milan", own(0, 5, v4)), w.seenBack(t, 0, 5, v4)}
		}},
	} {
		for _, v4 := range netnstest.Families {
			got, want := of.side.spoken(t, v4), of.may(v4)
			slices.SortFunc(want, netip.Addr.Compare)
			if want = slices.Compact(want); !slices.Equal(got, want) {
				t.Errorf("%s has seen %v, want %v", of.side.Name, got, want)
			}
		}
	}
}

// spoken are the addresses of all TCP connections in the namespaces of a side's gateways, in order.
func (s *side) spoken(t *testing.T, v4 bool) (all []netip.Addr) {
	t.Helper()
	family := netlink.InetFamily(unix.AF_INET6)
	if v4 {
		family = unix.AF_INET
	}
	for _, a := range s.agents {
		for _, r := range a.running {
			if err := netns.In(r.space, func() error {
				flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
				for _, f := range flows {
					if f.Forward.Protocol != unix.IPPROTO_TCP {
						continue
					}
					for _, ip := range [][]byte{f.Forward.SrcIP, f.Forward.DstIP, f.Reverse.SrcIP, f.Reverse.DstIP} {
						a, _ := netip.AddrFromSlice(ip)
						all = append(all, a.Unmap())
					}
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// wish is a connection that must not be. Each of the gates alone keeps it from being, and with all of them
// open it would be.
type wish struct {
	reason string
	from   *netnstest.Place
	to     func(v4 bool) netip.Addr
	gates  []gate
}

// gate is a gateway, and how it would let the connection pass.
type gate struct {
	name string
	open func()
}

func (w *hop) forbidden(t *testing.T) []wish {
	both := func(of func(v4 bool) func(...*Peering), gates ...*Peering) func() {
		return func() {
			for _, v4 := range netnstest.Families {
				of(v4)(gates...)
			}
		}
	}
	noParties := func() { w.toOslo.Parties = nil }
	// A pod of oslo's, or of milan's, that nobody was told of: each gateway on the way would have to be.
	unknown := func(atOslo bool, i, last int) []gate {
		of := func(v4 bool) func(...*Peering) { return w.each(t, atOslo, own(i, last, v4)) }
		return []gate{
			{"milan's", both(of, w.atMilan)}, {"rome's to milan", both(of, w.toMilan)}, {"oslo's", both(of, w.atOslo)},
			{"rome's to oslo", func() { both(of, w.toOslo)(); noParties() }},
		}
	}
	alsoFromRome := func(p *Peering, there bool, addr func(v4 bool) netip.Addr) func() {
		return func() {
			for _, v4 := range netnstest.Families {
				if there {
					p.There = append(slices.Clone(p.There), addr(v4))
				} else {
					p.Here = append(slices.Clone(p.Here), addr(v4))
				}
			}
		}
	}
	romes := func(v4 bool) netip.Addr { return own(0, 5, v4) }
	lodger := func(v4 bool) netip.Addr { return w.at(t, w.key, own(0, 5, v4)) }
	return []wish{
		{"milan does not reach oslo's own", w.caller, func(v4 bool) netip.Addr { return w.seenAt(t, 1, 6, v4) }, unknown(true, 1, 6)},
		{"oslo's own do not reach milan", w.oslo.Nodes[1].Other, func(v4 bool) netip.Addr { return w.seenBack(t, 0, 5, v4) }, unknown(true, 1, 6)},
		{"milan's pod at oslo does not reach what milan does not serve", w.called, func(v4 bool) netip.Addr { return w.seenBack(t, 0, 6, v4) }, unknown(false, 0, 6)},
		{"rome's own do not reach milan", w.rome.Nodes[0].Pod, func(v4 bool) netip.Addr { return w.at(t, "milan", own(0, 5, v4)) }, []gate{
			{"rome's", alsoFromRome(w.toMilan, false, romes)}, {"milan's", alsoFromRome(w.atMilan, true, romes)}}},
		{"rome's own at oslo do not reach milan", w.lodger, func(v4 bool) netip.Addr { return w.seenBack(t, 0, 5, v4) }, []gate{
			{"rome's to oslo", noParties}, {"rome's to milan", alsoFromRome(w.toMilan, false, lodger)}, {"milan's", alsoFromRome(w.atMilan, true, lodger)}}},
		{"milan does not reach rome's own at oslo", w.caller, func(v4 bool) netip.Addr { return w.seenAt(t, 0, 5, v4) }, []gate{
			{"milan's", alsoFromRome(w.atMilan, true, lodger)}, {"rome's to milan", alsoFromRome(w.toMilan, false, lodger)}, {"rome's to oslo", noParties}}},
		{"rome's own do not reach milan's pod at oslo", w.rome.Nodes[0].Pod, func(v4 bool) netip.Addr { return w.at(t, w.key, own(1, 5, v4)) }, []gate{{"rome's to oslo", noParties}}},
		{"milan's pod at oslo does not reach what rome serves its own", w.called, func(v4 bool) netip.Addr { return w.oslo.seen(t, own(0, 5, v4)) }, []gate{{"rome's to oslo", noParties}}},
	}
}

// held opens all gates but one, each in turn, and then all.
func (w *hop) held(t *testing.T, c wish) {
	t.Helper()
	gates := []*Peering{w.atMilan, w.toMilan, w.toOslo, w.atOslo}
	for by := range len(c.gates) + 1 {
		var before []Peering
		for _, p := range gates {
			before = append(before, *p)
		}
		for i, g := range c.gates {
			if i != by {
				g.open()
			}
		}
		w.apply(t)
		for _, v4 := range netnstest.Families {
			if by < len(c.gates) {
				w.silent(t, fmt.Sprintf("only %s gateway is shut", c.gates[by].name), c.from, c.to(v4))
			} else if conn, _, err := c.from.Dial(c.to(v4), netnstest.Patience); err != nil {
				t.Errorf("%s does not reach %s when nobody keeps it from it: %v", c.from.Name, c.to(v4), err)
			} else {
				_ = conn.Close()
			}
		}
		for i, p := range gates {
			*p = before[i]
		}
	}
	w.apply(t)
	for _, v4 := range netnstest.Families {
		w.silent(t, "all are shut", c.from, c.to(v4))
	}
}

// silent holds that a connection does not begin.
func (w *hop) silent(t *testing.T, why string, from *netnstest.Place, to netip.Addr) {
	t.Helper()
	if c, _, err := from.Dial(to, netnstest.Silence); err == nil {
		_ = c.Close()
		t.Errorf("%s: %s reaches %s", why, from.Name, to)
	}
}
