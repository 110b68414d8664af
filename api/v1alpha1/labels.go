package v1alpha1

// Labels, annotations and finalizers of Pelago. All are under pelago.dev/.
const (
	// LabelManagedBy marks every object Pelago makes; the value is the component.
	LabelManagedBy = "pelago.dev/managed-by"
	// LabelPeering names the Peering an object belongs to, at the consumer.
	LabelPeering = "pelago.dev/peering"
	// LabelTenant names the Tenant an object belongs to, at the provider.
	LabelTenant = "pelago.dev/tenant"
	// LabelTombstone marks the Secrets that keep saying goodbye after unpeer --force.
	LabelTombstone = "pelago.dev/tombstone"
	// LabelType is on virtual nodes, with the value TypeVirtualNode.
	LabelType = "pelago.dev/type"
	// TypeVirtualNode is the value of LabelType on virtual nodes.
	TypeVirtualNode = "virtual-node"

	// AnnotationForce on a Peering or Tenant that is being deleted: "true" gives up on
	// the other side, which is then told by a tombstone.
	AnnotationForce = "pelago.dev/force"
	// AnnotationInvitation on a Tenant is the UID of the Invitation it came of: no
	// other invitation can claim the Tenant.
	AnnotationInvitation = "pelago.dev/invitation"

	// FinalizerConsume keeps a Peering until the provider has been told goodbye.
	FinalizerConsume = "pelago.dev/consume"
	// FinalizerProvide keeps a Peering until its Tenant is gone.
	FinalizerProvide = "pelago.dev/provide"
	// FinalizerTenant keeps a Tenant until all that belongs to it is gone.
	FinalizerTenant = "pelago.dev/tenant"
	// FinalizerGoodbye keeps an Identity until its Tenant is gone.
	FinalizerGoodbye = "pelago.dev/goodbye"
	// FinalizerWithdraw keeps a ResourceRequest until the provider's copy is gone.
	FinalizerWithdraw = "pelago.dev/withdraw"
)
