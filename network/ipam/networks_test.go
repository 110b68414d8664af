package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNetworks(t *testing.T) {
	for _, c := range []struct {
		reason, text string
		most         int
		want         string
	}{
		{"in order, each once", "192.168.1.0/24 10.0.0.0/8 192.168.1.0/24 fd00::/64", 9, "10.0.0.0/8 192.168.1.0/24 fd00::/64"},
		{"none inside another", "10.0.0.0/8 10.1.0.0/16 10.255.255.255/32 11.0.0.0/24 10.0.0.0/24", 9, "10.0.0.0/8 11.0.0.0/24"},
		{"default routes, also those of VPNs, say nothing", "0.0.0.0/0 0.0.0.0/1 128.0.0.0/1 ::/0 2000::/3 8000::/1 64.0.0.0/3 10.0.0.0/8", 9, "10.0.0.0/8"},
		{"the widest network that counts", "160.0.0.0/4", 9, "160.0.0.0/4"},
		{"addresses that mean something else", "127.0.0.0/8 127.0.0.53/32 169.254.0.0/16 169.254.77.0/24 224.0.0.0/4 fe80::/64 ff00::/8 ::1/128 0.0.0.0/8", 9, ""},
		{"the widest are left", "10.0.0.1/32 192.168.0.0/16 fd00::/64 172.16.0.0/24", 2, "172.16.0.0/24 192.168.0.0/16"},
		{"what is none is left out", "x 10.0.0.1/24 10.9.0.0/33 ::ffff:10.0.0.0/104 10.8.0.0/16 -", 9, "10.8.0.0/16"},
		{"nothing", "", 9, ""},
		{"a book is not read to its end", strings.Repeat("x ", 9*maxText/2) + "10.0.0.0/8", 9, ""},
	} {
		var got []string
		for _, p := range ParseNetworks(c.text, c.most) {
			got = append(got, p.String())
		}
		if d := cmp.Diff(c.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

// TestAroundNodes holds that a wide network of nodes takes the pools inside it and no others, moves
// what was given there, and is no mistake where pods or external addresses are inside it.
func TestAroundNodes(t *testing.T) {
	p := netip.MustParsePrefix
	own := Own{
		Pods: []netip.Prefix{p("10.42.0.0/16")}, External: []netip.Prefix{p("10.255.255.0/24")},
		Nodes: []netip.Prefix{p("10.42.1.0/24"), p("10.0.0.0/8"), p("172.17.0.0/16")}, Pools: DefaultPools("x"),
	}
	was := []View{{p("10.7.0.0/16"), p("10.7.0.0/16")}, {p("10.42.0.0/16"), p("10.254.0.0/16")}}
	for i, before := range [][]View{nil, was} {
		r := Allocate(own, []Peering{{Key: "a", Since: time.Unix(1, 0), Ranges: []string{"10.7.0.0/16", "10.42.0.0/16", "192.168.7.0/24"}, Before: before}})["a"]
		want := "[{10.7.0.0/16 172.31.0.0/16} {10.42.0.0/16 172.30.0.0/16} {192.168.7.0/24 192.168.7.0/24}] []"
		if got := fmt.Sprint(r.Views, r.Errs); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if len(r.Changes) != 2*i || i > 0 && r.Changes[0].Why != "it overlaps the nodes here (10.0.0.0/8)" {
			t.Errorf("changes %+v", r.Changes)
		}
	}
	if free, ok := own.Free(true, 24, nil); !ok || free != p("172.31.255.0/24") {
		t.Errorf("free is %v %v", free, ok)
	}
}
