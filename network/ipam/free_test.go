package ipam

import (
	"net/netip"
	"testing"
)

// TestFree finds the highest prefix that nobody has.
func TestFree(t *testing.T) {
	p := netip.MustParsePrefix
	own := Own{
		Pods: []netip.Prefix{p("10.80.255.0/24")}, Reserved: []netip.Prefix{p("fd00:1::/120")},
		Pools: []netip.Prefix{p("10.80.0.0/16"), p("127.0.0.0/8"), p("fd00:1::/119")},
	}
	cases := []struct {
		reason string
		four   bool
		length int
		avoid  []netip.Prefix
		want   string
	}{
		{"what is ours is left alone", true, 24, nil, "10.80.254.0/24"},
		{"and what is to be avoided", true, 24, []netip.Prefix{p("10.80.128.0/17")}, "10.80.127.0/24"},
		{"of IPv6", false, 120, nil, "fd00:1::100/120"},
		{"none that means something else", true, 16, nil, ""},
		{"none is left", false, 120, []netip.Prefix{p("fd00:1::1f0/128")}, ""},
	}
	for _, c := range cases {
		got, ok := own.Free(c.four, c.length, c.avoid)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s: got %v %v, want %q", c.reason, got, ok, c.want)
		}
	}
	if got := own.Holds(p("10.80.0.0/16")); got != "the pods here (10.80.255.0/24)" {
		t.Errorf("a prefix around our pods overlaps %q", got)
	}
	if got := own.Holds(p("10.80.1.0/24")); got != "" {
		t.Errorf("a free prefix overlaps %q", got)
	}
}
