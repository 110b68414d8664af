package shadow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

// Forge makes the ShadowPod of a home pod; its namespace is left empty. The error is a
// *Refusal: no provider runs a pod like this. Values of the downward API are those of
// home; an environment shows labels and annotations as they are at this moment. An
// ephemeral container that has ended is left out: it never begins again, also not in a pod
// that the provider makes anew. Where it is, it stays, as Compare takes none away. One that
// no provider takes is left out too, with the reason: a pod that runs is not spoiled by it,
// and nobody can take it out of the home pod again.
func Forge(pod *corev1.Pod, at Place) (s *v1alpha1.ShadowPod, leftOut []string, err error) {
	return forge(pod, at, sparse)
}

// Asked says whether a ShadowPod of this hash asks for what want does, which was forged of
// the pod. Earlier builds wrote the API's defaults too: that is no reason to write it anew.
func Asked(hash string, want *v1alpha1.ShadowPod, pod *corev1.Pod, at Place) bool {
	if Hash(want.Spec) == hash {
		return true
	}
	whole, _, err := forge(pod, at, func(*corev1.PodSpec) {})
	return err == nil && Hash(whole.Spec) == hash
}

func forge(pod *corev1.Pod, at Place, lighten func(*corev1.PodSpec)) (s *v1alpha1.ShadowPod, leftOut []string, err error) {
	spec := pod.Spec.DeepCopy()
	unresolve(pod, spec)
	ephemeral := spec.EphemeralContainers
	spec.EphemeralContainers = nil
	w := &walk{home: pod, uid: string(pod.UID), at: at, level: v1alpha1.PodSecurityPrivileged, labels: pod.Labels}
	w.noTokensOf(pod)
	w.pod(spec)
	spec.EphemeralContainers, leftOut = w.ephemeral(spec, ephemeral)
	shadow := &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Name: string(pod.UID), Finalizers: []string{v1alpha1.FinalizerShadowPod}},
		Spec: v1alpha1.ShadowPodSpec{
			Home:        v1alpha1.HomePod{Namespace: pod.Namespace, Name: pod.Name},
			Request:     at.Request,
			Labels:      w.keepLabels(pod.Labels),
			Annotations: w.keepAnnotations(pod.Annotations),
		},
	}
	for key, value := range w.shown {
		if len(value) > maxAnnotation {
			w.refuse("metadata.annotations", fmt.Sprintf("what the downward API shows has %d bytes, at most %d; shorten them", len(value), maxAnnotation))
		}
		if shadow.Spec.Annotations == nil {
			shadow.Spec.Annotations = map[string]string{}
		}
		shadow.Spec.Annotations[key] = value
	}
	for key, value := range shadow.Spec.Annotations { // as JSON brings them back
		shadow.Spec.Annotations[key] = strings.ToValidUTF8(value, "\uFFFD")
	}
	w.most("metadata.labels", len(shadow.Spec.Labels))
	w.most("metadata.annotations", len(shadow.Spec.Annotations))
	w.room("metadata.annotations", shadow.Spec.Annotations)
	lighten(spec)
	text, err := json.Marshal(spec)
	for n := len(spec.EphemeralContainers); err == nil && len(text) > maxPodText && n > 0; n-- {
		last := spec.EphemeralContainers[n-1].Name
		at := slices.IndexFunc(ephemeral, func(e corev1.EphemeralContainer) bool { return e.Name == last })
		leftOut = append(leftOut, leaveOut(last, fmt.Errorf("spec.ephemeralContainers[%d]: with it the pod has %d bytes of JSON, at most %d", at, len(text), maxPodText)))
		spec.EphemeralContainers = spec.EphemeralContainers[:n-1]
		text, err = json.Marshal(spec)
	}
	if err != nil {
		w.refuse("spec", "cannot be written as JSON; check its quantities")
	}
	if len(text) > maxPodText {
		w.refuse("spec", fmt.Sprintf("%d bytes of JSON, at most %d; move data into ConfigMaps", len(text), maxPodText))
	}
	w.counts(spec)
	if err := w.verdict(); err != nil {
		return nil, nil, err
	}
	shadow.Spec.Pod = string(text)
	if at.Tokens && len(Tokens(&pod.Spec)) > 0 {
		shadow.Annotations = map[string]string{v1alpha1.AnnotationTokens: "true"}
	}
	return shadow, leftOut, nil
}

// Hash is of all that can change in a ShadowPod's spec after its creation: labels,
// annotations and the pod.
func Hash(spec v1alpha1.ShadowPodSpec) string {
	text, _ := json.Marshal([]any{spec.Labels, spec.Annotations, spec.Pod}) // texts only: cannot fail
	return digest(text)
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// most refuses more labels or annotations than a ShadowPod holds.
func (w *walk) most(path string, n int) {
	if n > maxMetadata {
		w.refuse(path, fmt.Sprintf("%d of them, at most %d; leave some out", n, maxMetadata))
	}
}

// room refuses annotations that are larger together than a ShadowPod holds.
func (w *walk) room(path string, annotations map[string]string) {
	n := 0
	for key, value := range annotations {
		n += len(key) + len(value)
	}
	if n > maxAnnotations {
		w.refuse(path, fmt.Sprintf("%d bytes of those that travel, at most %d; move data into ConfigMaps", n, maxAnnotations))
	}
}

// counts refuses early what the provider would not look at.
func (w *walk) counts(spec *corev1.PodSpec) {
	for path, n := range map[string]int{"spec.containers": len(spec.Containers), "spec.initContainers": len(spec.InitContainers)} {
		if n > maxContainers {
			w.refuse(path, fmt.Sprintf("%d of them, at most %d; use more pods", n, maxContainers))
		}
	}
	if n := len(spec.Volumes); n > maxVolumes {
		w.refuse("spec.volumes", fmt.Sprintf("%d of them, at most %d; use a projected volume", n, maxVolumes))
	}
}

// keepLabels leaves out Pelago's own, and where home's API server says the node is.
func (w *walk) keepLabels(labels map[string]string) map[string]string {
	var left map[string]string
	for key, value := range labels {
		if !content.PodLabelTravels(key) {
			continue
		}
		if left == nil {
			left = map[string]string{}
		}
		left[key] = value
	}
	return left
}

// keepAnnotations leaves those that give no orders to the provider's controllers, and
// in a ShadowPod those by which the downward API shows home's values.
func (w *walk) keepAnnotations(annotations map[string]string) map[string]string {
	var left map[string]string
	for key, value := range annotations {
		prefix, _, prefixed := strings.Cut(key, "/")
		switch {
		case w.home == nil && shownKey.MatchString(key):
		case len(value) > maxAnnotation:
			continue
		case !prefixed, prefix == "prometheus.io", prefix == "kubectl.kubernetes.io":
		default:
			continue
		}
		if left == nil {
			left = map[string]string{}
		}
		left[key] = value
	}
	return left
}
