package agent

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// expel takes out what says that it is a tenant's and is in no namespace of that one: who may make
// pods anywhere may label them, and only Pelago labels namespaces so. On a virtual node these are
// this cluster's own.
func (f *facts) expel() {
	of := map[string]string{}
	for i := range f.namespaces {
		of[f.namespaces[i].Name] = f.namespaces[i].Labels[v1alpha1.LabelTenant]
	}
	strange := func(o kube.Object) bool {
		tenant := o.GetLabels()[v1alpha1.LabelTenant]
		return tenant != "" && of[o.GetNamespace()] != tenant
	}
	f.hosted = slices.DeleteFunc(f.hosted, func(p corev1.Pod) bool { return strange(&p) })
	f.given = slices.DeleteFunc(f.given, func(s discoveryv1.EndpointSlice) bool { return strange(&s) })
	for _, pods := range f.away {
		for i := range pods {
			if strange(&pods[i]) { // the labels are the cache's
				pods[i].Labels = maps.Clone(pods[i].Labels)
				delete(pods[i].Labels, v1alpha1.LabelTenant)
			}
		}
	}
}
