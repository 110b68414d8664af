// Package v1alpha1 holds the kinds of Pelago, group pelago.dev: what people write,
// what two clusters tell each other, and the names of conditions, reasons, labels
// and objects that go with them. It imports apimachinery only, and holds no
// behaviour beside the meaning of its own fields.
//
// +kubebuilder:object:generate=true
// +groupName=pelago.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "pelago.dev", Version: "v1alpha1"}

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Peering{}, &PeeringList{},
		&Invitation{}, &InvitationList{},
		&Identity{}, &IdentityList{},
		&Tenant{}, &TenantList{},
		&ResourceRequest{}, &ResourceRequestList{},
		&ResourceOffer{}, &ResourceOfferList{},
		&NamespaceOffloading{}, &NamespaceOffloadingList{},
		&NamespaceMap{}, &NamespaceMapList{},
		&ShadowPod{}, &ShadowPodList{},
		&ShadowObject{}, &ShadowObjectList{},
		&NetworkConfig{}, &NetworkConfigList{},
		&IPMapping{}, &IPMappingList{},
		&NetworkRules{}, &NetworkRulesList{},
		&NetworkPath{}, &NetworkPathList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
