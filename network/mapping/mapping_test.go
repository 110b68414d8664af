package mapping

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestRefuse(t *testing.T) {
	g := Ground{
		External: prefixes("10.255.255.0/24"), Mappable: prefixes("0.0.0.0/0", "::/0"),
		Taken: []Part{
			{Prefix: prefixes("10.42.0.0/16")[0], What: "in the range of the pods here"}, {Prefix: prefixes("10.43.0.0/16")[0], What: "in the range of the Services here"},
			{Prefix: prefixes("192.0.2.7/32")[0], What: "the address of a node or API server here"}, {Prefix: prefixes("fd42::/48")[0], What: "in the range of the pods here"},
		},
	}
	some := g
	some.Mappable = prefixes("192.0.2.0/24", "2001:db8:1::/64")
	none := g
	none.Mappable = nil
	for _, c := range []struct {
		reason  string
		ground  Ground
		address string
		want    string // part of the answer; "" is none
	}{
		{"what the owner lets be mapped", some, "192.0.2.50", ""},
		{"of IPv6, too", some, "2001:db8:1::50", ""},
		{"beside what the owner lets be mapped", some, "192.0.3.50", "is not in the setting network.mappable"},
		{"nothing is mappable unless the owner says so", none, "192.0.2.50", "the setting network.mappable has to hold it"},
		{"a pod, whatever is mappable", g, "10.42.0.7", "in the range of the pods here"},
		{"a pod of IPv6", g, "fd42::7", "in the range of the pods here"},
		{"a Service", g, "10.43.0.1", "in the range of the Services here"},
		{"a node", some, "192.0.2.7", "the address of a node or API server here"},
		{"the metadata of clouds", g, "169.254.169.254", "link-local"},
		{"the metadata of clouds of IPv6", g, "fd00:ec2::254", "metadata"},
		{"the metadata of other clouds", g, "100.100.100.200", "metadata"},
		{"loopback", g, "127.0.0.1", "loopback"},
		{"another loopback", g, "127.8.9.1", "loopback"},
		{"loopback of IPv6", g, "::1", "loopback"},
		{"unspecified", g, "0.0.0.0", "unspecified"},
		{"unspecified of IPv6", g, "::", "unspecified"},
		{"multicast", g, "239.1.2.3", "multicast"},
		{"multicast of IPv6", g, "ff02::1", "multicast"},
		{"broadcast", g, "255.255.255.255", "reserved"},
		{"link-local of IPv6", g, "fe80::1", "link-local"},
		{"with a zone", g, "fe80::1%eth0", "no address of one host"},
		{"IPv4 in IPv6, by which the rest would not hold", g, "::ffff:169.254.169.254", "no address of one host"},
		{"translated IPv4", g, "64:ff9b::a9fe:a9fe", "IPv4 in IPv6"},
		{"tunnelled IPv4", g, "2002:a9fe:a9fe::1", "IPv4 in IPv6"},
	} {
		got := Refuse(c.ground, netip.MustParseAddr(c.address))
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
		if got != "" && !strings.HasPrefix(got, "spec.address: ") {
			t.Errorf("%s: %q does not name the field", c.reason, got)
		}
	}
	if Refuse(g, netip.Addr{}) == "" {
		t.Error("no address may be mapped")
	}
}

func TestChoose(t *testing.T) {
	external := prefixes("10.255.255.0/28", "fd77::/124")
	has := func(texts ...string) (all []Holder) {
		for _, text := range texts {
			h := Holder{Key: fmt.Sprint(len(all))}
			h.Has, _ = netip.ParseAddr(text)
			all = append(all, h)
		}
		return all
	}
	left := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	var all []string
	for i := 4; i < 15; i++ {
		all = append(all, fmt.Sprintf("10.255.255.%d", i))
	}
	for _, c := range []struct {
		reason  string
		holders []Holder
		left    []netip.Addr
		v4      bool
		want    string // "" is none
	}{
		{"the first is after Pelago's own", nil, nil, true, "10.255.255.4"},
		{"of IPv6", has("10.255.255.4"), nil, false, "fd77::4"},
		{"after the highest", has("10.255.255.4", "", "10.255.255.9"), nil, true, "10.255.255.10"},
		{"after the highest that was left", has("10.255.255.4"), left("10.255.255.5", "fd77::9"), true, "10.255.255.6"},
		{"a gap when there is nothing after it", has("10.255.255.14"), left("10.255.255.4"), true, "10.255.255.5"},
		{"the last of IPv4 is given to nobody, that of IPv6 is", has("fd77::e"), nil, false, "fd77::f"},
		{"what was left first, when all others are held", has(all[2:]...), left("10.255.255.5", "10.255.255.4"), true, "10.255.255.5"},
		{"not what is held again", has(all[1:]...), left("10.255.255.5", "10.255.255.4"), true, "10.255.255.4"},
		{"all are held", has(all...), left("10.255.255.5"), true, ""},
		{"held and left of other ranges mean nothing", has("10.9.9.9"), left("10.8.8.8", "255.255.255.255"), true, "10.255.255.4"},
	} {
		got, free, ranged := Choose(external, c.v4, c.holders, c.left)
		if !ranged || free != (c.want != "") || free && got.String() != c.want {
			t.Errorf("%s: %s, %t, want %q", c.reason, got, free, c.want)
		}
	}
	for _, none := range [][]netip.Prefix{nil, prefixes("fd77::/124"), prefixes("10.255.255.0/30"), prefixes("10.255.255.7/32")} {
		if got, free, ranged := Choose(none, true, nil, nil); free || ranged {
			t.Errorf("of %v there is %s", none, got)
		}
	}
}

