package dataplane

import (
	"fmt"
	"slices"
	"strconv"
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
	if g.ProbeAt.IsValid() {
		s.addresses = append(s.addresses, address{insideName, single(g.ProbeAt)})
		if tunnelThere {
			s.routes = append(s.routes, route{prefix: single(g.ProbePeer), table: mainTable, device: g.Tunnel, source: g.ProbeAt})
		}
	}
	for _, v4 := range families {
		if !v4 && !usesIPv6(c) {
			continue
		}
		s.addresses = append(s.addresses, address{insideName, single(errorSource(v4))})
		s.neighbours = append(s.neighbours, neighbour{insideName, hostEnd(v4), hostHardware(g)})
		s.routes = append(s.routes,
			route{prefix: everything(v4), table: mainTable, device: insideName, via: hostEnd(v4)},
			route{prefix: everything(v4), table: tunnelTable, metric: lastMetric})
		if tunnelThere {
			s.routes = append(s.routes, route{prefix: everything(v4), table: tunnelTable, device: g.Tunnel})
		}
		s.rules = append(s.rules, rule{v4: v4, priority: insideRules, table: tunnelTable, device: insideName})
	}
	s.table = gatewayTable(c, g)
	return s
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
	policy := chain{name: "policy", kind: filterChain, hook: forwarding, priority: 0, drop: true}
	policy.add(synOnly(), clampSegments())
	policy.add(connection(invalid), countedDrop(DropInvalid))
	policy.add(connection(established), accept())
	policy.add(cameBy(g.Tunnel), leavesByOther(insideName), countedDrop(DropPath))
	policy.add(cameBy(insideName), leavesByOther(g.Tunnel), countedDrop(DropPath))
	for _, v4 := range families {
		peer, pods := t.prefixSet("peer", v4), t.prefixSet("pods", v4)
		for _, v := range sortedBy(g.Views, func(v View) string { return v.View.String() }) {
			peer.addPrefix(v.Real)
			if v.View != v.Real && v.View.Addr().Is4() == v4 {
				destination.add(cameBy(insideName), translate(v.View, v.Real, false))
				source.add(leavesBy(insideName), translate(v.Real, v.View, true))
			}
		}
		for _, p := range slices.Concat(c.Pods, g.Transit) {
			pods.addPrefix(p)
		}
		if external := ofFamily(g.External, v4); external.IsValid() {
			source.add(cameBy(insideName), leavesBy(g.Tunnel), sourceNotIn(pods), snatTo(external))
		}
		here, there := t.addressSet("here", v4, g.Here), t.addressSet("there", v4, g.There)
		policy.add(cameBy(g.Tunnel), sourceNotIn(peer), countedDrop(DropSource))
		for i, d := range sortedBy(g.Doors, func(d Door) string { return d.At.String() }) {
			if d.At.Addr().Is4() != v4 {
				continue
			}
			from := t.addressSet(fmt.Sprintf("door%d-", i), v4, d.From)
			destination.add(cameBy(g.Tunnel), destinationIs(d.At), dnatTo(d.To))
			policy.add(cameBy(g.Tunnel), sourceIn(from), destinationIs(d.To), translated(), accept())
		}
		policy.add(cameBy(g.Tunnel), destinationNotIn(pods), countedDrop(DropDestination))
		policy.add(cameBy(insideName), destinationNotIn(peer), countedDrop(DropDestination))
		if g.Limited {
			// What is in the middle of a connection from the other side: the gateway
			// has moved here, and has not seen its beginning.
			in, out := []statement{destinationIn(here)}, []statement{destinationIn(there)}
			inMiddle, outMiddle := []statement{middleOfTCP(), sourceIn(there)}, []statement{middleOfTCP(), sourceIn(here)}
			if g.FromThere {
				in, outMiddle = append(in, sourceIn(there)), append(outMiddle, destinationIn(there))
			}
			if g.FromHere {
				out, inMiddle = append(out, sourceIn(here)), append(inMiddle, destinationIn(here))
			}
			policy.passes(cameBy(g.Tunnel), in)
			policy.passes(cameBy(g.Tunnel), inMiddle)
			policy.passes(cameBy(insideName), out)
			policy.passes(cameBy(insideName), outMiddle)
		}
	}
	if g.Limited {
		policy.add(countedDrop(DropDenied))
	} else {
		policy.add(cameBy(g.Tunnel), accept())
		policy.add(cameBy(insideName), accept())
	}
	t.chains = slices.Concat([]chain{destination}, t.guard(g), []chain{localChain(g), policy, source})
	return t
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

func portText(port uint16) string { return strconv.Itoa(int(port)) }
