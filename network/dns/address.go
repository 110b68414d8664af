package dns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

// device has the address: it is always up, and nothing is sent by it.
const device = "lo"

// Remove takes the address of a Server from the node; it need not be there. Until then it
// stays when Run ends: who asks is told at once that nobody answers.
func Remove(host *os.File, address netip.Addr) error {
	err := onDevice(host, func(kernel *netlink.Handle, lo netlink.Link) error {
		return kernel.AddrDel(lo, deviceAddress(address))
	})
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing the address %s: %w", address, err)
	}
	return nil
}

// set gives the node the address, whether it has it or not.
func set(host *os.File, address netip.Addr) error {
	if err := onDevice(host, func(kernel *netlink.Handle, lo netlink.Link) error {
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
	}
	return d
}
