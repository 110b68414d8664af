package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// maxPaths is the most paths of one peering: its consumer says how many there are.
const maxPaths = 16

// direct is a path that can be part of the plan, without what cannot, and the views that it is for.
type direct struct {
	Path
	views []ipam.View
}

// claimed are keys, and names and ports that no two tunnels may have, and whose they are.
type claimed struct {
	keys           map[string]int
	veths, tunnels map[string]string
	ports          map[uint16]string
}

// take gives a tunnel its names, or says which one somebody has.
func (c *claimed) take(object, key string, port uint16) (why, whose string) {
	veth, device := dataplane.Device(key), tunnelDevice(key)
	switch {
	case c.veths[veth] != "":
		return "its device " + veth, c.veths[veth]
	case c.tunnels[device] != "":
		return "its tunnel's device " + device, c.tunnels[device]
	case port != 0 && c.ports[port] != "":
		return "its port", c.ports[port]
	}
	c.veths[veth], c.tunnels[device], c.ports[port] = object, object, object
	return "", ""
}

// readPaths finds what of the paths can be. Peerings are in order of age: all of them go before paths,
// and of paths those of the older peering, whose consumers choose their names.
func (b *build) readPaths() {
	taken := &claimed{keys: map[string]int{}, veths: map[string]string{}, tunnels: map[string]string{}, ports: map[uint16]string{}}
	for _, p := range b.peerings {
		taken.keys[p.Key]++
		taken.veths[dataplane.Device(p.Key)] = peeringObject(p.Key)
		if p.tunnel {
			taken.tunnels[tunnelDevice(p.Key)], taken.ports[p.ListenPort] = peeringObject(p.Key), peeringObject(p.Key)
		}
		for _, path := range p.Paths {
			taken.keys[path.Key]++
		}
	}
	for _, p := range b.peerings {
		said := slices.Clone(p.Paths)
		slices.SortStableFunc(said, func(a, b Path) int { return cmp.Compare(a.Key, b.Key) })
		switch {
		case len(said) == 0 || p.Closed:
			continue
		case len(said) > maxPaths:
			b.wrong(peeringObject(p.Key), "it has %d direct paths, of which the first %d are made", len(said), maxPaths)
			said = said[:maxPaths]
		}
		for _, path := range said {
			if w := b.readPath(p, path, taken); w != nil {
				p.paths = append(p.paths, w)
			}
		}
	}
}

// readPath returns a path as it can be, nil if it cannot.
func (b *build) readPath(p *peer, path Path, taken *claimed) *direct {
	object := pathObject(path.Key)
	switch {
	case path.Key == "":
		b.wrong(peeringObject(p.Key), "a direct path has no key")
		return nil
	case taken.keys[path.Key] > 1:
		b.wrong(object, "%d paths or peerings have this key", taken.keys[path.Key])
		return nil
	case path.Peer == tunnel.PublicKey{}:
		b.wrong(object, "the other end has published no key yet")
		return nil
	}
	w := &direct{Path: path}
	w.Own = b.readOwn(object, path.Own)
	w.views = b.readLeadsTo(p, w)
	if len(w.Own) == 0 || len(w.views) == 0 {
		b.wrong(object, "there is nothing that it could carry, and it is not made")
		return nil
	}
	if why, whose := taken.take(object, path.Key, path.ListenPort); why != "" {
		b.wrong(object, "%s is that of %s, and it is not made", why, whose)
		return nil
	}
	w.Endpoints = b.readEndpoints(object, path.Endpoints, true)
	w.Here, w.There = b.readLimits(p, path.Here), b.readLimits(p, slices.DeleteFunc(slices.Clone(path.There), func(a netip.Addr) bool { return !w.leadsTo(a) }))
	return w
}

// readOwn leaves out what is no view of pods here, and what overlaps another one.
func (b *build) readOwn(object string, views []ipam.View) (own []ipam.View) {
	sorted := slices.Clone(views)
	slices.SortFunc(sorted, func(a, b ipam.View) int {
		return cmp.Or(claim{a.Real, 0}.compare(claim{b.Real, 0}), claim{a.View, 0}.compare(claim{b.View, 0}))
	})
	for _, v := range slices.Compact(sorted) {
		overlaps := func(o ipam.View) bool { return o.Real.Overlaps(v.Real) || o.View.Overlaps(v.View) }
		within := func(p netip.Prefix) bool { return p.Overlaps(v.Real) && p.Bits() <= v.Real.Bits() }
		switch {
		case !isView(v):
			b.wrong(object, "%s is no view of %s here", v.View, v.Real)
		case !slices.ContainsFunc(b.pods, within):
			b.wrong(object, "%s is seen as %s, and is no range of pods here", v.Real, v.View)
		case slices.ContainsFunc(own, overlaps):
			b.wrong(object, "%s as %s overlaps another one of its own views", v.Real, v.View)
		default:
			own = append(own, v)
		}
	}
	return own
}

