package tunnel

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// resolveWithin is how long all names together may take.
	resolveWithin = 5 * time.Second
	// perName is how many addresses of one name are tried, and perAnswer how many are looked at.
	perName   = 4
	perAnswer = 64
)

// Unplaced is what Options.Refuse says of an address as long as it does not know which are this cluster's. Where the
// peer was heard it is called meanwhile.
const Unplaced = "is not called before it is known which addresses are this cluster's"

// Resolver finds the addresses of a name.
type Resolver func(ctx context.Context, host string) ([]netip.Addr, error)

// target is one of Config.Endpoints with the addresses that are known of it.
type target struct {
	text, host string
	port       uint16
	named      bool
	addresses  []netip.Addr
}

// targets reads valid endpoints and keeps what was known of names.
func targets(endpoints []string, known []target) []target {
	var all []target
	for _, text := range endpoints {
		host, port, err := SplitEndpoint(text)
		if err != nil {
			continue // validate has refused it
		}
		t := target{text: text, host: host, port: port}
		if address, err := netip.ParseAddr(host); err == nil {
			t.addresses = []netip.Addr{address.Unmap()}
		} else {
			t.named = true
			for _, k := range known {
				if k.host == host {
					t.addresses = k.addresses
				}
			}
		}
		all = append(all, t)
	}
	return all
}

// resolve asks for all names at once. A name that is not answered keeps the addresses it
// had, and is among the failures.
func resolve(ctx context.Context, ask Resolver, all []target) (answered []target, failures map[string]error) {
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	answered, failures = slices.Clone(all), map[string]error{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range answered {
		if !answered[i].named {
			continue
		}
		group.Go(func() {
			found, err := ask(ctx, answered[i].host)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures[answered[i].host] = err
				return
			}
			found = slices.Clone(found[:min(len(found), perAnswer)])
			for j := range found {
				found[j] = found[j].Unmap()
			}
			answered[i].addresses = found
		})
	}
	group.Wait()
	return answered, failures
}

// refusal is an address that a name leads to, and why it is not called.
type refusal struct {
	endpoint string
	at       netip.Addr
	why      string
}

// candidates are all addresses in the order of the endpoints, each once, but for those that names lead to and
// that are refused: a name is the peer's to fill, who must not have us call what is here. What is written as an
// address was looked at before.
func candidates(all []target, refuse func(netip.Addr) string) (found []netip.AddrPort, refused []refusal) {
	for _, t := range all {
		tried := 0
		for _, a := range t.addresses {
			if t.named {
				if why := refuse(a); why != "" {
					refused = append(refused, refusal{t.text, a, why})
					continue
				}
				if tried++; tried > perName {
					break
				}
			}
			if c := netip.AddrPortFrom(a, t.port); !slices.Contains(found, c) {
				found = append(found, c)
			}
		}
	}
	return found, refused
}

// sift finds out anew who may be called. The caller holds the lock.
func (d *Device) sift() {
	found, refused := candidates(d.targets, d.options.Refuse)
	d.problems = nil
	for _, t := range d.targets {
		if t.named && d.failed[t.host] != nil { // the log has said why
			d.problems = append(d.problems, fmt.Sprintf("its peer's endpoint %s cannot be resolved", t.text))
		}
	}
	slices.SortFunc(refused, func(a, b refusal) int { // answers rotate, and what is said stays
		return cmp.Or(cmp.Compare(a.endpoint, b.endpoint), a.at.Compare(b.at))
	})
	last := ""
	for _, r := range refused {
		if r.endpoint != last { // one of its addresses says enough
			d.problems = append(d.problems, fmt.Sprintf("its peer's endpoint %s leads to %s, which %s", r.endpoint, r.at, r.why))
		}
		last = r.endpoint
		is := func(c netip.AddrPort) bool { return c.Addr() == r.at }
		if slices.ContainsFunc(found, is) {
			continue
		}
		d.leave = d.leave || is(d.place) && slices.ContainsFunc(d.state.Candidates, is)
		if r.why != Unplaced && is(d.state.Learnt) {
			d.state.Learnt = netip.AddrPort{}
		}
	}
	d.state.Candidates = found
}

// forsake has the engine forget where the peer is, which would go on to send there by itself. The caller holds
// the lock.
func (d *Device) forsake() error {
	silent := d.config
	silent.Passive = true
	if err := d.engine.set(silent); err != nil {
		return fmt.Errorf("leaving %s: %w", d.place, err)
	}
	d.state.Handshake, d.state.Heard, d.state.Tried = time.Time{}, time.Time{}, time.Time{}
	d.leave = false
	return d.engine.set(d.config)
}

// Reconsider has Refuse asked again, for whoever knows that it says something else.
func (d *Device) Reconsider() { d.poke() }

// Problems says what is wrong with endpoints that are names: those that are not resolved, and those that lead
// where nobody is called.
func (d *Device) Problems() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.problems)
}
