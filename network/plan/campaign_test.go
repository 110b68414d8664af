package plan

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// kind is a way to say something to somebody.
type kind struct {
	name string
	v4   bool
	// packets of it, each with a marker.
	packets func(p netnstest.Packet, port uint16, data []byte) []netnstest.Packet
	// reaches says that it is delivered where UDP is.
	reaches bool
	// begins says that it is TCP that begins a connection, and middle that it is in the middle of one.
	begins, middle bool
	// portless says that nothing tells one connection from the next.
	portless bool
}

func one(p netnstest.Packet) []netnstest.Packet { return []netnstest.Packet{p} }

// tooLarge is the kind that no tunnel has room for.
const tooLarge = "UDP that is too large"

// kinds are all ways of both families.
func kinds() (all []kind) {
	type packet = netnstest.Packet
	for _, v4 := range netnstest.Families {
		add := func(name string, reaches bool, make func(p packet, port uint16, data []byte) []packet) {
			all = append(all, kind{name: name, v4: v4, packets: make, reaches: reaches,
				begins: strings.HasPrefix(name, "TCP SYN"), middle: strings.HasPrefix(name, "TCP ACK"), portless: strings.HasPrefix(name, "an unknown")})
		}
		udp := func(p packet, port uint16, data []byte) []packet { return one(p.UDP(port, netnstest.Port, data)) }
		add("TCP SYN", true, func(p packet, port uint16, data []byte) []packet {
			return one(p.TCP(port, netnstest.Port, netnstest.SYN, 7, 0, data))
		})
		add("TCP ACK", true, func(p packet, port uint16, data []byte) []packet {
			return one(p.TCP(port, netnstest.Port, netnstest.ACK, 7, 7, data))
		})
		add("UDP", true, udp)
		add("UDP to the port of probes", true, func(p packet, port uint16, data []byte) []packet { return one(p.UDP(port, ProbePort, data)) })
		add("ICMP echo", true, func(p packet, port uint16, data []byte) []packet { return one(p.Echo(port, data)) })
		add("UDP on its last hop", false, func(p packet, port uint16, data []byte) []packet {
			p.TTL = 1
			return udp(p, port, data)
		})
		add("UDP in fragments", true, func(p packet, port uint16, data []byte) []packet {
			whole := p.UDP(port, netnstest.Port, slices.Concat(make([]byte, 40), data))
			first, second := whole, whole
			first.Number, second.Number = port, port
			first.Payload, first.More = whole.Payload[:24], true
			second.Payload, second.Offset = whole.Payload[24:], 24
			return []packet{first, second}
		})
		add("a last fragment alone", false, func(p packet, port uint16, data []byte) []packet {
			p.Protocol, p.Offset, p.Number, p.Payload = unix.IPPROTO_UDP, 800, port, data
			return one(p)
		})
		add("SCTP INIT", false, func(p packet, port uint16, data []byte) []packet {
			b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, port), netnstest.Port)
			p.Protocol, p.Payload = unix.IPPROTO_SCTP, slices.Concat(b, make([]byte, 8), []byte{1, 0, 0, byte(4 + len(data))}, data)
			return one(p)
		})
		add("an unknown protocol", true, func(p packet, _ uint16, data []byte) []packet {
			p.Protocol, p.Payload = 253, data
			return one(p)
		})
		add("ICMP that a packet was too big", false, func(p packet, port uint16, data []byte) []packet {
			return one(p.TooLarge(512, packet{From: p.To, To: p.From}.TCP(netnstest.Port, port, netnstest.ACK, 7, 7, data)))
		})
		add(tooLarge, false, func(p packet, port uint16, data []byte) []packet {
			p.Whole = true
			return udp(p, port, slices.Concat(data, make([]byte, mtuOutside)))
		})
		options := func(name string, reaches bool, is byte, b ...byte) {
			add(name, reaches, func(p packet, port uint16, data []byte) []packet {
				p.Options, p.OptionsAre = b, is
				return udp(p, port, data)
			})
		}
		if v4 {
			options("UDP that records its route", true, 0, 7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0)
			next := netnstest.NodeAddr(0, true).As4()
			options("UDP with a loose source route", false, 0, append([]byte{131, 7, 4}, append(next[:], 0)...)...)
			options("UDP with options that are wrong", false, 0, 7, 200, 4, 0)
		} else {
			unknown := []byte{0x9e, 4, 0, 0, 0, 0} // to be discarded and told of
			options("UDP with an unknown option for each hop", false, unix.IPPROTO_HOPOPTS, unknown...)
			options("UDP with an unknown option for who gets it", true, unix.IPPROTO_DSTOPTS, unknown...)
			next := netnstest.NodeAddr(0, false).As16()
			options("UDP with a source route", true, unix.IPPROTO_ROUTING, append([]byte{0, 1, 0, 0, 0, 0}, next[:]...)...)
		}
	}
	return all
}

