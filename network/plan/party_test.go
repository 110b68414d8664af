package plan

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pelago-dev/pelago/network/dataplane"
)

// TestParties is what plans make of parties that cannot all be.
func TestParties(t *testing.T) {
	a, b, bad := netip.MustParseAddr("10.42.1.5"), netip.MustParseAddr("10.42.1.6"), netip.MustParseAddr("127.0.0.1")
	view, other := prefixes("10.81.0.0/16"), prefixes("10.82.0.0/16")
	for _, c := range []struct {
		reason   string
		closed   bool
		in, want []dataplane.Party
		problem  string
	}{
		{"two parties", false, []dataplane.Party{{There: []netip.Addr{a}, Ranges: view, With: []netip.Addr{b}}, {There: []netip.Addr{b}}},
			[]dataplane.Party{{There: []netip.Addr{a}, Ranges: view, With: []netip.Addr{b}}, {There: []netip.Addr{b}}}, ""},
		{"who is in two is in the first", false, []dataplane.Party{{There: []netip.Addr{a}}, {There: []netip.Addr{b, a}}},
			[]dataplane.Party{{There: []netip.Addr{a}}, {There: []netip.Addr{b}}}, "the address 10.42.1.5 is in two parties"},
		{"so is a range", false, []dataplane.Party{{Ranges: view}, {Ranges: view}}, []dataplane.Party{{Ranges: view}, {}}, "the range 10.81.0.0/16 of a party"},
		{"what leads nowhere is nobody's", false, []dataplane.Party{{Ranges: other}}, []dataplane.Party{{}}, "the range 10.82.0.0/16 of a party is none of its transit"},
		{"what nobody can have is left out", false, []dataplane.Party{{There: []netip.Addr{bad, a, a}, With: []netip.Addr{bad}}}, []dataplane.Party{{There: []netip.Addr{a}}}, ""},
		{"where nothing passes there are none", true, []dataplane.Party{{There: []netip.Addr{a}}}, nil, ""},
	} {
		p := &peer{Peering: Peering{Key: "milan", Closed: c.closed, Transit: view, Parties: c.in}}
		var of build
		of.readParties(p)
		if d := cmp.Diff(c.want, p.Parties, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
		var said []string
		for _, problem := range of.problems {
			said = append(said, problem.String())
		}
		if text := strings.Join(said, " "); !strings.Contains(text, c.problem) || (c.problem == "") != (text == "") {
			t.Errorf("%s: problems are %q, want %q", c.reason, text, c.problem)
		}
	}
}
