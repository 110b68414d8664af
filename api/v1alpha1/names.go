package v1alpha1

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Names of objects that both sides, the installer and the command line agree on.
const (
	// SystemNamespace is where Pelago runs.
	SystemNamespace = "pelago-system"
	// TenantNamespacePrefix begins the name of tenant namespaces.
	TenantNamespacePrefix = "pelago-tenant-"
	// PeeringNamespacePrefix begins the name of the namespaces that hold a consumer's
	// requests and the offers for them.
	PeeringNamespacePrefix = "pelago-peering-"
	// IdentityName is the name of the Identity, of the heartbeat Lease and of the
	// service account in a tenant namespace.
	IdentityName = "consumer"
	// DefaultRequestName is the name of the request that peering makes by itself.
	DefaultRequestName = "default"
	// ConfigName is the name of the ConfigMap with this cluster's settings.
	ConfigName = "pelago-config"
	// ClusterIDName is the name of the ConfigMap whose key ClusterIDKey holds the
	// cluster's id.
	ClusterIDName = "pelago-cluster-id"
	// ClusterIDKey is the key of the id in that ConfigMap.
	ClusterIDKey = "id"
	// AuthService is the name of the authentication endpoint: its Service, Deployment and
	// service account, and the server name in its certificate.
	AuthService = "pelago-auth"
	// AuthTLSName is the name of the Secret with the certificate authority of the
	// authentication endpoint: ca.crt and ca.key.
	AuthTLSName = "pelago-auth-tls"
	// AuthPath is the path of the authentication endpoint that accepts invitations.
	AuthPath = "/v1alpha1/identity"

	// OffloadingName is the name of every NamespaceOffloading.
	OffloadingName = "offloading"
	// NamespaceMapName is the name of every NamespaceMap.
	NamespaceMapName = "namespaces"
	// NetworkConsumer and NetworkProvider are the names of the two NetworkConfigs of a
	// peering, after the side that their spec is of.
	NetworkConsumer = "consumer"
	// NetworkProvider: see NetworkConsumer.
	NetworkProvider = "provider"
	// InvitationPrefix begins the name of the NetworkConfig, and the key, of the tunnel of an
	// Invitation at the provider, and IntroductionPrefix that of a Peering at the consumer before
	// there is a tunnel of its own.
	InvitationPrefix = "invitation-"
	// IntroductionPrefix: see InvitationPrefix.
	IntroductionPrefix = "introduction-"
	// InBandAPIPort and InBandAuthPort are the TCP ports, at the provider's end of a tunnel, of its
	// API server and of its authentication endpoint.
	InBandAPIPort = 443
	// InBandAuthPort: see InBandAPIPort.
	InBandAuthPort = 8443
	// InBandServer is the API server of a provider in band: the name that certificates of API servers
	// hold. Where that is, only the tunnel says.
	InBandServer = "https://kubernetes.default.svc"
	// NetworkNamespace is where the agents run, with their Leases and the keys of tunnels.
	NetworkNamespace = "pelago-network"
	// AgentName is the name of the agents' DaemonSet and service account in NetworkNamespace.
	AgentName = "pelago-agent"
	// NetworkKeysName is the name of the Secret in NetworkNamespace with the private keys
	// of the tunnels: by NetworkKey, and for the next one NetworkNextKey.
	NetworkKeysName = "pelago-network-keys"
	// RuntimeClass is the name of the RuntimeClass whose pods run at other clusters only.
	RuntimeClass = "pelago"
	// AdmissionName is the name of the Role that the admission policies read. It gives no
	// rights: what they go by is in its annotations, beginning with
	// AnnotationAdmissionCluster.
	AdmissionName = "pelago-admission"
	// ManagerLease is the Lease that the leading one of the manager's replicas holds.
	ManagerLease = "pelago-manager"
	// ManagerService is the name of the Service by which the API server calls the manager,
	// and of its webhook configuration.
	ManagerService = "pelago-manager"

	// ConsumerPodsRole is the ClusterRole of a tenant in the namespaces mapped for it.
	ConsumerPodsRole = "pelago-consumer-pods"
	// ConsumerRole is the ClusterRole of a tenant in its namespace.
	ConsumerRole = "pelago-consumer"
	// ConsumerTokenRole is the ClusterRole that lets a tenant renew its own token.
	ConsumerTokenRole = "pelago-consumer-token"
	// FarewellRole is the ClusterRole of a tenant whose peering has been ended.
	FarewellRole = "pelago-farewell"
	// PriorityLevel is the PriorityLevelConfiguration that all tenants share fairly.
	PriorityLevel = "pelago-tenants"

	// TokenSecretPrefix begins the names of the Secrets with the tokens of a pod, and of no
	// others that are made for tenants.
	TokenSecretPrefix = "pelago-token-"
	// TokenSecretType is the type of these Secrets.
	TokenSecretType = "pelago.dev/tokens"

	// MaxClusterName is the most characters a cluster's name may have.
	MaxClusterName = 40
)

