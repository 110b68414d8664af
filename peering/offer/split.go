package offer

import (
	"cmp"
	"slices"
	"time"
)

// ask is one request of a tenant, as far as sharing goes.
type ask struct {
	name    string
	created time.Time
	// named is what it names; a resource that is not in it is open: any amount will do.
	named amounts
}

// split shares what is free among the requests of one tenant and returns what each
// gets, by name. Named amounts come first, oldest request first. What is left of a
// resource goes to those that leave it open: CPUs in equal parts, all else in
// proportion to the CPUs each got, so that none gets CPUs without memory. The limits
// of the tenant, less what it uses, cap the sum.
func split(free, limits, used amounts, asks []ask) map[string]amounts {
	left := free.within(limits.minus(used))
	asks = slices.Clone(asks)
	slices.SortFunc(asks, func(a, b ask) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.name, b.name))
	})
	shares := make(map[string]amounts, len(asks))
	for _, a := range asks {
		share := amounts{}
		for name, wanted := range a.named {
			share[name] = min(wanted, left[name])
			if _, there := left[name]; there {
				left[name] -= share[name]
			}
		}
		shares[a.name] = share
	}
	if _, there := left[cpu]; there {
		spread(cpu, left, asks, shares, func(ask) int64 { return 1 })
	}
	for name := range left {
		if name != cpu {
			spread(name, left, asks, shares, func(a ask) int64 { return shares[a.name][cpu] })
		}
	}
	for _, a := range asks {
		shares[a.name] = fit(shares[a.name], a.named)
	}
	return shares
}

// fit keeps what was named, and of the rest as much as an offer has room for.
func fit(share, named amounts) amounts {
	if len(share) <= maxResources {
		return share
	}
	kept, rest := amounts{}, amounts{}
	for name, v := range share {
		if _, ok := named[name]; ok {
			kept[name] = v
		} else {
			rest[name] = v
		}
	}
	for _, name := range rest.names()[:max(0, maxResources-len(kept))] {
		kept[name] = rest[name]
	}
	return kept
}

// spread gives what is left of a resource to those that leave it open, by weight;
// what cannot be divided goes to the oldest.
func spread(name string, left amounts, asks []ask, shares map[string]amounts, weight func(ask) int64) {
	var open []ask
	var whole int64
	for _, a := range asks {
		if _, named := a.named[name]; !named {
			open = append(open, a)
			whole += weight(a)
		}
	}
	rest := left[name]
	for _, a := range open {
		shares[a.name][name] = 0
		if whole > 0 {
			shares[a.name][name] = portion(left[name], weight(a), whole)
			rest -= shares[a.name][name]
		}
	}
	for _, a := range open {
		if whole > 0 && weight(a) > 0 {
			shares[a.name][name] += rest
			break
		}
	}
}
