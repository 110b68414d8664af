package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

var table = NewTable(map[string]Result{
	"milan":  {Views: vs("10.42.0.0/16=10.81.0.0/16 10.70.0.0/24=10.80.255.0/24 fd42::/56=fd12:3456:ff:ff00::/56")},
	"naples": {Views: vs("10.42.0.0/16=10.42.0.0/16 10.70.0.4/30=10.82.0.252/30 10.70.0.9/32=10.82.0.1/32 fd42:0:0:1::/64=fd42:0:0:1::/64")},
	"forged": {Views: vs("10.42.0.0/16=10.90.0.0/24 10.43.0.0/16=fd00::/16 10.44.0.1/16=10.91.0.0/16")},
})

func TestTable(t *testing.T) {
	for _, c := range []struct{ key, real, view string }{
		{"milan", "10.42.0.5", "10.81.0.5"},
		{"milan", "10.42.255.255", "10.81.255.255"},
		{"milan", "10.70.0.1", "10.80.255.1"},
		{"milan", "fd42::a:b", "fd12:3456:ff:ff00::a:b"},
		{"milan", "fd42:0:0:ff:ffff:ffff:ffff:ffff", "fd12:3456:ff:ffff:ffff:ffff:ffff:ffff"},
		{"naples", "10.42.0.5", "10.42.0.5"},
		{"naples", "10.70.0.7", "10.82.0.255"},
		{"naples", "10.70.0.9", "10.82.0.1"},
		{"naples", "fd42::1:0:0:0:7", "fd42::1:0:0:0:7"},
	} {
		view, ok := table.View(c.key, netip.MustParseAddr(c.real))
		if !ok || view != netip.MustParseAddr(c.view) {
			t.Errorf("%s at %s is viewed as %v, not %s", c.real, c.key, view, c.view)
		}
		key, real, ok := table.Real(netip.MustParseAddr(c.view))
		if !ok || key != c.key || real != netip.MustParseAddr(c.real) {
			t.Errorf("%s is %v at %s, not %s at %s", c.view, real, key, c.real, c.key)
		}
	}
	for _, c := range []struct{ key, real string }{
		{"milan", "10.41.255.255"}, {"milan", "10.43.0.0"}, {"milan", "9.0.0.1"}, {"milan", "255.255.255.255"}, {"milan", "fd42:0:0:100::"}, {"milan", "::ffff:10.42.0.5"}, {"milan", "fd42::1%eth0"},
		{"naples", "10.70.0.8"}, {"naples", "10.70.0.10"}, {"forged", "10.42.0.1"}, {"forged", "10.43.0.1"}, {"forged", "10.44.0.1"}, {"nobody", "10.42.0.5"},
	} {
		if view, ok := table.View(c.key, netip.MustParseAddr(c.real)); ok || view.IsValid() {
			t.Errorf("%s at %s is viewed as %v", c.real, c.key, view)
		}
	}
	for _, s := range []string{"10.82.0.0", "10.82.0.2", "10.82.1.0", "10.90.0.1", "fd00::1", "fd12:3456::", "::ffff:10.81.0.5", "1.1.1.1"} {
		if key, real, ok := table.Real(netip.MustParseAddr(s)); ok || key != "" || real.IsValid() {
			t.Errorf("%s is %v of %q", s, real, key)
		}
	}
	for key, want := range map[string]string{"milan": "[10.80.255.0/24 10.81.0.0/16 fd12:3456:ff:ff00::/56]", "forged": "[]", "nobody": "[]"} {
		if got := fmt.Sprint(table.Views(key)); got != want {
			t.Errorf("%s is viewed by %s, not %s", key, got, want)
		}
	}
	if _, ok := table.View("milan", netip.Addr{}); ok {
		t.Error("no address at all has a view")
	}
}

// FuzzTable: whatever the address and the prefixes, a view goes back to where it came from,
// and keeps the bits after the prefix.
func FuzzTable(f *testing.F) {
	f.Add([]byte{10, 42, 0, 5}, []byte{10, 81, 0, 0}, 16)
	f.Add(netip.MustParseAddr("fd42::5").AsSlice(), netip.MustParseAddr("fd12::").AsSlice(), 65)
	f.Fuzz(func(t *testing.T, real, view []byte, length int) {
		a, okA := netip.AddrFromSlice(real)
		v, okV := netip.AddrFromSlice(view)
		from, errA := a.Prefix(length)
		to, errV := v.Prefix(length)
		if !okA || !okV || errA != nil || errV != nil {
			return
		}
		table := NewTable(map[string]Result{"k": {Views: []View{{from, to}}}})
		got, ok := table.View("k", a)
		if !ok {
			if a.BitLen() == v.BitLen() && !from.Addr().Is4In6() && !to.Addr().Is4In6() && !a.Is4In6() {
				t.Fatalf("%v of %v has no view in %v", a, from, to)
			}
			return
		}
		key, back, ok := table.Real(got)
		if to.Contains(got) && (!ok || key != "k" || back != a) || !to.Contains(got) && !got.Is4In6() {
			t.Fatalf("%v of %v is %v of %v, and that %v", a, from, got, to, back)
		}
		low, other := a.AsSlice(), got.AsSlice()
		for i := length; i < a.BitLen(); i++ {
			if (low[i/8]^other[i/8])>>(7-i%8)&1 != 0 {
				t.Fatalf("%v becomes %v, with another bit %d", a, got, i)
			}
		}
	})
}

func BenchmarkTable(b *testing.B) {
	own, peerings := crowd(1000)
	results := Allocate(own, peerings)
	table := NewTable(results)
	d := rand.New(rand.NewPCG(1, 2))
	type query struct {
		key  string
		real netip.Addr
	}
	queries := make([]query, 10_000)
	for i := range queries {
		p := peerings[d.IntN(len(peerings))]
		v := results[p.Key].Views[d.IntN(len(results[p.Key].Views))]
		queries[i] = query{p.Key, v.Real.Addr()}
	}
	b.ReportAllocs()
	for b.Loop() { // one is 10,000 addresses, there and back
		for _, q := range queries {
			view, _ := table.View(q.key, q.real)
			if _, real, _ := table.Real(view); real != q.real {
				b.Fatal(q, view, real)
			}
		}
	}
}
