package ipam

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// crowd is a cluster of 5,000 nodes by single addresses, and n peers with identical ranges.
func crowd(n int) (Own, []Peering) {
	own := Own{Pods: ps("10.42.0.0/16 fd42::/56"), Services: ps("10.43.0.0/16"), External: ps("10.70.0.0/24"), Pools: DefaultPools("rome")}
	for i := range 5000 {
		a := netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})
		own.Nodes = append(own.Nodes, netip.PrefixFrom(a, 32))
	}
	var peerings []Peering
	for i := range n {
		peerings = append(peerings, Peering{Key: fmt.Sprint("peer", i), Since: time.Unix(int64(i%7), 0), Ranges: []string{"10.42.0.0/20", "10.70.0.0/24", "fd42::/56"}})
	}
	return own, peerings
}

func BenchmarkAllocate(b *testing.B) {
	for _, memory := range []bool{false, true} {
		b.Run(fmt.Sprintf("peers=1000/memory=%v", memory), func(b *testing.B) {
			own, peerings := crowd(1000)
			if memory {
				results := Allocate(own, peerings)
				for i, p := range peerings {
					peerings[i].Before = results[p.Key].Views
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if r := Allocate(own, peerings); len(r["peer999"].Views) != 3 {
					b.Fatal(r["peer999"])
				}
			}
		})
	}
}

// BenchmarkFree finds the last free /24 of 65,536, and that there is none.
func BenchmarkFree(b *testing.B) {
	pool := netip.MustParsePrefix("10.0.0.0/8")
	var s space
	for i := range 1 << 16 {
		if i != 30_000 {
			s.take(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i)}), 24), holder{})
		}
	}
	b.Run("last", func(b *testing.B) {
		for b.Loop() {
			if p, ok := s.free(pool, 24); !ok || p != netip.MustParsePrefix("10.117.48.0/24") {
				b.Fatal(p, ok)
			}
		}
	})
	b.Run("none", func(b *testing.B) {
		for b.Loop() {
			if p, ok := s.free(pool, 23); ok {
				b.Fatal(p)
			}
		}
	})
}