// readLeadsTo are the views of what a path leads to: of those prefixes that are ranges of the peering
// and of no path before it, and of the families that are known there of pods here.
func (b *build) readLeadsTo(p *peer, w *direct) (views []ipam.View) {
	prefixes := slices.Clone(w.Prefixes)
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int { return claim{a, 0}.compare(claim{b, 0}) })
	for _, prefix := range slices.Compact(prefixes) {
		i := slices.IndexFunc(p.Views, func(v ipam.View) bool { return v.Real == prefix })
		before := slices.IndexFunc(p.paths, func(o *direct) bool { return slices.Contains(o.reals(), prefix) })
		switch {
		case i < 0:
			b.wrong(pathObject(w.Key), "it leads to %s, of which there is no view here", prefix)
		case before >= 0:
			b.wrong(pathObject(w.Key), "it leads to %s, as path %s does", prefix, p.paths[before].Key)
		case !slices.ContainsFunc(w.Own, func(o ipam.View) bool { return o.Real.Addr().Is4() == prefix.Addr().Is4() }):
			b.wrong(pathObject(w.Key), "it leads to %s, and has no view of pods here in IPv%s", prefix, familyName(prefix.Addr().Is4()))
		default:
			views = append(views, p.Views[i])
		}
	}
	return views
}

func (w *direct) reals() (reals []netip.Prefix) {
	for _, v := range w.views {
		reals = append(reals, v.Real)
	}
	return reals
}

func (w *direct) leadsTo(a netip.Addr) bool { return contains(w.reals(), a) }

// wayTo is the path by which packets to a view go, nil if they go by the peering's own gateway.
func (p *peer) wayTo(v ipam.View) *direct {
	for _, w := range p.paths {
		if w.Alive && slices.Contains(w.views, v) {
			return w
		}
	}
	return nil
}

// gateway is that of a path on the node of the peering's own, which lets as much pass of what it leads to.
// At a provider connections begin at pods of the consumer here and go to such there, or come from there and go to
// such here: whose address that one has is the other end's part. At a consumer they go to its pods there, or
// begin at these.
func (w *direct) gateway(of dataplane.Gateway) dataplane.Gateway {
	at, to := w.ends()
	g := dataplane.Gateway{
		Peering: w.Key, Since: of.Since, Tunnel: tunnelDevice(w.Key), MTU: of.MTU, Views: viewsOf(w.views), Own: viewsOf(w.Own),
		Probe: ProbePort, ProbeAt: at, ProbePeer: to, Limited: true, FromHere: of.FromHere, FromThere: of.FromThere, Here: w.Here, There: w.There,
		ShutHere: of.ShutHere, ShutThere: of.ShutThere, Guard: of.Guard,
		Begin: beginPerSecond, Port: w.ListenPort, Known: known(w.Heard, w.Endpoints),
	}
	return g
}

// ends are this end and the other one of a path's tunnel.
func (w *direct) ends() (here, there netip.Addr) {
	if w.First {
		return consumerEnd, providerEnd
	}
	return providerEnd, consumerEnd
}

func (w *direct) probe() Probe {
	at, to := w.ends()
	return Probe{Peering: w.Key, At: netip.AddrPortFrom(at, ProbePort), Peer: netip.AddrPortFrom(to, ProbePort)}
}

func (w *direct) tunnelOf(mtu int) Tunnel {
	return Tunnel{Peering: w.Key, Secret: w.Secret, Config: tunnel.Config{
		Name: tunnelDevice(w.Key), MTU: mtu, ListenPort: w.ListenPort, Peer: w.Peer, Endpoints: w.Endpoints, Keepalive: keepalive,
	}}
}

func viewsOf(views []ipam.View) (out []dataplane.View) {
	for _, v := range views {
		out = append(out, dataplane.View{View: v.View, Real: v.Real})
	}
	return out
}

// isView holds for a prefix and that which stands for it.
func isView(v ipam.View) bool {
	return sound(v.View) && sound(v.Real) && v.View.Bits() == v.Real.Bits() && v.View.Addr().BitLen() == v.Real.Addr().BitLen() && v.View.Bits() > 0
}

func pathObject(key string) string { return "path " + key }
