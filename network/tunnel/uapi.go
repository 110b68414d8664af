package tunnel

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// peers reads what the device says of each peer, and its port.
func (u *userspace) peers() (map[PublicKey]Stats, uint16, error) {
	var text strings.Builder
	if err := u.device.IpcGetOperation(&text); err != nil {
		return nil, 0, fmt.Errorf("reading WireGuard: %w", err)
	}
	return parsePeers(text.String())
}

// parsePeers reads WireGuard's configuration protocol. Its errors quote no value, which
// may be a secret.
func parsePeers(text string) (peers map[PublicKey]Stats, port uint16, err error) {
	peers = map[PublicKey]Stats{}
	var at PublicKey
	var seconds, nanoseconds int64
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		s := peers[at]
		var bad error
		switch key {
		case "public_key":
			var k []byte
			if k, bad = hex.DecodeString(value); bad == nil && len(k) == len(at) {
				at, s = PublicKey(k), Stats{}
			}
		case "listen_port":
			var n uint64
			n, bad = strconv.ParseUint(value, 10, 16)
			port = uint16(n)
		case "endpoint":
			s.Endpoint, bad = netip.ParseAddrPort(value)
		case "rx_bytes":
			s.Received, bad = strconv.ParseUint(value, 10, 64)
		case "tx_bytes":
			s.Sent, bad = strconv.ParseUint(value, 10, 64)
		case "last_handshake_time_sec":
			seconds, bad = strconv.ParseInt(value, 10, 64)
		case "last_handshake_time_nsec":
			if nanoseconds, bad = strconv.ParseInt(value, 10, 64); seconds != 0 || nanoseconds != 0 {
				s.Handshake = time.Unix(seconds, nanoseconds)
			}
		default:
			continue
		}
		if bad != nil {
			return nil, 0, fmt.Errorf("reading WireGuard: its %s is not understood", key)
		}
		if !at.IsZero() {
			peers[at] = s
		}
	}
	return peers, port, nil
}
