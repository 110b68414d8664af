package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// gatewayState is what the config wants of a gateway's namespace. Without its tunnel's
// device the routes by it cannot be there; the rest is the same, so that nothing that was
// meant for the tunnel goes back to the host.
func gatewayState(c Config, g Gateway, tunnelThere bool) state {
	s := state{settings: []setting{
		{"ipv4/ip_forward", "1"},
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
		{"ipv4/conf/" + insideName + "/rp_filter", "0"},
		// Without this the kernel looks for the way back of every packet all the same, where
		// there are rules. What sources may be, our table says.
		{"ipv4/conf/" + insideName + "/accept_local", "1"},
		{"netfilter/nf_conntrack_tcp_be_liberal", "1"},
		{"netfilter/nf_conntrack_tcp_loose", "1"},
	}}
	if usesIPv6(c) {
		s.settings = append(s.settings, setting{"ipv6/conf/all/forwarding", "1"},
			setting{"ipv6/conf/" + insideName + "/disable_ipv6", "0"},
			setting{"ipv6/conf/" + insideName + "/addr_gen_mode", "1"},
			setting{"ipv6/conf/" + insideName + "/accept_ra", "0"})
	}
	if tunnelThere {
		s.settings = append(s.settings, setting{"ipv4/conf/" + g.Tunnel + "/rp_filter", "0"}, setting{"ipv4/conf/" + g.Tunnel + "/accept_local", "1"})
	}
	for _, v4 := range families {
		at, peer := g.ends(v4)
		if !at.IsValid() || !v4 && !g.Line.of(v4) {
			continue
		}
		s.addresses = append(s.addresses, address{insideName, single(at)})
		if tunnelThere {
			s.routes = append(s.routes, route{prefix: single(peer), table: mainTable, device: g.Tunnel, source: at})
		}
	}
	for _, v4 := range families {
		if !v4 && !usesIPv6(c) {
			continue
		}
		s.settings = append(s.settings, setting{familyName(v4) + "/fwmark_reflect", "1"})
		s.addresses = append(s.addresses, address{insideName, single(errorSource(v4))})
		s.neighbours = append(s.neighbours, neighbour{insideName, hostEnd(v4), hostHardware(g)})
		s.routes = append(s.routes,
			route{prefix: everything(v4), table: mainTable, device: insideName, via: hostEnd(v4)},
			route{prefix: everything(v4), table: tunnelTable, metric: lastMetric})
		if tunnelThere {
			s.routes = append(s.routes, route{prefix: everything(v4), table: tunnelTable, device: g.Tunnel})
		}
		s.rules = append(s.rules, rule{v4: v4, priority: insideRules, table: tunnelTable, device: insideName},
			rule{v4: v4, priority: answerRules, table: tunnelTable, mark: answerMark, device: itselfName})
	}
	s.table = gatewayTable(c, g)
	return s
}

func familyName(v4 bool) string {
	if v4 {
		return "ipv4"
	}
	return "ipv6"
}

// mainTable is the kernel's own.
const mainTable = 254

