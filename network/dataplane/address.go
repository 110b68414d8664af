package dataplane

import (
	"fmt"
	"math"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

// addressesOf returns the addresses on all devices.
func (s *space) addressesOf(family int) ([]netlink.Addr, error) {
	list, err := netns.Whole(func() ([]netlink.Addr, error) { return s.kernel.AddrList(nil, family) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses of %s: %w", s.name, err)
	}
	return list, nil
}

// applyAddresses adds the addresses that are missing on devices of ours and removes all
// others.
func (s *space) applyAddresses(wanted []address, devices map[string]netlink.Link) error {
	names := map[int]string{}
	for name, l := range devices {
		names[l.Attrs().Index] = name
	}
	list, err := s.addressesOf(netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	present := map[address]netlink.Addr{}
	for _, a := range list {
		if name, ok := names[a.LinkIndex]; ok {
			present[address{name, prefixOf(a.IPNet)}] = a
		}
	}
	for _, w := range wanted {
		if _, ok := present[w]; ok {
			delete(present, w)
			continue
		}
		l := devices[w.device]
		if l == nil {
			return fmt.Errorf("adding in %s: %s: no such device", s.name, w)
		}
		a := &netlink.Addr{IPNet: network(w.prefix)}
		if w.prefix.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
			if w.prefix.Addr() != errorSource(false) {
				a.ValidLft = math.MaxInt32 // and never preferred: not the source of anything else
			}
		} else if w.prefix.Addr() != errorSource(true) {
			a.Scope = unix.RT_SCOPE_LINK // never the source of anything else
		}
		if err := s.wrote(w, "adding", s.kernel.AddrReplace(l, a)); err != nil {
			return err
		}
	}
	for w, a := range present {
		if err := s.wrote(w, "removing", s.kernel.AddrDel(devices[w.device], &a)); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

func prefixOf(n *net.IPNet) netip.Prefix {
	addr, _ := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), ones)
}

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
