package cli

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Report is what `pelago status -o json` prints. Fields are only ever added.
type Report struct {
	// Problems come first. There are none when all is well.
	Problems []Problem `json:"problems"`
	// Pending is what waits for somebody or something, and is not broken.
	Pending []Problem `json:"pending"`
	// Cluster is the one the kubeconfig names.
	Cluster ClusterReport `json:"cluster"`
	// Components are Pelago's programs in it.
	Components []ComponentReport `json:"components"`
	// Peerings with remote clusters.
	Peerings []PeeringReport `json:"peerings"`
	// Tenants are the clusters that use this one.
	Tenants []TenantReport `json:"tenants"`
	// VirtualNodes are what this cluster has of others.
	VirtualNodes []VirtualNodeReport `json:"virtualNodes"`
	// OffloadedNamespaces are those whose pods may run at other clusters.
	OffloadedNamespaces []OffloadedReport `json:"offloadedNamespaces"`
	// OffloadedPods counts the pods of these namespaces that are at other clusters.
	OffloadedPods int `json:"offloadedPods"`
	// Objects are those of these namespaces that other clusters refuse, have otherwise than
	// this one, or give addresses; MoreObjects counts others of which no more is known.
	Objects     []ObjectReport `json:"objects"`
	MoreObjects int            `json:"moreObjects,omitempty"`
	// Networks are the tunnels between this cluster's network and others.
	Networks []NetworkReport `json:"networks"`
	// Invitations that nobody has used yet.
	Invitations []InvitationReport `json:"invitations"`
	// Tombstones are remote clusters that were left and have not been told.
	Tombstones []string `json:"tombstones"`
}

// Problem is something that is not as it should be.
type Problem struct {
	// Object is what has it, like "peering milan".
	Object string `json:"object"`
	// Reason is one of the reasons of conditions.
	Reason string `json:"reason,omitempty"`
	// Message says what is wrong.
	Message string `json:"message"`
	// Remedy says what to do.
	Remedy string `json:"remedy,omitempty"`
}

// ClusterReport is a cluster and its API server.
type ClusterReport struct {
	Name              string `json:"name"`
	ID                string `json:"id"`
	KubernetesVersion string `json:"kubernetesVersion"`
	// ServerURL is what consumers reach; empty if the cluster cannot be used.
	ServerURL string `json:"serverURL,omitempty"`
}

// ComponentReport is a Deployment or DaemonSet of Pelago.
type ComponentReport struct {
	Name  string `json:"name"`
	Ready bool   `json:"ready"`
	Image string `json:"image"`
}

// PeeringReport is a Peering.
type PeeringReport struct {
	Name      string                `json:"name"`
	ClusterID string                `json:"clusterID"`
	Roles     []v1alpha1.Role       `json:"roles"`
	Ready     bool                  `json:"ready"`
	Reason    string                `json:"reason,omitempty"`
	Remote    *v1alpha1.ClusterInfo `json:"remote,omitempty"`
	Offers    []OfferReport         `json:"offers,omitempty"`
	Requests  []RequestReport       `json:"requests,omitempty"`
	// InContact says that the remote cluster is heard of now.
	InContact bool `json:"inContact"`
	// Contact is when it was last heard of, as exactly as is known: to the minute at least,
	// and never later than it was but for some seconds in which that was not noticed.
	Contact *metav1.Time `json:"lastContact,omitempty"`
	Expires *metav1.Time `json:"credentialNotAfter,omitempty"`
	// InBand says that the clusters speak with each other through the tunnel.
	InBand bool `json:"inBand,omitempty"`
}

// OfferReport is what a provider offers this cluster.
type OfferReport struct {
	Name      string                `json:"name"`
	Resources v1alpha1.ResourceList `json:"resources"`
	Accepted  bool                  `json:"accepted"`
}

// RequestReport is a request for resources, and what has become of it.
type RequestReport struct {
	Name string `json:"name"`
	// Asked is what it asks for; all that is free if empty.
	Asked    v1alpha1.ResourceList `json:"asked,omitempty"`
	Offered  v1alpha1.ResourceList `json:"offered,omitempty"`
	Accepted bool                  `json:"accepted"`
	// Reason says why it is not whole.
	Reason string `json:"reason,omitempty"`
}

// TenantReport is a Tenant.
type TenantReport struct {
	Name      string                `json:"name"`
	ClusterID string                `json:"clusterID"`
	State     v1alpha1.TenantState  `json:"state"`
	Ready     bool                  `json:"ready"`
	Reason    string                `json:"reason,omitempty"`
	Used      v1alpha1.ResourceList `json:"used,omitempty"`
	Limits    v1alpha1.ResourceList `json:"limits,omitempty"`
	Requests  []RequestReport       `json:"requests,omitempty"`
	// InContact says that the consumer is heard of now.
	InContact bool `json:"inContact"`
	// Contact is when it was last heard of: to the second where its Lease can be read.
	Contact *metav1.Time `json:"lastContact,omitempty"`
	// InBand says that the consumer comes through the tunnel.
	InBand bool `json:"inBand,omitempty"`
}

// InvitationReport is an Invitation that can still be used.
type InvitationReport struct {
	Name     string      `json:"name"`
	Consumer string      `json:"consumer,omitempty"`
	Expires  metav1.Time `json:"expires"`
}

// span writes a duration in its largest unit.
func span(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	switch {
	case d < time.Minute:
		return d.String()
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + "h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}