// gatewayTable translates the peer's addresses, and drops what must not cross.
func gatewayTable(c Config, g Gateway) *table {
	t := &table{name: tableName}
	for _, reason := range Reasons() {
		t.counters = append(t.counters, string(reason))
	}
	destination := chain{name: "destination", kind: natChain, hook: prerouting, priority: -100}
	source := chain{name: "source", kind: natChain, hook: postrouting, priority: 100}
	translateLine(c, g, &destination, &source)
	var ends []*endSets
	for _, v4 := range families {
		s := t.endSets(c, g, v4)
		ends = append(ends, s)
		for _, v := range sortedBy(g.Views, func(v View) string { return v.View.String() }) {
			if v.View != v.Real && v.View.Addr().Is4() == v4 {
				destination.add(cameBy(insideName), translate(v.View, v.Real, false))
				source.add(leavesBy(insideName), translate(v.Real, v.View, true))
			}
		}
		if external := ofFamily(g.External, v4); external.IsValid() {
			source.add(cameBy(insideName), leavesBy(g.Tunnel), sourceNotIn(s.pods), snatTo(external))
		}
	}
	for _, d := range doorsOf(g) {
		if at := d.At.Addr(); g.maps(at) {
			destination.add(cameBy(g.Tunnel), destinationIs(d.At, d.UDP), note(mappedMark(at)), dnatTo(d.To))
			continue
		}
		destination.add(cameBy(g.Tunnel), destinationIs(d.At, d.UDP), dnatTo(d.To))
	}
	guard, policy := t.guard(g, ends), policyChain(t, g, ends)
	t.chains = slices.Concat([]chain{destination}, opened(g, ends), t.chains, guard, called(g, ends), []chain{localChain(g), policy, source, askedChain(g, ends), toldChain(g, ends), answersChain(g, ends), hopsChain(g)}, ownChains(g))
	return t
}

// endSets are the addresses of one family that may be at either end of a connection.
type endSets struct {
	peer, pods, transit, here, there, shutHere, shutThere *set
	callers, open, views                                  *set // nil if there are none

	doors []Door
	from  []*set // by door
	calls []netip.AddrPort

	parties []partySets
}

func (t *table) endSets(c Config, g Gateway, v4 bool) *endSets {
	s := &endSets{peer: t.prefixSet("peer", v4), pods: t.prefixSet("pods", v4), here: t.addressSet("here", v4, g.Here), there: t.addressSet("there", v4, g.There)}
	for _, v := range g.Views {
		s.peer.addPrefix(v.Real)
		if v.View == v.Real || v.View.Addr().Is4() != v4 || len(g.Own) > 0 {
			continue
		}
		if s.views == nil {
			s.views = t.prefixSet("views", v4)
		}
		s.views.addPrefix(v.View)
	}
	for _, p := range podsOf(c, g) {
		s.pods.addPrefix(p)
	}
	if !g.Limited && len(g.Transit) > 0 {
		s.transit = t.prefixSet("transit", v4)
		for _, p := range g.Transit {
			s.transit.addPrefix(p)
		}
	}
	if g.shuts() {
		s.shutHere, s.shutThere = t.addressSet("shut-here", v4, g.ShutHere), t.addressSet("shut-there", v4, g.ShutThere)
	}
	if len(g.Callers) > 0 {
		s.callers = t.addressSet("callers", v4, g.Callers)
	}
	if len(g.Open) > 0 {
		s.open = t.addressSet("open", v4, g.Open)
	}
	s.parties = t.partySets(g.Parties, v4)
	for i, d := range doorsOf(g) {
		if d.At.Addr().Is4() == v4 && !g.maps(d.At.Addr()) {
			s.doors, s.from = append(s.doors, d), append(s.from, t.addressSet(fmt.Sprintf("door%d-", i), v4, d.From))
		}
	}
	for _, a := range sortedBy(g.Calls, netip.AddrPort.String) {
		if a.Addr().Is4() == v4 {
			s.calls = append(s.calls, a)
		}
	}
	return s
}

// shuts says whether some addresses are out of reach, whatever others may.
func (g Gateway) shuts() bool { return len(g.ShutHere)+len(g.ShutThere) > 0 }

