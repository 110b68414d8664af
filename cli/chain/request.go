package chain

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Change is how to change what a request to a provider asks for. The default one follows
// its Peering.
func Change(peering, request string) string {
	if request == v1alpha1.DefaultRequestName {
		return "change spec.consume.resources: kubectl edit peering " + peering
	}
	return fmt.Sprintf("change it: kubectl -n %s edit resourcerequest %s", v1alpha1.PeeringNamespace(peering), request)
}

// Decide is how to accept the offer for a request by hand.
func Decide(peering, request string) string {
	return fmt.Sprintf(`kubectl -n %s patch resourcerequest %s --type merge -p '{"spec":{"decision":"Accepted"}}'`, v1alpha1.PeeringNamespace(peering), request)
}

// Others are the accepted requests to a provider beside one, with what they hold, and how to
// lower them; empty if there are none.
func Others(peering, request string, requests []v1alpha1.ResourceRequest, offers []v1alpha1.ResourceOffer) (others, remedy string) {
	namespace := v1alpha1.PeeringNamespace(peering)
	var parts, remedies []string
	for _, r := range requests {
		if r.Namespace != namespace || r.Name == request || !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionAccepted) {
			continue
		}
		for _, offer := range offers {
			if offer.Namespace == namespace && offer.Name == r.Name && len(offer.Spec.Resources) > 0 {
				parts = append(parts, fmt.Sprintf("%s (%s)", r.Name, Amounts(offer.Spec.Resources)))
				remedies = append(remedies, Change(peering, r.Name))
			}
		}
	}
	if len(parts) == 0 {
		return "", ""
	}
	return strings.Join(parts, ", "), "to lower what they ask for, " + strings.Join(remedies, "; ")
}

// RemedyAt is Remedy for a Peering, with what its provider calls this cluster.
func RemedyAt(reason string, p *v1alpha1.Peering) string {
	return At{Name: p.Name, Tenant: TenantOf(p)}.Remedy(reason)
}
