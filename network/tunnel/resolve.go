package tunnel

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// resolveWithin is how long all names together may take.
	resolveWithin = 5 * time.Second
	// perName is how many addresses of one name are tried.
	perName = 4
)

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
			for j := range found {
				found[j] = found[j].Unmap()
			}
			found = slices.DeleteFunc(found, func(a netip.Addr) bool { return !elsewhere(a) })
			if len(found) > perName {
				found = found[:perName]
			}
			answered[i].addresses = found
		})
	}
	group.Wait()
	return answered, failures
}

// candidates are all addresses in the order of the endpoints, each once.
func candidates(all []target) []netip.AddrPort {
	var found []netip.AddrPort
	for _, t := range all {
		for _, a := range t.addresses {
			if c := netip.AddrPortFrom(a, t.port); !slices.Contains(found, c) {
				found = append(found, c)
			}
		}
	}
	return found
}

// elsewhere holds for addresses that can be a peer's. A name is the peer's to fill, who must not
// have us call what is here.
func elsewhere(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && !a.IsLinkLocalUnicast()
}
