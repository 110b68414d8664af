package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

const (
	deviceNameMax = 15
	vniMax        = 1<<24 - 1
	mtuMin        = 1280 // what IPv6 needs
)

// ErrInvalid is wrapped by errors about a config that no kernel can follow.
var ErrInvalid = errors.New("invalid config")

// Check returns every mistake in the config that can be seen without a kernel, each with
// the field.
func (c Config) Check() error {
	var found []error
	wrong := func(format string, args ...any) { found = append(found, fmt.Errorf(format, args...)) }
	if c.Node.Name == "" && (len(c.Others) > 0 || len(c.Routes) > 0 || len(c.Gateways) > 0) {
		wrong("node.name: empty")
	}
	checkFamilies(wrong, "node.addresses", c.Node.Addresses)
	checkOthers(wrong, c)
	checkDisjoint(wrong, "pods", c.Pods)
	gateways := map[string]bool{}
	devices := map[string]string{}
	for _, g := range c.Gateways {
		if gateways[g.Peering] || g.Peering == "" {
			wrong("gateways: peering %q is empty or there twice", g.Peering)
		}
		gateways[g.Peering] = true
		if other, taken := devices[Device(g.Peering)]; taken {
			wrong("gateways: %q and %q have the same device %s", other, g.Peering, Device(g.Peering))
		}
		devices[Device(g.Peering)] = g.Peering
		checkGateway(wrong, c, g)
	}
	checkStrangers(wrong, c.Gateways)
	checkRoutes(wrong, c, gateways)
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(found...))
}

type wrongFunc func(format string, args ...any)

func checkOthers(wrong wrongFunc, c Config) {
	if len(c.Others) > 0 {
		switch {
		case !c.Node.Underlay.IsValid():
			wrong("node.underlay: empty")
		case c.Node.VNI == 0 || c.Node.VNI > vniMax:
			wrong("node.vni: %d is not in 1 to %d", c.Node.VNI, vniMax)
		case c.Node.Port == 0:
			wrong("node.port: 0")
		case c.Node.MTU < mtuMin:
			wrong("node.mtu: %d is less than %d", c.Node.MTU, mtuMin)
		}
	}
	seen := map[string]bool{c.Node.Name: true}
	underlays := map[netip.Addr]string{c.Node.Underlay: c.Node.Name}
	owned := 0
	for _, o := range c.Others {
		owned += len(o.Owns)
	}
	owner := make(map[netip.Prefix]string, owned)
	for _, o := range c.Others {
		if seen[o.Name] || o.Name == "" {
			wrong("others: %q is empty or there twice", o.Name)
		}
		seen[o.Name] = true
		if !o.Underlay.IsValid() || o.Underlay.Is4() != c.Node.Underlay.Is4() {
			wrong("others: %s has underlay %s, of another family than this node's %s", o.Name, o.Underlay, c.Node.Underlay)
		}
		if other, taken := underlays[o.Underlay]; taken {
			wrong("others: %s and %s have the same underlay %s", other, o.Name, o.Underlay)
		}
		underlays[o.Underlay] = o.Name
		for _, p := range o.Owns {
			checkPrefix(wrong, "others: "+o.Name, p)
			if other, taken := owner[p]; taken {
				wrong("others: %s and %s both own %s", other, o.Name, p)
			}
			owner[p] = o.Name
		}
	}
	for _, a := range c.Node.Owns {
		if !plain(a) {
			wrong("node.owns: %s is no address", a)
		} else if other, taken := owner[single(a)]; taken {
			wrong("node.owns: %s owns %s", other, a)
		}
	}
	var wide []netip.Prefix
	for p := range owner {
		if !p.IsSingleIP() {
			wide = append(wide, p)
		}
	}
	checkDisjoint(wrong, "others.owns", wide)
}

