package kubelet

import (
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pods answers with the home pods that are bound to the node, or those of them that run.
func (s *server) pods(w http.ResponseWriter, r *http.Request, running bool) {
	found, err := s.home.list(r.Context(), s.node)
	if err != nil {
		s.fail(w, err)
		return
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	for _, pod := range found {
		switch {
		case !running:
			list.Items = append(list.Items, pod)
		case pod.Status.Phase == corev1.PodRunning:
			list.Items = append(list.Items, runs(&pod))
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		s.fail(w, err)
		return
	}
	answer(w, "application/json", text)
}

// runs is what kubelets say of a pod that runs: its names and its containers' images.
func runs(pod *corev1.Pod) corev1.Pod {
	slim := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
	for _, c := range pod.Spec.Containers {
		slim.Spec.Containers = append(slim.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	return slim
}
