package internet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Routing is what the kernel must know beyond the rule set, in an order that
// makes two of them comparable.
type Routing struct {
	Devices []Device
	Routes  []Route
	Rules   []Rule
}

// Device is a TUN device whose packets a relay carries.
type Device struct {
	Name string
	// Link is what the relay does; A and B are the ports it joins.
	Link Link
	A, B Port
}

// Route sends packets for a prefix out of an interface, by way of Gateway if
// that is valid. Table 0 is the main one.
type Route struct {
	Prefix    netip.Prefix
	Interface string
	Gateway   netip.Addr
	Table     int
}

// Rule sends packets that came in by an interface for a prefix to a table.
type Rule struct {
	In    string
	To    netip.Prefix
	Table int
}

// RoutingFor returns the routing of a valid Config. It is pure.
func RoutingFor(c Config) Routing {
	var r Routing
	for _, p := range c.Ports {
		for _, prefix := range p.Prefixes {
			r.Routes = append(r.Routes, Route{Prefix: prefix, Interface: p.Interface})
		}
		for _, prefix := range p.Private {
			r.Routes = append(r.Routes, Route{Prefix: prefix, Interface: p.Interface, Gateway: p.via(prefix)})
		}
	}
	for _, p := range c.Host.Prefixes {
		r.Routes = append(r.Routes, Route{Prefix: p, Interface: c.Host.Interface})
	}
	for _, p := range c.pairs() {
		a, b := c.Ports[p.from], c.Ports[p.to]
		if link := c.link(a.Cluster, b.Cluster); a.Cluster < b.Cluster && link.relayed() {
			r.addDevice(p, a, b, link)
		}
	}
	r.sort()
	return r
}

func (r *Routing) addDevice(p pair, a, b Port, link Link) {
	name, table := deviceName(p.from, p.to), deviceTable(p.from, p.to)
	r.Devices = append(r.Devices, Device{Name: name, Link: link, A: a, B: b})
	for _, direction := range [][2]Port{{a, b}, {b, a}} {
		for _, prefix := range direction[1].Prefixes {
			r.Rules = append(r.Rules, Rule{In: direction[0].Interface, To: prefix, Table: table})
		}
	}
	for _, everything := range []netip.Prefix{
		netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0),
	} {
		is4 := everything.Addr().Is4()
		if len(ofFamily(slices.Concat(a.Prefixes, b.Prefixes), is4)) > 0 {
			r.Routes = append(r.Routes, Route{Prefix: everything, Interface: name, Table: table})
		}
	}
}

func (r *Routing) sort() {
	slices.SortFunc(r.Devices, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(r.Routes, func(a, b Route) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	slices.SortFunc(r.Rules, func(a, b Rule) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// deviceName names the WAN device between two ports by their positions, counted
// from one, the lower first.
func deviceName(i, j int) string { return fmt.Sprintf("w%d-%d", min(i, j)+1, max(i, j)+1) }

// deviceTable is above the tables that Linux names itself (253 to 255).
func deviceTable(i, j int) int { return (min(i, j)+1)*1000 + max(i, j) + 1 }
