package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pelago-dev/pelago/sandbox/address"
	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// Names of interfaces that recur: a machine's way out, a router's bridge for a
// cluster behind NAT and its way out.
const (
	outside = "eth0"
	lan     = "lan"
	wan     = "wan"
)

var (
	default4 = netip.MustParsePrefix("0.0.0.0/0")
	default6 = netip.MustParsePrefix("::/0")
)

// port is the interface of a cluster in the internet machine.
func (c *Cluster) port() string { return fmt.Sprintf("c%d", c.Index) }

// hostInterface is the host's way into a sandbox: the only thing of it that the
// host's network ever has. It goes when the sandbox goes.
func hostInterface(index int) string { return fmt.Sprintf("pelago%d", index) }

// plug joins two networks with /32 and /128 addresses and routes to each other.
func plug(a *machine.Network, nameA string, addressA address.Pair, b *machine.Network, nameB string, addressB address.Pair, seed string) error {
	if err := machine.Wire(a, nameA, b, nameB, seed); err != nil {
		return err
	}
	return introduce(a, nameA, addressA, b, nameB, addressB)
}

// introduce gives the ends of a wire their addresses and routes to each other.
func introduce(a *machine.Network, nameA string, addressA address.Pair, b *machine.Network, nameB string, addressB address.Pair) error {
	for _, end := range []struct {
		net         *machine.Network
		name        string
		mine, other address.Pair
	}{{a, nameA, addressA, addressB}, {b, nameB, addressB, addressA}} {
		if err := end.net.Address(end.name, end.mine.Hosts()...); err != nil {
			return err
		}
		for _, host := range end.other.Hosts() {
			if err := end.net.Direct(host, end.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// wireHost gives the host its way into the sandbox.
func (s *Sandbox) wireHost(internet *machine.Machine) error {
	host, err := machine.HostNetwork()
	if err != nil {
		return err
	}
	defer host.Close()
	inner, err := internet.Network()
	if err != nil {
		return err
	}
	defer inner.Close()
	name, transit := hostInterface(s.Index), address.Transit(s.Index)
	err = machine.Wire(host, name, inner, "host", s.Name+"/host")
	if err == nil { // some hosts have it switched off for every new interface
		err = os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6"), []byte("0"), 0o644)
	}
	if err == nil {
		err = introduce(host, name, transit.Host(), inner, "host", transit.Router())
	}
	if err != nil {
		return fmt.Errorf("wiring the host: %w", err)
	}
	whole := address.Sandbox(s.Index)
	return host.RouteBoth(whole.V4, whole.V6, transit.Router())
}

// unplugHost removes the host's way into a sandbox. It would go by itself, but
// some time after the last process of the internet has.
func unplugHost(index int) error {
	host, err := machine.HostNetwork()
	if err != nil {
		return err
	}
	defer host.Close()
	link, err := host.LinkByName(hostInterface(index))
	if err != nil {
		return nil
	}
	if err := host.LinkDel(link); err != nil && !errors.Is(err, syscall.ENODEV) {
		return fmt.Errorf("removing %s: %w", hostInterface(index), err)
	}
	return nil
}

// router is the machine whose bridge a cluster's machines are plugged into.
func (c *Cluster) router(internet, nat *machine.Machine) (*machine.Machine, string) {
	if c.BehindNAT {
		return nat, lan
	}
	return internet, c.port()
}

// wireNAT plugs the NAT box into the internet.
func (c *Cluster) wireNAT(internet, nat *machine.Machine) error {
	up, err := internet.Network()
	if err != nil {
		return err
	}
	defer up.Close()
	box, err := nat.Network()
	if err != nil {
		return err
	}
	defer box.Close()
	if err := plug(up, c.port(), c.Transit.Router(), box, wan, c.Transit.NAT(c.Index), c.Sandbox+"/"+c.NATName()); err != nil {
		return fmt.Errorf("wiring %s: %w", c.NATName(), err)
	}
	return box.RouteBoth(default4, default6, c.Transit.Router())
}

// bridge makes the cluster's bridge with the router's address.
func (c *Cluster) bridge(router *machine.Machine, name string) error {
	net, err := router.Network()
	if err != nil {
		return err
	}
	defer net.Close()
	if err := net.Bridge(name); err != nil {
		return err
	}
	return net.Address(name, c.Net.Router().Prefixes()...)
}

// attach plugs a machine into the cluster's bridge; number 0 is the control
// plane, the others are nodes.
func (c *Cluster) attach(router *machine.Machine, bridge string, m *machine.Machine, number int) error {
	at := c.Net.Control()
	if number > 0 {
		at = c.Net.Node(number)
	}
	outer, err := router.Network()
	if err != nil {
		return err
	}
	defer outer.Close()
	inner, err := m.Network()
	if err != nil {
		return err
	}
	defer inner.Close()
	port := fmt.Sprintf("%sv%d", bridge, number)
	if err := machine.Wire(outer, port, inner, outside, m.Sandbox+"/"+m.Name); err != nil {
		return err
	}
	if err := outer.Enslave(port, bridge); err != nil {
		return err
	}
	if err := inner.Address(outside, at.Prefixes()...); err != nil {
		return err
	}
	return inner.RouteBoth(default4, default6, c.Net.Router())
}

// routePods teaches a machine the way to the pods of every node but itself.
// Flannel does so among nodes, so only the control plane needs it then.
func (c *Cluster) routePods(_ context.Context, m *machine.Machine, number int) error {
	if number > 0 && c.CNI == config.CNIFlannel {
		return nil
	}
	net, err := m.Network()
	if err != nil {
		return err
	}
	defer net.Close()
	for i := 1; i <= c.Nodes; i++ {
		if i == number {
			continue
		}
		for at, prefix := range c.PodPrefixes(i) {
			if err := net.Route(prefix, c.families(c.Net.Node(i))[at]); err != nil {
				return err
			}
		}
	}
	return nil
}
