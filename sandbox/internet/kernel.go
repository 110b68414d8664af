package internet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// routeProtocol marks the routes that are ours (no routing daemon has it).
	routeProtocol = 112
	// routeMetric lets the routes of interface addresses go first.
	routeMetric = 4096
	// rulePriority marks the rules that are ours.
	rulePriority = 10000
	// wanQueue is how many packets the kernel keeps for a relay that does not
	// get a core: a quarter of a second at 100 Mbit/s.
	wanQueue = 2048
)

// EnableForwarding makes the network namespace of the calling thread route IPv4
// and IPv6 and accept packets by a device other than the one it would answer
// by. Call it before the first device is made, with /proc mounted writable.
func EnableForwarding() error {
	for _, s := range []struct{ file, value string }{
		{"ipv4/ip_forward", "1"},
		{"ipv6/conf/all/forwarding", "1"},
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
	} {
		if err := os.WriteFile("/proc/sys/net/"+s.file, []byte(s.value), 0); err != nil {
			return fmt.Errorf("enabling forwarding: %w", err)
		}
	}
	return nil
}

// errNoInterface is wrapped by the error about a config whose ports are not there.
var errNoInterface = errors.New("there is no such interface in this network namespace; make it first")

func checkInterfaces(c Config) error {
	fields, names := []string{"host.interface"}, []string{c.Host.Interface}
	for i, p := range c.Ports {
		fields, names = append(fields, fmt.Sprintf("ports[%d].interface", i)), append(names, p.Interface)
	}
	var errs []error
	for i, name := range names {
		if name == "" {
			continue
		}
		var missing netlink.LinkNotFoundError
		switch _, err := netlink.LinkByName(name); {
		case errors.As(err, &missing):
			errs = append(errs, fmt.Errorf("%s: %q: %w", fields[i], name, errNoInterface))
		case err != nil:
			errs = append(errs, fmt.Errorf("finding interface %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// bringUp readies a WAN device. Its MTU is the larger of its two ports, so that
// the port that is too small answers as it would without a relay.
func bringUp(d Device) error {
	mtu := 0
	for _, name := range []string{d.A.Interface, d.B.Interface} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("finding interface %s: %w", name, err)
		}
		mtu = max(mtu, link.Attrs().MTU)
	}
	link, err := netlink.LinkByName(d.Name)
	if err != nil {
		return fmt.Errorf("finding WAN device %s: %w", d.Name, err)
	}
	err = errors.Join(netlink.LinkSetMTU(link, mtu), netlink.LinkSetTxQLen(link, wanQueue),
		netlink.LinkSetAlias(link, d.A.Cluster+" "+d.B.Cluster), netlink.LinkSetUp(link))
	if err != nil {
		return fmt.Errorf("bringing up WAN device %s: %w", d.Name, err)
	}
	return nil
}

// addRoutes adds what is missing of our routes.
func addRoutes(wanted []Route) error {
	for _, r := range wanted {
		link, err := netlink.LinkByName(r.Interface)
		if err != nil {
			return fmt.Errorf("finding interface %s: %w", r.Interface, err)
		}
		if err := netlink.RouteReplace(kernelRoute(r, link.Attrs().Index)); err != nil {
			return fmt.Errorf("adding route %s by %s: %w", r.Prefix, r.Interface, err)
		}
	}
	return nil
}

func kernelRoute(r Route, index int) *netlink.Route {
	out := &netlink.Route{
		Dst: network(r.Prefix), LinkIndex: index, Table: r.Table, Protocol: routeProtocol, Priority: routeMetric,
	}
	if out.Table == 0 {
		out.Table = unix.RT_TABLE_MAIN
	}
	if r.Gateway.IsValid() {
		out.Gw = r.Gateway.AsSlice()
		out.SetFlag(netlink.FLAG_ONLINK)
	} else if r.Prefix.Addr().Is4() {
		out.Scope = netlink.SCOPE_LINK
	}
	return out
}

// removeRoutes removes those of our routes that are not wanted.
func removeRoutes(wanted []Route) error {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		ours := &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Protocol: routeProtocol}
		present, err := netlink.RouteListFiltered(family, ours, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			return fmt.Errorf("listing routes: %w", err)
		}
		for _, p := range present {
			if slices.Contains(wanted, routeOf(p)) {
				continue
			}
			if err := netlink.RouteDel(&p); err != nil && !gone(err) {
				return fmt.Errorf("removing route %s: %w", p, err)
			}
		}
	}
	return nil
}

func routeOf(k netlink.Route) Route {
	r := Route{Prefix: prefixOf(k.Dst), Table: k.Table}
	if k.Table == unix.RT_TABLE_MAIN {
		r.Table = 0
	}
	if gateway, ok := netip.AddrFromSlice(k.Gw); ok {
		r.Gateway = gateway.Unmap()
	}
	if link, err := netlink.LinkByIndex(k.LinkIndex); err == nil {
		r.Interface = link.Attrs().Name
	}
	return r
}

// changeRules removes those of our rules that are not wanted and, if add is
// true, adds those that are missing.
func changeRules(wanted []Rule, add bool) error {
	var present []Rule
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		ours, err := netlink.RuleListFiltered(family, &netlink.Rule{Priority: rulePriority}, netlink.RT_FILTER_PRIORITY)
		if err != nil {
			return fmt.Errorf("listing rules: %w", err)
		}
		for _, k := range ours {
			r := Rule{In: k.IifName, To: prefixOf(k.Dst), Table: k.Table}
			if slices.Contains(wanted, r) && !slices.Contains(present, r) {
				present = append(present, r)
				continue
			}
			if err := netlink.RuleDel(&k); err != nil && !gone(err) {
				return fmt.Errorf("removing rule %s: %w", k, err)
			}
		}
	}
	for _, r := range wanted {
		if !add || slices.Contains(present, r) {
			continue
		}
		k := netlink.NewRule()
		k.Priority, k.IifName, k.Dst, k.Table = rulePriority, r.In, network(r.To), r.Table
		k.Family = unix.AF_INET6
		if r.To.Addr().Is4() {
			k.Family = unix.AF_INET
		}
		if err := netlink.RuleAdd(k); err != nil {
			return fmt.Errorf("adding rule for %s from %s: %w", r.To, r.In, err)
		}
	}
	return nil
}

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits) // a default route is given with 16 bytes
}

func gone(err error) bool { return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) }
