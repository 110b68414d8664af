package v1alpha1

// Types of conditions. A condition is True when all is well, unless its meaning says
// otherwise. Ready is derived from the others of its kind; Reconciling and Stalled
// are present only while True.
const (
	// ConditionReady: everything the object asks for is so.
	ConditionReady = "Ready"
	// ConditionReconciling: work is going on and needs nobody.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: nothing will change until somebody acts; the message says what to do.
	ConditionStalled = "Stalled"

	// ConditionIdentityReady: the consumer holds a valid credential of the provider.
	ConditionIdentityReady = "IdentityReady"
	// ConditionReachable: the provider's API server answers.
	ConditionReachable = "Reachable"
	// ConditionCompatible: both sides know what they need of each other.
	ConditionCompatible = "Compatible"
	// ConditionResourcesAccepted: an offer of the provider has been accepted.
	ConditionResourcesAccepted = "ResourcesAccepted"
	// ConditionTenantReady: the provider's Tenant for this consumer is Ready.
	ConditionTenantReady = "TenantReady"
	// ConditionConsumerAlive: the consumer was heard of lately.
	ConditionConsumerAlive = "ConsumerAlive"

	// ConditionNamespaceReady: the tenant namespace is there with its bounds.
	ConditionNamespaceReady = "NamespaceReady"
	// ConditionRightsReady: the tenant's user has exactly its rights.
	ConditionRightsReady = "RightsReady"

	// ConditionReaderAnswering: the owner's own resource reader decides what the tenant is
	// offered; absent if he has none.
	ConditionReaderAnswering = "ReaderAnswering"

	// ConditionIssued: the credential asked for in an Identity has been issued.
	ConditionIssued = "Issued"
	// ConditionRevoked: True when the provider has ended the peering.
	ConditionRevoked = "Revoked"

	// ConditionSent: the request has reached the provider.
	ConditionSent = "Sent"
	// ConditionOffered: the provider has answered a request with an offer.
	ConditionOffered = "Offered"
	// ConditionAccepted: the offer is accepted; of a ShadowPod, the provider runs it.
	ConditionAccepted = "Accepted"

	// ConditionNetworkReady, of a Peering: its tunnels carry packets both ways, and all ranges
	// of both sides are carried. Absent where the network is not on on both sides.
	ConditionNetworkReady = "NetworkReady"

	// ConditionNodeReady: the virtual node of a request is there and Ready.
	ConditionNodeReady = "NodeReady"
	// ConditionOffloadingRequired: a cluster is selected by an offloading.
	ConditionOffloadingRequired = "OffloadingRequired"

	// ConditionChangeRefused, of a home pod: True while what runs does not follow a change
	// of it; the message says why.
	ConditionChangeRefused = "pelago.dev/ChangeRefused"
)

