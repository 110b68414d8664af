package internet

import (
	"fmt"
	"net/netip"
	"strings"
)

// NATRuleset returns the whole nftables table of the NAT box of a cluster: who
// is inside calls out under the address of the outside interface and gets the
// answers; from outside only hostPrefixes may open connections, to the inside
// and to the box itself. It is pure; the script replaces the table in force in
// one step. Forwarding must be on in the box, see EnableForwarding.
func NATRuleset(inside, outside string, hostPrefixes []netip.Prefix) string {
	forward := fmt.Sprintf("\t\tiifname %q oifname %q ct state new accept\n", inside, outside)
	input := fmt.Sprintf("\t\tiifname { \"lo\", %q } accept\n", inside)
	for _, family := range []struct {
		word string
		is4  bool
	}{{"ip", true}, {"ip6", false}} {
		if host := ofFamily(hostPrefixes, family.is4); len(host) > 0 {
			forward += fmt.Sprintf("\t\tiifname %q oifname %q %s saddr %s ct state new accept\n", outside, inside, family.word, set(host))
			input += fmt.Sprintf("\t\tiifname %q %s saddr %s accept\n", outside, family.word, set(host))
		}
	}
	return strings.ReplaceAll(`table inet NAME { }
delete table inet NAME
table inet NAME {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state established,related accept
`, "NAME", table+"_nat") + forward + `	}
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established,related accept
		icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert } accept
` + input + `	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
` + fmt.Sprintf("\t\tiifname %q oifname %q masquerade\n", inside, outside) + `	}
}
`
}
