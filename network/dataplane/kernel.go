package dataplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

// Options is what a Kernel works on.
type Options struct {
	// Host is the namespace of the node, nil for the one of this process. The caller
	// may close it after New.
	Host *os.File
	// Namespaces holds those of gateways.
	Namespaces Namespaces
}

// Kernel is the Plane of this node's kernel. It needs the rights of root in the node's
// network namespace and over those of gateways, and /proc/sys writable.
type Kernel struct {
	mu         sync.Mutex
	namespaces Namespaces
	host       *space
	gateways   map[string]*space
	own        map[number]bool // next hops that the node has, or had, as its own addresses
	writes     atomic.Int64
	again      chan struct{} // of Watch, nil while nobody watches
	// looked is when all namespaces were last looked at as a whole, and looks how often they were.
	looked time.Time
	looks  int
}

var _ Plane = (*Kernel)(nil)

// New opens the node's namespace and changes nothing.
func New(o Options) (*Kernel, error) {
	file, err := netns.Copy(o.Host)
	if err != nil {
		return nil, fmt.Errorf("opening the node's network namespace: %w", err)
	}
	k := &Kernel{namespaces: o.Namespaces, gateways: map[string]*space{}, own: map[number]bool{}}
	if k.host, err = openSpace("the node's namespace", file, &k.writes); err != nil {
		return nil, err
	}
	return k, nil
}

// Close lets go of the kernel and leaves all that was set as it is.
func (k *Kernel) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range k.gateways {
		g.close()
	}
	k.gateways = map[string]*space{}
	k.host.close()
}

// Set makes the kernel what the config says. What leads somewhere is made before what leads
// to it, and removed after: of two ways to a view one always holds. What is wrong with single gateways
// alone is a GatewaysError, and all else is as wanted then.
func (k *Kernel) Set(ctx context.Context, c Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	c.own = k.own
	wanted := hostState(c)
	failed := k.openGateways(c)
	if len(failed) == 0 {
		if done, err := k.setTables(ctx, c, wanted); done {
			return err
		}
	}
	k.look()
	if more, err := k.learnOwn(); err != nil {
		return err
	} else if more {
		wanted = hostState(c)
	}
	steps := []func() error{
		func() error { return k.host.applyLinks(wanted.links, k.gateways, failed) },
		func() error { return k.host.applySettings(wanted.without(failed).settings) },
		func() error { return k.applyGateways(ctx, c, failed) },
		func() error { return k.host.raiseLinks(wanted.without(failed).links, failed) },
		func() error { return k.addEntries(wanted.without(failed), failed) },
		func() error {
			return k.host.addRoutes(routesOf(wanted.without(failed).routes, func(table int) bool { return table != viewTable }))
		},
		func() error { return k.host.addRules(wanted.rules) },
		func() error { return k.applyTable(k.host, wanted.table, false) },
		func() error { return k.host.addRoutes(wanted.without(failed).routes) },
		func() error { return k.host.removeRules(wanted.rules) },
		func() error { return k.host.removeRoutes(wanted.routes) },
		func() error { return k.applyTable(k.host, wanted.table, true) },
		func() error { return k.removeEntries(wanted) },
		func() error { return k.host.removeLinks(wanted.links) },
		func() error { return k.removeGateways(c) },
	}
	for _, step := range steps {
		err := ctx.Err()
		if err == nil {
			err = step()
		}
		if err != nil {
			return errors.Join(err, failed.joined())
		}
	}
	if len(failed) == 0 {
		k.host.settled(wanted, link{}, 0)
	}
	return failed.orNil()
}

// applyTable applies a table, and none only when it is the turn of what is removed.
func (k *Kernel) applyTable(s *space, t *table, removing bool) error {
	if removing != (t == nil) {
		return nil
	}
	wrote, err := s.filter.apply(t, nil)
	if wrote {
		k.writes.Add(1)
	}
	return err
}

func (k *Kernel) addEntries(wanted state, failed GatewaysError) error {
	devices, err := k.host.devicesOf(false)
	if err != nil {
		return err
	}
	devices = withoutDevices(devices, failed)
	if err := k.host.applyAddresses(wanted.addresses, devices); err != nil {
		return err
	}
	if err := k.host.addNeighbours(wanted.neighbours, devices); err != nil {
		return err
	}
	return k.host.addForwards(wanted.forwards, devices[vxlanName])
}

func (k *Kernel) removeEntries(wanted state) error {
	devices, err := k.host.devicesOf(false)
	if err != nil {
		return err
	}
	if err := k.host.removeForwards(wanted.forwards, devices[vxlanName]); err != nil {
		return err
	}
	return k.host.removeNeighbours(wanted.neighbours, devices)
}

