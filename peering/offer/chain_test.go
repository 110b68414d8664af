package offer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
)

// list makes a ResourceList of names and quantities in turn.
func list(pairs ...string) v1alpha1.ResourceList {
	l := v1alpha1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[pairs[i]] = resource.MustParse(pairs[i+1])
	}
	return l
}

// Reserve and rules do not change what is used, but for what they hide.
func TestUsedInChain(t *testing.T) {
	r := ample()
	r.Used = map[string]v1alpha1.ResourceList{"default": list(cpu, "1", "example.com/gpu", "1")}
	r, err := reserve(r, "100%")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(amounts{cpu: 1000, "example.com/gpu": 1}, amountsOf(r.Used["default"])); diff != "" {
		t.Errorf("reserve (-want +got)\n%s", diff)
	}
	r = filter(r, []home.Rule{{Deny: []string{"example.com/gpu"}}}, Consumer{})
	if diff := cmp.Diff(amounts{cpu: 1000}, amountsOf(r.Used["default"])); diff != "" {
		t.Errorf("filter (-want +got)\n%s", diff)
	}
	r.Used["default"] = list(cpu, "-1")
	if err := sane(r); !errors.Is(err, errNonsense) {
		t.Errorf("used below zero: %v", err)
	}
}

func ample() Resources {
	return Resources{
		Capacity: list(cpu, "10", memory, "100", pods, "110", "example.com/gpu", "4"),
		Free:     list(cpu, "8", memory, "50", pods, "100", "example.com/gpu", "1"),
		Shapes: []v1alpha1.NodeShape{{
			Architecture: "amd64", OperatingSystem: "linux", Nodes: 2,
			Largest: []v1alpha1.ResourceList{list(cpu, "7", memory, "20", pods, "50", "example.com/gpu", "0"), list(cpu, "1", memory, "20", pods, "50", "example.com/gpu", "1")},
		}},
	}
}

func TestReserve(t *testing.T) {
	for _, c := range []struct {
		reason, share string
		free          amounts
		largest       []amounts
		fails         bool
	}{
		{
			reason: "nothing is withheld", share: "",
			free:    amounts{cpu: 8000, memory: 50, pods: 100, "example.com/gpu": 1},
			largest: []amounts{{cpu: 7000, memory: 20, pods: 50, "example.com/gpu": 0}, {cpu: 1000, memory: 20, pods: 50, "example.com/gpu": 1}},
		},
		{
			reason: "the share is of the capacity, rounded in favour of the owner, and bounds the largest pods", share: "37.5%",
			free:    amounts{cpu: 4250, memory: 12, pods: 58, "example.com/gpu": 0},
			largest: []amounts{{cpu: 4250, memory: 12, pods: 50, "example.com/gpu": 0}},
		},
		{
			reason: "everything", share: "100%",
			free: amounts{cpu: 0, memory: 0, pods: 0, "example.com/gpu": 0}, largest: []amounts{},
		},
		{reason: "no share", share: "much", fails: true},
		{reason: "no percent sign", share: "10", fails: true},
		{reason: "more than all", share: "101%", fails: true},
		{reason: "less than nothing", share: "-1%", fails: true},
		{reason: "an exponent that would never end", share: "1e999999999999%", fails: true},
	} {
		got, err := reserve(ample(), c.share)
		if c.fails {
			if !errors.Is(err, errUnknown) || len(got.Free) > 0 {
				t.Errorf("%s: %v, %v, want nothing known", c.reason, got, err)
			}
			continue
		}
		if diff := cmp.Diff(c.free, amountsOf(got.Free)); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", c.reason, err, diff)
		}
		if diff := cmp.Diff(c.largest, largestOf(got)); diff != "" {
			t.Errorf("%s: largest (-want +got)\n%s", c.reason, diff)
		}
	}
}

// TestReserveOfSettings holds that the reader takes every share that the settings take, and no
// other: one that only it refuses would freeze all offers.
func TestReserveOfSettings(t *testing.T) {
	for share, want := range map[string]int64{ // -1: refused
		"10%": 7000, " 10%": 7000, "10% ": 7000, "+10%": 7000, "33.333333333333333%": 4666, ".5%": 7950, "5.%": 7500, "0.0000000000000000000001%": 7999,
		"100%": 0, "100.00000000000000000001%": -1, "1e1%": -1, "1e99999999%": -1, "0x1p3%": -1, "1/3%": -1, "-0%": -1, "1_0%": -1, "%": -1, ".%": -1,
		"10 %": -1, "10%%": -1, "Inf%": -1, "0." + strings.Repeat("1", 1000) + "%": -1,
	} {
		settings, refused := home.Parse(fmt.Sprintf("cluster: {name: rome}\noffer: {reserve: %q}\n", share))
		if (refused != nil) != (want < 0) {
			t.Errorf("settings with %.30q: %v", share, refused)
		}
		if refused == nil {
			share = settings.Offer.Reserve
		}
		got, err := reserve(ample(), share)
		if (err != nil) != (want < 0) || err == nil && amountsOf(got.Free)[cpu] != want {
			t.Errorf("%.30q leaves %v, %v; want %d", share, got.Free, err, want)
		}
	}
}

