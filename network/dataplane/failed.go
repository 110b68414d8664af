package dataplane

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// GatewaysError is what is wrong with some gateways, by their peerings. All else is as wanted, and what
// was there of these is left.
type GatewaysError map[string]error

// Error says all that is wrong.
func (e GatewaysError) Error() string { return e.joined().Error() }

// Unwrap returns all that is wrong, in order.
func (e GatewaysError) Unwrap() []error {
	var all []error
	for _, peering := range slices.Sorted(maps.Keys(e)) {
		all = append(all, e[peering])
	}
	return all
}

// joined says the same, and not that all else is as wanted.
func (e GatewaysError) joined() error { return errors.Join(e.Unwrap()...) }

// orNil is e if something is wrong.
func (e GatewaysError) orNil() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// take notes what is wrong with the gateway of a peering, if it is about one.
func (e GatewaysError) take(peering string, err error) bool {
	if peering != "" {
		e[peering] = errors.Join(e[peering], err)
	}
	return peering != ""
}

// devices are the host's ends of the gateways.
func (e GatewaysError) devices() map[string]bool {
	all := map[string]bool{}
	for peering := range e {
		all[Device(peering)] = true
	}
	return all
}

// without is what can be made although something is wrong with some gateways. To remove by it would take
// away what is there of these.
func (s state) without(failed GatewaysError) state {
	if len(failed) == 0 {
		return s
	}
	of := failed.devices()
	s.links = except(s.links, func(l link) bool { return of[l.name] })
	s.addresses = except(s.addresses, func(a address) bool { return of[a.device] })
	s.neighbours = except(s.neighbours, func(n neighbour) bool { return of[n.device] })
	s.routes = except(s.routes, func(r route) bool { return of[r.device] })
	s.settings = except(s.settings, func(w setting) bool {
		parts := strings.Split(w.key, "/") // ipv4/conf/DEVICE/NAME
		return len(parts) > 2 && of[parts[2]]
	})
	return s
}

func except[T any](list []T, not func(T) bool) []T { return slices.DeleteFunc(slices.Clone(list), not) }

// withoutDevices are the devices that are of none of these gateways.
func withoutDevices(all map[string]netlink.Link, failed GatewaysError) map[string]netlink.Link {
	of := failed.devices()
	maps.DeleteFunc(all, func(name string, _ netlink.Link) bool { return of[name] })
	return all
}