func checkGateway(wrong wrongFunc, c Config, g Gateway) {
	field := "gateways: " + g.Peering
	if g.Tunnel == "" || len(g.Tunnel) > deviceNameMax || g.Tunnel == insideName {
		wrong("%s: tunnel %q is no name of a device of its own", field, g.Tunnel)
	}
	if g.MTU < mtuMin {
		wrong("%s: mtu %d is less than %d", field, g.MTU, mtuMin)
	}
	checkFamilies(wrong, field+": external", g.External)
	if at, peer := g.ProbeAt, g.ProbePeer; (at != netip.Addr{} || peer != netip.Addr{}) && (!at.Is4() || !peer.Is4() || at == peer) {
		wrong("%s: probes go from %s to %s, which are not two addresses of IPv4", field, at, peer)
	}
	if at, peer := g.LineAt, g.LinePeer; (at != netip.Addr{} || peer != netip.Addr{}) && (!plain(at) || !plain(peer) || at.Is4() || peer.Is4() || at == peer) {
		wrong("%s: lines go from %s to %s, which are not two addresses of IPv6", field, at, peer)
	}
	views, reals := checkViews(wrong, field, g.Views)
	checkDisjoint(wrong, field+": pods and transit", slices.Concat(c.Pods, g.Transit))
	checkDisjoint(wrong, field+": views", views)
	checkDisjoint(wrong, field+": ranges", reals)
	checkOwn(wrong, field, g)
	checkGuard(wrong, field, g.Guard)
	checkParties(wrong, field, g.Parties)
	checkCallers(wrong, field, g)
	checkLine(wrong, field, g)
	lists := [][]netip.Addr{g.Here, g.There, g.ShutHere, g.ShutThere, g.Callers, g.Open}
	checkDisjoint(wrong, field+": mapped", g.Mapped)
	type place struct {
		at  netip.AddrPort
		udp bool
	}
	doors, from := map[place]bool{}, map[netip.Addr][]netip.Addr{}
	for _, d := range g.Doors {
		at, to := d.At.Addr(), d.To.Addr()
		if !plain(at) || !plain(to) || at.Is4() != to.Is4() || d.At.Port() == 0 || d.To.Port() == 0 || doors[place{d.At, d.UDP}] {
			wrong("%s: a door from %s to %s is none, or there twice", field, d.At, d.To)
		}
		doors[place{d.At, d.UDP}] = true
		lists = append(lists, d.From)
		if before, known := from[at]; known && !slices.Equal(before, d.From) {
			wrong("%s: doors at %s are for different sources", field, at)
		}
		from[at] = d.From
	}
	for i, at := range g.Calls {
		if !plain(at.Addr()) || at.Port() == 0 || slices.Contains(g.Calls[:i], at) {
			wrong("%s: a call of %s is none, or there twice", field, at)
		}
	}
	if g.Closed && !g.Limited {
		wrong("%s: it is closed and not limited", field)
	}
	for _, list := range lists {
		seen := make(map[netip.Addr]bool, len(list))
		for _, a := range list {
			if seen[a] || !plain(a) {
				wrong("%s: address %s is no address or there twice", field, a)
			}
			seen[a] = true
		}
	}
}

func checkViews(wrong wrongFunc, field string, of []View) (views, reals []netip.Prefix) {
	for _, v := range of {
		views, reals = append(views, v.View), append(reals, v.Real)
		if v.View.Bits() != v.Real.Bits() || v.View.Addr().Is4() != v.Real.Addr().Is4() {
			wrong("%s: view %s and range %s differ in size", field, v.View, v.Real)
		}
	}
	return views, reals
}

func checkRoutes(wrong wrongFunc, c Config, gateways map[string]bool) {
	others := map[string]bool{}
	for _, o := range c.Others {
		others[o.Name] = true
	}
	var prefixes []netip.Prefix
	for _, r := range c.Routes {
		prefixes = append(prefixes, r.Prefix)
		switch {
		case r.Node != "" && r.Gateway != "":
			wrong("routes: %s has both a node and a gateway", r.Prefix)
		case r.Node != "" && !others[r.Node]:
			wrong("routes: %s: node %q is none of the others", r.Prefix, r.Node)
		case r.Gateway != "" && !gateways[r.Gateway]:
			wrong("routes: %s: gateway %q is not on this node", r.Prefix, r.Gateway)
		}
	}
	checkDisjoint(wrong, "routes", prefixes)
}

func checkFamilies(wrong wrongFunc, field string, addrs []netip.Addr) {
	seen := map[bool]bool{}
	for _, a := range addrs {
		if !plain(a) || seen[a.Is4()] {
			wrong("%s: %s is no address or the second one of its family", field, a)
		}
		seen[a.Is4()] = true
	}
}

func checkPrefix(wrong wrongFunc, field string, p netip.Prefix) bool {
	if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
		wrong("%s: %s is no prefix, or has host bits", field, p)
		return false
	}
	return true
}

// checkDisjoint finds prefixes that hold others. Sorted, a prefix that holds another is
// followed by one that it holds.
func checkDisjoint(wrong wrongFunc, field string, prefixes []netip.Prefix) {
	sorted := sortedPrefixes(prefixes)
	for i, p := range sorted {
		if checkPrefix(wrong, field, p) && i > 0 && sorted[i-1].Overlaps(p) {
			wrong("%s: %s and %s overlap", field, sorted[i-1], p)
		}
	}
}

func plain(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && a.Zone() == ""
}
