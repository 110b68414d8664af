package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestParseRanges(t *testing.T) {
	many := strings.Split(strings.TrimSpace(strings.Repeat("10.0.0.0/24 ", 17)), " ")
	for _, c := range []struct {
		texts []string
		want  string
	}{
		{nil, "[]"},
		{[]string{"10.71.0.0/24", "fd00::/48", "10.42.0.0/16"}, "[10.42.0.0/16 10.71.0.0/24 fd00::/48]"},
		{[]string{"10.0.0.0/8", "fd00::/16"}, "[10.0.0.0/8 fd00::/16]"},
		{[]string{"0.0.0.0/0"}, "0.0.0.0/0 is larger than a /8: publish the ranges that pods really have"},
		{[]string{"10.0.0.0/7"}, "10.0.0.0/7 is larger than a /8: publish the ranges that pods really have"},
		{[]string{"::/0"}, "::/0 is larger than a /16: publish the ranges that pods really have"},
		{[]string{"fc00::/15"}, "fc00::/15 is larger than a /16: publish the ranges that pods really have"},
		{[]string{"0.0.0.0/8"}, "0.0.0.0/8 overlaps 0.0.0.0/8, unspecified addresses: choose a range without them"},
		{[]string{"127.0.0.0/8"}, "127.0.0.0/8 overlaps 127.0.0.0/8, loopback addresses: choose a range without them"},
		{[]string{"169.0.0.0/8"}, "169.0.0.0/8 overlaps 169.254.0.0/16, link-local addresses: choose a range without them"},
		{[]string{"239.0.0.0/24"}, "239.0.0.0/24 overlaps 224.0.0.0/4, multicast addresses: choose a range without them"},
		{[]string{"255.255.255.255/32"}, "255.255.255.255/32 overlaps 240.0.0.0/4, reserved addresses: choose a range without them"},
		{[]string{"::1/128"}, "::1/128 overlaps ::/8, unspecified, loopback and IPv4 addresses: choose a range without them"},
		{[]string{"64:ff9b::/96"}, "64:ff9b::/96 overlaps ::/8, unspecified, loopback and IPv4 addresses: choose a range without them"},
		{[]string{"fe80::/64"}, "fe80::/64 overlaps fe80::/10, link-local addresses: choose a range without them"},
		{[]string{"ff02::/16"}, "ff02::/16 overlaps ff00::/8, multicast addresses: choose a range without them"},
		{[]string{"::ffff:10.42.0.0/112"}, "::ffff:10.42.0.0/112 is IPv4 in an IPv6 form: write it as IPv4"},
		{[]string{"10.42.0.1/16"}, "10.42.0.1/16 begins inside the range: write 10.42.0.0/16"},
		{[]string{"10.42.0.0/16", "10.42.0.0/16"}, "10.42.0.0/16 overlaps 10.42.0.0/16 of the same peer: publish each address once"},
		{[]string{"10.42.1.0/24", "10.42.0.0/16"}, "10.42.1.0/24 overlaps 10.42.0.0/16 of the same peer: publish each address once"},
		{[]string{"10.42.0.0"}, `"10.42.0.0" is not a range of addresses: write it like 10.42.0.0/16`},
		{[]string{"fe80::%eth0/64"}, `"fe80::%eth0/64" is not a range of addresses: write it like 10.42.0.0/16`},
		{[]string{"\x1b[2J"}, `"\x1b[2J" is not a range of addresses: write it like 10.42.0.0/16`},
		{[]string{strings.Repeat("1", 65)}, `"11111111111111111111"… is too long for a range: write it like 10.42.0.0/16`},
		{[]string{"b", "10.42.0.0/16", "a"}, "\"a\" is not a range of addresses: write it like 10.42.0.0/16\n\"b\" is not a range of addresses: write it like 10.42.0.0/16"},
		{many, "there are 17 ranges: publish at most 16, larger ones if need be"},
	} {
		ranges, err := ParseRanges(c.texts)
		got := fmt.Sprint(ranges)
		if err != nil {
			if got = err.Error(); ranges != nil {
				t.Errorf("%q: refused, and %v are taken", c.texts, ranges)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%.200q (-want +got):\n%s", c.texts, diff)
		}
	}
}

func TestParsePools(t *testing.T) {
	pools, err := ParsePools([]string{"192.168.0.0/16", "10.0.0.0/8", "fd00::/8"})
	if got := fmt.Sprint(pools, err); got != "[192.168.0.0/16 10.0.0.0/8 fd00::/8] <nil>" { // their order counts
		t.Error(got)
	}
	for text, want := range map[string]string{
		"":           `pool "" is not a range of addresses: write it like 10.42.0.0/16`,
		"10.0.0.1/8": "pool 10.0.0.1/8 begins inside the range: write 10.0.0.0/8",
		"0.0.0.0/0":  "pool 0.0.0.0/0 overlaps 0.0.0.0/8, unspecified addresses: choose a range without them",
	} {
		if _, err := ParsePools([]string{"10.0.0.0/8", text}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, not %s", text, err, want)
		}
	}
}

// FuzzParse: what is taken of a peer's text is what netip reads, meaningful and disjoint;
// what is refused is said in few plain characters.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"10.42.0.0/16\nfd00::/48", "0.0.0.0/0", "::ffff:1.2.3.4/120\n\x1b[2J\u202e", "10.0.0.0/08\n010.0.0.0/8", strings.Repeat("10.0.0.0/9\n", 20), "fe80::1%a/64"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		texts := strings.Split(text, "\n")
		ranges, err := ParseRanges(texts)
		if (err == nil) != (len(ranges) == len(texts)) || err != nil && ranges != nil {
			t.Fatalf("%d texts, %d ranges, %v", len(texts), len(ranges), err)
		}
		if err != nil && (len(err.Error()) > maxRanges*400 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })) {
			t.Fatalf("said: %q", err)
		}
		for i, p := range ranges {
			switch a := p.Addr(); {
			case !slices.ContainsFunc(texts, func(s string) bool { q, err := netip.ParsePrefix(s); return err == nil && p == q }):
				t.Fatalf("%v is none of %q", p, texts)
			case p.Masked() != p || a.Is4In6() || a.Zone() != "" || a.Is4() && p.Bits() < 8 || p.Bits() < 8:
				t.Fatalf("%v is taken", p)
			case a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsUnspecified():
				t.Fatalf("%v is taken", p)
			case meets(p, ranges[:i]) || meets(p, Own{}.forbidden()):
				t.Fatalf("%v is taken of %v", p, ranges)
			}
		}
		pools, err := ParsePools(texts)
		if err == nil && len(pools) != len(texts) || slices.ContainsFunc(pools, func(p netip.Prefix) bool { return meets(p, Own{}.forbidden()) }) {
			t.Fatalf("pools %v of %q, %v", pools, texts, err)
		}
	})
}
