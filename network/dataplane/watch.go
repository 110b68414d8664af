package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

// watchBuffer is what the kernel may keep of notices until they are read.
const watchBuffer = 4 << 20

// Watch says on its channel when something of ours may have been changed, so that Set
// should be called again; changes of ours may be among them, and many changes are one
// notice. It sees devices, routes, rules, neighbours, addresses and our table, on the node
// and in its gateways, but no sysctl: call Set every few seconds as well. It ends with ctx;
// there is one at a time.
func (k *Kernel) Watch(ctx context.Context) (<-chan struct{}, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.again != nil {
		return nil, errors.New("watching the kernel: somebody does already")
	}
	again := make(chan struct{}, 1)
	k.again = again
	k.watchSpace(k.host)
	for _, s := range k.gateways {
		k.watchSpace(s)
	}
	if k.host.watch == nil {
		k.endWatch()
		return nil, errors.New("watching the kernel: cannot open its notices")
	}
	context.AfterFunc(ctx, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.endWatch()
	})
	return again, nil
}

func (k *Kernel) endWatch() {
	for _, s := range k.gateways {
		s.endWatch()
	}
	k.host.endWatch()
	k.again = nil
}

func (s *space) endWatch() {
	if s.watch != nil {
		s.watch.close()
		s.watch, s.filter.watch = nil, nil
	}
}

// watchSpace watches a namespace if somebody wants to know. Where it cannot, elements are
// read whenever somebody has changed nftables.
func (k *Kernel) watchSpace(s *space) {
	if k.again == nil || s.watch != nil {
		return
	}
	w, err := newWatcher(s, k.again, s == k.host)
	if err != nil {
		return
	}
	s.watch, s.filter.watch = w, w
}

// watcher reads the notices of one namespace.
type watcher struct {
	route, filter *nl.NetlinkSocket
	again         chan<- struct{}
	host          bool
	// touched is set when somebody else has changed our table, or may have.
	touched atomic.Bool
	// stirred is set when devices, routes, rules, neighbours or addresses of ours may have changed.
	stirred atomic.Bool
	// port is the number of our own socket for nftables.
	port *atomic.Uint32
}

func newWatcher(s *space, again chan<- struct{}, host bool) (*watcher, error) {
	w := &watcher{again: again, host: host, port: &s.filter.port}
	if err := netns.In(s.file, func() (err error) {
		if w.route, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE,
			unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE); err != nil {
			return err
		}
		if w.filter, err = nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES); err != nil {
			w.route.Close()
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("watching %s: %w", s.name, err)
	}
	devices := map[int32]bool{}
	links, err := s.links()
	if err != nil {
		w.close()
		return nil, err
	}
	for name, l := range links {
		devices[int32(l.Attrs().Index)] = w.ours(name)
	}
	w.touched.Store(true) // what has happened before
	w.stirred.Store(true)
	go w.follow(w.route, func(m syscall.NetlinkMessage) bool {
		ours := w.routing(m, devices)
		if ours {
			w.stirred.Store(true)
		}
		return ours
	})
	go w.follow(w.filter, w.filtering)
	return w, nil
}

func (w *watcher) close() {
	w.route.Close()
	w.filter.Close()
}

func (w *watcher) ours(device string) bool {
	return !w.host || strings.HasPrefix(device, devicePrefix)
}

// follow reads notices until the socket is closed.
func (w *watcher) follow(socket *nl.NetlinkSocket, concerns func(syscall.NetlinkMessage) bool) {
	_ = socket.SetReceiveBufferSize(watchBuffer, true) // a smaller one is only less patient
	for {
		messages, _, err := socket.Receive()
		said := false
		switch {
		case errors.Is(err, unix.ENOBUFS): // some are lost
			w.touched.Store(true)
			w.stirred.Store(true)
			said = true
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
		case err != nil:
			return
		}
		for _, m := range messages {
			said = concerns(m) || said
		}
		if said {
			select {
			case w.again <- struct{}{}:
			default:
			}
		}
	}
}

// routing holds for a notice about what may be ours.
func (w *watcher) routing(m syscall.NetlinkMessage, devices map[int32]bool) bool {
	index := func(at int) int32 { return int32(binary.NativeEndian.Uint32(m.Data[at:])) }
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg {
			return false
		}
		ours := w.ours(parse(m.Data[unix.SizeofIfInfomsg:]).text(unix.IFLA_IFNAME))
		devices[index(4)] = ours
		return ours
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return len(m.Data) >= unix.SizeofNdMsg && devices[index(4)]
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return len(m.Data) >= unix.SizeofIfAddrmsg && devices[index(4)]
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if len(m.Data) < unix.SizeofRtMsg {
			return false
		}
		table := int(parse(m.Data[unix.SizeofRtMsg:]).host32(unix.RTA_TABLE))
		return m.Data[5] == protocol || table == viewTable || table == piecesTable || table >= nodeTables && table <= nodeTables+numberMax || !w.host && table == tunnelTable
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		if len(m.Data) < unix.SizeofRtMsg {
			return false
		}
		by := parse(m.Data[unix.SizeofRtMsg:]).by[nl.FRA_PROTOCOL]
		return len(by) == 1 && by[0] == protocol
	}
	return false
}

// filtering holds for a notice that somebody else has changed our table.
func (w *watcher) filtering(m syscall.NetlinkMessage) bool {
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || m.Header.Type&0xff == unix.NFT_MSG_NEWGEN {
		return false
	}
	if m.Header.Pid == w.port.Load() || len(m.Data) < nl.SizeofNfgenmsg {
		return false
	}
	// The first attribute of every notice is the name of its table.
	if parse(m.Data[nl.SizeofNfgenmsg:]).text(unix.NFTA_TABLE_NAME) != tableName {
		return false
	}
	w.touched.Store(true)
	return true
}

func (a attributes) host32(kind uint16) uint32 {
	if v := a.by[kind]; len(v) >= 4 {
		return binary.NativeEndian.Uint32(v)
	}
	return 0
}