// Reasons of conditions, with what they mean.
const (
	// ReasonReady: nothing is missing.
	ReasonReady = "Ready"
	// ReasonPending: the first attempt is not over.
	ReasonPending = "Pending"
	// ReasonWaiting: something else has to be there first; the message says what.
	ReasonWaiting = "Waiting"
	// ReasonTerminating: the object is being removed.
	ReasonTerminating = "Terminating"

	// ReasonInvitationRefused: the provider did not accept the token.
	ReasonInvitationRefused = "InvitationRefused"
	// ReasonInvitationMissing: there is no token, and no credential either.
	ReasonInvitationMissing = "InvitationMissing"
	// ReasonNameRefused: the name is taken or reserved at the provider.
	ReasonNameRefused = "NameRefused"
	// ReasonAuthUnreachable: the provider's authentication endpoint does not answer.
	ReasonAuthUnreachable = "AuthUnreachable"
	// ReasonUntrusted: the endpoint's certificate is not of the pinned authority.
	ReasonUntrusted = "Untrusted"
	// ReasonIssued: a credential was issued.
	ReasonIssued = "Issued"
	// ReasonRenewing: a new credential is being asked for.
	ReasonRenewing = "Renewing"
	// ReasonExpired: the credential or the offer has ended.
	ReasonExpired = "Expired"
	// ReasonRequestRefused: the certificate signing request breaks a rule.
	ReasonRequestRefused = "RequestRefused"
	// ReasonSigningFailed: the cluster's signer did not sign.
	ReasonSigningFailed = "SigningFailed"

	// ReasonPeerReachable: the peer answers.
	ReasonPeerReachable = "PeerReachable"
	// ReasonPeerUnreachable: the peer does not answer.
	ReasonPeerUnreachable = "PeerUnreachable"
	// ReasonForbidden: the peer answers and refuses this identity.
	ReasonForbidden = "Forbidden"
	// ReasonUnsupported: the peer lacks a feature this side cannot do without.
	ReasonUnsupported = "Unsupported"
	// ReasonDuplicate: there is another peering with this cluster.
	ReasonDuplicate = "Duplicate"
	// ReasonInvalid: the object breaks a rule; the message names the field.
	ReasonInvalid = "Invalid"

	// ReasonCordoned: the provider accepts nothing new from this tenant.
	ReasonCordoned = "Cordoned"
	// ReasonDrained: the provider has removed what this tenant had.
	ReasonDrained = "Drained"
	// ReasonNothingFree: the provider has nothing to offer now.
	ReasonNothingFree = "NothingFree"
	// ReasonFiltered: the provider's rules leave nothing for this consumer.
	ReasonFiltered = "Filtered"
	// ReasonOffered: there is an offer.
	ReasonOffered = "Offered"
	// ReasonAccepted: the consumer has accepted.
	ReasonAccepted = "Accepted"
	// ReasonDeclined: the consumer has declined.
	ReasonDeclined = "Declined"
	// ReasonUndecided: the consumer has not decided yet.
	ReasonUndecided = "Undecided"
	// ReasonWithdrawn: the provider has taken the offer back.
	ReasonWithdrawn = "Withdrawn"

	// ReasonCapped: spec.objects of a Tenant allows more than consumers read; what they read
	// is the bound.
	ReasonCapped = "Capped"
	// ReasonBounded: the resource reader grants more than there is; that is offered.
	ReasonBounded = "Bounded"
	// ReasonLastAnswer: the resource reader fails; its last good answer holds for a while.
	ReasonLastAnswer = "LastAnswer"
	// ReasonOnlyUsed: the resource reader fails for long; nothing is offered beyond what is
	// in use.
	ReasonOnlyUsed = "OnlyUsed"

	// ReasonEndedByProvider: the provider has ended the peering.
	ReasonEndedByProvider = "EndedByProvider"
	// ReasonAbandoned: the consumer was silent for longer than Tenant.spec.abandonAfter.
	ReasonAbandoned = "Abandoned"
	// ReasonSilent: the consumer has not been heard of lately.
	ReasonSilent = "Silent"

	// ReasonSelected: the cluster's virtual nodes match.
	ReasonSelected = "Selected"
	// ReasonNotSelected: none of the cluster's virtual nodes matches.
	ReasonNotSelected = "NotSelected"
	// ReasonNoClusterSelected: no virtual node matches, or there is none.
	ReasonNoClusterSelected = "NoClusterSelected"
	// ReasonSomeFailed: some clusters refuse.
	ReasonSomeFailed = "SomeFailed"
	// ReasonAllFailed: all clusters refuse.
	ReasonAllFailed = "AllFailed"

	// ReasonNameTaken: something that is not this tenant's, or not Pelago's, has the name.
	ReasonNameTaken = "NameTaken"
	// ReasonNameTooLong: the name would have more than 63 characters.
	ReasonNameTooLong = "NameTooLong"
	// ReasonNameForbidden: the tenant may not choose this name.
	ReasonNameForbidden = "NameForbidden"
	// ReasonLimitExceeded: the tenant's limits leave no room.
	ReasonLimitExceeded = "LimitExceeded"
	// ReasonVolumesKept: the namespace is kept because it holds volume claims.
	ReasonVolumesKept = "VolumesKept"

	// ReasonRefused: the provider does not run a pod like this; the message names the field.
	ReasonRefused = "Refused"
	// ReasonFamilyMissing: the Service is there, but of another IP family, as the provider's cluster
	// has none of those that it asks for.
	ReasonFamilyMissing = "FamilyMissing"
	// ReasonTypeNotAllowed: the Service is there, but of the type ClusterIP, as the provider's
	// owner allows this tenant no other.
	ReasonTypeNotAllowed = "TypeNotAllowed"
	// ReasonSecretMissing: the Ingress is there, but not a Secret that it names for TLS.
	ReasonSecretMissing = "SecretMissing"
	// ReasonEndpointsMissing: the Service is there, but without endpoints that have no address in
	// the network between the clusters.
	ReasonEndpointsMissing = "EndpointsMissing"
	// ReasonNotAdmitted: the provider's API server does not admit the pod.
	ReasonNotAdmitted = "NotAdmitted"
	// ReasonUnschedulable: no node of the provider had room in time.
	ReasonUnschedulable = "Unschedulable"
	// ReasonNamespaceMissing: the namespace mapped for the pod is not there yet.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonChangeRefused: what runs stays as it is; the message names the field.
	ReasonChangeRefused = "ChangeRefused"
	// ReasonProviderWarning, of an event: what the provider's cluster warns of about the pod.
	ReasonProviderWarning = "ProviderWarning"
	// ReasonRunning: the provider runs the pod, or has run it to its end.
	ReasonRunning = "Running"
	// ReasonVirtualNode: a pod of a DaemonSet is aimed at a virtual node, where it has nothing to do.
	ReasonVirtualNode = "VirtualNode"
	// ReasonRangesRefused: a range of the peer's cannot be carried; the message names it.
	ReasonRangesRefused = "RangesRefused"
	// ReasonPoolExhausted: no pool has a prefix left for a range; the message names it.
	ReasonPoolExhausted = "PoolExhausted"
	// ReasonTooMany: there are more of them than are taken; the message says where.
	ReasonTooMany = "TooMany"
	// ReasonRangesUnknown: the ranges of the pods here are not known, or not all of them; the
	// message says what to set.
	ReasonRangesUnknown = "RangesUnknown"
	// ReasonNotMappable: the owner of this cluster does not let this address be mapped, or nothing in
	// this namespace; the message says why, and what to change if that is a setting.
	ReasonNotMappable = "NotMappable"
	// ReasonAgentsMissing: no agent is alive here, so that no node can be gateway.
	ReasonAgentsMissing = "AgentsMissing"
	// ReasonTunnelDown: nothing comes back through the tunnel; the message says which. Of a
	// pod's Ready: it runs behind that, and nobody here reaches it.
	ReasonTunnelDown = "TunnelDown"
	// ReasonGatewaysBehind, of a pod's Ready: it runs and is ready, and not all gateways on the way
	// to it know its address yet; the message says whose do not.
	ReasonGatewaysBehind = "GatewaysBehind"
	// ReasonViewMoved, of an event: a range of the peer's has lost its view; the message says
	// why, and which it has now.
	ReasonViewMoved = "ViewMoved"
	// ReasonNotAllowed: the owner of this cluster does not allow it; the message names the field.
	ReasonNotAllowed = "NotAllowed"
	// ReasonPrefixesRefused: a direct path would lead to what is not the consumer's to name here.
	ReasonPrefixesRefused = "PrefixesRefused"
	// ReasonPathEnded: the consumer has not said for long that it wants the path.
	ReasonPathEnded = "PathEnded"
	// ReasonDirectPathMade, of an event: pods at two providers reach each other by a direct path.
	ReasonDirectPathMade = "DirectPathMade"
	// ReasonDirectPathEnded, of an event: they do not any more, or were not let; the message says why.
	ReasonDirectPathEnded = "DirectPathEnded"
	// ReasonKeyRotated, of an event: the key of a tunnel was replaced.
	ReasonKeyRotated = "KeyRotated"
	// ReasonPolicyNotEnforced, of an event: a NetworkPolicy does not hold between clusters as it is
	// written; the message says which, and why.
	ReasonPolicyNotEnforced = "PolicyNotEnforced"
)
