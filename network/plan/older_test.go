package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// alike finds two keys of which something is the same, the lower one first: who may choose a
// name finds one as easily.
func alike(t *testing.T, of func(key string) string) (a, b string) {
	t.Helper()
	seen := map[string]string{}
	for i := range 1 << 20 {
		key := fmt.Sprintf("tenant-%07d", i)
		if other, ok := seen[of(key)]; ok {
			return other, key
		}
		seen[of(key)] = key
	}
	t.Fatal("no two keys are alike")
	return "", ""
}

// TestOlder holds that of two peerings that cannot both have something the older one has it,
// whatever their keys are, and that who comes later costs it nothing.
func TestOlder(t *testing.T) {
	began := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		reason string
		keys   func() (string, string)
		change func(first, second *Peering)
		// gone says that the loser is no part of the plan at all, and quiet that it has no tunnel.
		gone, quiet bool
		views       []string // of the loser, if it is there
	}{
		{"a veth", func() (string, string) { return alike(t, dataplane.Device) }, func(_, _ *Peering) {}, true, true, nil},
		{"a tunnel's device", func() (string, string) { return alike(t, tunnelDevice) }, func(_, _ *Peering) {}, false, true, []string{"10.60.0.0/16"}},
		{"a port", func() (string, string) { return "a", "b" }, func(_, second *Peering) { second.ListenPort = 51820 }, false, true, []string{"10.60.0.0/16"}},
		{"a view inside", func() (string, string) { return "a", "b" }, func(_, second *Peering) {
			second.Views = views("10.50.7.0/24", "10.50.7.0/24", "10.61.0.0/16", "10.61.0.0/16")
		}, false, false, []string{"10.61.0.0/16"}},
		{"a view around", func() (string, string) { return "a", "b" }, func(first, second *Peering) {
			first.Views, second.Views = views("10.50.7.0/24", "10.50.7.0/24"), views("10.50.0.0/16", "10.50.0.0/16", "10.61.0.0/16", "10.61.0.0/16")
		}, false, false, []string{"10.61.0.0/16"}},
	} {
		low, high := c.keys()
		for _, ages := range []struct {
			reason, winner, loser string
			low, high             time.Time
		}{
			{"the lower key is older", low, high, began, began.Add(time.Second)},
			{"the higher key is older", high, low, began.Add(time.Second), began},
			{"both are as old", low, high, began, began},
		} {
			since := map[string]time.Time{low: ages.low, high: ages.high}
			in := rome(1)
			first, second := &in.Peerings[0], &in.Peerings[1]
			first.Key, second.Key = ages.winner, ages.loser
			first.Since, second.Since = since[first.Key], since[second.Key]
			alone := in
			alone.Peerings = slices.Clone(in.Peerings[:1])
			c.change(&alone.Peerings[0], &Peering{})
			c.change(first, second)
			want := Compute(alone)
			for range 2 {
				slices.Reverse(in.Peerings)
				p := Compute(in)
				if err := p.Config.Check(); err != nil {
					t.Errorf("%s, %s: %v", c.reason, ages.reason, err)
				}
				if d := cmp.Diff(part(want, ages.winner), part(p, ages.winner)); d != "" {
					t.Errorf("%s, %s: the older one (-alone +beside the newer one):\n%s", c.reason, ages.reason, d)
				}
				loser := part(p, ages.loser)
				if _, in := p.Gateways[ages.loser]; in == c.gone || slices.Contains(loser, "tunnel") == c.quiet {
					t.Errorf("%s, %s: the newer one has %v", c.reason, ages.reason, loser)
				}
				if !c.gone && !slices.Equal(slices.DeleteFunc(loser, func(s string) bool { return s == "tunnel" }), c.views) {
					t.Errorf("%s, %s: the newer one has %v, want %v", c.reason, ages.reason, loser, c.views)
				}
				if len(p.Problems) != 1 || p.Problems[0].Object != peeringObject(ages.loser) {
					t.Errorf("%s, %s: told %v", c.reason, ages.reason, p.Problems)
				}
			}
		}
	}
}

// part is what a peering has in a plan: the views of its gateway, and its tunnel.
func part(p Plan, key string) (has []string) {
	for _, g := range p.Config.Gateways {
		for _, v := range g.Views {
			if g.Peering == key {
				has = append(has, v.View.String())
			}
		}
	}
	if slices.ContainsFunc(p.Tunnels, func(t Tunnel) bool { return t.Peering == key }) {
		has = append(has, "tunnel")
	}
	return has
}

// TestOwnClash holds that a peering with ranges that overlap each other takes no room from others.
func TestOwnClash(t *testing.T) {
	in := rome(1)
	in.Peerings[0].Views = []ipam.View{
		{Real: netip.MustParsePrefix("10.7.0.0/16"), View: netip.MustParsePrefix("10.60.0.0/16")},
		{Real: netip.MustParsePrefix("10.7.1.0/24"), View: netip.MustParsePrefix("10.61.1.0/24")},
	}
	in.Peerings[1].Since, in.Peerings[1].Peer = time.Unix(1, 0), tunnel.PublicKey{2}
	if d := cmp.Diff([]string{"10.60.0.0/16", "tunnel"}, part(Compute(in), "oslo")); d != "" {
		t.Errorf("the other peering (-want +got):\n%s", d)
	}
}