// policyChain lets pass what may. Established connections pass first of all, unless some of
// them may not: those through doors may always.
func policyChain(t *table, g Gateway, ends []*endSets) chain {
	policy := chain{name: "policy", kind: filterChain, hook: forwarding, priority: 0, drop: true}
	policy.add(synOnly(), clampSegments())
	policy.add(connection(invalid), countedDrop(DropInvalid))
	if g.calls() {
		policy.add(noted(calledMark, everyBit, false), jump(calledChain))
	}
	policy.add(g.ended(), countedDrop(DropDenied))
	policy.beginnings(t, g)
	strict := g.Closed || g.shuts()
	mappedDoors(t, &policy, g, strict)
	if !strict {
		policy.add(connection(established), jump(goesOnChain))
	}
	policy.add(cameBy(g.Tunnel), leavesByOther(insideName), countedDrop(DropPath))
	policy.add(cameBy(insideName), leavesByOther(g.Tunnel), countedDrop(DropPath))
	policy.line(t, g, strict)
	for i, s := range ends {
		if g.shuts() && !g.Closed {
			policy.errors(g, s, families[i])
		}
		policy.doors(g, s, strict)
	}
	if g.Closed {
		policy.add(countedDrop(DropDenied))
		return policy
	}
	if strict {
		for _, s := range ends {
			policy.shut(g, s)
		}
		policy.add(connection(established), jump(goesOnChain))
	}
	for _, s := range ends {
		policy.add(cameBy(g.Tunnel), destinationNotIn(s.pods), countedDrop(DropDestination))
		policy.add(cameBy(insideName), destinationNotIn(s.peer), countedDrop(DropDestination))
		if len(g.Own) > 0 {
			policy.add(cameBy(insideName), sourceNotIn(s.pods), countedDrop(DropSource))
		}
		policy.parties(g, s.parties)
		if g.Limited {
			policy.limited(g, s)
		} else {
			policy.full(g, s)
		}
	}
	if g.Limited {
		policy.add(countedDrop(DropDenied))
	} else {
		for _, r := range openRules(g) {
			policy.add(r...)
		}
	}
	return policy
}

// openChain is where packets pass that are of a connection which stands, and goesOnChain where those go to
// it that may be of one.
const (
	openChain   = "open"
	goesOnChain = "goes-on"
)

// opened makes them. What begins a connection of TCP goes on to where it is asked whether it may, also if tracking knows
// one of its ends: a segment in the middle, which passes while a gateway has seen no beginning, and a forged answer to it
// are enough for that. And so does what is no TCP, as far as there are sets that know more than at its beginning: the address may
// be another pod's by now, which takes it for its own, as nobody refuses it. Without such sets that is what the peer says on
// in what it has begun; with them it is both ways, but that answers to home, where nodes call too, are asked for who says them.
func opened(g Gateway, ends []*endSets) []chain {
	open, on := chain{name: openChain}, chain{name: goesOnChain}
	open.add(beginsTCP(), returns())
	open.add(accept())
	other := isOther(unix.IPPROTO_TCP)
	if g.Limited {
		for _, s := range ends {
			if !g.FromHere {
				on.add(cameBy(g.Tunnel), other, answersIt(), sourceIn(s.there), goTo(openChain))
			}
		}
		on.add(other, connection(standing), returns())
	} else {
		on.add(cameBy(g.Tunnel), other, saidOn(), returns())
	}
	on.add(goTo(openChain))
	return []chain{open, on}
}

// shut drops what is of who is shut.
func (c *chain) shut(g Gateway, s *endSets) {
	for _, of := range [][]statement{
		{cameBy(g.Tunnel), destinationIn(s.shutHere)}, {cameBy(g.Tunnel), sourceIn(s.shutThere)},
		{cameBy(insideName), destinationIn(s.shutThere)}, {cameBy(insideName), sourceIn(s.shutHere)},
	} {
		c.add(append(of, countedDrop(DropDenied))...)
	}
}

// doors lets pass what goes through doors of either side, of established connections too where
// these do not pass by themselves, as those of UDP never do.
func (c *chain) doors(g Gateway, s *endSets, strict bool) {
	c.add(cameBy(g.Tunnel), sourceNotIn(s.peer), countedDrop(DropSource))
	for i, d := range s.doors {
		if strict { // also of those who may not any more: their tokens were taken back
			c.add(cameBy(g.Tunnel), connection(established), destinationIs(d.To, d.UDP), translated(), accept())
		}
		if strict || d.UDP {
			c.add(cameBy(insideName), connection(established), sourceIs(d.To, d.UDP), translated(), accept())
		}
		c.add(cameBy(g.Tunnel), sourceIn(s.from[i]), destinationIs(d.To, d.UDP), translated(), accept())
	}
	if !strict {
		return
	}
	for _, at := range s.calls {
		c.add(cameBy(insideName), sourceIn(s.here), destinationIs(at, false), accept())
		c.add(cameBy(g.Tunnel), connection(established), sourceIs(at, false), accept())
	}
}