// spot is an address that is tried, as a destination or as a source.
type spot struct {
	name string
	at   netip.Addr
}

func spots(named ...string) (all []spot) {
	for i := 0; i < len(named); i += 2 {
		for _, a := range strings.Fields(named[i+1]) {
			all = append(all, spot{named[i], netip.MustParseAddr(a)})
		}
	}
	return all
}

// cell is one thing tried.
type cell struct {
	kind     kind
	from, to spot
}

// campaign is one foe's, against one victim.
type campaign struct {
	*foe
	ears           *ears
	targets        []spot
	sources        []spot
	fence, fenceTo netip.Addr
	// allowed says which cells may arrive.
	allowed func(c cell) bool
	next    uint32
}

// TestCampaign has hostile peers say everything to everybody: a consumer whose addresses overlap
// the victim's, one whose addresses do not, a provider, and the other end of a path to another provider. What was not allowed arrives nowhere,
// and is answered by nobody.
func TestCampaign(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rome, milan := w.rome, w.milan
	other := w.newFoe(milan, "other", "192.0.2", 60, listenPort+1, Provider)
	twin := w.newFoe(milan, "twin", "192.0.3", 42, listenPort+2, Provider)
	host := w.newFoe(rome, "host", "192.0.4", 42, listenPort+3, Consumer)
	path := w.newPathFoe(milan, "path", "rome", "192.0.5", 70)
	milan.reallocate(other, twin, path)
	rome.reallocate(host)
	// One pod of rome's runs at milan, and one of each foe's; one of rome's runs at the hostile host.
	r, m := &rome.in.Peerings[0], &milan.in.Peerings[0]
	r.Limited, m.Limited = true, true
	door := netip.MustParseAddrPort("10.43.0.2:8080")
	rome.Nodes[0].Listen()
	for _, v4 := range netnstest.Families {
		r.There, m.Here = append(r.There, own(0, 5, v4)), append(m.Here, own(0, 5, v4))
		r.Here, m.There = append(r.Here, own(0, 5, v4)), append(m.There, own(0, 5, v4))
		other.peering().Here = append(other.peering().Here, own(1, 5, v4))
		twin.peering().Here = append(twin.peering().Here, own(1, 6, v4))
		other.peering().There = append(other.peering().There, netnstest.PodAddr(60, 0, 5, v4))
		twin.peering().There = append(twin.peering().There, own(0, 7, v4))
		host.peering().There = append(host.peering().There, own(1, 7, v4))
		host.peering().Here = append(host.peering().Here, own(1, 6, v4))
	}
	host.peering().Doors = []dataplane.Door{{At: door, To: netip.AddrPortFrom(netnstest.NodeAddr(0, true), netnstest.Port), From: []netip.Addr{own(1, 7, true)}}}
	path.arrange(t, m.Here, listenPort+4)
	rome.apply(t)
	milan.apply(t)
	for _, f := range []*foe{other, twin, host} {
		f.pods = f.peering().There
	}
	for _, f := range []*foe{other, twin, host, path} {
		f.begin(t)
	}
	e := &ears{heard: map[uint32]map[string]bool{}}
	for _, p := range w.everywhere(t, []string{other.key, twin.key, host.key, path.key}) {
		e.listen(t, p)
	}
	w.seen(t, rome.Nodes[0].Pod, rome.seen(t, own(0, 5, true)), milan.seen(t, own(0, 5, true)))
	consumers := func(f *campaign, pod int) func(c cell) bool {
		return func(c cell) bool {
			in := func(a netip.Addr) bool {
				return slices.ContainsFunc(f.ranges, func(p netip.Prefix) bool { return p.Contains(a) })
			}
			at := own(1, pod, c.kind.v4)
			// What has no ports and looks like an answer to itself goes through its own pod's node, and back to it.
			returns := c.kind.portless && c.from.at == at && c.to.name == "its own views"
			return returns || in(c.from.at) && c.kind.reaches && c.to.at == at
		}
	}
	next := uint32(0)
	for _, c := range []*campaign{
		{foe: other, fence: netnstest.PodAddr(60, 0, 5, true), fenceTo: own(1, 5, true)},
		{foe: twin, fence: own(0, 7, true), fenceTo: own(1, 6, true)},
		{foe: host, fence: own(1, 7, true), fenceTo: own(1, 6, true)},
		{foe: path, fence: path.pods[0], fenceTo: path.called(own(0, 5, true))},
	} {
		c.ears, c.next = e, next
		c.places(t, w)
		switch c.foe {
		case other:
			c.allowed = consumers(c, 5)
		case twin:
			c.allowed = consumers(c, 6)
		case path: // by the view alone, and from its own range alone
			c.allowed = func(x cell) bool {
				in := slices.ContainsFunc(path.ranges, func(p netip.Prefix) bool { return p.Contains(x.from.at) })
				return in && x.kind.reaches && x.to.at == path.called(own(0, 5, x.kind.v4))
			}
		default:
			c.allowed = func(x cell) bool {
				there := slices.Contains(host.peering().There, x.from.at)
				return there && x.kind.reaches && (x.to.at == own(1, 6, x.kind.v4) ||
					(x.kind.begins || x.kind.middle) && x.to.at == door.Addr() ||
					// A gateway that has just taken over knows no connection.
					x.kind.middle && slices.ContainsFunc(ownPods, func(p netip.Prefix) bool { return p.Contains(x.to.at) }))
			}
		}
		t.Run(c.key, c.run)
		if c.foe == host {
			t.Run("a connection does not begin in its middle", c.reopen)
			t.Run("nor with a forged answer", c.forge)
			t.Run("a forged answer goes to nobody", func(t *testing.T) { c.forgeAnswers(t, rome) })
			t.Run("who reaches all pods reaches no node", func(t *testing.T) { c.bridges(t, rome) })
			t.Run("nor by its ports", func(t *testing.T) { c.ports(t, rome) })
		}
		next = c.next
	}
}

