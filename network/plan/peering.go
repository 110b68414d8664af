package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// peer is a peering that can be part of the plan, without what cannot.
type peer struct {
	Peering
	// tunnel says that there can be one.
	tunnel bool
	// paths are those of Paths that can be.
	paths []*direct
}

// readPods returns this cluster's own ranges as they can be, the widest of those that
// overlap.
func (b *build) readPods(ranges []netip.Prefix) (pods []netip.Prefix) {
	var claims []claim
	for _, p := range ranges {
		if !sound(p) {
			b.wrong("cluster", "its pods' range %s is no prefix, or has host bits", p)
			continue
		}
		claims = append(claims, claim{prefix: p})
	}
	kept, _ := disjoint(claims)
	for _, c := range kept {
		pods = append(pods, c.prefix)
	}
	return pods
}

// readExternal finds the address that stands for what is no pod in each family: that after
// the range's own, which some think to be none.
func (b *build) readExternal(ranges []netip.Prefix) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b netip.Prefix) int { return claim{a, 0}.compare(claim{b, 0}) })
	for _, p := range ranges {
		switch {
		case !sound(p):
			b.wrong("cluster", "its external range %s is no prefix, or has host bits", p)
		case p.Overlaps(ipv4InIPv6):
			b.wrong("cluster", "its external range %s holds addresses of IPv4 in an IPv6 form", p)
		case firstOf(b.external, p.Addr().Is4()).IsValid():
			b.wrong("cluster", "its external range %s is the second one of IPv%s", p, familyName(p.Addr().Is4()))
		case p.IsSingleIP():
			b.external, b.externalRanges = append(b.external, p.Addr()), append(b.externalRanges, p)
		default:
			b.external, b.externalRanges = append(b.external, p.Addr().Next()), append(b.externalRanges, p)
			b.mapped = append(b.mapped, ipam.Mappable(p)...)
		}
	}
}

// readPeerings finds what of the peerings can be.
func (b *build) readPeerings(in Input) {
	named := map[string]int{}
	for _, p := range in.Peerings {
		named[p.Key]++
	}
	for _, p := range in.Peerings {
		switch {
		case p.Key == "":
			b.wrong("peerings", "one has no key")
		case named[p.Key] > 1:
			b.wrong(peeringObject(p.Key), "%d peerings have this key", named[p.Key])
		case p.Role != Consumer && p.Role != Provider:
			b.wrong(peeringObject(p.Key), "its role %q is neither %s nor %s", p.Role, Consumer, Provider)
		default:
			b.peerings = append(b.peerings, &peer{Peering: p})
		}
	}
	slices.SortFunc(b.peerings, older)
	b.readDevices()
	b.readViews()
	b.readPorts()
	var views []claim
	for _, p := range b.peerings {
		b.readDoors(p)
		for _, v := range p.Views {
			views = append(views, claim{prefix: v.View})
		}
	}
	slices.SortFunc(views, claim.compare)
	b.readLines(views)
	for _, p := range b.peerings {
		for _, view := range p.lineViews() {
			views = append(views, claim{prefix: view})
		}
	}
	slices.SortFunc(views, claim.compare)
	b.places = b.placesOf(in, views)
	b.readPaths()
	slices.SortFunc(b.peerings, func(a, b *peer) int { return cmp.Compare(a.Key, b.Key) })
	for _, p := range b.peerings {
		b.readTransit(p)
		b.readParties(p)
		b.readTunnel(p)
		b.readReach(p)
	}
}

// older compares peerings: that which comes first keeps what two cannot have.
func older(a, b *peer) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key)) }

