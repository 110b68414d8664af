package content

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// FuzzPlainAddresses: whatever a provider says of addresses, what is kept are addresses and
// names of hosts that mean something elsewhere, each once, in order, a few, and the same
// whatever order they were said in.
func FuzzPlainAddresses(f *testing.F) {
	f.Add("192.0.2.7\nWEB.example\n2001:db8::1")
	f.Add("127.0.0.1\nfe80::1%eth0\n::ffff:192.0.2.7\n0.0.0.0\n169.254.169.254")
	f.Add("-\n..\n\x1b[2J\n" + strings.Repeat("a.", 200))
	f.Add(strings.Repeat("192.0.2.1\n192.0.2.2\n", 200))
	f.Fuzz(func(t *testing.T, lines string) {
		said := strings.Split(lines, "\n")
		got := PlainAddresses(said)
		if len(got) > maxAddresses || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("%q", got)
		}
		for _, text := range got {
			a, err := netip.ParseAddr(text)
			host := err != nil && len(validation.IsDNS1123Subdomain(text)) == 0
			address := err == nil && a.Zone() == "" && !a.Is4In6() && a.String() == text && !Special(a)
			if !host && !address {
				t.Fatalf("%q is neither an address that means something nor a host", text)
			}
		}
		if again := PlainAddresses(got); !slices.Equal(again, got) {
			t.Fatalf("%q, and of that %q", got, again)
		}
		if len(said) > maxSaid {
			return // more are not looked at, so that which are depends on the order
		}
		slices.Reverse(said)
		if turned := PlainAddresses(said); !slices.Equal(turned, got) {
			t.Fatalf("%q, turned round %q", got, turned)
		}
	})
}
