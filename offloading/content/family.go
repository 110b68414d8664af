package content

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// bothFamilies are all there are.
var bothFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// checkFamilies says what is wrong with the families that a Service asks for.
func checkFamilies(want []corev1.IPFamily) string {
	if len(want) > len(bothFamilies) {
		return fmt.Sprintf("%d families, at most %d", len(want), len(bothFamilies))
	}
	for i, f := range want {
		if !slices.Contains(bothFamilies, f) {
			return "the family " + quote(string(f)) + " is unknown; IPv4 and IPv6 are"
		}
		if slices.Contains(want[:i], f) {
			return "the family " + string(f) + " twice"
		}
	}
	return ""
}

// among are the families that this Service can have in a cluster that has some: both in any if it is headless and without a
// selector, which Kubernetes leaves to its endpoints. Its API server adds the second one unless a single one is asked for.
func (c *serviceContent) among(has []corev1.IPFamily) []corev1.IPFamily {
	if len(has) > 0 && c.Headless && len(c.Selector) == 0 && ptr.Deref(c.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack) != corev1.IPFamilyPolicySingleStack {
		return bothFamilies
	}
	return has
}

// families are those that a Service asks for in a cluster that has some, its own first one first,
// and how strictly. Where none of these is there it has the first family of the cluster, so that
// it leads at least to the pods that run there. Nothing is asked for if nothing is wanted or it is
// not known what there is: the API server decides then.
func families(want []corev1.IPFamily, policy *corev1.IPFamilyPolicy, has []corev1.IPFamily) ([]corev1.IPFamily, *corev1.IPFamilyPolicy) {
	if len(want) == 0 || len(has) == 0 {
		return nil, policy
	}
	var all []corev1.IPFamily
	for _, f := range want {
		if slices.Contains(has, f) {
			all = append(all, f)
		}
	}
	if len(all) == 0 {
		all = has[:1:1]
	}
	if policy == nil || *policy == corev1.IPFamilyPolicySingleStack {
		return all[:1], policy
	}
	for _, f := range has { // what is asked for as the API server fills it up
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
	if *policy == corev1.IPFamilyPolicyRequireDualStack && len(all) < len(bothFamilies) {
		policy = new(corev1.IPFamilyPolicyPreferDualStack)
	}
	return all, policy
}

// lacksFamilies says that a cluster has none of the families that a Service asks for.
func lacksFamilies(c *serviceContent, rules Rules) string {
	has := c.among(rules.Families)
	if len(c.IPFamilies) == 0 || len(has) == 0 || slices.ContainsFunc(c.IPFamilies, func(f corev1.IPFamily) bool { return slices.Contains(has, f) }) {
		return ""
	}
	return fmt.Sprintf("this cluster has no Services of %s: it is one of %s here, and leads to pods that run here only", c.IPFamilies[0], has[0])
}

// putFamilies gives a Service the families that are wanted, true if that takes a new object: its
// first one cannot change, and stays as long as it is wanted at all.
func putFamilies(next, want *corev1.Service) bool {
	if want.Spec.IPFamilyPolicy != nil {
		next.Spec.IPFamilyPolicy = want.Spec.IPFamilyPolicy
	}
	had, wanted := next.Spec.IPFamilies, want.Spec.IPFamilies
	if len(had) == 0 || len(wanted) == 0 {
		if len(wanted) > 0 {
			next.Spec.IPFamilies = slices.Clone(wanted)
		}
		return false
	}
	if !slices.Contains(wanted, had[0]) {
		return true
	}
	next.Spec.IPFamilies = had[:1:1]
	for _, f := range wanted {
		if f != had[0] {
			next.Spec.IPFamilies = append(next.Spec.IPFamilies, f)
		}
	}
	left := len(next.Spec.IPFamilies)
	if len(next.Spec.ClusterIPs) > left {
		next.Spec.ClusterIPs = next.Spec.ClusterIPs[:left:left]
	}
	// Only one that is to have a single family gives the other one back.
	return left < len(had) && ptr.Deref(next.Spec.IPFamilyPolicy, corev1.IPFamilyPolicySingleStack) != corev1.IPFamilyPolicySingleStack
}
