package netnstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/pelago-dev/pelago/network/netns"
)

// Ping sends an echo request of a size and waits for its answer.
func (p *Place) Ping(from, to netip.Addr, size int, patience time.Duration) error {
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if to.Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	var c net.PacketConn
	if err := netns.In(p.File, func() (err error) {
		c, err = net.ListenPacket(network, from.String())
		return err
	}); err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	message := append([]byte{request, 0, 0, 0, 7, 7, 0, 1}, bytes.Repeat([]byte{0x5a}, size)...)
	if to.Is4() {
		binary.BigEndian.PutUint16(message[2:], checksum(message))
	}
	end := time.Now().Add(patience)
	answer := make([]byte, size+100)
	var err error
	for time.Now().Before(end) { // again, since the first of IPv6 may only find the MTU
		if _, err = c.WriteTo(message, &net.IPAddr{IP: to.AsSlice()}); err != nil {
			continue
		}
		_ = c.SetReadDeadline(time.Now().Add(Silence))
		for {
			n, at, readErr := c.ReadFrom(answer)
			if err = readErr; err != nil {
				break
			}
			if n == len(message) && answer[0] == reply && at.String() == to.String() {
				return nil
			}
		}
	}
	return fmt.Errorf("no answer of %s: %w", to, err)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
