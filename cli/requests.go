package cli

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// requestsIn is what has become of the requests in a namespace.
func (s *snapshot) requestsIn(namespace string) []RequestReport {
	var all []RequestReport
	for _, request := range s.requests {
		if request.Namespace != namespace {
			continue
		}
		one := RequestReport{Name: request.Name, Asked: request.Spec.Resources,
			Accepted: meta.IsStatusConditionTrue(request.Status.Conditions, v1alpha1.ConditionAccepted)}
		if why := hindrance(request); why != nil {
			one.Reason = why.Reason
		}
		for _, offer := range s.offers {
			if offer.Namespace == namespace && offer.Name == request.Name {
				one.Offered = offer.Spec.Resources
			}
		}
		all = append(all, one)
	}
	return all
}

// hindrance is the condition that keeps a request from being whole, nil if none does.
func hindrance(r v1alpha1.ResourceRequest) *metav1.Condition {
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	for _, kind := range []string{v1alpha1.ConditionSent, v1alpha1.ConditionOffered, v1alpha1.ConditionAccepted} {
		c := meta.FindStatusCondition(r.Status.Conditions, kind)
		if c != nil && c.Status != metav1.ConditionTrue {
			return c
		}
	}
	if len(r.Status.Conditions) == 0 {
		return &metav1.Condition{Reason: v1alpha1.ReasonPending, Message: "nobody has looked at it yet"}
	}
	return nil
}

// strays reports requests that nobody acts on for the namespace they are in.
func (s *snapshot) strays(r *Report) {
	consuming := map[string]bool{}
	for _, p := range s.peerings {
		consuming[p.Name] = p.Spec.Consume != nil
	}
	for _, request := range s.requests {
		if strings.HasPrefix(request.Namespace, v1alpha1.TenantNamespacePrefix) {
			continue // a consumer's, here
		}
		name, right := strings.CutPrefix(request.Namespace, v1alpha1.PeeringNamespacePrefix)
		if right && consuming[name] || !request.DeletionTimestamp.IsZero() {
			continue
		}
		p := Problem{Object: fmt.Sprintf("request %s in namespace %s", request.Name, request.Namespace), Reason: v1alpha1.ReasonInvalid,
			Message: "nobody answers it: requests belong into the namespace of a provider, " + v1alpha1.PeeringNamespace("NAME"),
			Remedy:  fmt.Sprintf("make it there, then: kubectl -n %s delete resourcerequest %s", request.Namespace, request.Name)}
		if right {
			p.Message = "nobody answers it: this cluster does not use " + name
			p.Remedy = fmt.Sprintf("peer with it, or: kubectl -n %s delete resourcerequest %s", request.Namespace, request.Name)
		}
		r.Problems = append(r.Problems, p)
	}
}

// judgeRequests reports the requests to one provider: what is broken, and unless the
// peering itself is, what waits. It returns whether it had anything to say.
func (s *snapshot) judgeRequests(r *Report, p v1alpha1.Peering, whole bool) bool {
	namespace, said := v1alpha1.PeeringNamespace(p.Name), false
	for _, request := range s.requests {
		if request.Namespace != namespace || !request.DeletionTimestamp.IsZero() {
			continue
		}
		why := hindrance(request)
		if why == nil || why.Reason == v1alpha1.ReasonDeclined {
			continue
		}
		line := Problem{Object: "request " + request.Name + " of " + p.Name, Reason: why.Reason, Message: chain.Plain(why.Reason, why.Message)}
		switch why.Reason {
		case v1alpha1.ReasonInvalid, v1alpha1.ReasonForbidden:
			line.Remedy = chain.Change(p.Name, request.Name)
			if why.Reason == v1alpha1.ReasonForbidden {
				line.Remedy = chain.Remedy(why.Reason, p.Name)
			}
			r.Problems, said = append(r.Problems, line), true
			continue
		case v1alpha1.ReasonLimitExceeded, v1alpha1.ReasonNotAdmitted:
			line.Remedy = chain.RemedyAt(why.Reason, &p)
			r.Problems, said = append(r.Problems, line), true
			continue
		case v1alpha1.ReasonUndecided:
			line.Message = "waits for your decision"
			line.Remedy = chain.Decide(p.Name, request.Name)
		case v1alpha1.ReasonNothingFree:
			line.Remedy = chain.Remedy(why.Reason, p.Name)
			if others, remedy := chain.Others(p.Name, request.Name, s.requests, s.offers); others != "" {
				line.Message, line.Remedy = "gets nothing while other requests of this cluster hold "+others, remedy
			}
		case v1alpha1.ReasonExpired:
			line.Remedy = "see why: pelago explain peering " + p.Name
		default:
			line.Remedy = chain.RemedyAt(why.Reason, &p)
		}
		if whole {
			r.Pending, said = append(r.Pending, line), true
		}
	}
	return said
}

// resourcesOnly reports whether a peering lacks nothing but an accepted offer.
func resourcesOnly(p v1alpha1.Peering) bool {
	for _, c := range p.Status.Conditions {
		switch c.Type {
		case v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionResourcesAccepted:
		case v1alpha1.ConditionStalled:
			if c.Status == metav1.ConditionTrue {
				return false
			}
		default:
			if c.Status != metav1.ConditionTrue {
				return false
			}
		}
	}
	return meta.IsStatusConditionFalse(p.Status.Conditions, v1alpha1.ConditionResourcesAccepted)
}

// without is a message without its clauses that name a command.
func without(message, command string) string {
	var kept []string
	for clause := range strings.SplitSeq(message, "; ") {
		if !strings.Contains(clause, command) {
			kept = append(kept, clause)
		}
	}
	return strings.Join(kept, "; ")
}
