package dataplane

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

const ipv6Metric = 1024 // what the kernel makes of 0

// ourRoutes returns the routes that have our protocol.
func (s *space) ourRoutes(names map[int]string) (map[route]netlink.Route, error) {
	found := map[route]netlink.Route{}
	for _, v4 := range families {
		filter := &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Protocol: protocol}
		list, err := netns.Whole(func() ([]netlink.Route, error) {
			return s.kernel.RouteListFiltered(familyOf(v4), filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		})
		if err != nil {
			return nil, fmt.Errorf("listing routes of %s: %w", s.name, err)
		}
		for _, k := range list {
			found[routeOf(k, v4, names)] = k
		}
	}
	return found, nil
}

func routeOf(k netlink.Route, v4 bool, names map[int]string) route {
	r := route{prefix: everything(v4), table: k.Table, metric: k.Priority, mtu: k.MTU}
	if k.Dst != nil {
		r.prefix = prefixOf(k.Dst)
	}
	if !v4 && r.metric == ipv6Metric {
		r.metric = 0
	}
	if k.Type != unix.RTN_UNREACHABLE {
		r.device = names[k.LinkIndex]
	}
	if via, ok := netip.AddrFromSlice(k.Gw); ok {
		r.via = via.Unmap()
	}
	if source, ok := netip.AddrFromSlice(k.Src); ok {
		r.source = source.Unmap()
	}
	return r
}

// indexes returns the devices' numbers by name and the other way.
func (s *space) indexes() (map[string]int, map[int]string, error) {
	present, err := s.links()
	if err != nil {
		return nil, nil, err
	}
	numbers, names := map[string]int{}, map[int]string{}
	for name, l := range present {
		numbers[name], names[l.Attrs().Index] = l.Attrs().Index, name
	}
	return numbers, names, nil
}

// addRoutes adds what is missing; a route to the same prefix that goes elsewhere is
// replaced at once.
func (s *space) addRoutes(wanted []route) error {
	numbers, names, err := s.indexes()
	if err != nil {
		return err
	}
	present, err := s.ourRoutes(names)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		if _, ok := present[w]; ok {
			continue
		}
		index := numbers[w.device]
		if w.device != "" && index == 0 {
			return fmt.Errorf("adding in %s: %s: no such device", s.name, w)
		}
		if err := s.wrote(w, "adding", s.kernel.RouteReplace(kernelRoute(w, index))); err != nil {
			return err
		}
	}
	return nil
}

func kernelRoute(r route, index int) *netlink.Route {
	k := &netlink.Route{
		Dst: network(r.prefix), Table: r.table, Protocol: protocol, Priority: r.metric, MTU: r.mtu,
		Family: familyOf(r.prefix.Addr().Is4()),
	}
	if r.source.IsValid() {
		k.Src = r.source.AsSlice()
	}
	switch {
	case r.device == "":
		k.Type = unix.RTN_UNREACHABLE
		return k
	case r.via.IsValid():
		k.Gw = r.via.AsSlice()
		k.SetFlag(netlink.FLAG_ONLINK)
	case r.prefix.Addr().Is4():
		k.Scope = netlink.SCOPE_LINK
	}
	k.LinkIndex = index
	return k
}

// removeRoutes removes those of ours that are not wanted.
func (s *space) removeRoutes(wanted []route) error {
	_, names, err := s.indexes()
	if err != nil {
		return err
	}
	present, err := s.ourRoutes(names)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		delete(present, w)
	}
	for r, k := range present {
		if err := s.wrote(r, "removing", s.kernel.RouteDel(&k)); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}
