package admission

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// Owner names who makes another pod when this one goes, as Refusal.Owner does: its
// controller; or, of a pod that runs here for the tenant whose namespace it is in, the
// provider's side, by the pod's home UID. The tenant chooses that UID, so it counts only
// with the tenant's name. It is "" if nobody does.
func Owner(pod *corev1.Pod, tenant string) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return string(owner.UID)
	}
	l := pod.Labels
	if tenant == "" || l[v1alpha1.LabelTenant] != tenant || l[v1alpha1.LabelManagedBy] != shadow.ManagedBy || l[v1alpha1.LabelHomeUID] == "" {
		return ""
	}
	return tenant + "/" + l[v1alpha1.LabelHomeUID]
}