// reopen says to a pod that may not be called what is in the middle of a connection, which passes,
// as a gateway that has just taken over has not seen its beginning; and then begins one with the
// same ports.
func (c *campaign) reopen(t *testing.T) {
	from, to := c.peering().There[0], own(0, 6, true)
	c.next++
	id := c.next
	say := func(flags byte, data []byte) {
		c.out <- netnstest.Packet{From: from, To: to}.TCP(uint16(firstPort+id), netnstest.Port, flags, 7, 7, data).Bytes()
	}
	say(netnstest.ACK, nil)
	netnstest.Await(t, "a pod refuses what it does not know", netnstest.Patience, func() bool { return c.answer(id) != "" })
	say(netnstest.ACK, nil)
	say(netnstest.SYN, markerOf(id))
	c.wall(t)
	if places := c.ears.at(id); len(places) > 0 || c.opened(id) {
		t.Errorf("what begins a connection with a pod that may not be called arrived at %v; accepted: %t", places, c.opened(id))
	}
}

// bridges has a peer that reaches all pods say everything to what is no pod in their range.
func (c *campaign) bridges(t *testing.T, s *side) {
	c.peering().Limited = false
	s.apply(t)
	defer func() {
		c.peering().Limited = true
		s.apply(t)
	}()
	for _, k := range kinds() {
		if k.name != "TCP SYN" && k.name != "TCP ACK" && k.name != "UDP" && k.name != "ICMP echo" {
			continue
		}
		from := c.peering().There[slices.IndexFunc(c.peering().There, func(a netip.Addr) bool { return a.Is4() == k.v4 })]
		for node := range 2 {
			for _, last := range []int{1, 6} {
				c.next++
				id := c.next
				for _, p := range k.packets(netnstest.Packet{From: from, To: own(node, last, k.v4)}, uint16(firstPort+id), markerOf(id)) {
					c.out <- p.Bytes()
				}
				c.wall(t)
				if pod := last == 6; pod != (c.answer(id) != "") && (pod || k.name != "UDP") {
					t.Errorf("%s to %s is answered by %q", k.name, own(node, last, k.v4), c.answer(id))
				}
			}
		}
	}
}

