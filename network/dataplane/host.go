package dataplane

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// hostState is what the config wants of the node's own namespace.
func hostState(c Config) state {
	var s state
	if c.Node.Name == "" {
		return s
	}
	numbers := c.numbers()
	if c.Node.VNI != 0 && len(c.Others) > 0 {
		s.links = append(s.links, link{
			name: vxlanName, hardware: hardware(c.Node.Name), mtu: c.Node.MTU,
			vni: c.Node.VNI, port: c.Node.Port, local: c.Node.Underlay,
		})
		s.settings = append(s.settings, deviceSettings(vxlanName, usesIPv6(c))...)
	}
	for _, o := range sortedBy(c.Others, func(o Other) string { return o.Name }) {
		s.addNode(c, o, numbers[o.Name])
	}
	for _, v4 := range families {
		if slices.ContainsFunc(s.rules, func(r rule) bool { return r.v4 == v4 }) {
			s.rules = append(s.rules, rule{v4: v4, priority: leapPriority, does: leap}, rule{v4: v4, priority: landPriority, does: land})
		}
	}
	for _, g := range sortedBy(c.Gateways, func(g Gateway) string { return g.Peering }) {
		s.addGatewayVeth(c, g)
	}
	// The reverse-path filter, even a loose one, drops what comes by a device that has no
	// address and would go back by another.
	for _, l := range s.links {
		s.addresses = append(s.addresses, address{l.name, single(hostEnd(true))})
	}
	routed := map[bool]bool{}
	routes := slices.Clone(c.Routes)
	slices.SortFunc(routes, func(a, b Route) int { return comparePrefixes(a.Prefix, b.Prefix) })
	for _, r := range routes {
		v4 := r.Prefix.Addr().Is4()
		k := route{
			prefix: r.Prefix, table: viewTable, device: vxlanName, via: numbers[r.Node].nextHop(v4),
			source: ofFamily(c.Node.Addresses, v4), mtu: r.MTU,
		}
		switch {
		case r.Gateway != "":
			k.device, k.via = Device(r.Gateway), gatewayEnd(v4)
		case r.Node == "":
			k.device = ""
		}
		if k.device != "" {
			s.routes = append(s.routes, k)
			s.addPieces(k)
		}
		// What is for a peer leaves by no other route when the device is gone.
		s.routes = append(s.routes, route{prefix: r.Prefix, table: viewTable, metric: lastMetric})
		routed[v4] = true
	}
	lines := lineEnds(c, numbers)
	for _, of := range sortedBy(slices.Collect(maps.Keys(lines)), func(of lineEnd) string { return fmt.Sprint(of.peering, "\x00", !of.v4) }) {
		s.routes = append(s.routes,
			route{prefix: single(lines[of]), table: viewTable, device: Device(of.peering), via: gatewayEnd(of.v4)},
			route{prefix: single(lines[of]), table: viewTable, metric: lastMetric})
		routed[of.v4] = true
	}
	for _, v4 := range families {
		if routed[v4] {
			s.rules = append(s.rules, rule{v4: v4, priority: viewPriority, table: viewTable})
		}
	}
	if len(s.links) > 0 {
		s.table = hostTable(c, numbers, slices.Collect(maps.Values(lines)))
	}
	return s
}

// addNode adds the way to another node, and by its mark the one of packets for it.
func (s *state) addNode(c Config, o Other, n number) {
	s.forwards = append(s.forwards, forward{vxlanName, hardware(o.Name), o.Underlay})
	for _, v4 := range families {
		if !v4 && !usesIPv6(c) {
			continue
		}
		s.neighbours = append(s.neighbours, neighbour{vxlanName, n.nextHop(v4), hardware(o.Name)})
		// Of gateways alone come packets that go by marks.
		if len(c.Gateways) > 0 && len(prefixesOf(o.Owns, v4)) > 0 {
			s.routes = append(s.routes, route{prefix: everything(v4), table: n.table(), device: vxlanName, via: n.nextHop(v4)})
			s.rules = append(s.rules, rule{v4: v4, priority: markPriority, table: n.table(), mark: n.mark()})
		}
	}
}

func (s *state) addGatewayVeth(c Config, g Gateway) {
	device := Device(g.Peering)
	s.links = append(s.links, link{
		name: device, hardware: hostHardware(g), mtu: g.MTU, peering: g.Peering, peerHardware: gatewayHardware(g),
	})
	s.settings = append(s.settings, deviceSettings(device, usesIPv6(c))...)
	for _, v4 := range families {
		if v4 || usesIPv6(c) {
			s.neighbours = append(s.neighbours, neighbour{device, gatewayEnd(v4), gatewayHardware(g)})
		}
	}
}

func hostHardware(g Gateway) string    { return hardware("host end of " + g.Peering) }
func gatewayHardware(g Gateway) string { return hardware("gateway end of " + g.Peering) }

