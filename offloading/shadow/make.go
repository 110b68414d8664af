package shadow

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var uid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// Make makes the real pod of a ShadowPod, whoever wrote it: nothing of it is trusted,
// and its own metadata counts for nothing but the name. The error is a *Refusal.
//
// The pod has the ephemeral containers that are wanted; the API server takes them only
// after its creation, so clear them in what is created, and Compare asks for them. Those
// that are refused are left out, with the reasons: nobody can take one out of the home pod
// again, so it must not keep the pod from all that comes later.
func Make(s *v1alpha1.ShadowPod, g Ground) (made *corev1.Pod, leftOut []string, err error) {
	spec, err := decodePod(s.Spec.Pod)
	if err != nil {
		return nil, nil, err
	}
	ephemeral := spec.EphemeralContainers
	spec.EphemeralContainers = nil
	level := g.PodSecurity
	if level == "" {
		level = v1alpha1.PodSecurityBaseline
	}
	w := &walk{uid: s.Name, level: level, labels: s.Spec.Labels}
	w.identity(s)
	w.metadata(s.Spec)
	w.pod(spec)
	if err := w.verdict(); err != nil {
		return nil, nil, err
	}
	spec.EphemeralContainers, leftOut = w.ephemeral(spec, ephemeral)
	spec.ServiceAccountName = "default"
	spec.AutomountServiceAccountToken = ptr.To(false)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   g.Namespace,
			Name:        s.Spec.Home.Name,
			Labels:      with(w.keepLabels(s.Spec.Labels), ownLabels(s, g)),
			Annotations: with(w.keepAnnotations(s.Spec.Annotations), ownAnnotations(s)),
		},
		Spec: *spec,
	}
	if spec.RestartPolicy != "" && spec.RestartPolicy != corev1.RestartPolicyAlways {
		pod.Finalizers = []string{v1alpha1.FinalizerShadowPod}
	}
	pod.Annotations[annotationParts] = partsOf(pod).String()
	return pod, leftOut, nil
}

// ephemeral applies the table to each ephemeral container of a pod by itself, and says why
// some are left out. Of those that have ended at home nothing is said.
func (w *walk) ephemeral(spec *corev1.PodSpec, all []corev1.EphemeralContainer) (kept []corev1.EphemeralContainer, leftOut []string) {
	seen := map[string]bool{"": true}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		seen[c.Name] = true
	}
	for i := range all {
		one, c, path := *w, &all[i], fmt.Sprintf("spec.ephemeralContainers[%d]", i)
		one.reasons, one.more = nil, 0
		if was := w.was(c.Name); was != nil && was.State.Terminated != nil {
			continue
		}
		if len(kept) == maxContainers {
			one.refuse(path, fmt.Sprintf("more than %d of them", maxContainers))
		}
		one.value(path, reflect.ValueOf(c))
		if seen[c.Name] {
			one.refuse(path+".name", "empty, or there twice; give each a name of its own")
		}
		if err := one.verdict(); err != nil {
			leftOut = append(leftOut, leaveOut(c.Name, err))
			continue
		}
		seen[c.Name] = true
		kept = append(kept, *c)
	}
	return kept, leftOut
}

// leaveOut says that an ephemeral container is left out.
func leaveOut(name string, why error) string {
	return fmt.Sprintf("the ephemeral container %.63q is left out: %s", name, why)
}

// was is the status of an ephemeral container at home, nil if it has none or home is not known.
func (w *walk) was(name string) *corev1.ContainerStatus {
	if w.home == nil {
		return nil
	}
	return named(w.home.Status.EphemeralContainerStatuses, name)
}

func ownLabels(s *v1alpha1.ShadowPod, g Ground) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: ManagedBy,
		v1alpha1.LabelTenant:    g.Tenant,
		v1alpha1.LabelRequest:   s.Spec.Request,
		v1alpha1.LabelHomeUID:   s.Name,
	}
}

func ownAnnotations(s *v1alpha1.ShadowPod) map[string]string {
	return map[string]string{
		v1alpha1.AnnotationApplied:       Hash(s.Spec),
		v1alpha1.AnnotationHomeNamespace: s.Spec.Home.Namespace,
		v1alpha1.AnnotationHomeName:      s.Spec.Home.Name,
		v1alpha1.AnnotationHomeUID:       s.Name,
	}
}

func with(theirs, ours map[string]string) map[string]string {
	maps.Copy(ours, theirs)
	return ours
}

// identity checks again what the schema of ShadowPods checks.
func (w *walk) identity(s *v1alpha1.ShadowPod) {
	if !uid.MatchString(s.Name) {
		w.refuse("metadata.name", "must be the UID of the home pod")
	}
	if len(validation.IsDNS1123Label(s.Spec.Home.Namespace)) > 0 {
		w.refuse("spec.home.namespace", "must be the name of a namespace")
	}
	if len(validation.IsDNS1123Subdomain(s.Spec.Home.Name)) > 0 {
		w.refuse("spec.home.name", "must be the name of a pod")
	}
	if len(validation.IsDNS1123Label(s.Spec.Request)) > 0 {
		w.refuse("spec.request", "must be the name of a ResourceRequest")
	}
}

// metadata refuses labels and annotations that the API server would not store.
func (w *walk) metadata(spec v1alpha1.ShadowPodSpec) {
	w.most("spec.labels", len(spec.Labels))
	w.most("spec.annotations", len(spec.Annotations))
	w.room("spec.annotations", spec.Annotations)
	for _, key := range slices.Sorted(maps.Keys(spec.Labels)) {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(spec.Labels[key])) > 0 {
			w.refuse(fmt.Sprintf("spec.labels[%.80q]", key), "not a label; correct it or leave it out")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(spec.Annotations)) {
		if len(validation.IsQualifiedName(strings.ToLower(key))) > 0 || len(spec.Annotations[key]) > maxAnnotation {
			w.refuse(fmt.Sprintf("spec.annotations[%.80q]", key), "not an annotation, or too long; correct it or leave it out")
		}
	}
}