// limited lets connections begin at and go to the addresses in sets alone.
func (c *chain) limited(g Gateway, s *endSets) {
	// What is in the middle of a connection from the other side: the gateway
	// has moved here, and has not seen its beginning.
	in, out := []statement{destinationIn(s.here)}, []statement{destinationIn(s.there)}
	inMiddle, outMiddle := []statement{middleOfTCP(), sourceIn(s.there)}, []statement{middleOfTCP(), sourceIn(s.here)}
	if g.FromThere {
		in, outMiddle = append(in, sourceIn(s.there)), append(outMiddle, destinationIn(s.there))
	}
	if g.FromHere {
		out, inMiddle = append(out, sourceIn(s.here)), append(inMiddle, destinationIn(s.here))
	}
	c.passes(cameBy(g.Tunnel), in)
	c.passes(cameBy(g.Tunnel), inMiddle)
	c.passes(cameBy(insideName), out)
	c.passes(cameBy(insideName), outMiddle)
	if g.Limited { // of what is no TCP answers are asked, too: those from the tunnel may come in as above, or have gone on
		c.passes(cameBy(insideName), slices.Concat([]statement{isOther(unix.IPPROTO_TCP), answersIt()}, outMiddle[1:]))
	}
	c.call(g, s)
}

// doorsOf are a gateway's doors, in order.
func doorsOf(g Gateway) []Door {
	return sortedBy(g.Doors, func(d Door) string { return fmt.Sprint(d.At, d.UDP) })
}

// maps says whether an address stands for something that an owner maps.
func (g Gateway) maps(a netip.Addr) bool { return containedIn(g.Mapped, a) }

// mappedMark is by what connections to a mapped address are known, also when its doors have gone.
func mappedMark(at netip.Addr) uint32 {
	b := at.AsSlice()
	return mappedBits | uint32(b[len(b)-2])<<8 | uint32(b[len(b)-1])
}

// mappedDoors adds the doors whose connections go with them. What was begun to one of their
// addresses passes only while there is such a door, for who has begun it, and else both ends are
// told, whichever of them says something. All other connections are past it with one look, unless some of these may not be.
func mappedDoors(t *table, policy *chain, g Gateway, strict bool) {
	if len(g.Mapped) == 0 {
		return
	}
	if !strict {
		policy.add(noted(mappedBits, mappedMask, true), connection(established), jump(goesOnChain))
	}
	policy.add(noted(mappedBits, mappedMask, false), connection(related), accept())
	for _, v4 := range families {
		from := map[netip.Addr]*set{}
		for _, d := range doorsOf(g) {
			at := d.At.Addr()
			if at.Is4() != v4 || !g.maps(at) {
				continue
			}
			if from[at] == nil {
				from[at] = t.addressSet(fmt.Sprintf("mapped%d-", len(from)), v4, d.From)
			}
			is := noted(mappedMark(at), everyBit, false)
			if d.Most > 0 {
				policy.add(cameBy(g.Tunnel), is, connection(fresh), sourceIn(from[at]), destinationIs(d.To, d.UDP), t.limit(d.mostChain(), moreThan(d.Most), DropFull))
			}
			policy.add(cameBy(g.Tunnel), leavesBy(insideName), is, sourceIn(from[at]), destinationIs(d.To, d.UDP), accept())
			policy.add(cameBy(insideName), leavesBy(g.Tunnel), is, sourceIs(d.To, d.UDP), destinationIn(from[at]), accept())
		}
		if all := prefixesOf(g.Mapped, v4); len(all) > 0 {
			none := t.prefixSet("mapped", v4) // what has no such door was not translated
			for _, p := range all {
				none.addPrefix(p)
			}
			policy.add(cameBy(g.Tunnel), destinationIn(none), isTCP(), reset(DropDenied, answerMark))
		}
	}
	policy.add(noted(mappedBits, mappedMask, false), cameBy(g.Tunnel), isTCP(), reset(DropDenied, answerMark))
	// Who only reads sends nothing that could be answered: the next packet from here is its reset, and
	// the one after is answered.
	policy.add(noted(mappedGone, everyBit, false), cameBy(insideName), isTCP(), reset(DropDenied, insideMark))
	policy.add(noted(mappedBits, mappedMask, false), cameBy(insideName), leavesBy(g.Tunnel), isTCP(), note(mappedGone), becomesReset(DropDenied), accept())
	policy.add(noted(mappedBits, mappedMask, false), countedDrop(DropDenied))
}

