package offer

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
)

// chain puts the rules of this cluster's settings, as they are at each call, behind a
// reader: first the reserve, then the filter.
func chain(source ResourceReader, settings func() home.Offer) ResourceReader {
	reserved := &step{inner: source, change: func(_ Consumer, r Resources) (Resources, error) {
		return reserve(r, settings().Reserve)
	}}
	return &step{inner: reserved, change: func(c Consumer, r Resources) (Resources, error) {
		return filter(r, settings().Rules, c), nil
	}}
}

// step is a reader that changes the answers of another one.
type step struct {
	inner  ResourceReader
	change func(Consumer, Resources) (Resources, error)
}

// Read asks the reader before it and changes the answer.
func (s *step) Read(ctx context.Context, c Consumer) (Resources, error) {
	r, err := s.inner.Read(ctx, c)
	if err != nil {
		return r, err
	}
	return s.change(c, r)
}

// Notify passes on: a step knows nothing that changes by itself.
func (s *step) Notify(changed func(clusterID string)) { s.inner.Notify(changed) }

// Remove passes on.
func (s *step) Remove(clusterID string) { s.inner.Remove(clusterID) }

// reserve withholds a share of the capacity, like "10%", rounded up in favour of the
// owner. A share that cannot be read is an error: nothing is known to be free then.
func reserve(r Resources, share string) (Resources, error) {
	if share == "" {
		return r, nil
	}
	part, err := home.ParsePercent(share)
	if err != nil {
		return Resources{}, fmt.Errorf("%w: offer.reserve: %w", errUnknown, err)
	}
	withheld := amounts{}
	for name, v := range amountsOf(r.Capacity) {
		exact := new(big.Rat).Mul(part, new(big.Rat).SetInt64(v))
		up := new(big.Int).Add(exact.Num(), new(big.Int).Sub(exact.Denom(), big.NewInt(1)))
		withheld[name] = up.Quo(up, exact.Denom()).Int64()
	}
	free := amountsOf(r.Free).minus(withheld)
	r.Free = free.list()
	r.Shapes = refit(r.Shapes, func(a amounts) amounts { return a.within(free) })
	return r, nil
}

// filter leaves what the rules let a consumer have. The number of pods is no thing
// one gives away, so lists of what is allowed need not name it; a list of what is
// denied may.
func filter(r Resources, rules []home.Rule, c Consumer) Resources {
	allowed := func(name string) bool {
		for _, rule := range rules {
			if !concerns(rule, c) {
				continue
			}
			if matches(rule.Deny, name) || len(rule.Allow) > 0 && name != pods && !matches(rule.Allow, name) {
				return false
			}
		}
		return true
	}
	keep := func(a amounts) amounts {
		kept := amounts{}
		for name, v := range a {
			if allowed(name) {
				kept[name] = v
			}
		}
		return kept
	}
	r.Used = refilter(r.Used, keep)
	free := amountsOf(r.Free)
	kept := keep(free)
	if len(kept) == len(free) {
		return r
	}
	if free.usable() && !kept.usable() {
		r.Withheld = v1alpha1.ReasonFiltered
	}
	r.Free = kept.list()
	r.Capacity = keep(amountsOf(r.Capacity)).list()
	r.Shapes = refit(r.Shapes, keep)
	return r
}

// refilter leaves out of what is used what is hidden: an offer never names it.
func refilter(used map[string]v1alpha1.ResourceList, keep func(amounts) amounts) map[string]v1alpha1.ResourceList {
	if len(used) == 0 {
		return used
	}
	out := make(map[string]v1alpha1.ResourceList, len(used))
	for request, list := range used {
		out[request] = keep(amountsOf(list)).list()
	}
	return out
}

// concerns says whether a rule is about a consumer.
func concerns(rule home.Rule, c Consumer) bool {
	return len(rule.Consumers) == 0 || slices.ContainsFunc(rule.Consumers, func(name string) bool {
		return name == "*" || name == c.Tenant || name == c.ClusterID
	})
}

func matches(list []string, name string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, name)
}
