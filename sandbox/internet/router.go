package internet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	applyTimeout = 20 * time.Second
	// drainTimeout is far more than the kernel needs to take what a relay holds.
	drainTimeout = time.Second
)

// router owns the kernel state of its namespace and the relays.
type router struct {
	log *slog.Logger

	mu     sync.Mutex
	config Config
	relays map[string]*relay // by device
	// past is what the counters of earlier rule sets and relays held.
	past map[string]Flow // by flowName
}

func newRouter(log *slog.Logger) *router {
	return &router{log: log, relays: map[string]*relay{}, past: map[string]Flow{}}
}

// set makes the kernel do what the config says. If that fails, it goes back to
// the config before.
func (r *router) set(c Config) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := checkInterfaces(c); err != nil {
		return err
	}
	// A client that goes away does not leave a config half applied.
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	if err := r.converge(ctx, c); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
		defer cancel()
		if back := r.converge(ctx, r.config); back != nil {
			err = errors.Join(err, fmt.Errorf("going back to the config before: %w", back))
		}
		return err
	}
	r.config = c
	r.forget()
	return nil
}

func (r *router) get() Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.config
}

// converge changes the kernel in an order in which no packet that may pass
// before and after is dropped: relays are there before packets are sent to
// them, and empty before they go.
func (r *router) converge(ctx context.Context, c Config) error {
	routing := RoutingFor(c)
	r.takeRelayDrops()
	if err := r.startRelays(routing); err != nil {
		return err
	}
	if err := addRoutes(routing.Routes); err != nil {
		return err
	}
	if err := changeRules(routing.Rules, false); err != nil {
		return err
	}
	unwanted := r.unwanted(routing)
	r.drain(ctx, unwanted)

	flows, err := r.flows(ctx)
	if err != nil {
		return err
	}
	if err := applyRuleset(ctx, Ruleset(c)); err != nil {
		return fmt.Errorf("applying the rule set: %w", err)
	}
	for _, f := range flows { // the counters began anew
		r.past[flowName(f.From, f.To)] = f
	}

	if err := changeRules(routing.Rules, true); err != nil {
		return err
	}
	for _, name := range unwanted {
		if err := r.relays[name].close(); err != nil {
			r.log.Error("wan device did not close", "device", name, "error", err)
		}
		delete(r.relays, name)
	}
	return removeRoutes(routing.Routes)
}

// startRelays makes the devices and relays that are missing and tells all of
// them what to do.
func (r *router) startRelays(routing Routing) error {
	for _, d := range routing.Devices {
		if r.relays[d.Name] == nil {
			device, err := openTUN(d.Name)
			if err != nil {
				return err
			}
			r.relays[d.Name] = startRelay(device, rand.Uint64(), r.log.With("device", d.Name))
		}
		if err := bringUp(d); err != nil {
			return err
		}
		r.relays[d.Name].set(d)
	}
	return nil
}

// unwanted names the relays that no link needs.
func (r *router) unwanted(routing Routing) []string {
	wanted := map[string]bool{}
	for _, d := range routing.Devices {
		wanted[d.Name] = true
	}
	var names []string
	for name := range r.relays {
		if !wanted[name] {
			names = append(names, name)
		}
	}
	return names
}

func (r *router) drain(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for _, name := range names {
		if err := r.relays[name].drain(ctx); err != nil {
			r.log.Error("wan device keeps packets", "device", name, "error", err)
		}
	}
}

// close ends all relays. Rules and routes stay until the namespace ends or the
// next router takes them over.
func (r *router) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, relay := range r.relays {
		if err := relay.close(); err != nil {
			r.log.Error("wan device did not close", "device", name, "error", err)
		}
		delete(r.relays, name)
	}
}
