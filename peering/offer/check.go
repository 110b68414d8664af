package offer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// maxResourceName bounds names of resources, prefix and all.
const maxResourceName = 253 + 1 + 63

// checkRequest says what is wrong with a request, with the field and the remedy. It
// is for requests of strangers as well as of the cluster's own people.
func checkRequest(spec v1alpha1.ResourceRequestSpec) error {
	switch spec.Acceptance {
	case "", v1alpha1.AcceptanceAutomatic, v1alpha1.AcceptanceManual:
	default:
		return fmt.Errorf("spec.acceptance: %.20q is neither Automatic nor Manual", spec.Acceptance)
	}
	switch spec.Decision {
	case "", v1alpha1.DecisionAccepted, v1alpha1.DecisionDeclined:
	default:
		return fmt.Errorf("spec.decision: %.20q is neither Accepted nor Declined; leave it out to decide later", spec.Decision)
	}
	if n := len(spec.Resources); n > maxNamed {
		return fmt.Errorf("spec.resources: %d resources, at most %d; leave out those that need no bound", n, maxNamed)
	}
	return checkList("spec.resources", spec.Resources)
}

// checkList checks names and quantities.
func checkList(field string, list v1alpha1.ResourceList) error {
	if len(list) > maxResources {
		return fmt.Errorf("%s: %d resources, at most %d", field, len(list), maxResources)
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if err := checkName(name); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		if err := checkQuantity(name, list[name]); err != nil {
			return fmt.Errorf("%s[%s]: %w", field, name, err)
		}
	}
	return nil
}

// checkName accepts the names that pods may request.
func checkName(name string) error {
	switch {
	case slices.Contains([]string{cpu, memory, pods, storage}, name):
		return nil
	case len(name) > maxResourceName, len(validation.IsQualifiedName(name)) > 0:
		return fmt.Errorf("%.80q is not the name of a resource", name)
	case strings.HasPrefix(name, corev1.ResourceHugePagesPrefix), strings.Contains(name, "/"):
		return nil
	}
	return fmt.Errorf("there is no resource %q; use cpu, memory, pods, ephemeral-storage, hugepages-SIZE or an extended resource like example.com/gpu", name)
}

// checkQuantity accepts what a cluster can have of a resource.
func checkQuantity(name string, q resource.Quantity) error {
	limit := maxAmount
	if name == cpu {
		limit = maxCPU
	}
	switch v := q.Value(); {
	case q.Sign() < 0:
		return fmt.Errorf("an amount below zero; use 0 or more")
	case v >= limit:
		return fmt.Errorf("more than any cluster has; use less")
	case whole(name) && q.CmpInt64(v) != 0: // Value rounds up
		return fmt.Errorf("not a whole number")
	}
	return nil
}

// whole says whether a resource comes in whole numbers only.
func whole(name string) bool { return name == pods || strings.Contains(name, "/") }
