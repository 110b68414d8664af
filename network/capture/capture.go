// Package capture reads what passes between this node and its gateways, and writes it in the
// format of pcapng. The host's end of a gateway's veth carries each packet that comes from a
// peer or goes there, with the addresses by which this cluster sees both ends; what stays
// inside of the cluster never gets there.
//
// Unless all is asked for, only headers leave the node: what applications say to each other is
// cut off here, not by who reads it.
package capture

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pelago-dev/pelago/network/dataplane"
)

// maxPacket is the largest packet in bytes: segments may be joined to one of 64 KiB.
const maxPacket = 1<<16 + 256

// waiting is how many packets may wait to be written; the kernel holds those that come then,
// and counts those for which it has no room either.
const waiting = 256

// Options is what to read.
type Options struct {
	// Peerings are those whose gateways on this node are read, by their names in
	// [dataplane.Gateway]; at least one, and 16 at most.
	Peerings []string
	// Addresses are one or two of which a packet has to have one as source or destination.
	Addresses []netip.Addr
	// Whole writes packets with what they carry.
	Whole bool
	// Out is where to write. The interface of a packet has the name of its peering.
	Out io.Writer
}

// packet is one that was read at a place of Options.Peerings.
type packet struct {
	at, length int // how long it was before anything was cut off
	time       time.Time
	data       []byte
}

// Run reads until the context ends, which is no error, or until nothing can be written any more
// or a gateway goes away. Then it writes how many packets there were, and how many of them it has
// missed. It needs CAP_NET_RAW.
func Run(ctx context.Context, o Options) error {
	if len(o.Peerings) == 0 || len(o.Peerings) > 16 {
		return fmt.Errorf("%d peerings to read; name 1 to 16 with --peering", len(o.Peerings))
	}
	program, err := filter(o.Addresses)
	if err != nil {
		return err
	}
	wanted, err := judge(program)
	if err != nil {
		return err
	}
	var sockets []*socket
	defer func() { // again is no harm
		for _, s := range sockets {
			_ = s.close()
		}
	}()
	var devices []int
	for _, p := range o.Peerings {
		device, err := net.InterfaceByName(dataplane.Device(p))
		if err != nil {
			return fmt.Errorf("reading at the gateway of %s: %w; is it on this node?", p, err)
		}
		devices = append(devices, device.Index)
		s, err := open(device.Index, program)
		if err != nil {
			return fmt.Errorf("reading at the gateway of %s: %w; is it on this node?", p, err)
		}
		sockets = append(sockets, s)
	}
	out, err := newPcapng(o.Out, o.Peerings)
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	group, reading := errgroup.WithContext(ctx)
	packets := make(chan packet, waiting)
	for i, s := range sockets {
		group.Go(func() error { return read(reading, s, place{i, devices[i], wanted}, o, packets) })
	}
	written := make(chan struct{})
	group.Go(func() error {
		defer close(written)
		return write(reading, out, sockets, packets)
	})
	group.Go(func() error {
		<-reading.Done()
		<-written // which reads what was missed
		for _, s := range sockets {
			_ = s.close() // which ends reading
		}
		return nil
	})
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// place is where packets are read: one of Options.Peerings, the index of its device, and which
// packets are wanted.
type place struct {
	at, device int
	wanted     func(frame []byte) bool
}

// read passes on what comes by one gateway's device. Before a socket has its device and its filter
// the kernel puts into it whatever the node sends and gets, so it is looked at here once more.
func read(ctx context.Context, s *socket, from place, o Options, packets chan<- packet) error {
	for {
		p, device, err := s.receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the gateway of %s has left this node: %w", o.Peerings[from.at], err)
		case device != from.device || !from.wanted(p.data):
			continue
		}
		if !o.Whole {
			p.data = p.data[:headers(p.data)]
		}
		p.at = from.at
		select {
		case packets <- p:
		case <-ctx.Done():
			return nil
		}
	}
}

// write writes packets, at once when no other is waiting, and at the end what was missed.
func write(ctx context.Context, out *pcapng, sockets []*socket, packets <-chan packet) error {
	began, seen := time.Now(), make([]uint64, len(sockets))
	one := func(p packet) error {
		seen[p.at]++
		if err := out.packet(p); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		if len(packets) > 0 {
			return nil
		}
		if err := out.flush(); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		return nil
	}
	for ctx.Err() == nil {
		select {
		case p := <-packets:
			if err := one(p); err != nil {
				return err
			}
		case <-ctx.Done():
		}
	}
	for len(packets) > 0 {
		if err := one(<-packets); err != nil {
			return err
		}
	}
	for i, s := range sockets {
		missed, _ := s.dropped() // 0 if the kernel does not say
		if err := out.statistics(i, began, time.Now(), seen[i], missed); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	if err := out.flush(); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
