package dns

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

// device has the address: it is always up, and nothing is sent by it.
const device = "lo"

// hushed is the priority of the rules by which the node says nothing by ICMP as the Server: before those
// of network plugins.
const hushed = 89

// Remove takes the addresses of a Server from the node; they need not be there. Until then they
// stay when Run ends: who asks by UDP hears nothing, and asks again, when the next one may be there.
// Were he told that nobody answers, many a resolver would give up at once.
func Remove(host *os.File) error {
	var all error
	for _, address := range []netip.Addr{Address(), Address6()} {
		err := onDevice(host, func(kernel *netlink.Handle, lo netlink.Link) error {
			return kernel.AddrDel(lo, deviceAddress(address))
		})
		if err != nil && !absent(err) {
			all = errors.Join(all, fmt.Errorf("removing the address %s: %w", address, err))
		}
		err = onDevice(host, func(kernel *netlink.Handle, _ netlink.Link) error { return kernel.RuleDel(silence(address)) })
		if err != nil && !absent(err) {
			all = errors.Join(all, fmt.Errorf("removing the rule that keeps %s silent: %w", address, err))
		}
	}
	return all
}

// absent says that a node did not have an address or a rule, or has none of that family.
func absent(err error) bool {
	return errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENXIO) ||
		errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAFNOSUPPORT)
}

// silence is the rule by which nothing is sent by ICMP from an address of the Server.
func silence(a netip.Addr) *netlink.Rule {
	r := netlink.NewRule()
	r.Priority, r.Type, r.Family, r.IPProto = hushed, unix.RTN_BLACKHOLE, unix.AF_INET, unix.IPPROTO_ICMP
	if a.Is6() {
		r.Family, r.IPProto = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	r.Src = &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
	return r
}

// set gives the node the address, whether it has it or not.
func set(host *os.File, address netip.Addr) error {
	if err := onDevice(host, func(kernel *netlink.Handle, lo netlink.Link) error {
		if err := kernel.RuleAdd(silence(address)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("with a rule that keeps it silent: %w", err)
		}
		return kernel.AddrReplace(lo, deviceAddress(address))
	}); err != nil {
		return fmt.Errorf("giving the node the address %s: %w", address, err)
	}
	return nil
}

func onDevice(host *os.File, f func(*netlink.Handle, netlink.Link) error) error {
	kernel, err := netns.Netlink(host)
	if err != nil {
		return err
	}
	defer kernel.Close()
	lo, err := kernel.LinkByName(device)
	if err != nil {
		return err
	}
	return f(kernel, lo)
}

// deviceAddress is good on this node alone: it is never the source of anything sent.
func deviceAddress(a netip.Addr) *netlink.Addr {
	bits := a.BitLen()
	d := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, bits)}, Scope: unix.RT_SCOPE_HOST}
	if a.Is6() {
		d.Flags = unix.IFA_F_NODAD
		d.PreferedLft, d.ValidLft = 0, math.MaxUint32 // scopes of IPv6 do not say so: nothing prefers it
	}
	return d
}
