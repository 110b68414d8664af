package netnstest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/pelago-dev/pelago/network/netns"
)

// Hostile is a peer's gateway in the hands of a test: WireGuard with the right keys, and behind it
// no kernel that would keep it from saying what no gateway says.
type Hostile struct {
	// Feed writes the next packet for the tunnel and returns its size, 0 if there is none. Where it may
	// wait until there is one, that ends the tunnel.
	Feed func(b []byte, wait bool) int
	// Take is called with each packet that comes out, which is its only until it returns.
	Take func([]byte)

	events  chan tun.Event
	end     sync.Once
	session atomic.Uint32
}

// Tunnel is what a Hostile has to know of its tunnel.
type Tunnel struct {
	Private, Peer [32]byte
	Port          int
	// Endpoint is where the peer is, none if that one calls.
	Endpoint netip.AddrPort
}

// Begin has it speak from a namespace, until what it returns is called, after Feed has ended.
func (h *Hostile) Begin(at *os.File, c Tunnel) (end func(), err error) {
	h.events = make(chan tun.Event, 1)
	d := device.NewDevice(h, &overheard{conn.NewStdNetBind(), &h.session}, device.NewLogger(device.LogLevelSilent, ""))
	text := fmt.Sprintf("private_key=%x\nlisten_port=%d\npublic_key=%x\nallowed_ip=0.0.0.0/0\nallowed_ip=::/0\n", c.Private, c.Port, c.Peer)
	if c.Endpoint.IsValid() {
		text += "endpoint=" + c.Endpoint.String() + "\n"
	}
	if err := netns.In(at, func() error {
		if err := d.IpcSet(text); err != nil {
			return err
		}
		return d.Up()
	}); err != nil {
		d.Close()
		return nil, err
	}
	return d.Close, nil
}

// Session is the number that the other side has given the session of the last packet of data.
func (h *Hostile) Session() uint32 { return h.session.Load() }

// overheard is a socket that notes of which session is what it sends.
type overheard struct {
	conn.Bind
	session *atomic.Uint32
}

// Send sends packets to one address.
func (o *overheard) Send(packets [][]byte, to conn.Endpoint) error {
	if b := packets[0]; b[0] == device.MessageTransportType {
		o.session.Store(binary.LittleEndian.Uint32(b[4:]))
	}
	return o.Bind.Send(packets, to)
}

// Read asks for packets.
func (h *Hostile) Read(buffers [][]byte, sizes []int, offset int) (n int, err error) {
	for n < len(buffers) {
		if sizes[n] = h.Feed(buffers[n][offset:], n == 0); sizes[n] == 0 {
			break
		}
		n++
	}
	if n == 0 {
		return 0, os.ErrClosed
	}
	return n, nil
}

// Write is what came out of the tunnel.
func (h *Hostile) Write(buffers [][]byte, offset int) (int, error) {
	for _, b := range buffers {
		h.Take(b[offset:])
	}
	return len(buffers), nil
}

// File is none: there is no device of the kernel's.
func (h *Hostile) File() *os.File { return nil }

// MTU is that of a tunnel on the internet.
func (h *Hostile) MTU() (int, error) { return 1420, nil }

// Name is for logs.
func (h *Hostile) Name() (string, error) { return "hostile", nil }

// Events are none until it is closed.
func (h *Hostile) Events() <-chan tun.Event { return h.events }

// BatchSize is how many packets Read is asked for.
func (h *Hostile) BatchSize() int { return conn.IdealBatchSize }

// Close ends its events.
func (h *Hostile) Close() error {
	h.end.Do(func() { close(h.events) })
	return nil
}
