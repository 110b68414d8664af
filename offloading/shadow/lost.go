package shadow

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Lost names the fields that an API server, which is older than home's, has dropped without a
// word from a pod that was asked for: those that newer releases of Kubernetes have, and
// without which the pod does something else. A container that is not there by its name is
// the provider's doing.
func Lost(stored, asked *corev1.Pod) []string {
	var paths []string
	note := func(gone bool, path string) {
		if gone {
			paths = append(paths, path)
		}
	}
	note(asked.Spec.HostnameOverride != nil && stored.Spec.HostnameOverride == nil, "spec.hostnameOverride")
	each := func(path string, has, want []corev1.Container) {
		for _, w := range want {
			for _, h := range has {
				if h.Name != w.Name {
					continue
				}
				at := fmt.Sprintf("spec.%s[%s]", path, w.Name)
				note(w.RestartPolicy != nil && h.RestartPolicy == nil, at+".restartPolicy")
				note(len(w.RestartPolicyRules) > 0 && len(h.RestartPolicyRules) == 0, at+".restartPolicyRules")
			}
		}
	}
	each("initContainers", stored.Spec.InitContainers, asked.Spec.InitContainers)
	each("containers", stored.Spec.Containers, asked.Spec.Containers)
	return paths
}
