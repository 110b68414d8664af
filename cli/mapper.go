package cli

import (
	"fmt"
	"net/http"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// kinds are those the command line works with, so that it need not ask for them before
// every command: that would be three round trips, which no context ends.
var kinds = map[schema.GroupVersion]struct{ clustered, namespaced []string }{
	v1alpha1.GroupVersion: {[]string{"Peering", "Invitation", "Tenant"},
		[]string{"Identity", "ResourceRequest", "ResourceOffer", "NamespaceOffloading", "NamespaceMap", "ShadowPod"}},
	corev1.SchemeGroupVersion: {[]string{"Namespace", "Node"},
		[]string{"ConfigMap", "Secret", "Service", "ServiceAccount", "Pod", "Event"}},
	appsv1.SchemeGroupVersion:                        {nil, []string{"Deployment", "StatefulSet", "ReplicaSet"}},
	coordinationv1.SchemeGroupVersion:                {nil, []string{"Lease"}},
	networkingv1.SchemeGroupVersion:                  {[]string{"ServiceCIDR"}, []string{"NetworkPolicy"}},
	rbacv1.SchemeGroupVersion:                        {[]string{"ClusterRole", "ClusterRoleBinding"}, []string{"Role", "RoleBinding"}},
	flowcontrolv1.SchemeGroupVersion:                 {[]string{"FlowSchema", "PriorityLevelConfiguration"}, nil},
	certificatesv1.SchemeGroupVersion:                {[]string{"CertificateSigningRequest"}, nil},
	admissionregistrationv1.SchemeGroupVersion:       {[]string{"MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}, nil},
	nodev1.SchemeGroupVersion:                        {[]string{"RuntimeClass"}, nil},
	schedulingv1.SchemeGroupVersion:                  {[]string{"PriorityClass"}, nil},
	{Group: "apiextensions.k8s.io", Version: "v1"}:   {[]string{"CustomResourceDefinition"}, nil},
	{Group: "apiregistration.k8s.io", Version: "v1"}: {[]string{"APIService"}, nil},
}

// newMapper knows these kinds, and asks the server for others.
func newMapper(config *rest.Config, c *http.Client) (meta.RESTMapper, error) {
	known := meta.NewDefaultRESTMapper(nil)
	for version, scoped := range kinds {
		for _, kind := range scoped.clustered {
			known.Add(version.WithKind(kind), meta.RESTScopeRoot)
		}
		for _, kind := range scoped.namespaced {
			known.Add(version.WithKind(kind), meta.RESTScopeNamespace)
		}
	}
	asked, err := apiutil.NewDynamicRESTMapper(config, c)
	if err != nil {
		return nil, fmt.Errorf("preparing to ask for kinds: %w", err)
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, asked}}, nil
}
