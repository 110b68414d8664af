package chain

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// first are the resources people ask for first.
var first = []string{"cpu", "memory", "pods"}

// Amounts writes resources for people: cpu, memory and pods first, bytes in the
// largest unit that needs few digits.
func Amounts(list v1alpha1.ResourceList) string { return Answer(nil, list) }

// Answer is Amounts of what is offered, with what was asked for where that is more.
func Answer(asked, offered v1alpha1.ResourceList) string {
	list := v1alpha1.ResourceList{}
	maps.Copy(list, offered)
	for name := range asked {
		if _, has := list[name]; !has {
			list[name] = resource.Quantity{}
		}
	}
	names := make([]string, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = Amount(name, list[name]) + " " + name
		if wanted, has := asked[name]; has && wanted.Cmp(list[name]) > 0 {
			parts[i] = Amount(name, list[name]) + " of the " + Amount(name, wanted) + " " + name + " asked for"
		}
	}
	return strings.Join(parts, ", ")
}

func rank(name string) int {
	if i := slices.Index(first, name); i >= 0 {
		return i
	}
	return len(first)
}

// Amount writes one quantity for people. Bytes are rounded down: what is shown is
// never more than what is there.
func Amount(name string, q resource.Quantity) string {
	switch {
	case name == "memory", strings.HasSuffix(name, "storage"), strings.HasPrefix(name, "hugepages-"):
	case q.MilliValue()%1000 != 0:
		return q.String()
	default:
		return strconv.FormatInt(q.Value(), 10) // 1000, not 1k
	}
	value := q.Value()
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}
	unit := 0
	for unit < len(units)-1 && value >= 10*1024 {
		value, unit = value/1024, unit+1
	}
	for unit < len(units)-1 && value >= 1024 && value%1024 == 0 {
		value, unit = value/1024, unit+1
	}
	return strconv.FormatInt(value, 10) + units[unit]
}