// OwnNamespace says whether a namespace is by its prefix one that a cluster or Pelago uses itself. A cluster
// has others too, as default.
func OwnNamespace(name string) bool {
	return strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "pelago-") || strings.HasPrefix(name, "openshift-")
}

// ReservedNamespace says whether a namespace is by its name one that clusters or Pelago use themselves, which is
// never offloaded.
func ReservedNamespace(name string) bool {
	return name == "default" || name == "openshift" || name == "pelago" || OwnNamespace(name)
}

// CredentialSecret is the name of the Secret in SystemNamespace with the credential
// of a consumer's peering.
func CredentialSecret(peering string) string { return "peering-" + peering }

// TenantNamespace is the namespace of a tenant.
func TenantNamespace(tenant string) string { return TenantNamespacePrefix + tenant }

// PeeringNamespace is the namespace of a consumer's requests to one provider.
func PeeringNamespace(peering string) string { return PeeringNamespacePrefix + peering }

// NetworkKey is the key, in the Secret NetworkKeysName, of the private key in base64 of the
// tunnel whose NetworkConfigs are in a namespace: its name without the common beginning, as
// peering-milan or tenant-rome. It also names the peering in plans, metrics and devices.
func NetworkKey(namespace string) string { return strings.TrimPrefix(namespace, "pelago-") }

// NetworkNextKey is like NetworkKey, of the private key that will be used next.
func NetworkNextKey(namespace string) string { return NetworkKey(namespace) + ".next" }

// NetworkPathKey is like NetworkKey, of the tunnel of a NetworkPath in a tenant namespace.
func NetworkPathKey(namespace, path string) string { return NetworkKey(namespace) + "." + path }

// AgentLease is the name, in NetworkNamespace, of the Lease that the agent of a node renews.
func AgentLease(node string) string { return node }

// VirtualNodeName is the name of the virtual node of a request.
func VirtualNodeName(peering, request string) string {
	if request == DefaultRequestName {
		return peering
	}
	return peering + "-" + request
}

// DefaultRemoteNamespace is what a namespace is called at a provider by the strategy
// DefaultName; tenant is the consumer's name there.
func DefaultRemoteNamespace(namespace, tenant string) string { return namespace + "-" + tenant }

// TokenSecret is the name, at the provider, of the Secret with the tokens of the home pod of
// a UID.
func TokenSecret(uid string) string { return TokenSecretPrefix + uid }

// reserved are names that mean something else where a cluster's name is used.
var reserved = []string{"all", "any", "cluster", "default", "home", "local", "none", "remote", "self", "system"}

// CheckClusterName says what is wrong with a cluster's name, and what to do; nil if
// it is good. Names become parts of namespaces, so they are DNS labels of at most
// MaxClusterName characters.
func CheckClusterName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the cluster's name is empty; give it one of lower-case letters, digits and dashes")
	case len(name) > MaxClusterName:
		return fmt.Errorf("the cluster's name %.50q has %d characters, at most %d; choose a shorter one", name, len(name), MaxClusterName)
	case len(validation.IsDNS1123Label(name)) > 0:
		return fmt.Errorf("the cluster's name %q is not a DNS label; use lower-case letters, digits and dashes, a letter or digit first and last", name)
	case strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "pelago") || strings.HasPrefix(name, "openshift"):
		return fmt.Errorf("the cluster's name %q begins with a reserved word (kube-, pelago, openshift); choose another", name)
	}
	for _, r := range reserved {
		if name == r {
			return fmt.Errorf("the cluster's name %q is reserved; choose another", name)
		}
	}
	return nil
}