// places are what is tried of both clusters.
func (c *campaign) places(t *testing.T, w *world) {
	t.Helper()
	s := c.victim
	view := func(key string, real netip.Addr) string {
		a, ok := s.table.View(key, real)
		if !ok {
			t.Fatalf("%s has no view of %s at %s", s.Name, real, key)
		}
		return a.String()
	}
	network, others := "203.0.113", "rome"
	if s == w.rome {
		network, others = "198.51.100", "milan"
	}
	var beside []string
	for _, r := range c.ranges {
		beside = append(beside, r.Addr().Next().String())
	}
	c.targets = spots(
		"pods of the cluster", "10.42.1.5 10.42.1.6 10.42.2.5 10.42.2.6 10.42.1.77 fd42:0:0:1::5 fd42:0:0:1::6 fd42:0:0:2::5 fd42:0:0:2::6 fd42:0:0:1::77",
		"bridges of pods", "10.42.1.1 10.42.2.1 fd42:0:0:1::1 fd42:0:0:2::1",
		"nodes", "192.168.0.1 192.168.0.2 fd19::1 fd19::2 "+outside(network, 0)+" "+outside(network, 1),
		"Services", "10.96.0.1 10.96.0.10 fd96::1",
		"the external range", "10.43.0.0 10.43.0.1 10.43.0.2 10.43.0.3 10.43.0.4 10.43.0.255 fd43::1 fd43::2",
		"ends of tunnels", "169.254.0.4 169.254.0.5",
		"next hops", "169.254.0.1 169.254.0.2 fe80::1 fe80::2 fd70:656c:6167:6f00::2",
		"the node's DNS, clouds' metadata", "169.254.77.53 169.254.169.254 fd00:ec2::254",
		"loopback", "127.0.0.1 127.0.0.53 ::1 ::ffff:10.42.1.5",
		"broadcast, multicast", "255.255.255.255 10.42.255.255 192.168.0.255 169.254.255.255 224.0.0.1 224.0.0.251 ff02::1 ff02::2 ff02::1:ff00:5 ff05::2",
		"nowhere, reserved", "0.0.0.0 0.0.0.1 240.0.0.1 :: 64:ff9b::a2a:105",
		"views of the other peer", view(others, own(0, 5, true))+" "+view(others, own(0, 5, false))+" "+view(others, netip.MustParseAddr("10.43.0.2")),
		"its own views", view(c.of, c.ranges[0].Addr().Next())+" "+view(c.of, c.ranges[1].Addr().Next()),
		"the world", "192.0.2.2 198.51.100.2 8.8.8.8 2001:db8::1",
	)
	if c.own != nil {
		var pods []string
		for _, text := range strings.Fields("10.42.1.5 10.42.1.6 10.42.2.5 10.42.1.1 10.42.1.77 fd42:0:0:1::5 fd42:0:0:1::6 fd42:0:0:2::5 fd42:0:0:1::1") {
			pods = append(pods, c.called(netip.MustParseAddr(text)).String())
		}
		c.targets = append(c.targets, spots("pods as it calls them", strings.Join(pods, " "))...)
	}
	c.sources = spots(
		"its pods", c.pods[0].String()+" "+c.pods[1].String(),
		"others of its range", strings.Join(beside, " "),
		"the victim's pods", "10.42.1.6 10.42.2.5 fd42:0:0:1::6",
		"a view of the other peer", view(others, own(0, 5, true))+" "+view(others, own(0, 5, false)),
		"its own view", view(c.of, c.ranges[0].Addr().Next())+" "+view(c.of, c.ranges[1].Addr().Next()),
		"the victim's nodes", "192.168.0.1 fd19::2 "+outside(network, 0),
		"ends of tunnels, next hops", "169.254.0.4 169.254.0.5 169.254.0.1 169.254.0.2 fe80::1 fd70:656c:6167:6f00::2",
		"loopback", "127.0.0.1 ::1",
		"broadcast, multicast, nobody", "255.255.255.255 224.0.0.1 0.0.0.0 ff02::1 ::",
		"the world", "8.8.8.8 2001:db8::1",
	)
}

