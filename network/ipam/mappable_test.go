package ipam

import (
	"net/netip"
	"testing"
)

func TestMappable(t *testing.T) {
	for _, c := range []struct {
		reason, external string
		free             int
	}{
		{"the first four addresses are Pelago's", "10.255.255.0/24", 252},
		{"also of IPv6", "fd00::ff00/120", 252},
		{"a range of eight has four", "10.255.255.8/29", 4},
		{"one of four has none", "10.255.255.8/30", 0},
		{"a single address has none", "10.255.255.8/32", 0},
	} {
		external, free := netip.MustParsePrefix(c.external), 0
		all := Mappable(external)
		for a, n := external.Addr(), 0; external.Contains(a); a, n = a.Next(), n+1 {
			in := 0
			for _, p := range all {
				if p != p.Masked() {
					t.Fatalf("%s: %s has host bits", c.reason, p)
				}
				if p.Contains(a) {
					in++
				}
			}
			if free += in; in > 1 || in == 1 && n < 4 || in == 0 && n >= 4 {
				t.Errorf("%s: %s, number %d, is in %d prefixes", c.reason, a, n, in)
			}
		}
		if free != c.free {
			t.Errorf("%s: %d addresses, want %d", c.reason, free, c.free)
		}
	}
	if all := Mappable(netip.Prefix{}); len(all) != 0 {
		t.Errorf("of no range there are %v", all)
	}
}
