package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/serving"
	"github.com/pelago-dev/pelago/network"
	"github.com/pelago-dev/pelago/offloading"
	"github.com/pelago-dev/pelago/offloading/provider"
	"github.com/pelago-dev/pelago/offloading/reflection"
	"github.com/pelago-dev/pelago/peering"
	"github.com/pelago-dev/pelago/peering/auth"
	"github.com/pelago-dev/pelago/peering/offer"
	"github.com/pelago-dev/pelago/peering/reader"
	"github.com/pelago-dev/pelago/peering/tenant"
)

// room is a part of Pelago that can run in this program.
type room struct {
	name string
	// leads: only one replica works at a time, and it is the one that makes the
	// cluster's id.
	leads bool
	// cache, if set, bounds what the manager's cache holds for it.
	cache func() map[client.Object]cache.ByObject
	// register adds the room to a manager.
	register func(mgr ctrl.Manager, d deps) error
}

// deps is what rooms get of this program, and share.
type deps struct {
	home      *home.Home
	direct    client.Client // without a cache
	namespace string
	// listen is where the API server calls, or strangers do, address the one that it
	// reaches us by.
	listen, address string
	// socket is what the API server calls, and outlives the program when that begins anew.
	socket *serving.Socket
	// fleet is the connections to providers, usage what tenants are counted for.
	fleet *fleet.Fleet
	usage *tenant.Usage
	// network says by which addresses pods are seen, nil if its room does not run.
	network *network.Network
	// domain is what this cluster is called in its own DNS; "" if that is not known.
	domain string
	// reader is where the owner's own resource reader is, if he has one.
	reader reader.Options
}

// networkRoom is the room that makes this cluster one whose network is on.
const networkRoom = "network"

// rooms is all there are, in the order of registering.
var rooms = []room{
	{name: "peering", leads: true, cache: tenant.Cache, register: registerPeering},
	{name: "offloading", leads: true, register: registerOffloading},
	{name: networkRoom, leads: true, register: registerNetwork},
	{name: "auth", register: registerAuth},
}

// registerPeering runs both sides of peerings: what this cluster provides and what it
// consumes.
func registerPeering(mgr ctrl.Manager, d deps) error {
	tenants := tenantOptions(d, mgr.GetClient(), mgr.GetAPIReader())
	peerings := peering.Options{Home: d.home, Fleet: d.fleet, Namespace: d.namespace}
	if d.network != nil {
		tenants.Tunnels, peerings.Tunnels = d.network, d.network
	}
	if err := tenant.Register(mgr, tenants); err != nil {
		return err
	}
	external, err := externalReader(mgr, d.reader)
	if err != nil {
		return err
	}
	if err := offer.Register(mgr, offer.Options{Home: d.home, Fleet: offer.Connections(d.fleet), External: external}); err != nil {
		return err
	}
	if err := peering.Register(mgr, peerings); err != nil {
		return err
	}
	return mgr.Add(d.fleet)
}

// tenantOptions are those of what this cluster provides: who ends loses first what runs, then what it needs.
func tenantOptions(d deps, cached client.Client, live client.Reader) tenant.Options {
	return tenant.Options{Namespace: d.namespace, Usage: d.usage,
		Drainers: []tenant.Drainer{provider.Drainer{Client: cached}}, Empty: reflection.Drainer{Client: cached, Live: live}.Empty}
}

// externalReader connects to the owner's own resource reader, nil if he has none.
func externalReader(mgr ctrl.Manager, o reader.Options) (offer.External, error) {
	if o.Address == "" {
		return nil, nil
	}
	c, err := reader.New(o)
	if err != nil {
		return nil, err
	}
	return c, mgr.Add(c)
}

// registerOffloading runs both sides of offloading, on the peerings of the same program.
func registerOffloading(mgr ctrl.Manager, d deps) error {
	o := offloading.Options{
		Home: d.home, Fleet: d.fleet, Limits: limits{d.usage}, Direct: d.direct,
		Namespace: d.namespace, Version: version, Address: d.address, Listen: d.listen, Socket: d.socket, Domain: d.domain,
	}
	if d.network != nil {
		o.Addresses, o.Allowed, o.Views, o.Tunnels = d.network, d.network, d.network, d.network
		o.Homes, o.NameServers = d.network, d.network.NameServers
	}
	return offloading.Register(mgr, o)
}

// registerNetwork runs both sides of the network.
func registerNetwork(mgr ctrl.Manager, d deps) error { return d.network.Register(mgr) }

// registerAuth runs the endpoint for strangers and the approver.
func registerAuth(mgr ctrl.Manager, d deps) error {
	return auth.Register(mgr, auth.Options{Home: d.home, Namespace: d.namespace, Address: d.listen})
}

// runs says whether a room is among those that were chosen.
func runs(chosen []room, name string) bool {
	return slices.ContainsFunc(chosen, func(r room) bool { return r.name == name })
}

func roomNames() []string {
	var names []string
	for _, r := range rooms {
		names = append(names, r.name)
	}
	return names
}

// choose finds rooms by name. Rooms that lead and rooms that do not cannot share a
// process: they have different rights.
func choose(names []string) ([]room, error) {
	var chosen []room
	for _, r := range rooms {
		if slices.Contains(names, r.name) {
			chosen = append(chosen, r)
		}
	}
	for _, name := range names {
		if !slices.Contains(roomNames(), name) {
			return nil, fmt.Errorf("--rooms: there is no room %q; there is %s", name, strings.Join(roomNames(), ", "))
		}
	}
	for _, r := range chosen {
		if r.leads != chosen[0].leads {
			return nil, fmt.Errorf("--rooms: %s and %s need different rights; run them as two programs", chosen[0].name, r.name)
		}
	}
	return chosen, nil
}

// bounds is what the rooms want the cache to be limited to, beside the common limits.
func bounds(chosen []room, common map[client.Object]cache.ByObject) map[client.Object]cache.ByObject {
	all := maps.Clone(common)
	for _, r := range chosen {
		if r.cache != nil {
			maps.Copy(all, r.cache())
		}
	}
	return all
}