func largestOf(r Resources) []amounts {
	out := []amounts{}
	for _, l := range r.Shapes[0].Largest {
		out = append(out, amountsOf(l))
	}
	return out
}

func TestFilter(t *testing.T) {
	rome := Consumer{ClusterID: "id-1", Tenant: "rome"}
	for _, c := range []struct {
		reason   string
		rules    []home.Rule
		names    []string
		withheld string
	}{
		{reason: "no rules", names: []string{cpu, memory, pods, "example.com/gpu"}},
		{reason: "a rule about somebody else", rules: []home.Rule{{Consumers: []string{"milan"}, Deny: []string{"*"}}}, names: []string{cpu, memory, pods, "example.com/gpu"}},
		{reason: "denied by tenant name", rules: []home.Rule{{Consumers: []string{"rome"}, Deny: []string{"example.com/gpu"}}}, names: []string{cpu, memory, pods}},
		{reason: "denied by cluster id", rules: []home.Rule{{Consumers: []string{"id-1"}, Deny: []string{"example.com/gpu"}}}, names: []string{cpu, memory, pods}},
		{reason: "only what is allowed, and pods", rules: []home.Rule{{Allow: []string{cpu, memory}}}, names: []string{cpu, memory, pods}},
		{reason: "all rules that match apply", rules: []home.Rule{{Allow: []string{"*"}}, {Consumers: []string{"*"}, Deny: []string{"example.com/gpu"}}}, names: []string{cpu, memory, pods}},
		{reason: "deny wins", rules: []home.Rule{{Allow: []string{"*"}, Deny: []string{"*"}}}, names: nil, withheld: v1alpha1.ReasonFiltered},
		{reason: "without memory no pod runs", rules: []home.Rule{{Deny: []string{memory}}}, names: []string{cpu, pods, "example.com/gpu"}, withheld: v1alpha1.ReasonFiltered},
	} {
		got := filter(ample(), c.rules, rome)
		var names []string
		if n := amountsOf(got.Free).names(); len(n) > 0 {
			names = n
		}
		if diff := cmp.Diff(c.names, names); diff != "" || got.Withheld != c.withheld {
			t.Errorf("%s: withheld %q, want %q (-want +got)\n%s", c.reason, got.Withheld, c.withheld, diff)
		}
		for _, l := range got.Shapes[0].Largest {
			if _, there := l["example.com/gpu"]; there && len(c.names) == 3 && c.withheld == "" {
				t.Errorf("%s: the largest pods still have what is denied", c.reason)
			}
		}
	}
}

func TestChainFollowsSettings(t *testing.T) {
	settings := home.Offer{}
	c := chain(&fakeReader{answer: ample()}, func() home.Offer { return settings })
	read := func() amounts {
		r, err := c.Read(context.Background(), Consumer{Tenant: "rome"})
		if err != nil {
			t.Fatal(err)
		}
		return amountsOf(r.Free)
	}
	if got := read()[cpu]; got != 8000 {
		t.Errorf("%d free before, want 8000", got)
	}
	settings = home.Offer{Reserve: "50%", Rules: []home.Rule{{Deny: []string{"example.com/gpu"}}}}
	got := read()
	if _, gpu := got["example.com/gpu"]; got[cpu] != 3000 || gpu {
		t.Errorf("%v free after, want 3000 CPU and no GPU", got)
	}
}

func TestLargest(t *testing.T) {
	v := func(c, m int64) amounts { return amounts{cpu: c, memory: m, pods: 1} }
	for _, c := range []struct {
		reason     string
		free, want []amounts
	}{
		{"what another one covers is left out, twins too", []amounts{v(1, 1), v(2, 2), v(2, 2), v(2, 1)}, []amounts{v(2, 2)}},
		{"each has more of something", []amounts{v(1, 3), v(3, 1), v(2, 2)}, []amounts{v(3, 1), v(2, 2), v(1, 3)}},
		{"no room for a pod", []amounts{{cpu: 5, memory: 5, pods: 0}}, []amounts{}},
		{"none", nil, []amounts{}},
	} {
		if diff := cmp.Diff(c.want, largest(c.free)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.reason, diff)
		}
	}
	var many []amounts
	for i := range int64(100) {
		many = append(many, v(i, 99-i))
	}
	got := largest(many)
	if len(got) != maxLargest || got[0][cpu] != 99 || got[maxLargest-1][memory] != 99 {
		t.Errorf("of a long front %v, want %d with both ends", got, maxLargest)
	}
	for i, j := 0, len(many)-1; i < j; i, j = i+1, j-1 {
		many[i], many[j] = many[j], many[i]
	}
	if diff := cmp.Diff(got, largest(many)); diff != "" {
		t.Errorf("the order of nodes changes the result:\n%s", diff)
	}
}
