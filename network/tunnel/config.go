package tunnel

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is all that is wanted of a device. Addresses, routes and rules are the data
// plane's.
type Config struct {
	// Name of the network device, at most 15 characters. It stays what it was at first.
	Name string
	// MTU of the network device, in bytes.
	MTU int
	// PrivateKey of this side.
	PrivateKey Secret
	// PresharedKey is mixed into handshakes besides, if there is one. It may be changed
	// on both sides within two minutes of each other without loss: what runs goes on.
	PresharedKey Secret
	// ListenPort is the UDP port, 0 for any.
	ListenPort uint16
	// Mark is put on the packets that carry the tunnel (SO_MARK), 0 for none.
	Mark uint32
	// Peer is the public key of the other side.
	Peer PublicKey
	// NextPeer is the one that the other side will use next, if it has said so. As soon as
	// it does, the device goes over to it by itself; Stats tells. Make it Peer only when
	// what was under way with the old key has come, a second later.
	NextPeer PublicKey
	// Endpoints are host:port where the peer may be, the likeliest first. With none, the
	// device waits to be found.
	Endpoints []string
	// Keepalive is how often something is sent when there is nothing to say, in whole
	// seconds; 0 is never.
	Keepalive time.Duration
	// Passive has the device say nothing, and forget the keys that it has agreed on: it carries
	// no packets, asks nobody for a handshake and does not answer to Kick. It answers the
	// peer's handshakes, which Stats.Handshake tells, zero before the first one.
	Passive bool
	// Yield has it answer the peer's handshakes a quarter of a second late, where the engine
	// lets itself be held back: of two that the peer asks at once the other one is taken.
	Yield bool
}

// The bounds of an MTU: what IPv6 needs, and what fits into a datagram.
const (
	minMTU = 1280
	maxMTU = 65535 - 80
)

// validate names each field that is wrong, and what it wants.
func (c Config) validate() error {
	var errs []error
	say := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Name == "" || len(c.Name) > 15 || strings.ContainsFunc(c.Name, func(r rune) bool { return r <= ' ' || r == '/' || r == ':' || r > '~' }) {
		say("name: %q is no name of a network device: 1 to 15 characters", c.Name)
	}
	if c.MTU < minMTU || c.MTU > maxMTU {
		say("mtu: %d is not within %d and %d", c.MTU, minMTU, maxMTU)
	}
	if c.PrivateKey.IsZero() {
		say("privateKey: is missing")
	}
	if c.Peer.IsZero() {
		say("peer: is missing")
	}
	if own := c.PrivateKey.Public(); !own.IsZero() && (own == c.Peer || own == c.NextPeer) {
		say("peer: %s is this side's own key", own)
	}
	if c.Keepalive < 0 || c.Keepalive > 65535*time.Second || c.Keepalive%time.Second != 0 {
		say("keepalive: %s is not whole seconds up to 65535", c.Keepalive)
	}
	for i, e := range c.Endpoints {
		if _, _, err := SplitEndpoint(e); err != nil {
			say("endpoints[%d]: %w", i, err)
		}
	}
	return errors.Join(errs...)
}

func (c Config) equal(o Config) bool {
	secrets := c.PrivateKey.Equal(o.PrivateKey) && c.PresharedKey.Equal(o.PresharedKey)
	c.PrivateKey, c.PresharedKey, o.PrivateKey, o.PresharedKey = Secret{}, Secret{}, Secret{}, Secret{}
	return secrets && reflect.DeepEqual(c, o)
}

// peers are the keys that are accepted, that in Peer first.
func (c Config) peers() []PublicKey {
	if c.NextPeer.IsZero() || c.NextPeer == c.Peer {
		return []PublicKey{c.Peer}
	}
	return []PublicKey{c.Peer, c.NextPeer}
}

func (c Config) clone() Config {
	c.Endpoints = slices.Clone(c.Endpoints)
	return c
}

// SplitEndpoint takes host:port apart.
func SplitEndpoint(text string) (host string, port uint16, err error) {
	host, number, err := net.SplitHostPort(text)
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("%q is not host:port", text)
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%q has no port within 1 and 65535", text)
	}
	return host, uint16(n), nil
}
