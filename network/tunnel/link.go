package tunnel

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"

	"github.com/pelago-dev/pelago/network/netns"
)

// ready gives a device its MTU and takes it up, where it is not so. It reports whether
// the device is there.
func ready(namespace *os.File, name string, mtu int) (bool, error) {
	kernel, err := netns.Netlink(namespace)
	if err != nil {
		return false, err
	}
	defer kernel.Close()
	link, err := kernel.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("finding device %s: %w", name, err)
	}
	if link.Attrs().MTU != mtu {
		if err := kernel.LinkSetMTU(link, mtu); err != nil {
			return true, fmt.Errorf("giving device %s an MTU of %d: %w", name, mtu, err)
		}
	}
	if link.Attrs().RawFlags&1 == 0 { // IFF_UP
		if err := kernel.LinkSetUp(link); err != nil {
			return true, fmt.Errorf("taking device %s up: %w", name, err)
		}
	}
	return true, nil
}
