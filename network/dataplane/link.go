package dataplane

import (
	"bytes"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
)

// applyLinks makes the devices that are missing or of another make, still down, and
// corrects the others. Gateways are the namespaces of the veths' other ends. What is wrong with a gateway's
// is noted in failed, and those that are in it are left as they are.
func (s *space) applyLinks(wanted []link, gateways map[string]*space, failed GatewaysError) error {
	present, err := s.links()
	if err != nil {
		return err
	}
	for _, w := range wanted {
		if failed[w.peering] != nil {
			continue
		}
		if err := s.applyLink(w, present[w.name], gateways[w.peering]); err != nil && !failed.take(w.peering, err) {
			return err
		}
	}
	return nil
}

func (s *space) applyLink(w link, have netlink.Link, gateway *space) error {
	if have != nil && s.sameMake(w, have, gateway) {
		return s.correct(have, w, w.hardware, w.mtu)
	}
	if have != nil {
		if err := s.wrote(w, "removing another device", s.kernel.LinkDel(have)); err != nil && !gone(err) {
			return err
		}
	}
	return s.makeLink(w, gateway)
}

// sameMake holds for a device that need not be made again.
func (s *space) sameMake(w link, have netlink.Link, gateway *space) bool {
	if w.peering != "" {
		if have.Type() != "veth" {
			return false
		}
		inside, err := gateway.kernel.LinkByName(insideName)
		return err == nil && inside.Type() == "veth" &&
			inside.Attrs().ParentIndex == have.Attrs().Index && have.Attrs().ParentIndex == inside.Attrs().Index
	}
	v, ok := have.(*netlink.Vxlan)
	return ok && v.VxlanId == int(w.vni) && v.Port == int(w.port) && v.SrcAddr.Equal(w.local.AsSlice()) && !v.Learning
}

func (s *space) makeLink(w link, gateway *space) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = w.name, w.mtu
	attrs.HardwareAddr = mustHardware(w.hardware)
	if w.peering == "" {
		return s.wrote(w, "making a device", s.kernel.LinkAdd(&netlink.Vxlan{
			LinkAttrs: attrs, VxlanId: int(w.vni), Port: int(w.port), SrcAddr: w.local.AsSlice(),
		}))
	}
	if left, err := gateway.kernel.LinkByName(insideName); err == nil {
		if err := gateway.wrote(w, "removing another device", gateway.kernel.LinkDel(left)); err != nil && !gone(err) {
			return err
		}
	}
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = insideName, netlink.NsFd(gateway.file.Fd())
	veth.PeerHardwareAddr, veth.PeerMTU = mustHardware(w.peerHardware), uint32(w.mtu)
	return s.wrote(w, "making a device", s.kernel.LinkAdd(veth))
}

// correct gives a device its hardware address and MTU.
func (s *space) correct(have netlink.Link, w link, hardware string, mtu int) error {
	if !bytes.Equal(have.Attrs().HardwareAddr, mustHardware(hardware)) {
		if err := s.wrote(w, "correcting the hardware address", s.kernel.LinkSetHardwareAddr(have, mustHardware(hardware))); err != nil {
			return err
		}
	}
	if have.Attrs().MTU != mtu {
		if err := s.wrote(w, "correcting the MTU", s.kernel.LinkSetMTU(have, mtu)); err != nil {
			return err
		}
	}
	return nil
}

// device is a device in sentences.
type deviceName string

func (d deviceName) String() string { return string(d) }

// raise brings devices up.
func (s *space) raise(names ...string) error {
	present, err := s.links()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.raiseLink(name, present[name]); err != nil {
			return err
		}
	}
	return nil
}

func (s *space) raiseLink(name string, have netlink.Link) error {
	if have == nil {
		return fmt.Errorf("bringing up %s in %s: no such device", name, s.name)
	}
	if have.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	return s.wrote(deviceName(name), "bringing up", s.kernel.LinkSetUp(have))
}

// raiseLinks brings up devices. What is wrong with a gateway's is noted in failed.
func (s *space) raiseLinks(links []link, failed GatewaysError) error {
	present, err := s.links()
	if err != nil {
		return err
	}
	for _, l := range links {
		if err := s.raiseLink(l.name, present[l.name]); err != nil && !failed.take(l.peering, err) {
			return err
		}
	}
	return nil
}

// removeLinks removes the devices that have a name of ours and are not wanted. Other
// devices whose names begin with pelago are somebody else's: tunnels are made here first.
func (s *space) removeLinks(wanted []link) error {
	present, err := s.links()
	if err != nil {
		return err
	}
	for _, w := range wanted {
		delete(present, w.name)
	}
	for name, have := range present {
		if !ourDevice(name, have.Type()) {
			continue
		}
		if err := s.wrote(deviceName(name), "removing", s.kernel.LinkDel(have)); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

func ourDevice(name, kind string) bool {
	switch {
	case name == vxlanName:
		return kind == "vxlan"
	case len(name) != len(Device("")) || kind != "veth":
		return false
	}
	rest, ok := strings.CutPrefix(name, devicePrefix)
	return ok && strings.Trim(rest, "0123456789abcdef") == ""
}

func mustHardware(text string) net.HardwareAddr {
	h, err := net.ParseMAC(text)
	if err != nil {
		panic(err) // made by hardware
	}
	return h
}
