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
	// LabelRemoteClusterID is on virtual nodes: the id of the cluster behind.
	LabelRemoteClusterID = "pelago.dev/remote-cluster-id"
	// LabelRequest names the ResourceRequest: on virtual nodes and, at the provider, on
	// the pods that run for one.
	LabelRequest = "pelago.dev/request"
	// LabelOffload on a namespace with the value "true", set by people, offloads it with
	// the defaults.
	LabelOffload = "pelago.dev/offload"
	// LabelOffloaded is on namespaces with a NamespaceOffloading, with the value "true", or
	// OffloadedLeaving at the end; Pelago sets it, and admission goes by it.
	LabelOffloaded = "pelago.dev/offloaded"
	// OffloadedLeaving is the value of LabelOffloaded while a namespace that is not
	// offloaded any more has pods elsewhere: no more of them are let through, and Pelago
	// may ask these to leave.
	OffloadedLeaving = "leaving"
	// LabelHomeUID is on pods that a provider runs: the UID of the home pod, which is the
	// name of the ShadowPod.
	LabelHomeUID = "pelago.dev/home-uid"
	// LabelHomeNamespace is on mapped namespaces: their name at home.
	LabelHomeNamespace = "pelago.dev/home-namespace"
	// LabelOnward on mapped namespaces is "true" while the tenant lets its pods run at providers
	// of this cluster's.
	LabelOnward = "pelago.dev/onward"
	// LabelOriginNamespace and LabelOriginOwner are on mapped namespaces whose pods were made at a
	// third cluster: what the namespace is called there, and a word for whose it is. Such a
	// namespace is never offloaded again.
	LabelOriginNamespace = "pelago.dev/origin-namespace"
	// LabelOriginOwner: see LabelOriginNamespace.
	LabelOriginOwner = "pelago.dev/origin-owner"
	// LabelHomeDomain is on mapped namespaces, if it is not DefaultDomain: what the cluster where their
	// pods were made is called in its own DNS.
	LabelHomeDomain = "pelago.dev/home-domain"

	// TaintVirtualNode keeps pods off virtual nodes that were not admitted there; its
	// effect is NoExecute.
	TaintVirtualNode = "pelago.dev/virtual-node"

	// AnnotationApplied on pods made for ShadowPods, and on ShadowObjects, is a hash of what
	// they were last made of.
	AnnotationApplied = "pelago.dev/applied"
	// AnnotationHomeNamespace, AnnotationHomeName, AnnotationHomeUID, AnnotationHomeLabels
	// and AnnotationHomeAnnotations on pods that a provider runs hold what the downward
	// API shows them: values of the home pod.
	AnnotationHomeNamespace = "pelago.dev/home-namespace"
	// AnnotationHomeName: see AnnotationHomeNamespace.
	AnnotationHomeName = "pelago.dev/home-name"
	// AnnotationHomeUID: see AnnotationHomeNamespace.
	AnnotationHomeUID = "pelago.dev/home-uid"
	// AnnotationHomeLabels: see AnnotationHomeNamespace.
	AnnotationHomeLabels = "pelago.dev/home-labels"
	// AnnotationHomeAnnotations: see AnnotationHomeNamespace.
	AnnotationHomeAnnotations = "pelago.dev/home-annotations"
	// AnnotationNameServers on pods that a provider runs: the name servers that know home's names,
	// separated by spaces, if the pod was given them and home's search domains. When such a pod
	// goes onward, these stay behind.
	AnnotationNameServers = "pelago.dev/name-servers"
	// AnnotationHomeDomain on such pods: the domain that their search domains are of, if it is not
	// DefaultDomain.
	AnnotationHomeDomain = "pelago.dev/home-domain"

	// AnnotationReflect on an object of an offloaded namespace keeps it home if it is "false". A
	// Secret or ConfigMap travels without a pod that refers to it if it is "true", and a Service
	// without a pod of its namespace, and no rule of the namespace denies that.
	AnnotationReflect = "pelago.dev/reflect"
	// AnnotationReflected on objects that a provider makes for a tenant names the labels and
	// annotations that came from home, as label:KEY and annotation:KEY.
	AnnotationReflected = "pelago.dev/reflected"
	// AnnotationPlace on such objects is NAMESPACE/NAME of the one that was made: with another
	// place it is somebody's copy, and not Pelago's.
	AnnotationPlace = "pelago.dev/place"

	// AnnotationTokens on ShadowPods is "true" if the pod expects tokens of home in the Secret
	// TokenSecret. On home pods it is "false" if the pod was sent without any, whatever its provider
	// says later.
	AnnotationTokens = "pelago.dev/tokens"
	// AnnotationRenew on the ShadowObject of a TokenSecret is when its tokens are renewed, in
	// RFC 3339.
	AnnotationRenew = "pelago.dev/renew"

	// AnnotationKeep on a home pod names the taints, with a comma between them, that it tolerates
	// without end because its provider could not be reached: WhenUnreachable of its namespace was
	// Keep. Before, it tolerated each for five minutes.
	AnnotationKeep = "pelago.dev/keep"

	// AnnotationAdmissionCluster, AnnotationAdmissionNodes and AnnotationAdmissionDaemons on
	// the Role AdmissionName are what the admission policies go by: this cluster's name; the
	// virtual nodes; and NAMESPACE/NAME of the pods of DaemonSets that may be bound to them.
	// Lists are separated by spaces.
	AnnotationAdmissionCluster = "pelago.dev/cluster"
	// AnnotationAdmissionNodes: see AnnotationAdmissionCluster.
	AnnotationAdmissionNodes = "pelago.dev/virtual-nodes"
	// AnnotationAdmissionDaemons: see AnnotationAdmissionCluster.
	AnnotationAdmissionDaemons = "pelago.dev/daemon-pods"

	// AnnotationForce on a Peering or Tenant that is being deleted: "true" gives up on
	// the other side, which is then told by a tombstone.
	AnnotationForce = "pelago.dev/force"
	// AnnotationInvitation on a Tenant is the UID of the Invitation it came of: no
	// other invitation can claim the Tenant.
	AnnotationInvitation = "pelago.dev/invitation"

	// AnnotationRotate on a Peering, with any value that it did not have before, has the keys
	// of its tunnels replaced.
	AnnotationRotate = "pelago.dev/rotate"
	// AnnotationGiven on the Service in front of a tunnel names the annotations that it has of
	// the settings, separated by spaces.
	AnnotationGiven = "pelago.dev/given"
	// AnnotationExternal on the EndpointSlice of an IPMapping is the address of this cluster's
	// external range that stands for its endpoint elsewhere.
	AnnotationExternal = "pelago.dev/external-address"
	// AnnotationKeys on the Secret NetworkKeysName says of its keys when they were made.
	AnnotationKeys = "pelago.dev/keys"

	// AnnotationBuild on ManagerLease says in JSON which build its holder is: the holder as the Lease has it, its
	// version and its features. These are what peers are told.
	AnnotationBuild = "pelago.dev/build"

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
	// FinalizerNode keeps a ResourceRequest until its virtual node has been drained and is
	// gone.
	FinalizerNode = "pelago.dev/node"
	// FinalizerOffloading keeps a NamespaceOffloading until the pods are home and the
	// providers have been told.
	FinalizerOffloading = "pelago.dev/offloading"
	// FinalizerShadowPod keeps a ShadowPod until its pod is gone and, at the provider, a
	// pod that may end by itself until its end is recorded.
	FinalizerShadowPod = "pelago.dev/shadow-pod"
)
