package ipam

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// TestSpace holds the tree against a plain list.
func TestSpace(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	d := dice(rand.New(rand.NewPCG(seed, 0)).IntN)
	found, none := 0, 0
	for range 300 {
		var s space
		var busy []netip.Prefix
		for range 1 + d(30) {
			p := d.prefix(2)
			if _, taken := s.holder(p); taken != meets(p, busy) {
				t.Fatalf("%v is taken: %v, with %v", p, taken, busy)
			}
			s.take(p, holder{})
			busy = append(busy, p)
			pool := universes[d(2)]
			pool = blockOf(pool).first(pool.Bits() - d(3)).prefix(pool.Addr().Is4())
			if d(2) == 0 {
				pool = d.prefix(2)
			}
			length := min(pool.Bits()+d(8)-1, pool.Addr().BitLen())
			got, ok := s.free(pool, length)
			want, wantOK := slowFree(pool, length, busy)
			if got != want || ok != wantOK {
				t.Fatalf("the highest free /%d of %v is %v, %v, not %v, %v, with %v", length, pool, got, ok, want, wantOK, busy)
			}
			if ok {
				found++
			} else {
				none++
			}
		}
	}
	if found < 500 || none < 500 {
		t.Errorf("%d found, %d not: too few of one", found, none)
	}
}

func TestBlock(t *testing.T) {
	for _, s := range []string{"0.0.0.0/0", "10.42.7.9/32", "::/0", "fd00::/8", "fd00:1::/64", "fd00:1:0:0:8000::/65", "2001:db8::1/128"} {
		p := netip.MustParsePrefix(s)
		b := blockOf(p)
		if got := b.prefix(p.Addr().Is4()); got != p {
			t.Errorf("%v becomes %v", p, got)
		}
		for i := range p.Bits() {
			beside := b.beside(i)
			if beside.length != i+1 || b.common(beside) != i || b.first(i+1).common(b) != i+1 {
				t.Errorf("%v beside %v at %d", beside.prefix(p.Addr().Is4()), p, i)
			}
		}
	}
}
