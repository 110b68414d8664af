// Package traffic tells what the connections in a network namespace carry, by the kernel's own
// connection tracking: no packet meets a rule more. What it tells are portions, and each byte is in one
// of them, as the kernel's counters are set to 0 by whoever reads them. So nothing has to be
// remembered of a connection, and who begins anew goes on where another one has ended.
//
// It never changes what a connection is, and never keeps the kernel waiting.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

// Portion is what a connection has carried since it was told of last. What the kernel handles as
// one packet counts as one. Bytes are those of packets of IP, headers included.
type Portion struct {
	// Original are packets of who has begun it, as they come, and Reply those of the other end,
	// also as they come: a translated connection has four addresses.
	Original, Reply Direction
}

// Direction is what went one way.
type Direction struct {
	From, To       netip.Addr
	Packets, Bytes uint64
}

// Options is what a Meter works on.
type Options struct {
	// Namespace is where the connections are. The caller may close it after Open.
	Namespace *os.File
	// Told is called with each portion, by several goroutines.
	Told func(Portion)
	// Most is of how many open connections one Read tells, those with most bytes first; 4,096 if 0.
	// The others are told of later, or when they end.
	Most int
	// Look is how many connections one Read looks at; 131,072 if 0.
	Look int
	// Buffer is how many bytes the kernel may keep of connections that have ended until they
	// are read; 16 MiB if 0.
	Buffer int
}

// Bounds of a Meter.
const (
	defaultMost   = 1 << 12
	defaultLook   = 1 << 17
	defaultBuffer = 16 << 20
)

// Meter tells of the connections of one namespace: of each that ends at once, and of those
// that are open when it is asked.
type Meter struct {
	options Options
	space   *os.File
	events  *socket
	ended   chan struct{}
	reading sync.Mutex
}

// settings have the kernel count, and tell of what has ended also where nobody listened when it
// began.
var settings = []string{"nf_conntrack_acct", "nf_conntrack_events"}

// Open begins to count. Connections that are there already and were not counted so far never are.
// It needs the rights of root in the namespace, and /proc/sys writable.
func Open(o Options) (*Meter, error) {
	if o.Most == 0 {
		o.Most = defaultMost
	}
	if o.Look == 0 {
		o.Look = defaultLook
	}
	if o.Buffer == 0 {
		o.Buffer = defaultBuffer
	}
	space, err := netns.Copy(o.Namespace)
	if err != nil {
		return nil, fmt.Errorf("opening a namespace to count in: %w", err)
	}
	m := &Meter{options: o, space: space, ended: make(chan struct{})}
	err = netns.In(space, func() (err error) {
		if m.events, err = listen(o.Buffer, unix.NFNLGRP_CONNTRACK_DESTROY); err != nil {
			return err
		}
		for _, name := range settings { // which are there once the kernel has what was listened to
			path := filepath.Join("/proc/sys/net/netfilter", name)
			if err := os.WriteFile(path, []byte("1"), 0); err != nil {
				return errors.Join(fmt.Errorf("writing sysctl %s: %w", name, err), m.events.close())
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("counting what connections carry: %w", err), space.Close())
	}
	go m.follow()
	return m, nil
}

// Close ends it. Nothing is told after that. What was not read stays with the kernel.
func (m *Meter) Close() error {
	err := m.events.close()
	<-m.ended
	m.reading.Lock()
	defer m.reading.Unlock()
	return errors.Join(err, m.space.Close())
}

// Lost is how many connections have ended without being told of, as this process did not keep
// up: what they carried since the last Read that told of them is in no portion.
func (m *Meter) Lost() (uint64, error) {
	n, err := m.events.drops()
	if err != nil {
		return 0, fmt.Errorf("asking how many connections were missed: %w", err)
	}
	return n, nil
}

// follow tells of connections that end, until the socket is closed.
func (m *Meter) follow() {
	defer close(m.ended)
	for {
		err := m.events.receive(func(message uint16, b []byte) error {
			if message == unix.NFNL_SUBSYS_CTNETLINK<<8|messageDelete {
				m.tell(b)
			}
			return nil
		})
		switch {
		case err == nil, errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EINTR): // Lost knows how many
		default:
			return
		}
	}
}

func (m *Meter) tell(b []byte) {
	if e := read(b); e.packets() > 0 {
		m.options.Told(e.portion())
	}
}

// Read tells of open connections. It ends with ctx, and what it has not come to by then it tells
// of another time.
func (m *Meter) Read(ctx context.Context) error {
	m.reading.Lock()
	defer m.reading.Unlock()
	found, err := m.list(ctx)
	if err != nil {
		return fmt.Errorf("listing connections: %w", err)
	}
	if err := m.take(ctx, found); err != nil {
		return fmt.Errorf("reading what connections have carried: %w", err)
	}
	return nil
}
