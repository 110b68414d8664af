package v1alpha1

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Invitation lets one cluster become a consumer of this one, once. It holds the
// hash of a token, never the token.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=pelago
// +kubebuilder:printcolumn:name=Consumer,type=string,JSONPath=`.spec.consumer`
// +kubebuilder:printcolumn:name=Expires,type=string,JSONPath=`.spec.expires`
// +kubebuilder:printcolumn:name=Used By,type=string,JSONPath=`.status.tenant`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(self.spec.inBand) || self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,43}[a-z0-9])?$')",message="metadata.name: of an invitation in band a DNS label of at most 45 characters"
type Invitation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   InvitationSpec   `json:"spec"`
	Status InvitationStatus `json:"status,omitempty"`
}

// InvitationSpec says who is invited, how they prove it, and until when.
//
// +kubebuilder:validation:XValidation:rule="has(self.consumer) == has(oldSelf.consumer) && has(self.tenant) == has(oldSelf.tenant) && has(self.inBand) == has(oldSelf.inBand)",message="spec cannot be changed but for inBand.endpoints; delete the invitation and make another"
type InvitationSpec struct {
	// TokenSHA256 is the hash of the token, as TokenHash makes it.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec cannot be changed but for inBand.endpoints; delete the invitation and make another"
	TokenSHA256 string `json:"tokenSHA256"`

	// Expires is when the invitation stops to be accepted.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec cannot be changed but for inBand.endpoints; delete the invitation and make another"
	Expires metav1.Time `json:"expires"`

	// Consumer, if set, is the name the tenant gets, whatever name the consumer has.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec cannot be changed but for inBand.endpoints; delete the invitation and make another"
	Consumer string `json:"consumer,omitempty"`

	// Tenant is what the new Tenant gets as its terms; defaults if absent.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec cannot be changed but for inBand.endpoints; delete the invitation and make another"
	Tenant *TenantTerms `json:"tenant,omitempty"`

	// InBand has the consumer come through a tunnel, which is there as long as the invitation:
	// nothing else of this cluster need be in its reach.
	//
	// +optional
	InBand *InvitationInBand `json:"inBand,omitempty"`
}

// InvitationInBand is the tunnel of an invitation. This side of it is the NetworkConfig
// invitation-NAME in the namespace pelago-network.
type InvitationInBand struct {
	// PublicKey is the public half of what InBandKey makes of the token: a key of WireGuard
	// in base64.
	//
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec cannot be changed but for inBand.endpoints; delete the invitation and make another"
	PublicKey string `json:"publicKey"`

	// Endpoints are HOST:PORT, over UDP, where the consumer's gateway may be. This cluster calls them,
	// which is what a provider needs that nobody can call. They may be changed at any time: the
	// consumer has them once it has the Peering, in spec.endpoints of its NetworkConfig
	// introduction-NAME in the namespace pelago-network.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=261
	// +kubebuilder:validation:items:Pattern=`^[^\s/?#@]+:[0-9]{1,5}$`
	Endpoints []string `json:"endpoints,omitempty"`
}

// InvitationStatus says who has used an invitation.
type InvitationStatus struct {
	// BoundTo is the cluster and key of the first use. Nobody else can use it then.
	// +optional
	BoundTo *Binding `json:"boundTo,omitempty"`

	// Tenant is the name of the Tenant that came of it, or is about to.
	// +optional
	Tenant string `json:"tenant,omitempty"`

	// TenantUID is the UID of that Tenant: once it is gone the invitation is void.
	// +optional
	TenantUID string `json:"tenantUID,omitempty"`
}

// Binding is a cluster and its key.
type Binding struct {
	// ClusterID of the consumer.
	ClusterID string `json:"clusterID"`
	// PublicKeySHA256 is the SHA-256 of the public key in PKIX DER, in hexadecimal.
	PublicKeySHA256 string `json:"publicKeySHA256"`
	// Time of the first use.
	Time metav1.Time `json:"time"`
}

// TokenHash returns the hash of an invitation's token, for InvitationSpec.TokenSHA256:
// the SHA-256 of its characters, in hexadecimal. A token is 32 random bytes in
// unpadded URL-safe base64; so much randomness needs no slow hash.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// inBandLabel keeps keys made by InBandKey apart from all else that may be made of a token.
const inBandLabel = "pelago.dev/v1alpha1 in-band tunnel"

// InBandKey makes the consumer's key of the tunnel of an invitation in band: the private half,
// for X25519, and the public one as WireGuard writes it. Whoever has the token has the key, and
// could introduce himself as well. It fails for what is no token.
func InBandKey(token string) (private []byte, public string, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != 32 {
		return nil, "", errors.New("making the key of a tunnel: not an invitation's token")
	}
	private, err = hkdf.Key(sha256.New, raw, nil, inBandLabel, 32)
	if err != nil {
		return nil, "", fmt.Errorf("making the key of a tunnel: %w", err)
	}
	// As WireGuard keeps private keys.
	private[0] &= 248
	private[31] = private[31]&127 | 64
	key, err := ecdh.X25519().NewPrivateKey(private)
	if err != nil {
		return nil, "", fmt.Errorf("making the key of a tunnel: %w", err)
	}
	return private, base64.StdEncoding.EncodeToString(key.PublicKey().Bytes()), nil
}

// CertificateSHA256 returns the SHA-256 of the first certificate's DER in a PEM text,
// in hexadecimal: how an invitation pins the authority of the authentication endpoint.
func CertificateSHA256(text []byte) (string, error) {
	for {
		block, rest := pem.Decode(text)
		switch {
		case block == nil:
			return "", errors.New("reading a certificate: there is none in the PEM text")
		case block.Type == "CERTIFICATE":
			sum := sha256.Sum256(block.Bytes)
			return hex.EncodeToString(sum[:]), nil
		}
		text = rest
	}
}

// InvitationList is a list of Invitation.
//
// +kubebuilder:object:root=true
type InvitationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Invitation `json:"items"`
}