func TestHolds(t *testing.T) {
	external, noon := prefixes("10.255.255.0/24", "fd77::/120"), time.Unix(1000, 0)
	at := func(key string, since int, has string) Holder {
		h := Holder{Key: key, Since: noon.Add(time.Duration(since))}
		h.Has, _ = netip.ParseAddr(has)
		return h
	}
	for _, c := range []struct {
		reason string
		of     Holder
		v4     bool
		others []Holder
		want   bool
	}{
		{"it stays", at("a", 1, "10.255.255.9"), true, []Holder{at("a", 1, "10.255.255.9"), at("b", 0, "10.255.255.8")}, true},
		{"of IPv6", at("a", 1, "fd77::9"), false, nil, true},
		{"it has none", at("a", 1, ""), true, nil, false},
		{"the range has moved", at("a", 1, "10.254.255.9"), true, nil, false},
		{"one that is Pelago's", at("a", 1, "10.255.255.2"), true, nil, false},
		{"what is mapped is of the other family now", at("a", 1, "10.255.255.9"), false, nil, false},
		{"an older one has it", at("a", 1, "10.255.255.9"), true, []Holder{at("b", 0, "10.255.255.9")}, false},
		{"a younger one says that it has it", at("a", 1, "10.255.255.9"), true, []Holder{at("b", 2, "10.255.255.9")}, true},
		{"of equally old ones that of the lower key", at("b", 1, "10.255.255.9"), true, []Holder{at("a", 1, "10.255.255.9")}, false},
	} {
		if got := Holds(external, c.of, c.v4, c.others); got != c.want {
			t.Errorf("%s: %t", c.reason, got)
		}
	}
}

// TestNoAddressTwice lets mappings come and go at random: no two ever have one address, who has
// one keeps it, and an address is not given again while another one was never given.
func TestNoAddressTwice(t *testing.T) {
	external := prefixes("10.255.255.0/27")
	const room = 27 // of 32, less four of Pelago's and the last
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 7))
		var holders []Holder
		var left []netip.Addr
		ever := map[netip.Addr]bool{}
		for step := range 300 {
			if len(holders) > 0 && random.IntN(2) == 0 {
				i := random.IntN(len(holders))
				if a := holders[i].Has; a.IsValid() {
					left = append(slices.DeleteFunc(left, func(b netip.Addr) bool { return a == b }), a)
				}
				holders = slices.Delete(holders, i, i+1)
				continue
			}
			a, free, _ := Choose(external, true, holders, left)
			held := map[netip.Addr]bool{}
			for _, h := range holders {
				if h.Has.IsValid() {
					held[h.Has] = true
				}
			}
			switch {
			case free != (len(held) < room):
				t.Fatalf("seed %d, step %d: %d are held, and there is a free one: %t", seed, step, len(held), free)
			case free && (held[a] || !external[0].Contains(a)):
				t.Fatalf("seed %d, step %d: %s is given twice, or is no address", seed, step, a)
			case free && ever[a] && len(ever) < room:
				t.Fatalf("seed %d, step %d: %s is given again after %d of %d", seed, step, a, len(ever), room)
			case free && ever[a] && slices.IndexFunc(left, func(b netip.Addr) bool { return !held[b] }) != slices.Index(left, a):
				t.Fatalf("seed %d, step %d: %s is not what was left first (%v)", seed, step, a, left)
			}
			if free {
				ever[a] = true
			}
			holders = append(holders, Holder{Key: fmt.Sprint(step), Since: time.Unix(int64(step), 0), Has: a})
			for _, h := range holders {
				if h.Has.IsValid() && !Holds(external, h, true, holders) {
					t.Fatalf("seed %d, step %d: %s loses %s", seed, step, h.Key, h.Has)
				}
			}
		}
	}
}

// TestChooseBeside holds that mappings get no address that stands for something else, and do not begin
// behind it.
func TestChooseBeside(t *testing.T) {
	external := []netip.Prefix{netip.MustParsePrefix("10.81.255.0/28")}
	holders := []Holder{{Key: "line", Has: netip.MustParseAddr("10.81.255.10"), Other: true}}
	var got []string
	for n := range 11 {
		a, free, _ := Choose(external, true, holders, nil)
		if !free {
			break
		}
		got = append(got, a.String())
		holders = append(holders, Holder{Key: a.String(), Since: time.Unix(int64(n), 0), Has: a})
	}
	if len(got) != 10 || got[0] != "10.81.255.4" || got[5] != "10.81.255.9" || got[6] != "10.81.255.11" || got[9] != "10.81.255.14" {
		t.Errorf("given are %v, want 10.81.255.4 to .14 but .10", got)
	}
	late := Holder{Key: "late", Since: time.Unix(99, 0), Has: holders[0].Has}
	if Holds(external, late, true, append(holders, late)) {
		t.Error("a mapping keeps the address of a line")
	}
}