// mostChain is where it is counted how many connections a door has.
func (d Door) mostChain() string {
	protocol := "tcp"
	if d.UDP {
		protocol = "udp"
	}
	return fmt.Sprintf("most-%x-%s-%d", d.At.Addr().AsSlice(), protocol, d.At.Port())
}

// passes accepts what came by a device and is so.
func (c *chain) passes(by statement, so []statement) {
	c.add(slices.Concat([]statement{by}, so, []statement{accept()})...)
}

// localChain is for what the tunnel brings for the gateway itself.
func localChain(g Gateway) chain {
	local := chain{name: "local", kind: filterChain, hook: input, priority: 0}
	local.add(connection(established), accept())
	if g.Probe != 0 {
		local.add(cameBy(g.Tunnel), udpTo(g.Probe), accept())
	}
	local.add(cameBy(g.Tunnel), echoRequest(true), accept())
	local.add(cameBy(g.Tunnel), echoRequest(false), accept())
	local.add(cameBy(g.Tunnel), countedDrop(DropLocal))
	return local
}

// askedChain knows again what comes from the host, before anything answers it, and lets no more
// connections of TCP begin from the tunnel than may: one that is not let costs no tracking. Nor does tracking
// see what comes by the tunnel for a view of who is there, which only this side calls so: that would be a forged
// answer to what the peer has said itself, and go on to whoever here has the number that the view stands for. With
// own views nothing but what is for them gets there.
func askedChain(g Gateway, ends []*endSets) chain {
	asked := chain{name: "asked", kind: filterChain, hook: prerouting, priority: beforeTracking}
	asked.add(cameBy(insideName), setMark(insideMark))
	for _, s := range ends {
		if s.views != nil {
			asked.add(cameBy(g.Tunnel), destinationIn(s.views), countedDrop(DropDestination))
		}
	}
	if g.Begin > 0 {
		asked.add(synOnly(), cameBy(g.Tunnel), fasterThan(g.Begin, beginningsAtOnce*g.Begin), countedDrop(DropFull))
	}
	return asked
}

// beginningsAtOnce is of how many seconds beginnings of connections may come at once.
const beginningsAtOnce = 4

// beginnings bounds what begins from the tunnel and is not of TCP, and lets nothing begin from there if
// the gateway is full.
func (c *chain) beginnings(t *table, g Gateway) {
	var faster statement
	if g.Begin > 0 { // also while it is full, so that it counts on after that
		faster = t.limit("beginnings", fasterThan(g.Begin, beginningsAtOnce*g.Begin), DropFull)
	}
	if g.Full {
		c.add(connection(fresh), cameBy(g.Tunnel), countedDrop(DropFull))
		return
	}
	if g.Begin > 0 {
		c.add(connection(fresh), isOther(unix.IPPROTO_TCP), cameBy(g.Tunnel), faster)
	}
}

func portText(port uint16) string { return strconv.Itoa(int(port)) }
