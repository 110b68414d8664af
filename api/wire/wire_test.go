package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestAmounts(t *testing.T) {
	many := map[string]string{}
	for i := range MaxResources + 1 {
		many[fmt.Sprintf("example.com/r%d", i)] = "1"
	}
	for _, c := range []struct {
		reason    string
		resources map[string]string
		want      string // of the error
	}{
		{"nothing is an answer", nil, ""},
		{"all ways to write", map[string]string{"cpu": "2500m", "memory": "8Gi", "pods": "12", "ephemeral-storage": "1e9", "hugepages-2Mi": "0", "example.com/gpu": "1"}, ""},
		{"below zero", map[string]string{"cpu": "-1"}, "cpu is below zero"},
		{"no quantity", map[string]string{"memory": "much"}, "memory is"},
		{"an unknown unit", map[string]string{"memory": "8GB"}, "memory is"},
		{"empty", map[string]string{"memory": ""}, "memory is"},
		{"an exponent that would never end", map[string]string{"cpu": "1e999999999"}, "cpu is"},
		{"too long", map[string]string{"cpu": strings.Repeat("9", 1000)}, "cpu is"},
		{"absurd", map[string]string{"memory": "2E"}, "more than any cluster has"},
		{"absurd CPUs", map[string]string{"cpu": "2e15"}, "more than any cluster has"},
		{"too many", many, "65 resources"},
		{"no name", map[string]string{"": "1"}, "not the name"},
		{"a name nobody has", map[string]string{"a b": "1"}, "not the name"},
		{"a name without end", map[string]string{strings.Repeat("a", 5000): "1"}, "not the name"},
		{"the first in the alphabet is named", map[string]string{"pods": "x", "cpu": "x"}, "cpu is"},
	} {
		got, err := Amounts(c.resources)
		switch {
		case c.want == "" && (err != nil || len(got) != len(c.resources)):
			t.Errorf("%s: %v, %v", c.reason, got, err)
		case c.want != "" && (!errors.Is(err, ErrNonsense) || !strings.Contains(err.Error(), c.want) || got != nil):
			t.Errorf("%s: %v, %v, want %q", c.reason, got, err, c.want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%s: an error of %d characters", c.reason, len(err.Error()))
		}
	}
}

// Whatever a program answers, nothing of it is below zero or beyond counting.
func FuzzAmounts(f *testing.F) {
	for _, seed := range [][2]string{{"cpu", "2500m"}, {"memory", "8Gi"}, {"example.com/gpu", "-1"}, {"pods", "1e99"}, {"\x00", "0x1"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, called, text string) {
		got, err := Amounts(map[string]string{called: text, "cpu": "1"})
		if (err == nil) != (got != nil) {
			t.Fatalf("%q: %q: %v and %v", called, text, got, err)
		}
		for called, q := range got {
			if q.Sign() < 0 || q.Value() < 0 || q.Value() > maxAmount || called == "cpu" && q.MilliValue() < 0 {
				t.Errorf("%q: %q became %s", called, text, q.String())
			}
		}
	})
}
