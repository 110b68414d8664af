package chain

import (
	"cmp"
	"strings"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// remedies say what to do about a reason; NAME stands for the object, SPACE for the
// namespace at home, TENANT for what the provider calls this cluster.
var remedies = map[string]string{
	v1alpha1.ReasonPending:     "",
	v1alpha1.ReasonWaiting:     "",
	v1alpha1.ReasonTerminating: "if the other cluster is gone for good: pelago unpeer NAME --force",

	v1alpha1.ReasonInvalid:           "correct what the message names; what cannot be changed needs: pelago unpeer NAME, then pelago peer again",
	v1alpha1.ReasonDuplicate:         "one peering per cluster: keep the one that works and run pelago unpeer for the other",
	v1alpha1.ReasonInvitationRefused: "ask the provider for a new line (pelago generate peer-command) and run it here; a line works once and not for long",
	v1alpha1.ReasonInvitationMissing: "ask the provider for a line (pelago generate peer-command) and run it here",
	v1alpha1.ReasonNameRefused:       "ask the provider for a line with a name that is free there: pelago generate peer-command --consumer OTHER",
	v1alpha1.ReasonAuthUnreachable:   "see that this cluster's nodes reach the address: firewall, proxy (--proxy-url), and the Service pelago-auth at the provider",
	v1alpha1.ReasonUntrusted:         "the address belongs to somebody else or the provider was installed anew: ask its owner for a new line (pelago generate peer-command)",
	v1alpha1.ReasonExpired:           "it was not renewed in time: pelago unpeer NAME --force; at the provider its owner runs: pelago unpeer TENANT; then peer with a new line",
	v1alpha1.ReasonRequestRefused:    "run the same version of Pelago on both sides (pelago version), then unpeer and peer again",
	v1alpha1.ReasonSigningFailed:     "at the provider: see that its controller-manager signs client certificates, or install it with --set config.identity.type=ServiceAccountToken",

	v1alpha1.ReasonPeerUnreachable: "it heals by itself when the network does; if the cluster is gone for good: pelago unpeer NAME --force",
	v1alpha1.ReasonForbidden:       "the provider has taken the rights away: pelago unpeer NAME --force, then peer with a new line",
	v1alpha1.ReasonUnsupported:     "upgrade the older side (pelago version shows both): pelago install",

	v1alpha1.ReasonCordoned:    "the provider takes nothing new from this cluster; its owner lifts that with: pelago uncordon tenant TENANT",
	v1alpha1.ReasonDrained:     "the provider has drained this cluster; its owner lifts that with: pelago uncordon tenant TENANT",
	v1alpha1.ReasonNothingFree: "the provider is full now; the offer comes by itself when there is room",
	v1alpha1.ReasonFiltered:    "the provider's rules give this cluster nothing; its owner changes them in config.offer.rules",
	v1alpha1.ReasonDeclined:    "the offer was declined here; to take it, set spec.decision of the ResourceRequest to Accepted",
	v1alpha1.ReasonUndecided:   "acceptance is Manual: set spec.decision of the ResourceRequest to Accepted or Declined",
	v1alpha1.ReasonWithdrawn:   "the provider has taken the offer back and makes a new one if it can; ask its owner",

	v1alpha1.ReasonBounded:    "correct what your resource reader answers; only what there is can be offered",
	v1alpha1.ReasonLastAnswer: "see to your resource reader (value resourceReader.address); pelago-reader-check tells what it does wrong",
	v1alpha1.ReasonOnlyUsed:   "see to your resource reader (value resourceReader.address); pelago-reader-check tells what it does wrong",

	v1alpha1.ReasonNoClusterSelected: "peer with a cluster (pelago peer), or change the selector; clusters that match later join by themselves",
	v1alpha1.ReasonNameTaken:         "something else has that name there: its owner removes it, or use another name that tenant TENANT may choose (spec.namespaceNames): pelago unoffload namespace SPACE, then pelago offload namespace SPACE --namespace-mapping-strategy SelectedName --remote-name OTHER",
	v1alpha1.ReasonNameTooLong:       "the name there would have more than 63 characters: choose a shorter one: pelago unoffload namespace SPACE, then pelago offload namespace SPACE --namespace-mapping-strategy SelectedName --remote-name SHORTER; before that the provider's owner allows it in spec.namespaceNames: kubectl edit tenant TENANT",
	v1alpha1.ReasonNameForbidden:     "take the usual name: pelago unoffload namespace SPACE, then pelago offload namespace SPACE --namespace-mapping-strategy DefaultName; or the provider's owner allows the name in spec.namespaceNames: kubectl edit tenant TENANT",
	v1alpha1.ReasonLimitExceeded:     "ask for less, or the provider's owner raises spec.limits, or spec.objects where the message says count/RESOURCE: kubectl edit tenant TENANT",
	v1alpha1.ReasonVolumesKept:       "its volume claims are kept; once they are not needed, the provider's owner deletes that namespace",

	v1alpha1.ReasonRefused:          "change what the message names in the pod's template; docs/offloading-fields.md says of each field what travels",
	v1alpha1.ReasonNotAdmitted:      "the provider's rules refuse it: change what the message names, or ask the provider's owner",
	v1alpha1.ReasonUnschedulable:    "no node of the provider had room in time; Pelago tries other nodes first and this one again later",
	v1alpha1.ReasonNamespaceMissing: "the namespace is being made there; this takes a moment",

	v1alpha1.ReasonEndedByProvider: "the provider has ended the peering; this side cleans up by itself",
	v1alpha1.ReasonAbandoned:       "the consumer was silent for too long; it has to peer again",
	v1alpha1.ReasonSilent:          "see whether the consumer runs and reaches this cluster's API server; if it is gone for good: pelago unpeer NAME --force",
}

// Remedy says what to do about a reason of a condition of the object name; it is
// empty if there is nothing to do.
func Remedy(reason, name string) string {
	return At{Name: name}.Remedy(reason)
}

// At is what a remedy is about. What is not known stays a word in capitals.
type At struct {
	// Name of the object, of the peering where it is about a provider.
	Name string
	// Tenant is what the provider calls this cluster; see TenantOf.
	Tenant string
	// Namespace at home.
	Namespace string
}

// Remedy says what to do about a reason there.
func (a At) Remedy(reason string) string {
	return strings.NewReplacer("NAME", a.Name, "TENANT", cmp.Or(a.Tenant, unknownTenant), "SPACE", cmp.Or(a.Namespace, unknownSpace)).Replace(remedies[reason])
}

// Words to be replaced by whoever copies a line.
const (
	unknownTenant = "THIS-CLUSTER"
	unknownSpace  = "NAMESPACE"
)

// TenantOf is what the provider of a Peering calls this cluster, empty if that is not
// known or no name: it is the provider's word, and comes into lines to copy.
func TenantOf(p *v1alpha1.Peering) string {
	tenant := strings.TrimPrefix(p.Status.TenantNamespace, v1alpha1.TenantNamespacePrefix)
	if v1alpha1.CheckClusterName(tenant) != nil {
		return ""
	}
	return tenant
}
