package dataplane

import (
	"context"
	"errors"
	"net"
	"reflect"
	"time"

	"github.com/vishvananda/netlink"
)

// calmFor is how long what was looked at in a namespace is taken for what is there, while the
// kernel tells of no change. Settings are the one thing that it tells nothing of.
const calmFor = time.Second

// laid is what was made in a namespace, beside its table.
type laid struct {
	state state // without table
	// inside is a gateway's end of its veth, and tunnel the number of its tunnel's device, 0 if that
	// was not there or not up.
	inside link
	tunnel int
}

// settled notes what a namespace was made.
func (s *space) settled(wanted state, inside link, tunnel int) {
	wanted.table = nil
	s.laid = &laid{state: wanted, inside: inside, tunnel: tunnel}
}

// is says whether a namespace was made what is wanted, its table aside, and nobody has told of
// a change since.
func (s *space) is(wanted state, inside link) bool {
	if s.laid == nil || s.watch == nil || s.watch.stirred.Load() {
		return false
	}
	wanted.table = nil
	return s.laid.inside == inside && reflect.DeepEqual(s.laid.state, wanted)
}

// look forgets what namespaces were made: everything in them is looked at.
func (k *Kernel) look() {
	k.looked = time.Now()
	k.looks++
	k.host.forget()
	for _, s := range k.gateways {
		s.forget()
	}
}

func (s *space) forget() {
	s.laid = nil
	if s.watch != nil {
		s.watch.stirred.Store(false)
	}
}

// setTables does what there is to do if tables alone are to be others, which is so whenever a pod
// comes or goes: to look for all devices, of which every pod has one, would make each pod dearer
// the more there are. It says whether that was all.
func (k *Kernel) setTables(ctx context.Context, c Config, wanted state) (bool, error) {
	if time.Since(k.looked) >= calmFor || len(k.gateways) != len(c.Gateways) || !k.host.is(wanted, link{}) {
		return false, nil
	}
	gateways := sortedBy(c.Gateways, func(g Gateway) string { return g.Peering })
	tables := make([]*table, len(gateways))
	for i, g := range gateways {
		s := k.gateways[g.Peering]
		if s == nil || s.laid == nil {
			return false, nil
		}
		// Whoever makes a tunnel asks for it at once, maybe before the kernel has told of it.
		device, err := s.kernel.LinkByName(g.Tunnel)
		if err != nil {
			device = nil
		}
		tunnel := upAs(device)
		state := gatewayState(c, g, tunnel != 0)
		if tunnel != s.laid.tunnel || !s.is(state, insideOf(g)) {
			return false, nil
		}
		tables[i] = state.table
	}
	failed := GatewaysError{} // what is wrong with one keeps none of the others back
	for i, g := range gateways {
		if err := ctx.Err(); err != nil {
			return true, err
		}
		if err := k.applyPolicy(k.gateways[g.Peering], g, tables[i]); err != nil {
			failed[g.Peering] = err
		}
	}
	for _, removing := range []bool{false, true} {
		if err := k.applyTable(k.host, wanted.table, removing); err != nil {
			return true, errors.Join(err, failed.joined())
		}
	}
	return true, failed.orNil()
}

// insideOf is a gateway's end of its veth.
func insideOf(g Gateway) link {
	return link{name: insideName, peering: g.Peering, hardware: gatewayHardware(g), mtu: g.MTU}
}

// upAs is the number of a device, 0 if it is not there or not up.
func upAs(device netlink.Link) int {
	if device == nil || device.Attrs().Flags&net.FlagUp == 0 {
		return 0
	}
	return device.Attrs().Index
}
