package offer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func at(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 0) }

func TestSplit(t *testing.T) {
	free := amounts{cpu: 8000, memory: 1000, pods: 100}
	for _, c := range []struct {
		reason             string
		free, limits, used amounts
		asks               []ask
		want               map[string]amounts
	}{
		{
			reason: "a request without amounts gets all", free: free,
			asks: []ask{{name: "a"}},
			want: map[string]amounts{"a": free},
		},
		{
			reason: "what is named is a maximum, the rest is open", free: free,
			asks: []ask{{name: "a", named: amounts{cpu: 3000}}},
			want: map[string]amounts{"a": {cpu: 3000, memory: 1000, pods: 100}},
		},
		{
			reason: "named before open, whatever their age", free: free,
			asks: []ask{{name: "open", created: at(0)}, {name: "named", created: at(1), named: amounts{cpu: 6000}}},
			want: map[string]amounts{
				"named": {cpu: 6000, memory: 750, pods: 75}, "open": {cpu: 2000, memory: 250, pods: 25},
			},
		},
		{
			reason: "the older of two named ones first", free: free,
			asks: []ask{{name: "a", created: at(5), named: amounts{cpu: 6000, memory: 600, pods: 1}}, {name: "b", created: at(1), named: amounts{cpu: 5000, memory: 600, pods: 1}}},
			want: map[string]amounts{"b": {cpu: 5000, memory: 600, pods: 1}, "a": {cpu: 3000, memory: 400, pods: 1}},
		},
		{
			reason: "limits less what is used cap the sum", free: free, limits: amounts{cpu: 4000}, used: amounts{cpu: 3500, memory: 999},
			asks: []ask{{name: "a"}},
			want: map[string]amounts{"a": {cpu: 500, memory: 1000, pods: 100}},
		},
		{
			reason: "a limit that is used up leaves nothing, never less", free: free, limits: amounts{cpu: 1000}, used: amounts{cpu: 9000},
			asks: []ask{{name: "a"}},
			want: map[string]amounts{"a": {cpu: 0, memory: 0, pods: 0}},
		},
		{
			reason: "what the provider has not is offered as nothing", free: free,
			asks: []ask{{name: "a", named: amounts{"example.com/gpu": 2}}},
			want: map[string]amounts{"a": {cpu: 8000, memory: 1000, pods: 100, "example.com/gpu": 0}},
		},
		{
			reason: "what cannot be divided goes to the oldest", free: amounts{cpu: 3, pods: 3},
			asks: []ask{{name: "b", created: at(1)}, {name: "a", created: at(1)}},
			want: map[string]amounts{"a": {cpu: 2, pods: 2}, "b": {cpu: 1, pods: 1}},
		},
	} {
		got := split(c.free, c.limits, c.used, c.asks)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.reason, diff)
		}
	}
}

// An offer has what was named and no more resources than can be stored.
func TestSplitFits(t *testing.T) {
	free, named := amounts{cpu: 8000, memory: 1000, pods: 100}, amounts{}
	for i := range maxResources {
		free[fmt.Sprintf("example.com/a%02d", i)] = 1
	}
	for i := range maxNamed {
		named[fmt.Sprintf("example.com/z%02d", i)] = 1
	}
	got := split(free, nil, nil, []ask{{name: "a", named: named}, {name: "b"}})
	for name, share := range got {
		if len(share) != maxResources || !share.usable() {
			t.Errorf("%s gets %d resources, want %d with cpu, memory and pods: %v", name, len(share), maxResources, share)
		}
	}
	if n := len(got["a"].only(slices.Collect(maps.Keys(named)))); n != maxNamed {
		t.Errorf("%d resources of the %d that were named", n, maxNamed)
	}
	spec := v1alpha1.ResourceRequestSpec{Resources: named.list()}
	if err := checkRequest(spec); err != nil {
		t.Errorf("%d resources: %v", maxNamed, err)
	}
	spec.Resources[cpu] = quantity(cpu, 1)
	if err := checkRequest(spec); err == nil || !strings.Contains(err.Error(), "spec.resources") {
		t.Errorf("%d resources: %v, want what is wrong with spec.resources", maxNamed+1, err)
	}
}

// No share is below zero or above what was named, no sum above what is free or
// allowed, nothing that is wanted is left lying, and order of the input is nothing.
func TestSplitProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(chance float64, most int64) amounts {
		a := amounts{}
		for _, name := range []string{cpu, memory, pods, storage, "example.com/gpu"} {
			if r.Float64() < chance {
				a[name] = r.Int64N(most)
			}
		}
		return a
	}
	for range 3000 {
		free, limits, used := random(.9, maxAmount), random(.3, maxAmount), random(.5, maxAmount)
		var asks []ask
		for i := range r.IntN(6) {
			asks = append(asks, ask{name: string(rune('a' + i)), created: at(r.IntN(3)), named: random(.3, maxAmount)})
		}
		got := split(free, limits, used, asks)
		sum := amounts{}
		for _, a := range asks {
			for name, v := range got[a.name] {
				if wanted, named := a.named[name]; v < 0 || named && v > wanted {
					t.Fatalf("share %d of %s, named %v: %v", v, name, a.named, got)
				}
				sum[name] += v
			}
		}
		bound := free.within(limits.minus(used))
		for name, v := range sum {
			if v > bound[name] {
				t.Fatalf("%s: %d shared of %d", name, v, bound[name])
			}
		}
		r.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
		if again := split(free, limits, used, asks); !maps.EqualFunc(got, again, maps.Equal) {
			t.Fatalf("another order of requests: %v, then %v", got, again)
		}
	}
}

func TestPortion(t *testing.T) {
	for _, c := range [][4]int64{{100, 1, 3, 33}, {maxAmount, 1, 1, maxAmount}, {maxAmount, maxAmount / 2, maxAmount, maxAmount / 2}, {0, 1, 2, 0}} {
		if got := portion(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("portion(%d, %d, %d) = %d, want %d", c[0], c[1], c[2], got, c[3])
		}
	}
}
