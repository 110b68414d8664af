package offer

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Names of resources that every offer has.
const (
	cpu     = string(corev1.ResourceCPU)
	memory  = string(corev1.ResourceMemory)
	pods    = string(corev1.ResourcePods)
	storage = string(corev1.ResourceEphemeralStorage)
)

// Bounds of what is believed: no cluster has more.
const (
	maxAmount    = int64(1) << 60
	maxCPU       = int64(1) << 50 // in CPUs; a thousandfold of it still fits
	maxWhole     = int64(1) << 52 // of what comes in whole numbers; a thousandfold of two still fits
	maxResources = 64
	maxNamed     = 32 // by one request; an offer has room for as many others
)

// essential are the resources without which no pod runs.
var essential = []string{cpu, memory, pods}

// amounts are quantities by resource name: CPUs in thousandths, all else in units.
type amounts map[string]int64

// amount converts one quantity, rounded up and kept within the bounds.
func amount(name string, q resource.Quantity) int64 {
	v := q.Value()
	if name == cpu {
		if v >= maxCPU || v <= -maxCPU {
			return maxAmount * int64(cmp.Compare(v, 0))
		}
		return q.MilliValue()
	}
	return max(-maxAmount, min(v, maxAmount))
}

// quantity is the way back, in the form people expect of the resource.
func quantity(name string, v int64) resource.Quantity {
	switch {
	case name == cpu:
		return *resource.NewMilliQuantity(v, resource.DecimalSI)
	case name == memory, name == storage, strings.HasPrefix(name, corev1.ResourceHugePagesPrefix):
		return *resource.NewQuantity(v, resource.BinarySI)
	}
	return *resource.NewQuantity(v, resource.DecimalSI)
}

func amountsOf(list v1alpha1.ResourceList) amounts {
	a := make(amounts, len(list))
	for name, q := range list {
		a[name] = amount(name, q)
	}
	return a
}

func amountsOfCore(list corev1.ResourceList) amounts {
	a := make(amounts, len(list))
	for name, q := range list {
		a[string(name)] = amount(string(name), q)
	}
	return a
}

func (a amounts) list() v1alpha1.ResourceList {
	list := make(v1alpha1.ResourceList, len(a))
	for name, v := range a {
		list[name] = quantity(name, v)
	}
	return list
}

// add adds b times sign. It is not bounded, so that what was added can be taken off.
func (a amounts) add(b amounts, sign int64) {
	for name, v := range b {
		a[name] += sign * v
	}
}

// plus is a and b together, each resource within the bounds.
func (a amounts) plus(b amounts) amounts {
	sum := maps.Clone(a)
	if sum == nil {
		sum = amounts{}
	}
	for name, v := range b {
		sum[name] = min(sum[name]+v, maxAmount)
	}
	return sum
}

// atLeast is a with nothing below floor.
func (a amounts) atLeast(floor amounts) amounts {
	out := maps.Clone(a)
	if out == nil {
		out = amounts{}
	}
	for name, v := range floor {
		out[name] = max(out[name], v)
	}
	return out
}

// minus is what is left of a after b, nothing below zero; only what a has counts.
func (a amounts) minus(b amounts) amounts {
	left := make(amounts, len(a))
	for name, v := range a {
		left[name] = max(0, v-max(0, b[name]))
	}
	return left
}

// within is a with nothing above bound; what bound does not name is not bounded.
func (a amounts) within(bound amounts) amounts {
	out := maps.Clone(a)
	for name, v := range out {
		if b, ok := bound[name]; ok {
			out[name] = min(v, b)
		}
	}
	return out
}

// usable says whether a pod could run on it at all.
func (a amounts) usable() bool {
	return !slices.ContainsFunc(essential, func(name string) bool { return a[name] <= 0 })
}

// names returns at most maxResources names: the common ones first, then by alphabet.
func (a amounts) names() []string {
	rank := func(name string) int {
		if i := slices.Index([]string{cpu, memory, pods, storage}, name); i >= 0 {
			return i
		}
		return maxResources
	}
	names := slices.SortedFunc(maps.Keys(a), func(x, y string) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x, y))
	})
	return names[:min(len(names), maxResources)]
}

// only keeps the named ones.
func (a amounts) only(names []string) amounts {
	out := make(amounts, len(names))
	for _, name := range names {
		if v, ok := a[name]; ok {
			out[name] = v
		}
	}
	return out
}

// portion is total × part / whole without overflow, for 0 ≤ part ≤ whole, 0 < whole.
func portion(total, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(total), uint64(part))
	if hi >= uint64(whole) { // only if part == whole, which is everything
		return total
	}
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(q)
}