// readDevices leaves out peerings whose veth, and tunnels whose device, has the name of an older
// one's.
func (b *build) readDevices() {
	veths, tunnels := map[string]string{}, map[string]string{}
	b.peerings = slices.DeleteFunc(b.peerings, func(p *peer) bool {
		device := dataplane.Device(p.Key)
		other, taken := veths[device]
		if taken {
			b.wrong(peeringObject(p.Key), "its device %s is that of peering %s; only another key helps", device, other)
			return true
		}
		veths[device] = p.Key
		return false
	})
	for _, p := range b.peerings {
		device := tunnelDevice(p.Key)
		other, taken := tunnels[device]
		if p.tunnel = !taken; taken {
			b.wrong(peeringObject(p.Key), "its tunnel's device %s is that of peering %s; only another key helps", device, other)
			continue
		}
		tunnels[device] = p.Key
	}
}

// readPorts leaves out tunnels whose port is an older one's.
func (b *build) readPorts() {
	ports := map[uint16]string{}
	for _, p := range b.peerings {
		if other, taken := ports[p.ListenPort]; taken && p.ListenPort != 0 {
			p.tunnel = false
			b.wrong(peeringObject(p.Key), "its port %d is that of peering %s", p.ListenPort, other)
			continue
		}
		ports[p.ListenPort] = p.Key
	}
}

// readViews leaves out views that overlap the pods here or that of an older peering, or whose
// ranges at the peer overlap.
func (b *build) readViews() {
	type place struct {
		peer *peer
		view ipam.View
	}
	var places []place
	const ours = -1
	var views []claim
	for _, p := range b.pods {
		views = append(views, claim{p, ours})
	}
	for _, p := range b.peerings {
		var reals, own []claim
		for _, v := range p.Views {
			if !isView(v) {
				b.wrong(peeringObject(p.Key), "%s is no view of %s", v.View, v.Real)
				continue
			}
			reals, own = append(reals, claim{v.Real, len(places)}), append(own, claim{v.View, len(places)})
			places = append(places, place{p, v})
		}
		_, clashes := disjoint(reals)
		out := map[int]bool{}
		for _, c := range clashes {
			out[c.of.holder], out[c.with.holder] = true, true
			b.wrong(peeringObject(p.Key), "its ranges %s and %s overlap", c.with.prefix, c.of.prefix)
		}
		own = slices.DeleteFunc(own, func(c claim) bool { return out[c.holder] })
		slices.SortFunc(own, claim.compare)
		views = append(views, own...)
		p.Views = nil
	}
	kept, clashes := settle(views)
	for _, c := range clashes {
		whose := "the pods here"
		if c.with.holder != ours {
			whose = peeringObject(places[c.with.holder].peer.Key)
		}
		b.wrong(peeringObject(places[c.of.holder].peer.Key), "its view %s overlaps %s of %s", c.of.prefix, c.with.prefix, whose)
	}
	slices.SortFunc(kept, func(a, b claim) int { return cmp.Compare(a.holder, b.holder) }) // as they were listed
	for _, c := range kept {
		if c.holder != ours {
			at := places[c.holder]
			at.peer.Views = append(at.peer.Views, at.view)
		}
	}
}

// readTransit leaves out what is no view of another peering, which would leave by the node's
// default route. Views overlap neither each other nor the pods here.
func (b *build) readTransit(p *peer) {
	transit := slices.Clone(p.Transit)
	slices.SortFunc(transit, func(a, b netip.Prefix) int { return claim{a, 0}.compare(claim{b, 0}) })
	p.Transit = slices.DeleteFunc(slices.Compact(transit), func(t netip.Prefix) bool {
		is := slices.ContainsFunc(b.peerings, func(o *peer) bool {
			return o != p && slices.ContainsFunc(o.Views, func(v ipam.View) bool { return v.View == t })
		})
		if !is {
			b.wrong(peeringObject(p.Key), "its transit %s is no view of another peering", t)
		}
		return !is
	})
}

// readTunnel finds whether a tunnel can be, and where its peer may be: not at an address
// that a view covers, whose packets would go into a tunnel themselves, nor where this cluster is.
func (b *build) readTunnel(p *peer) {
	if p.Peer.IsZero() {
		p.tunnel = false
		b.wrong(peeringObject(p.Key), "the peer has published no key yet")
	}
	p.Endpoints = b.readEndpoints(peeringObject(p.Key), p.Endpoints, false)
}

