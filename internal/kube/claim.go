package kube

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Claim is the field by which a pod first claims a volume, empty if it claims none. Claims do not
// travel; and the scheduler has a claim provisioned for the node that it has chosen before it binds the
// pod, so that such a pod waits there before anybody is asked whether it may run.
func Claim(pod *corev1.Pod) string {
	for i, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			return fmt.Sprintf("spec.volumes[%d].persistentVolumeClaim", i)
		case v.Ephemeral != nil:
			return fmt.Sprintf("spec.volumes[%d].ephemeral", i)
		}
	}
	return ""
}
