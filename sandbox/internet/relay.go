package internet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	biggestPacket = 65535
	// readPause keeps a device that fails every read from taking a whole core.
	readPause = 10 * time.Millisecond
)

// ends are the prefixes of the two clusters that a relay joins.
type ends struct{ a, b []netip.Prefix }

// relay carries the packets of one link: it reads them from a device, holds
// each as long as the link takes, and writes it back to the same device, from
// where the kernel sends it on.
type relay struct {
	device io.ReadWriteCloser
	log    *slog.Logger
	began  time.Time
	ends   atomic.Pointer[ends]
	// lanes are from a to b and from b to a.
	lanes [2]*lane
	done  chan struct{}
	tasks sync.WaitGroup
}

// startRelay takes over the device. Seed decides which packets are lost.
func startRelay(device io.ReadWriteCloser, seed uint64, log *slog.Logger) *relay {
	r := &relay{device: device, log: log, began: time.Now(), done: make(chan struct{})}
	r.ends.Store(&ends{})
	for i := range r.lanes {
		r.lanes[i] = newLane(rand.New(rand.NewPCG(seed, uint64(i))).Float64)
		r.tasks.Go(func() { r.deliver(r.lanes[i]) })
	}
	r.tasks.Go(r.collect)
	return r
}

// set changes what the relay does without losing what is under way.
func (r *relay) set(d Device) {
	r.ends.Store(&ends{a: d.A.Prefixes, b: d.B.Prefixes})
	for _, l := range r.lanes {
		l.reshape(r.now(), d.Link.shape())
	}
}

// drain delivers at once all that is under way.
func (r *relay) drain(ctx context.Context) error {
	for _, l := range r.lanes {
		l.reshape(r.now(), shape{})
	}
	for !r.lanes[0].empty() || !r.lanes[1].empty() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("draining a relay: %w", context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// close ends the relay; what is under way is lost. Without persistence the
// device goes too.
func (r *relay) close() error {
	close(r.done)
	err := r.device.Close()
	r.tasks.Wait()
	return err
}

func (r *relay) now() time.Duration { return time.Since(r.began) }

// collect reads packets until the device is closed.
func (r *relay) collect() {
	buffer := make([]byte, biggestPacket)
	failing := false
	for {
		n, err := r.device.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			if !failing {
				r.log.Error("wan device cannot be read", "error", err)
			}
			failing = true
			if !r.pause(readPause) {
				return
			}
			continue
		}
		failing = false
		if i := r.ends.Load().direction(buffer[:n]); i >= 0 {
			r.lanes[i].push(r.now(), buffer[:n])
		}
	}
}

// deliver writes the packets of one lane as they arrive.
func (r *relay) deliver(l *lane) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		packet, wait := l.pop(r.now())
		if packet != nil {
			if _, err := r.device.Write(packet); err != nil {
				l.drops.Add(1)
			}
			l.giveBack(packet)
			continue
		}
		var arrival <-chan time.Time
		if wait >= 0 {
			timer.Reset(wait)
			arrival = timer.C
		}
		select {
		case <-r.done:
			return
		case <-l.wake:
		case <-arrival:
		}
	}
}

// pause reports whether the relay still runs after a while.
func (r *relay) pause(d time.Duration) bool {
	select {
	case <-r.done:
		return false
	case <-time.After(d):
		return true
	}
}

// direction returns the lane of a packet, negative if its addresses are not of
// the two ends (a device has chatter of its own).
func (e *ends) direction(packet []byte) int {
	from, to, ok := addresses(packet)
	switch {
	case !ok:
		return -1
	case contain(e.a, from) && contain(e.b, to):
		return 0
	case contain(e.b, from) && contain(e.a, to):
		return 1
	}
	return -1
}

// addresses returns the source and destination of an IP packet.
func addresses(packet []byte) (from, to netip.Addr, ok bool) {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20])), true
	case len(packet) >= 40 && packet[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(packet[8:24])), netip.AddrFrom16([16]byte(packet[24:40])), true
	}
	return netip.Addr{}, netip.Addr{}, false
}

func contain(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