// tally is what came of the cells of one kind of destination.
type tally struct {
	tried, arrived, answered, byGateway, wrong int
}

// run tries all cells.
func (c *campaign) run(t *testing.T) {
	c.wall(t)
	cells := map[uint32]cell{}
	for _, k := range kinds() {
		for _, to := range c.targets {
			for _, from := range c.sources {
				if to.at.Is4() != k.v4 || from.at.Is4() != k.v4 {
					continue
				}
				c.next++
				cells[c.next] = cell{k, from, to}
				for _, p := range k.packets(netnstest.Packet{From: from.at, To: to.at}, uint16(firstPort+c.next), markerOf(c.next)) {
					c.out <- p.Bytes()
				}
				if c.next%64 == 0 {
					c.wall(t) // no more at once than queues hold
				}
			}
		}
	}
	c.wall(t)
	by := map[string]*tally{}
	for id := range cells {
		x := cells[id]
		s := by[x.to.name]
		if s == nil {
			s = &tally{}
			by[x.to.name] = s
		}
		s.tried++
		heard, answer := c.ears.at(id), c.answer(id)
		allowed := c.allowed(x)
		gateway := answer != "" && len(heard) == 0
		switch {
		case gateway && c.answersItself(x):
			s.byGateway++
		case len(heard) > 0 && allowed:
			s.arrived++
			if answer != "" {
				s.answered++
			}
		case allowed && x.to.name != "its own views":
			s.wrong++
			t.Errorf("%s from %s (%s) to %s (%s) did not arrive", x.kind.name, x.from.at, x.from.name, x.to.at, x.to.name)
		case len(heard) > 0 || answer != "":
			s.wrong++
			t.Errorf("%s from %s (%s) to %s (%s): heard at %v, answered by %q", x.kind.name, x.from.at, x.from.name, x.to.at, x.to.name, heard, answer)
		}
	}
	t.Logf("| to | tried | arrived, as allowed | of these answered | answered by the gateway itself | wrong |")
	t.Logf("|---|---|---|---|---|---|")
	var names []string
	for _, to := range c.targets {
		if !slices.Contains(names, to.name) {
			names = append(names, to.name)
			s := by[to.name]
			t.Logf("| %s | %d | %d | %d | %d | %d |", to.name, s.tried, s.arrived, s.answered, s.byGateway, s.wrong)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.others) > 0 {
		t.Errorf("%d packets came out of the tunnel that answer nothing, the first: %s", len(c.others), c.others[0])
	}
}

// answersItself says whether a gateway may answer a cell, into the tunnel: what is for it, what
// is for a mapped address, of which callers are told that nothing is there, and what is too large, for
// pods or nobody in their range, from those of the peer.
func (c *campaign) answersItself(x cell) bool {
	if x.kind.name == tooLarge && contains(c.ranges, x.from.at) {
		called := ownPods
		if c.own != nil {
			called = nil
			for _, v := range c.own {
				called = append(called, v.View)
			}
		}
		if contains(called, x.to.at) {
			return true
		}
	}
	if c.own != nil { // which has nothing but pods
		return x.to.at == providerEnd || x.from.name == "ends of tunnels, next hops"
	}
	switch x.to.name {
	case "ends of tunnels", "next hops", "broadcast, multicast":
		return true
	case "the external range":
		if x.kind.begins || x.kind.middle {
			return true
		}
	}
	return x.from.name == "ends of tunnels, next hops" // errors, which go where these are
}

// wall waits until all that was said has come as far as it will: it is answered after that.
func (c *campaign) wall(t *testing.T) {
	t.Helper()
	var id uint32
	again := 0
	netnstest.Await(t, "the allowed pod answers "+c.key, netnstest.Patience, func() bool {
		if again%100 == 0 { // the first ones wait for a handshake, or are lost in it
			c.next++
			id = c.next
			c.out <- netnstest.Packet{From: c.fence, To: c.fenceTo}.Echo(uint16(id), markerOf(id)).Bytes()
		}
		again++
		return c.answer(id) != "" && len(c.ears.at(id)) > 0
	})
}
