package hollow

import (
	"fmt"
	"math/big"
	"net/netip"
	"sync"
)

// mostAddresses bounds a pool, whatever the ranges hold.
const mostAddresses = 1 << 20

// pool gives pods addresses: the n-th of the upper half of each range. It is
// safe for concurrent use.
type pool struct {
	mu    sync.Mutex
	bases []netip.Addr // where each upper half begins
	size  int
	next  int
	taken map[int]bool
}

func newPool(ranges []netip.Prefix) (*pool, error) {
	if len(ranges) == 0 {
		return nil, fmt.Errorf("hollow nodes have no range for addresses of pods; give the cluster podRanges")
	}
	p := &pool{size: mostAddresses, taken: map[int]bool{}}
	for _, r := range ranges {
		spare := r.Addr().BitLen() - r.Bits() - 1
		if spare < 1 {
			return nil, fmt.Errorf("the pod range %s is too small for hollow nodes; choose a larger one", r)
		}
		half := new(big.Int).Lsh(big.NewInt(1), uint(spare))
		p.bases = append(p.bases, add(r.Masked().Addr(), half))
		if spare < 20 {
			p.size = min(p.size, 1<<spare)
		}
	}
	return p, nil
}

// add returns the address n after a.
func add(a netip.Addr, n *big.Int) netip.Addr {
	raw := a.AsSlice()
	sum := new(big.Int).Add(new(big.Int).SetBytes(raw), n)
	out, _ := netip.AddrFromSlice(sum.FillBytes(raw))
	return out
}

// take gives out a number that nobody has. Numbers go round, so an address that
// was given back is not used again at once.
func (p *pool) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.taken) >= p.size-2 { // the first and the last are nobody's
		return 0, fmt.Errorf("all %d addresses of hollow pods are taken; give the cluster larger podRanges", len(p.taken))
	}
	for {
		p.next = p.next%(p.size-2) + 1
		if !p.taken[p.next] {
			p.taken[p.next] = true
			return p.next, nil
		}
	}
}

// addresses are what a number stands for.
func (p *pool) addresses(n int) []netip.Addr {
	var out []netip.Addr
	for _, base := range p.bases {
		out = append(out, add(base, big.NewInt(int64(n))))
	}
	return out
}

// claim marks the number of an address as taken and returns it, or 0 for an
// address of somebody else's.
func (p *pool) claim(address string) int {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return 0
	}
	base := p.bases[0]
	if a.BitLen() != base.BitLen() {
		return 0
	}
	distance := new(big.Int).Sub(new(big.Int).SetBytes(a.AsSlice()), new(big.Int).SetBytes(base.AsSlice()))
	if !distance.IsInt64() || distance.Int64() < 1 || distance.Int64() > int64(p.size-2) {
		return 0
	}
	n := int(distance.Int64())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[n] = true
	return n
}

// release gives a number back; 0 is no number.
func (p *pool) release(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, n)
}
