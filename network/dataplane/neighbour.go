package dataplane

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

func (s *space) neighboursOn(device netlink.Link, family int) ([]netlink.Neigh, error) {
	return netns.Whole(func() ([]netlink.Neigh, error) { return s.kernel.NeighList(device.Attrs().Index, family) })
}

// neighbours returns the permanent entries on devices.
func (s *space) neighbours(devices map[string]netlink.Link) (map[neighbour]netlink.Neigh, error) {
	found := map[neighbour]netlink.Neigh{}
	for name, l := range devices {
		list, err := s.neighboursOn(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("listing neighbours on %s in %s: %w", name, s.name, err)
		}
		for _, n := range list {
			addr, ok := netip.AddrFromSlice(n.IP)
			if ok && n.State&netlink.NUD_PERMANENT != 0 && (n.Family == unix.AF_INET || n.Family == unix.AF_INET6) {
				found[neighbour{name, addr.Unmap(), n.HardwareAddr.String()}] = n
			}
		}
	}
	return found, nil
}

// devicesOf returns those devices that carry entries of ours.
func (s *space) devicesOf(inside bool) (map[string]netlink.Link, error) {
	present, err := s.links()
	if err != nil {
		return nil, err
	}
	for name, l := range present {
		if inside && name != insideName || !inside && !ourDevice(name, l.Type()) {
			delete(present, name)
		}
	}
	return present, nil
}

// addNeighbours adds what is missing, instead of others for the same address.
func (s *space) addNeighbours(wanted []neighbour, devices map[string]netlink.Link) error {
	present, err := s.neighbours(devices)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		if _, ok := present[w]; ok {
			continue
		}
		l := devices[w.device]
		if l == nil {
			return fmt.Errorf("adding in %s: %s: no such device", s.name, w)
		}
		if err := s.wrote(w, "adding", s.kernel.NeighSet(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, Family: familyOf(w.addr.Is4()), State: netlink.NUD_PERMANENT,
			IP: w.addr.AsSlice(), HardwareAddr: mustHardware(w.hardware),
		})); err != nil {
			return err
		}
	}
	return nil
}

func (s *space) removeNeighbours(wanted []neighbour, devices map[string]netlink.Link) error {
	present, err := s.neighbours(devices)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		delete(present, w)
	}
	for n, k := range present {
		if err := s.wrote(n, "removing", s.kernel.NeighDel(&k)); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// forwards returns the entries of our VXLAN.
func (s *space) forwards(device netlink.Link) (map[forward]netlink.Neigh, error) {
	found := map[forward]netlink.Neigh{}
	if device == nil {
		return found, nil
	}
	list, err := s.neighboursOn(device, unix.AF_BRIDGE)
	if err != nil {
		return nil, fmt.Errorf("listing forwarding entries of %s in %s: %w", vxlanName, s.name, err)
	}
	for _, n := range list {
		to, _ := netip.AddrFromSlice(n.IP)
		found[forward{vxlanName, n.HardwareAddr.String(), to.Unmap()}] = n
	}
	return found, nil
}

func (s *space) addForwards(wanted []forward, device netlink.Link) error {
	present, err := s.forwards(device)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		if _, ok := present[w]; ok {
			continue
		}
		if device == nil {
			return fmt.Errorf("adding in %s: %s: no such device", s.name, w)
		}
		if err := s.wrote(w, "adding", s.kernel.NeighSet(&netlink.Neigh{
			LinkIndex: device.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
			State: netlink.NUD_PERMANENT, IP: w.to.AsSlice(), HardwareAddr: mustHardware(w.hardware),
		})); err != nil {
			return err
		}
	}
	return nil
}

func (s *space) removeForwards(wanted []forward, device netlink.Link) error {
	present, err := s.forwards(device)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		delete(present, w)
	}
	for f, k := range present {
		k.Family, k.Flags = unix.AF_BRIDGE, netlink.NTF_SELF
		if err := s.wrote(f, "removing", s.kernel.NeighDel(&k)); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

func familyOf(v4 bool) int {
	if v4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
