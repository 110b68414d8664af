package machine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func loopbackUp() error {
	link, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding loopback: %w", err)
	}
	return netlink.LinkSetUp(link)
}

// Network gives access to the network of a machine, or of the host, from
// outside. Close it.
type Network struct {
	*netlink.Handle
	namespace netns.NsHandle
}

// HostNetwork opens the network the caller is in.
func HostNetwork() (*Network, error) {
	handle, err := netlink.NewHandle()
	if err != nil {
		return nil, fmt.Errorf("opening the host's network: %w", err)
	}
	namespace, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("opening the host's network: %w", err)
	}
	return &Network{handle, namespace}, nil
}

// Network opens the machine's network.
func (m *Machine) Network() (*Network, error) {
	namespace, err := netns.GetFromPid(m.PID)
	if err != nil {
		return nil, fmt.Errorf("opening network of machine %s: %w", m.Name, err)
	}
	handle, err := netlink.NewHandleAt(namespace)
	if err != nil {
		namespace.Close()
		return nil, fmt.Errorf("opening network of machine %s: %w", m.Name, err)
	}
	return &Network{handle, namespace}, nil
}

// Close releases the handle; the network stays.
func (n *Network) Close() {
	n.Handle.Close()
	n.namespace.Close()
}

// Wire joins two networks with a pair of virtual Ethernet devices, both up. The
// hardware addresses follow from seed, so a machine that is started again is
// the same one to its neighbours. A pair that is there already is left alone;
// half a pair cannot exist.
func Wire(a *Network, nameA string, b *Network, nameB string, seed string) error {
	_, errA := a.LinkByName(nameA)
	_, errB := b.LinkByName(nameB)
	if errA != nil || errB != nil {
		if old, err := a.LinkByName(nameA); err == nil {
			_ = a.LinkDel(old)
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name = nameA
		attributes.HardwareAddr = hardware(seed + "/a")
		pair := &netlink.Veth{
			LinkAttrs: attributes, PeerName: nameB,
			PeerHardwareAddr: hardware(seed + "/b"), PeerNamespace: netlink.NsFd(int(b.namespace)),
		}
		if err := a.LinkAdd(pair); err != nil {
			return fmt.Errorf("wiring %s to %s: %w", nameA, nameB, err)
		}
	}
	return errors.Join(a.Up(nameA), b.Up(nameB))
}

// hardware makes a locally administered unicast address.
func hardware(seed string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(seed))
	address := net.HardwareAddr(sum[:6])
	address[0] = address[0]&^1 | 2
	return address
}

// Up brings a link up.
func (n *Network) Up(name string) error {
	link, err := n.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	return n.LinkSetUp(link)
}

// Bridge makes a bridge, up, unless it is there.
func (n *Network) Bridge(name string) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = name
	attributes.HardwareAddr = hardware("bridge/" + name)
	err := n.LinkAdd(&netlink.Bridge{LinkAttrs: attributes})
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("making bridge %s: %w", name, err)
	}
	return n.Up(name)
}

// Enslave puts a link into a bridge.
func (n *Network) Enslave(name, bridge string) error {
	link, err := n.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	master, err := n.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("finding %s: %w", bridge, err)
	}
	return n.LinkSetMaster(link, master)
}

// Address gives a link an address, at once usable.
func (n *Network) Address(name string, prefixes ...netip.Prefix) error {
	link, err := n.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	for _, prefix := range prefixes {
		address := &netlink.Addr{IPNet: ipNet(prefix)}
		if prefix.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := n.AddrReplace(link, address); err != nil {
			return fmt.Errorf("giving %s address %s: %w", name, prefix, err)
		}
	}
	return nil
}

// Route sends a prefix to a gateway; the zero-length prefix is the default
// route.
func (n *Network) Route(to netip.Prefix, via netip.Addr) error {
	route := &netlink.Route{Dst: ipNet(to), Gw: via.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
	links, err := n.RouteGet(via.AsSlice())
	if err != nil || len(links) == 0 {
		return fmt.Errorf("finding the way to %s: %w", via, err)
	}
	route.LinkIndex = links[0].LinkIndex
	if err := n.RouteReplace(route); err != nil {
		return fmt.Errorf("routing %s via %s: %w", to, via, err)
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// Direct routes a prefix to a link without a gateway.
func (n *Network) Direct(to netip.Prefix, name string) error {
	link, err := n.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	route := &netlink.Route{Dst: ipNet(to), LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK}
	if err := n.RouteReplace(route); err != nil {
		return fmt.Errorf("routing %s to %s: %w", to, name, err)
	}
	return nil
}

// RouteBoth sends a prefix of each family to the gateway of that family.
func (n *Network) RouteBoth(to4, to6 netip.Prefix, via interface{ Addresses() []netip.Addr }) error {
	gateways := via.Addresses()
	return errors.Join(n.Route(to4, gateways[0]), n.Route(to6, gateways[1]))
}
