package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/pelago-dev/pelago/network/netns"
)

// probeName is a device that exists for a moment, to see whether it can.
const probeName = "pelago-probe"

const (
	// watchEvery is how often the kernel is asked whether the peer uses its next key, for watchQuick after it has
	// announced one: that is when it does. After that it is watchSlow, as it may never.
	watchEvery = 5 * time.Millisecond
	watchQuick = 30 * time.Second
	watchSlow  = 250 * time.Millisecond
)

// kernel is the kernel's WireGuard. The device is made in the host's namespace, where its
// socket then stays, and moved.
type kernel struct {
	options Options
	client  *wgctrl.Client // of the gateway's namespace
	config  Config
	active  PublicKey
	port    uint16 // that the device was told to take, 0 for any
	// announced is when the peer's next key came.
	announced time.Time
}

// kernelHas reports whether the kernel has WireGuard, or a module of it to load.
func kernelHas(namespace *os.File) (bool, error) {
	link, err := netns.Netlink(namespace)
	if err != nil {
		return false, err
	}
	defer link.Close()
	probe := &netlink.Wireguard{LinkAttrs: named(probeName)}
	switch err := link.LinkAdd(probe); {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTSUP):
		return false, nil
	case errors.Is(err, unix.EEXIST): // from a process that was killed
	case err != nil:
		return false, fmt.Errorf("making device %s: %w", probeName, err)
	}
	if err := link.LinkDel(probe); err != nil {
		return false, fmt.Errorf("removing device %s: %w", probeName, err)
	}
	return true, nil
}

func named(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}

func newKernel(o Options) (engine, error) {
	k := &kernel{options: o}
	err := netns.In(o.Namespace, func() (err error) {
		k.client, err = wgctrl.New()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening the kernel's WireGuard: %w", err)
	}
	return k, nil
}

// width is one: the kernel asks only at the place it has.
func (k *kernel) width() int { return 1 }

// watch is often while the peer may go over to its next key, since what it sends with that
// is lost until it is seen to.
func (k *kernel) watch() time.Duration {
	if k.config.NextPeer.IsZero() || k.active == k.config.NextPeer {
		return 0
	}
	if time.Since(k.announced) >= watchQuick {
		return watchSlow
	}
	return watchEvery
}

// is takes what the device was made.
func (k *kernel) is(c Config, now time.Time) {
	if k.config.NextPeer != c.NextPeer {
		k.announced = now
	}
	k.config = c
}

func (k *kernel) file() *os.File { return nil }

func (k *kernel) set(c Config) error {
	if err := k.device(c.Name); err != nil {
		return err
	}
	has, err := k.client.Device(c.Name)
	if err != nil {
		return fmt.Errorf("reading device %s: %w", c.Name, err)
	}
	if k.active.IsZero() || !c.accepts(k.active) {
		k.active = c.Peer
		for _, p := range has.Peers { // an earlier process may have gone over already
			if PublicKey(p.PublicKey) == c.NextPeer && len(p.AllowedIPs) > 0 {
				k.active = c.NextPeer
			}
		}
	}
	change, differs := kernelChange(has, c, k.active)
	if c.ListenPort == 0 && k.port != 0 { // it may be somebody else's
		change.ListenPort, differs = new(int), true
	}
	k.port = c.ListenPort
	if differs {
		if err := k.client.ConfigureDevice(c.Name, change); err != nil {
			return fmt.Errorf("setting device %s: %w", c.Name, err)
		}
	}
	k.is(c, time.Now())
	_, err = ready(k.options.Namespace, c.Name, c.MTU) // last: up is when the port is taken
	return err
}

// device makes the network device, if it is not there.
func (k *kernel) device(name string) error {
	gateway, err := netns.Netlink(k.options.Namespace)
	if err != nil {
		return err
	}
	defer gateway.Close()
	if _, err := gateway.LinkByName(name); !errors.As(err, &netlink.LinkNotFoundError{}) {
		return err
	}
	host, err := netns.Netlink(k.options.Host)
	if err != nil {
		return err
	}
	defer host.Close()
	link := &netlink.Wireguard{LinkAttrs: named(name)}
	if err := host.LinkAdd(link); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("making device %s: %w", name, err)
	}
	if err := host.LinkSetNsFd(link, int(k.options.Namespace.Fd())); err != nil {
		return errors.Join(fmt.Errorf("moving device %s to its gateway: %w", name, err), host.LinkDel(link))
	}
	return nil
}

