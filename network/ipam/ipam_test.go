package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ps reads prefixes that are separated by blanks.
func ps(text string) (all []netip.Prefix) {
	for _, s := range strings.Fields(text) {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// vs reads views: real=view, separated by blanks.
func vs(text string) (all []View) {
	for _, s := range strings.Fields(text) {
		r, v, _ := strings.Cut(s, "=")
		all = append(all, View{netip.MustParsePrefix(r), netip.MustParsePrefix(v)})
	}
	return all
}

// peer is a peering that began in a year.
func peer(key string, year int, ranges, before string) Peering {
	return Peering{Key: key, Since: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), Ranges: strings.Fields(ranges), Before: vs(before)}
}

// translated is a peering whose owner wants it so.
func translated(p Peering) Peering {
	p.Translate = true
	return p
}

// lines are results as text, a line for each thing.
func lines(results map[string]Result, peerings []Peering) string {
	var b strings.Builder
	for _, p := range peerings {
		r := results[p.Key]
		fmt.Fprintf(&b, "%s:", p.Key)
		for _, v := range r.Views {
			fmt.Fprintf(&b, " %v=%v", v.Real, v.View)
		}
		b.WriteString("\n")
		for _, c := range r.Changes {
			fmt.Fprintf(&b, "  %v was %v: %s\n", c.Real, c.Was, c.Why)
		}
		for _, err := range r.Errs {
			fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
		}
	}
	return b.String()
}

func TestAllocate(t *testing.T) {
	pools := append(ps("10.0.0.0/8 172.16.0.0/12 192.168.0.0/16"), ps("fd12:3456::/40")...)
	rome := Own{Pods: ps("10.42.0.0/16 fd42::/56"), Services: ps("10.43.0.0/16"), External: ps("10.70.0.0/24"), Nodes: ps("192.168.7.0/24"), Pools: pools}
	small := rome
	small.Pools = ps("10.81.0.0/16 10.90.0.0/24")
	for _, c := range []struct {
		reason   string
		own      Own
		peerings []Peering
		want     string
	}{
		{"disjoint ranges are viewed as they are", rome, []Peering{peer("milan", 2020, "10.44.0.0/16 10.71.0.0/24 fd44::/56", "")},
			"milan: 10.44.0.0/16=10.44.0.0/16 10.71.0.0/24=10.71.0.0/24 fd44::/56=fd44::/56\n"},
		{"identical ones by the highest of the first pool, the largest first", rome, []Peering{peer("milan", 2020, "10.70.0.0/24 10.42.0.0/16 fd42::/56", "")},
			"milan: 10.42.0.0/16=10.255.0.0/16 10.70.0.0/24=10.254.255.0/24 fd42::/56=fd12:3456:ff:ff00::/56\n"},
		{"two peers with the same ranges: the older one has them as they are", rome,
			[]Peering{peer("a", 2021, "10.44.0.0/16", ""), peer("b", 2020, "10.44.0.0/16", "")},
			"a: 10.44.0.0/16=10.255.0.0/16\nb: 10.44.0.0/16=10.44.0.0/16\n"},
		{"of the same age, the lower name", rome, []Peering{peer("b", 2020, "10.44.0.0/16", ""), peer("a", 2020, "10.44.0.0/16", "")},
			"b: 10.44.0.0/16=10.255.0.0/16\na: 10.44.0.0/16=10.44.0.0/16\n"},
		{"memory goes before age", rome, []Peering{peer("a", 2020, "10.44.0.0/16", ""), peer("b", 2021, "10.44.0.0/16", "10.44.0.0/16=10.44.0.0/16")},
			"a: 10.44.0.0/16=10.255.0.0/16\nb: 10.44.0.0/16=10.44.0.0/16\n"},
		{"a view is kept when the range would do by now, and outside of the pools", small,
			[]Peering{peer("a", 2020, "10.44.0.0/16", "10.44.0.0/16=10.99.0.0/16")}, "a: 10.44.0.0/16=10.99.0.0/16\n"},
		{"our nodes' and API server's addresses are translated, not refused", rome, []Peering{peer("a", 2020, "192.168.0.0/16", "")},
			"a: 192.168.0.0/16=10.255.0.0/16\n"},
		{"public addresses are never viewed as they are", rome, []Peering{peer("a", 2020, "8.8.8.0/24 2001:db8::/64", "")},
			"a: 8.8.8.0/24=10.255.255.0/24 2001:db8::/64=fd12:3456:ff:ffff::/64\n"},
		{"nor those inside of networks of others", rome, []Peering{peer("a", 2020, "100.64.0.0/16", "")}, "a: 100.64.0.0/16=10.255.0.0/16\n"},
		{"unless the owner vouches for them", with(rome, func(o *Own) { o.AsIs = ps("2001:db8::/32") }), []Peering{peer("a", 2020, "2001:db8::/64", "")},
			"a: 2001:db8::/64=2001:db8::/64\n"},
		{"who is to be translated is never viewed as it is", rome, []Peering{translated(peer("a", 2020, "10.44.0.0/16 fd44::/56", ""))},
			"a: 10.44.0.0/16=10.255.0.0/16 fd44::/56=fd12:3456:ff:ff00::/56\n"},
		{"nor when the range is the next of the pools", rome, []Peering{translated(peer("a", 2020, "10.255.0.0/16", ""))}, "a: 10.255.0.0/16=10.254.0.0/16\n"},
		{"which others may have", rome, []Peering{translated(peer("a", 2020, "10.255.0.0/16", "")), peer("b", 2021, "10.42.0.0/16", "")},
			"a: 10.255.0.0/16=10.254.0.0/16\nb: 10.42.0.0/16=10.255.0.0/16\n"},
		{"what was viewed as it is moves, and the rest stays", rome, []Peering{translated(peer("a", 2020, "10.44.0.0/16 10.45.0.0/16", "10.44.0.0/16=10.44.0.0/16 10.45.0.0/16=10.99.0.0/16"))},
			"a: 10.44.0.0/16=10.255.0.0/16 10.45.0.0/16=10.99.0.0/16\n  10.44.0.0/16 was 10.44.0.0/16: it is the range itself, which is to be translated\n"},
		{"and does not come back when it may be so again", rome, []Peering{peer("a", 2020, "10.44.0.0/16", "10.44.0.0/16=10.255.0.0/16")}, "a: 10.44.0.0/16=10.255.0.0/16\n"},
		{"it is nobody's where there is no other", with(rome, func(o *Own) { o.Pools = ps("10.44.0.0/16") }), []Peering{translated(peer("a", 2020, "10.44.0.0/16", ""))},
			"a:\n  10.44.0.0/16 is to be translated, and no /16 is free in the pools of IPv4 (10.44.0.0/16): " +
				"add a pool, or let the peer publish the smaller ranges that its pods really have\n"},
		{"a forged memory takes no public addresses", rome, []Peering{peer("a", 2020, "8.8.8.0/24", "8.8.8.0/24=8.8.8.0/24")},
			"a: 8.8.8.0/24=10.255.255.0/24\n  8.8.8.0/24 was 8.8.8.0/24: it is neither private nor in a pool\n"},
		{"nor ours, nor of another size, nor an older peer's", rome, []Peering{
			peer("a", 2020, "10.44.0.0/16", "10.44.0.0/16=10.99.0.0/16"),
			peer("b", 2021, "10.42.0.0/16", "10.42.0.0/16=10.99.0.0/16"),
			peer("c", 2022, "10.42.0.0/16", "10.42.0.0/16=10.43.0.0/16"),
			peer("d", 2023, "10.42.0.0/16", "10.42.0.0/16=10.96.0.0/12")},
			"a: 10.44.0.0/16=10.99.0.0/16\n" +
				"b: 10.42.0.0/16=10.255.0.0/16\n  10.42.0.0/16 was 10.99.0.0/16: it overlaps the view of 10.44.0.0/16 of peering a\n" +
				"c: 10.42.0.0/16=10.254.0.0/16\n  10.42.0.0/16 was 10.43.0.0/16: it overlaps the services here (10.43.0.0/16)\n" +
				"d: 10.42.0.0/16=10.253.0.0/16\n"},
		{"our ranges grew into a view", with(rome, func(o *Own) { o.Reserved = ps("10.44.7.0/24") }),
			[]Peering{peer("a", 2020, "10.44.0.0/16 10.71.0.0/24", "10.44.0.0/16=10.44.0.0/16 10.71.0.0/24=10.71.0.0/24")},
			"a: 10.44.0.0/16=10.255.0.0/16 10.71.0.0/24=10.71.0.0/24\n  10.44.0.0/16 was 10.44.0.0/16: it overlaps what is reserved (10.44.7.0/24)\n"},
		{"no new view is over what is mapped, or may be", with(rome, func(o *Own) { o.Mappable, o.Mapped = ps("10.44.7.0/24 10.254.0.0/15"), ps("10.46.0.9/32") }),
			[]Peering{peer("a", 2020, "10.44.0.0/16 10.45.0.0/16 10.46.0.0/16", "")}, "a: 10.44.0.0/16=10.253.0.0/16 10.45.0.0/16=10.45.0.0/16 10.46.0.0/16=10.252.0.0/16\n"},
		{"those that are there stay", with(rome, func(o *Own) { o.Mappable, o.Mapped = ps("10.44.7.0/24"), ps("10.44.7.9/32") }),
			[]Peering{peer("a", 2020, "10.44.0.0/16", "10.44.0.0/16=10.44.0.0/16")}, "a: 10.44.0.0/16=10.44.0.0/16\n"},
		{"where pools have no other room they are over what may be mapped, and not over what is", with(small, func(o *Own) { o.Pools, o.Mappable, o.Mapped = ps("10.80.0.0/15"), ps("10.0.0.0/8"), ps("10.81.0.9/32") }),
			[]Peering{peer("a", 2020, "10.42.0.0/16", ""), peer("b", 2021, "10.44.0.0/16", "")},
			"a: 10.42.0.0/16=10.80.0.0/16\nb:\n  10.44.0.0/16 overlaps what may be mapped (10.0.0.0/8), and no /16 is free in the pools of IPv4 (10.80.0.0/15), of which peering a takes most: " +
				"add a pool, or let the peer publish the smaller ranges that its pods really have\n"},
		{"API servers of peers stay reachable", with(rome, func(o *Own) { o.Reached = ps("10.44.0.9/32") }), []Peering{peer("a", 2020, "10.44.0.0/16", "")},
			"a: 10.44.0.0/16=10.255.0.0/16\n"},
		{"a refused list changes nothing", rome, []Peering{peer("a", 2020, "10.45.0.0/16 169.254.0.0/24 10.0.0.1/8", "10.44.0.0/16=10.99.0.0/16")},
			"a: 10.44.0.0/16=10.99.0.0/16\n  10.0.0.1/8 begins inside the range: write 10.0.0.0/8\n  169.254.0.0/24 overlaps 169.254.0.0/16, link-local addresses: choose a range without them\n"},
		{"a range that is no more gives its view back", small, []Peering{peer("a", 2020, "10.71.0.0/24", "10.42.0.0/16=10.81.0.0/16 10.71.0.0/24=10.71.0.0/24"), peer("b", 2021, "10.42.0.0/16", "")},
			"a: 10.71.0.0/24=10.71.0.0/24\nb: 10.42.0.0/16=10.81.0.0/16\n"},
		{"the pools are used up; the rest of the peering works", small, []Peering{peer("a", 2020, "10.42.0.0/16", ""), peer("b", 2021, "10.42.0.0/16 10.72.0.0/24", "")},
			"a: 10.42.0.0/16=10.81.0.0/16\nb: 10.72.0.0/24=10.72.0.0/24\n" +
				"  10.42.0.0/16 overlaps the pods here (10.42.0.0/16), and no /16 is free in the pools of IPv4 (10.81.0.0/16, 10.90.0.0/24), of which peering a takes most: " +
				"add a pool, or let the peer publish the smaller ranges that its pods really have\n"},
		{"larger than every pool", small, []Peering{peer("a", 2020, "10.0.0.0/8", "")},
			"a:\n  10.0.0.0/8 overlaps the pods here (10.42.0.0/16), and is larger than every pool of IPv4 (10.81.0.0/16, 10.90.0.0/24): " +
				"add a pool of /8 or larger, or let the peer publish the smaller ranges that its pods really have\n"},
		{"no pool of the family", small, []Peering{peer("a", 2020, "2001:db8::/64", "")},
			"a:\n  2001:db8::/64 is not of private addresses, and there is no pool of IPv6: add one with a /64 that nobody here uses\n"},
		{"pools and prefixes vouched for are taken as they are meant", with(rome, func(o *Own) { o.Pools, o.AsIs = ps("10.81.7.7/16"), ps("::ffff:8.8.8.8/112") }),
			[]Peering{peer("a", 2020, "10.42.0.0/16 8.8.4.0/24", "")}, "a: 8.8.4.0/24=8.8.4.0/24 10.42.0.0/16=10.81.0.0/16\n"},
		{"one key, two peerings", rome, []Peering{peer("a", 2020, "10.44.0.0/16", ""), peer("a", 2021, "10.45.0.0/16", "")},
			"a:\n  2 peerings have the key \"a\"\na:\n  2 peerings have the key \"a\"\n"},
		{"nothing of ours is a prefix, or everything is taken", Own{Pods: []netip.Prefix{{}}, Pools: []netip.Prefix{{}}, Nodes: ps("::ffff:10.44.0.1/128"), Reserved: ps("172.16.0.1/12")},
			[]Peering{peer("a", 2020, "10.44.0.0/16", ""), peer("b", 2020, "172.20.0.0/16", "")},
			"a:\n  10.44.0.0/16 overlaps the nodes here (10.44.0.1/32), and there is no pool of IPv4: add one with a /16 that nobody here uses\n" +
				"b:\n  172.20.0.0/16 overlaps what is reserved (172.16.0.0/12), and there is no pool of IPv4: add one with a /16 that nobody here uses\n"},
	} {
		if diff := cmp.Diff(c.want, lines(Allocate(c.own, c.peerings), c.peerings)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
	}
}

func with(o Own, change func(*Own)) Own {
	change(&o)
	return o
}

// TestGivenBack: with the pool used up, a peering that leaves makes room for exactly one.
// Of those that take as much as others, the oldest is named.
func TestGivenBack(t *testing.T) {
	own := Own{Pods: ps("10.0.0.0/8"), Pools: ps("192.168.0.0/22")}
	var peerings []Peering
	for i := range 5 {
		peerings = append(peerings, peer(fmt.Sprint("p", i), 2020+i, "10.1.0.0/24", ""))
	}
	step := func() (views int) {
		results := Allocate(own, peerings)
		for i, p := range peerings {
			peerings[i].Before = results[p.Key].Views
			views += len(results[p.Key].Views)
			if none := new(PoolError); len(results[p.Key].Errs) > 0 && (!errors.As(results[p.Key].Errs[0], &none) || none.Pools[0] != own.Pools[0] || none.Most != "p0") {
				t.Fatalf("%s: %v", p.Key, results[p.Key].Errs)
			}
		}
		return views
	}
	if n := step(); n != 4 {
		t.Fatalf("%d views in a pool of four", n)
	}
	was := peerings[1].Before[0]
	peerings = append(peerings[:1], peerings[2:]...)
	if n := step(); n != 4 || peerings[3].Before[0] != was {
		t.Fatalf("%d views; the last has %v, what was given back is %v", n, peerings[3].Before, was)
	}
}

func TestDefaultPools(t *testing.T) {
	a, b := DefaultPools("rome"), DefaultPools("milan")
	if len(a) != 4 || !cmp.Equal(a[:3], ps("10.0.0.0/8 172.16.0.0/12 192.168.0.0/16"), cmp.Comparer(func(p, q netip.Prefix) bool { return p == q })) {
		t.Fatalf("the pools are %v", a)
	}
	if six := a[3]; six.Bits() != 40 || six != six.Masked() || six.Addr().As16()[0] != 0xfd || six.Overlaps(b[3]) || six != DefaultPools("rome")[3] {
		t.Errorf("pools of IPv6: %v, %v", six, b[3])
	}
}