// readEndpoints leaves out what is none. Where names lead is looked at when that is known, by the same places.
func (b *build) readEndpoints(object string, endpoints []string, path bool) []string {
	return slices.DeleteFunc(slices.Clone(endpoints), func(e string) bool {
		host, _, err := tunnel.SplitEndpoint(e)
		if err != nil {
			b.wrong(object, "its peer's endpoint %v", err)
			return true
		}
		a, err := netip.ParseAddr(host)
		if err != nil {
			return false
		}
		why := b.places.Refuse(a, path)
		if why != "" {
			b.wrong(object, "its peer's endpoint %s %s", e, why)
		}
		return why != ""
	})
}

// readReach reads who may be at either end. Who is not limited needs to know it of transit only,
// and who is closed of doors only.
func (b *build) readReach(p *peer) {
	p.ShutHere, p.ShutThere = b.readLimits(p, p.ShutHere), b.readLimits(p, p.ShutThere)
	if p.Closed || !p.Limited {
		p.Callers, p.Open = nil, nil
	}
	switch {
	case p.Closed:
		p.Limited, p.Transit = true, nil
		p.Here, p.There, p.ShutHere, p.ShutThere = b.readLimits(p, p.Here), nil, nil, nil
	case p.Limited:
		p.Here, p.There = b.readLimits(p, p.Here), b.readLimits(p, p.There)
		b.readCallers(p)
	case len(p.Transit) > 0:
		through := slices.DeleteFunc(slices.Clone(p.Here), func(a netip.Addr) bool { return !contains(p.Transit, a) })
		p.Here, p.There = b.readLimits(p, through), b.readLimits(p, p.There)
	default:
		p.Here, p.There = nil, nil
	}
	p.Calls = slices.DeleteFunc(slices.Clone(p.Calls), func(at netip.AddrPort) bool {
		why := unusable(at.Addr())
		if at.Port() == 0 {
			why = "has no port"
		}
		if why != "" {
			b.wrong(peeringObject(p.Key), "its peer's door %s %s", at, why)
		}
		return why != ""
	})
	slices.SortFunc(p.Calls, netip.AddrPort.Compare)
	p.Calls = slices.Compact(p.Calls)
}

// readCallers leaves out who is no pod of this cluster's own, or may begin anyway, and what is not for the role.
func (b *build) readCallers(p *peer) {
	own := func(addrs []netip.Addr, role Role) []netip.Addr {
		if p.Role != role {
			return nil
		}
		return slices.DeleteFunc(b.readLimits(p, addrs), func(a netip.Addr) bool { return !contains(b.pods, a) })
	}
	p.Callers = slices.DeleteFunc(own(p.Callers, Provider), func(a netip.Addr) bool {
		_, is := slices.BinarySearchFunc(p.Here, a, netip.Addr.Compare)
		return is
	})
	p.Open = own(p.Open, Consumer)
}

// readLimits leaves out what is no address.
func (b *build) readLimits(p *peer, addrs []netip.Addr) []netip.Addr {
	sorted := slices.Clone(addrs)
	slices.SortFunc(sorted, netip.Addr.Compare)
	return slices.DeleteFunc(slices.Compact(sorted), func(a netip.Addr) bool {
		why := unusable(a)
		if why != "" {
			b.wrong(peeringObject(p.Key), "the address %s that may be reached %s", a, why)
		}
		return why != ""
	})
}