// everything is the addresses that a peer may have.
var everything = []net.IPNet{
	{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
	{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
}

// kernelChange is what the kernel has to be told, and whether it is anything.
func kernelChange(has *wgtypes.Device, c Config, active PublicKey) (change wgtypes.Config, differs bool) {
	// Of private keys the kernel keeps what counts, so that the bytes differ; given the same once more, it forgets what was agreed on.
	if private := wgtypes.Key(c.PrivateKey.Reveal()); has.PublicKey != wgtypes.Key(c.PrivateKey.Public()) {
		change.PrivateKey, differs = &private, true
	}
	if port := int(c.ListenPort); port != 0 && has.ListenPort != port {
		change.ListenPort, differs = &port, true
	}
	if mark := int(c.Mark); has.FirewallMark != mark {
		change.FirewallMark, differs = &mark, true
	}
	known := map[PublicKey]wgtypes.Peer{}
	// One that becomes passive gets its peers anew, as in userspace.
	falls := c.Passive && slices.ContainsFunc(has.Peers, func(p wgtypes.Peer) bool { return len(p.AllowedIPs) > 0 })
	for _, p := range has.Peers {
		if falls || !c.accepts(PublicKey(p.PublicKey)) {
			change.Peers = append(change.Peers, wgtypes.PeerConfig{PublicKey: p.PublicKey, Remove: true})
			continue
		}
		known[PublicKey(p.PublicKey)] = p
	}
	for _, key := range c.peers() {
		p, there := known[key]
		wanted := kernelPeer(c, key, key == active)
		same := there && p.PresharedKey == *wanted.PresharedKey && p.PersistentKeepaliveInterval == *wanted.PersistentKeepaliveInterval &&
			len(p.AllowedIPs) == len(wanted.AllowedIPs)
		if !same {
			change.Peers = append(change.Peers, wanted)
		}
	}
	return change, differs || len(change.Peers) > 0
}

func kernelPeer(c Config, key PublicKey, active bool) wgtypes.PeerConfig {
	shared := wgtypes.Key(c.PresharedKey.Reveal())
	never := time.Duration(0)
	p := wgtypes.PeerConfig{PublicKey: wgtypes.Key(key), PresharedKey: &shared, PersistentKeepaliveInterval: &never, ReplaceAllowedIPs: true}
	if active && !c.Passive {
		p.AllowedIPs, p.PersistentKeepaliveInterval = everything, &c.Keepalive
	}
	return p
}

func (k *kernel) stats() (Stats, error) {
	has, err := k.client.Device(k.config.Name)
	if err != nil {
		return Stats{}, fmt.Errorf("reading device %s: %w", k.config.Name, err)
	}
	peers := map[PublicKey]Stats{}
	for _, p := range has.Peers {
		s := Stats{Handshake: p.LastHandshakeTime, Received: uint64(p.ReceiveBytes), Sent: uint64(p.TransmitBytes)}
		if p.Endpoint != nil {
			at := p.Endpoint.AddrPort()
			s.Endpoint = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		}
		peers[PublicKey(p.PublicKey)] = s
	}
	for key, p := range peers {
		if key != k.active && p.Handshake.After(peers[k.active].Handshake) {
			peer := kernelPeer(k.config, key, true)
			peer.UpdateOnly = true
			change := wgtypes.Config{Peers: []wgtypes.PeerConfig{peer}}
			if err := k.client.ConfigureDevice(k.config.Name, change); err != nil {
				return Stats{}, fmt.Errorf("going over to the peer's key %s: %w", key, err)
			}
			k.active = key
		}
	}
	s := peers[k.active]
	s.Kernel, s.Peer, s.ListenPort = true, k.active, uint16(has.ListenPort)
	return s, nil
}

// try takes the peer away and adds it anew at an address: the kernel has no other way to
// be made to ask. With a keepalive it asks at once, else with the next packet.
func (k *kernel) try(at []netip.AddrPort, _ int) error {
	if err := k.client.ConfigureDevice(k.config.Name, kernelQuestion(k.config, k.active, at[0])); err != nil {
		return fmt.Errorf("asking at %s for a handshake: %w", at[0], err)
	}
	return nil
}

// kernelQuestion has the kernel ask at an address, by both keys that the peer may have: where both sides change theirs
// in the same moment, neither hears who asks by the old one.
func kernelQuestion(c Config, active PublicKey, at netip.AddrPort) (change wgtypes.Config) {
	for _, key := range c.peers() {
		peer := kernelPeer(c, key, key == active)
		peer.Endpoint = net.UDPAddrFromAddrPort(at)
		peer.PersistentKeepaliveInterval = &c.Keepalive
		change.Peers = append(change.Peers, wgtypes.PeerConfig{PublicKey: peer.PublicKey, Remove: true}, peer)
	}
	return change
}

func (k *kernel) expect([]netip.AddrPort) {}

func (k *kernel) close() error {
	defer func() { _ = k.client.Close() }()
	if k.config.Name == "" {
		return nil
	}
	gateway, err := netns.Netlink(k.options.Namespace)
	if err != nil {
		return err
	}
	defer gateway.Close()
	link, err := gateway.LinkByName(k.config.Name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = gateway.LinkDel(link)
	}
	return err
}
