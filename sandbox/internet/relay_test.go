package internet

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"
)

// packet returns an IP header.
func packet(from, to netip.Addr) []byte {
	if from.Is4() {
		p := make([]byte, 28)
		p[0] = 0x45
		copy(p[12:], from.AsSlice())
		copy(p[16:], to.AsSlice())
		return p
	}
	p := make([]byte, 48)
	p[0] = 0x60
	copy(p[8:], from.AsSlice())
	copy(p[24:], to.AsSlice())
	return p
}

func TestDirection(t *testing.T) {
	config := worldConfig()
	e := &ends{a: config.Ports[1].Prefixes, b: config.Ports[0].Prefixes} // milan, rome
	for family := range romeAt {
		for _, c := range []struct {
			reason   string
			from, to netip.Addr
			want     int
		}{
			{"from a to b", milanAt[family], romeAt[family], 0},
			{"from b to a", romeAt[family], milanAt[family], 1},
			{"within one", romeAt[family], romeAt[family], -1},
			{"from elsewhere", publicAt[family], romeAt[family], -1},
			{"to elsewhere", romeAt[family], podAt[family], -1},
		} {
			if got := e.direction(packet(c.from, c.to)); got != c.want {
				t.Errorf("%s: %s to %s has direction %d", c.reason, c.from, c.to, got)
			}
		}
	}
	for _, bad := range [][]byte{nil, {0x45}, make([]byte, 40), packet(romeAt[1], milanAt[1])[:39]} {
		if got := e.direction(bad); got >= 0 {
			t.Errorf("% x has direction %d", bad, got)
		}
	}
}

// pipe is a device whose packets a test makes and takes.
type pipe struct {
	in, out chan []byte
	closed  chan struct{}
}

func newPipe() *pipe {
	return &pipe{in: make(chan []byte), out: make(chan []byte, 1000), closed: make(chan struct{})}
}

func (p *pipe) Read(b []byte) (int, error) {
	select {
	case packet := <-p.in:
		return copy(b, packet), nil
	case <-p.closed:
		return 0, fmt.Errorf("reading: %w", os.ErrClosed)
	}
}

func (p *pipe) Write(b []byte) (int, error) {
	p.out <- append([]byte(nil), b...)
	return len(b), nil
}

func (p *pipe) Close() error {
	close(p.closed)
	return nil
}

func TestRelayDrainsAndCloses(t *testing.T) {
	device := newPipe()
	r := startRelay(device, 1, slog.New(slog.DiscardHandler))
	config := worldConfig()
	r.set(Device{A: config.Ports[1], B: config.Ports[0], Link: Link{Delay: MaxDelay}})
	for range 10 {
		device.in <- packet(milanAt[0], romeAt[0])
		device.in <- packet(romeAt[1], milanAt[1])
	}
	device.in <- nil // is read when the one before is in its lane
	if len(device.out) != 0 {
		t.Errorf("%d packets came before their time", len(device.out))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := r.drain(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if len(device.out) != 20 {
		t.Errorf("%d packets came", len(device.out))
	}
}