// openGateways opens the namespaces of the gateways here.
func (k *Kernel) openGateways(c Config) GatewaysError {
	failed := GatewaysError{}
	for _, g := range c.Gateways {
		file, err := k.namespaces.Open(g.Peering)
		if err != nil {
			failed[g.Peering] = fmt.Errorf("opening the namespace of gateway %s: %w", g.Peering, err)
			continue
		}
		if open := k.gateways[g.Peering]; open != nil {
			if open.same(file) {
				_ = file.Close()
				continue
			}
			open.close()
			delete(k.gateways, g.Peering)
		}
		s, err := openSpace("gateway "+g.Peering, file, &k.writes)
		if err != nil {
			failed[g.Peering] = err
			continue
		}
		k.gateways[g.Peering] = s
		k.watchSpace(s)
	}
	return failed
}

// applyGateways makes those what the config says with which nothing is wrong: what is with one keeps none
// of the others back.
func (k *Kernel) applyGateways(ctx context.Context, c Config, failed GatewaysError) error {
	for _, g := range sortedBy(c.Gateways, func(g Gateway) string { return g.Peering }) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if failed[g.Peering] != nil {
			continue
		}
		if err := k.applyGateway(c, g); err != nil {
			failed[g.Peering] = err
		}
	}
	return nil
}

// applyGateway makes a gateway's namespace what the config says, the table before the
// devices are up.
func (k *Kernel) applyGateway(c Config, g Gateway) error {
	s := k.gateways[g.Peering]
	devices, err := s.links()
	if err != nil {
		return err
	}
	tunnel := upAs(devices[g.Tunnel])
	wanted := gatewayState(c, g, tunnel != 0)
	inside := devices[insideName]
	if inside == nil {
		return fmt.Errorf("finding %s in %s: no such device", insideName, s.name)
	}
	own := insideOf(g)
	steps := []func() error{
		func() error { return s.correct(inside, own, own.hardware, own.mtu) },
		func() error { return k.applyPolicy(s, g, wanted.table) },
		func() error { return s.applySettings(wanted.settings) },
		func() error { return s.raise("lo", insideName) },
		func() error { return s.addRules(wanted.rules) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	entries, err := s.devicesOf(true)
	if err != nil {
		return err
	}
	err = errors.Join(
		s.applyAddresses(wanted.addresses, entries), s.addNeighbours(wanted.neighbours, entries), s.addRoutes(wanted.routes),
		s.removeRules(wanted.rules), s.removeRoutes(wanted.routes), s.removeNeighbours(wanted.neighbours, entries))
	if err == nil {
		s.settled(wanted, own, tunnel)
	}
	return err
}

// removeGateways lets go of the namespaces of gateways that are not here any more.
func (k *Kernel) removeGateways(c Config) error {
	names, err := k.namespaces.List()
	if err != nil {
		return fmt.Errorf("listing the namespaces of gateways: %w", err)
	}
	for _, name := range names {
		if slices.ContainsFunc(c.Gateways, func(g Gateway) bool { return g.Peering == name }) {
			continue
		}
		if s := k.gateways[name]; s != nil {
			s.close()
			delete(k.gateways, name)
		}
		k.writes.Add(1)
		if err := k.namespaces.Remove(name); err != nil {
			return fmt.Errorf("removing the namespace of gateway %s: %w", name, err)
		}
	}
	return nil
}

// Drops returns what the gateways here have dropped, for each peering and reason. Counts
// begin anew with a namespace.
func (k *Kernel) Drops(ctx context.Context) ([]Drop, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	spaces := map[string]*space{"": k.host}
	maps.Copy(spaces, k.gateways)
	var drops []Drop
	for name, s := range spaces {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.filter.open(); err != nil {
			return nil, err
		}
		counters, err := s.filter.counters()
		if err != nil {
			s.filter.close()
			return nil, fmt.Errorf("reading what %s has dropped: %w", s.name, err)
		}
		for _, a := range counters {
			count := parse(a.by[unix.NFTA_OBJ_DATA])
			drops = append(drops, Drop{
				Peering: name, Reason: Reason(a.text(unix.NFTA_OBJ_NAME)),
				Packets: count.u64(unix.NFTA_COUNTER_PACKETS), Bytes: count.u64(unix.NFTA_COUNTER_BYTES),
			})
		}
	}
	return sortedBy(drops, func(d Drop) string { return d.Peering + "\x00" + string(d.Reason) }), nil
}

// Passed returns what went between this node and its gateways, each of which counts as one
// however large it is. Counts begin anew with a namespace.
func (k *Kernel) Passed(ctx context.Context) ([]Passed, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []Passed
	for name, s := range k.gateways {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		inside, err := s.kernel.LinkByName(insideName)
		if err != nil {
			return nil, fmt.Errorf("reading what gateway %s has passed: %w", name, err)
		}
		if n := inside.Attrs().Statistics; n != nil {
			all = append(all, Passed{Peering: name, Sent: n.RxPackets, SentBytes: n.RxBytes, Received: n.TxPackets, ReceivedBytes: n.TxBytes})
		}
	}
	return sortedBy(all, func(p Passed) string { return p.Peering }), nil
}

func routesOf(routes []route, ok func(table int) bool) []route {
	var out []route
	for _, r := range routes {
		if ok(r.table) {
			out = append(out, r)
		}
	}
	return out
}
