package offer

import (
	"cmp"
	"slices"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Bounds of the shapes in an offer.
const (
	maxShapes  = 64
	maxLargest = 8
)

// vector is an amount per resource, in the order of names that goes with it.
type vector []int64

// covers says whether v is at least as large as w in everything.
func (v vector) covers(w vector) bool {
	for i := range v {
		if v[i] < w[i] {
			return false
		}
	}
	return true
}

// largest returns, of what is free on nodes that are alike, the vectors that no other
// one covers, at most maxLargest: the one with most of each resource, then those
// that are most balanced. The order depends on the values only. What has no room for
// a pod is left out.
func largest(free []amounts) []amounts {
	all := amounts{}
	for _, a := range free {
		for name := range a {
			all[name] = 0
		}
	}
	names := all.names()
	vectors := make([]vector, 0, len(free))
	for _, a := range free {
		if room, ok := a[pods]; ok && room <= 0 {
			continue
		}
		v := make(vector, len(names))
		for i, name := range names {
			v[i] = a[name]
		}
		vectors = append(vectors, v)
	}
	chosen := choose(front(vectors), len(names))
	out := make([]amounts, len(chosen))
	for i, v := range chosen {
		out[i] = make(amounts, len(names))
		for j, name := range names {
			out[i][name] = v[j]
		}
	}
	return out
}

// front returns the vectors that no other one covers, largest first.
func front(vectors []vector) []vector {
	slices.SortFunc(vectors, func(a, b vector) int { return slices.Compare(b, a) })
	var kept []vector
	for _, v := range vectors { // what covers v comes before it
		if !slices.ContainsFunc(kept, func(k vector) bool { return k.covers(v) }) {
			kept = append(kept, v)
		}
	}
	return kept
}

// choose takes maxLargest of a front.
func choose(front []vector, resources int) []vector {
	if len(front) <= maxLargest {
		return front
	}
	most := make(vector, resources)
	for _, v := range front {
		for i := range v {
			most[i] = max(most[i], v[i])
		}
	}
	taken := map[int]bool{}
	for i := 0; i < resources && len(taken) < maxLargest; i++ {
		if at := slices.IndexFunc(front, func(v vector) bool { return v[i] == most[i] }); most[i] > 0 {
			taken[at] = true
		}
	}
	order := make([]int, len(front))
	balance := make([]float64, len(front))
	for at, v := range front {
		order[at], balance[at] = at, 1
		for i := range v {
			if most[i] > 0 {
				balance[at] = min(balance[at], float64(v[i])/float64(most[i]))
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(balance[b], balance[a]) })
	for _, at := range order {
		if len(taken) == maxLargest {
			break
		}
		taken[at] = true
	}
	var chosen []vector
	for at, v := range front {
		if taken[at] {
			chosen = append(chosen, v)
		}
	}
	return chosen
}

// refit passes every largest pod of some shapes through change, and leaves out those
// that others cover afterwards. The shapes given are not changed.
func refit(shapes []v1alpha1.NodeShape, change func(amounts) amounts) []v1alpha1.NodeShape {
	out := make([]v1alpha1.NodeShape, 0, len(shapes))
	for _, shape := range shapes {
		changed := make([]amounts, 0, len(shape.Largest))
		for _, list := range shape.Largest {
			changed = append(changed, change(amountsOf(list)))
		}
		shape.Largest = lists(largest(changed))
		out = append(out, shape)
	}
	return out
}

func lists(all []amounts) []v1alpha1.ResourceList {
	out := make([]v1alpha1.ResourceList, 0, len(all))
	for _, a := range all {
		out = append(out, a.list())
	}
	return out
}