// deviceSettings let a device of ours forward, and take packets whose way back would be by
// another device: those of other nodes' pods come out of our VXLAN, and not by the CNI.
func deviceSettings(device string, ipv6 bool) []setting {
	settings := []setting{
		{"ipv4/conf/" + device + "/forwarding", "1"},
		{"ipv4/conf/" + device + "/rp_filter", "2"},
	}
	if ipv6 {
		settings = append(settings, setting{"ipv6/conf/" + device + "/disable_ipv6", "0"},
			setting{"ipv6/conf/" + device + "/addr_gen_mode", "1"}, // no address
			setting{"ipv6/conf/" + device + "/accept_ra", "0"},
			setting{"ipv6/conf/" + device + "/forwarding", "1"})
	}
	return settings
}

// usesIPv6 holds for a config that routes IPv6, or has a line of it; a kernel without it is not asked
// for it.
func usesIPv6(c Config) bool {
	is6 := func(p netip.Prefix) bool { return p.Addr().Is6() }
	return slices.ContainsFunc(c.Pods, is6) || slices.ContainsFunc(c.Routes, func(r Route) bool { return is6(r.Prefix) }) ||
		slices.ContainsFunc(c.Gateways, func(g Gateway) bool { return g.Line.of(false) })
}

func namesOf(others []Other) []string {
	names := make([]string, 0, len(others))
	for _, o := range others {
		names = append(names, o.Name)
	}
	return names
}

// hostTable is our table on the node.
//
// The translation of sources goes before that of CNIs, which masquerade what leaves the
// pods' ranges or, as flannel, what enters them: a connection is translated once, and to
// itself counts. Marks come last before routing and go first after it.
func hostTable(c Config, numbers map[string]number, lines []netip.Addr) *table {
	t := &table{name: tableName}
	nat := chain{name: "source", kind: natChain, hook: postrouting, priority: 99}
	singles := map[bool]int{}
	for _, a := range c.Node.Owns {
		singles[a.Is4()]++
	}
	for _, o := range c.Others {
		for _, p := range o.Owns {
			if p.IsSingleIP() {
				singles[p.Addr().Is4()]++
			}
		}
	}
	// What does not come from a gateway here is done with first: every packet of the node comes by.
	mark := chain{name: "node", kind: filterChain, hook: prerouting, priority: -50}
	mark.add(cameByOther(devicePrefix+"*"), accept())
	mark.add(cameBy(vxlanName), accept())
	for _, v4 := range families {
		of := slices.DeleteFunc(slices.Clone(lines), func(a netip.Addr) bool { return a.Is4() != v4 })
		if node := ofFamily(c.Node.Addresses, v4); len(of) > 0 && node.IsValid() {
			// On its way to another node it is masqueraded by no device's address: ours has one of no node.
			nat.add(cameBy(devicePrefix+"*"), cameByOther(vxlanName), sourceIn(t.addressSet("lines", v4, of)), snatTo(node))
		}
	}
	var pieces []chain
	podSets := map[bool]*set{} // of pods
	for _, v4 := range families {
		views := t.prefixSet("views", v4)
		for _, r := range c.Routes {
			views.addPrefix(r.Prefix)
		}
		pieces = append(pieces, piecesChain(views)...)
		pods := t.prefixSet("pods", v4)
		for _, p := range c.Pods {
			pods.addPrefix(p)
		}
		podSets[v4] = pods
		if slices.ContainsFunc(c.Gateways, func(g Gateway) bool {
			return slices.ContainsFunc(g.Doors, func(d Door) bool { return d.At.Addr().Is4() == v4 })
		}) {
			// What a door leads to knows no way to a view.
			nat.add(cameBy(devicePrefix+"*"), cameByOther(vxlanName), leavesByOther(devicePrefix+"*"), destinationNotIn(pods), masquerade())
		}
		nat.add(sameSource(views))
		nat.add(leavesBy(devicePrefix+"*"), sameSource(pods))
		if node := ofFamily(c.Node.Addresses, v4); node.IsValid() {
			nat.add(leavesBy(devicePrefix+"*"), cameByOther(vxlanName), snatTo(node))
		}
		if len(c.Gateways) == 0 {
			continue
		}
		addresses, ranges := t.markMap("addresses", v4, false, singles[v4]), t.markMap("ranges", v4, true, 0)
		for _, a := range c.Node.Owns {
			addresses.addMark(single(a), 0) // no mark, though a range has one
		}
		for _, o := range c.Others {
			for _, p := range o.Owns {
				if p.IsSingleIP() {
					addresses.addMark(p, numbers[o.Name].mark())
				} else {
					ranges.addMark(p, numbers[o.Name].mark())
				}
			}
		}
		// The address after the range, and so before it.
		mark.add(markBy(ranges))
		mark.add(markBy(addresses))
	}
	segments := chain{name: "segments", kind: filterChain, hook: forwarding, priority: -350}
	if len(c.Gateways) > 0 || len(pieces) > 0 {
		segments.add(marked(), setMark(0))
	}
	segments.add(synOnly(), leavesBy(devicePrefix+"*"), clampSegments())
	segments.add(synOnly(), cameBy(devicePrefix+"*"), clampSegments())
	t.chains = append(pieces, nat, segments)
	if len(c.Gateways) > 0 {
		t.chains = append(t.chains, mark)
	}
	unknown(t, c, podSets)
	strangers(t, c)
	fabric(t, c)
	return t
}