// readDoors leaves out doors that cannot be: those of no address of the external range, or
// of the one that stands for all sources, and those that lead nowhere.
func (b *build) readDoors(p *peer) {
	type place struct {
		at  netip.AddrPort
		udp bool
	}
	seen, from := map[place]bool{}, map[netip.Addr][]netip.Addr{}
	p.Doors = slices.DeleteFunc(slices.Clone(p.Doors), func(d dataplane.Door) bool {
		why := unusable(d.To.Addr())
		switch at := d.At.Addr(); {
		case !contains(b.externalRanges, at) || slices.Contains(b.external, at):
			why = "is not at an address of the external range"
		case at.Is4() != d.To.Addr().Is4() || d.At.Port() == 0 || d.To.Port() == 0:
			why = "has no port, or is of another family"
		case seen[place{d.At, d.UDP}]:
			why = "is there twice"
		}
		seen[place{d.At, d.UDP}] = true
		if why != "" {
			b.wrong(peeringObject(p.Key), "its door from %s to %s %s", d.At, d.To, why)
		}
		return why != ""
	})
	slices.SortStableFunc(p.Doors, func(a, b dataplane.Door) int { return a.At.Compare(b.At) })
	for i := range p.Doors {
		d := &p.Doors[i]
		if _, known := from[d.At.Addr()]; !known { // what is at one address is for the same ones
			from[d.At.Addr()] = b.readLimits(p, d.From)
		}
		d.From = from[d.At.Addr()]
	}
}

// gateway is a peering's gateway on this node.
func (b *build) gateway(p *peer, mtu int) dataplane.Gateway {
	at, to := p.ends(true)
	g := dataplane.Gateway{
		Peering: p.Key, Since: p.Since, Tunnel: tunnelDevice(p.Key), MTU: mtu, External: b.external, Transit: p.Transit,
		Probe: ProbePort, ProbeAt: at, ProbePeer: to, Limited: p.Limited, Here: p.Here, There: p.There, Doors: p.Doors, Mapped: b.mapped,
		FromHere: p.Role == Provider, FromThere: p.Role == Consumer,
		Closed: p.Closed, Calls: p.Calls, ShutHere: p.ShutHere, ShutThere: p.ShutThere, Guard: b.guard(p), Line: p.Line,
		Parties: p.Parties, Callers: p.Callers, Open: p.Open,
	}
	g.LineAt, g.LinePeer = p.ends(false)
	g.Begin, g.Port, g.Known = beginPerSecond, p.ListenPort, known(p.Heard, p.Endpoints)
	g.Views = viewsOf(p.Views)
	return g
}

// known are the addresses at which a peer is expected: where it was heard, and those of its endpoints
// that are no names.
func known(heard netip.Addr, endpoints []string) (all []netip.Addr) {
	if heard.IsValid() {
		all = append(all, heard.Unmap().WithZone(""))
	}
	for _, e := range endpoints {
		host, _, err := tunnel.SplitEndpoint(e)
		if err != nil {
			continue
		}
		if a, err := netip.ParseAddr(host); err == nil {
			all = append(all, a.Unmap().WithZone(""))
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// ends are this end and the other one of the tunnel, in a family.
func (p *peer) ends(v4 bool) (here, there netip.Addr) {
	consumer, provider := consumerEnd6, providerEnd6
	if v4 {
		consumer, provider = consumerEnd, providerEnd
	}
	if p.Role == Consumer {
		return consumer, provider
	}
	return provider, consumer
}

func probe(p *peer) Probe {
	at, to := p.ends(true)
	return Probe{Peering: p.Key, At: netip.AddrPortFrom(at, ProbePort), Peer: netip.AddrPortFrom(to, ProbePort)}
}

// tunnelOf is the tunnel of a peering whose gateway is here. Its packets have no mark: no
// view covers the addresses where the peer may be.
func (p *peer) tunnelOf(mtu int) Tunnel {
	return Tunnel{Peering: p.Key, Secret: p.Secret, Config: tunnel.Config{
		Name: tunnelDevice(p.Key), MTU: mtu, ListenPort: p.ListenPort,
		Peer: p.Peer, NextPeer: p.NextPeer, Endpoints: p.Endpoints, Keepalive: keepalive,
	}}
}

// tunnelDevice is the name of a tunnel's device. It is made among the devices of the
// node, so no two may have one at the same time.
func tunnelDevice(peering string) string {
	sum := sha256.Sum256([]byte("tunnel of " + peering))
	return "pelago-wg" + hex.EncodeToString(sum[:3])
}
