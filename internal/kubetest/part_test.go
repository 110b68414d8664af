package kubetest

import (
	"fmt"
	"slices"
	"testing"
)

// TestPart holds that all parts together are the whole, each of it once, and that none is empty.
func TestPart(t *testing.T) {
	for whole := 1; whole < 25; whole++ {
		var all []int
		for i := range whole {
			all = append(all, i)
		}
		if got, err := part(all, ""); err != nil || !slices.Equal(got, all) {
			t.Errorf("without parts %v of %v (%v)", got, all, err)
		}
		for of := 1; of <= whole; of++ {
			var got []int
			for number := 1; number <= of; number++ {
				chosen, err := part(all, fmt.Sprintf("%d/%d", number, of))
				if err != nil || len(chosen) < whole/of || len(chosen) > whole/of+1 {
					t.Errorf("part %d of %d of %d has %d (%v)", number, of, whole, len(chosen), err)
				}
				got = append(got, chosen...)
			}
			if slices.Sort(got); !slices.Equal(got, all) {
				t.Errorf("all %d parts of %v are %v", of, all, got)
			}
		}
	}
	for _, text := range []string{"1", "0/3", "4/3", "-1/3", "1/0", "1/4", "x/3", "1/3/", " 1/3"} {
		if got, err := part([]int{1, 2, 3}, text); err == nil {
			t.Errorf("%q is a part: %v", text, got)
		}
	}
}
