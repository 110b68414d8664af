package content

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// maxLabels is how many labels, and how many annotations, travel with an object.
	maxLabels = 64
	// maxAnnotations is the most bytes of keys and values of all annotations together.
	maxAnnotations = 16 << 10
)

// ownDomains are those whose labels mean something to a cluster itself.
var ownDomains = []string{v1alpha1.GroupVersion.Group, "kubernetes.io", "k8s.io"}

// labelTravels says whether a label of an object goes with it.
func labelTravels(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed || domain == "app.kubernetes.io" {
		return true
	}
	return !slices.ContainsFunc(ownDomains, func(own string) bool { return domain == own || strings.HasSuffix(domain, "."+own) })
}

// PodLabelTravels says whether a label of a pod goes with it: all do but Pelago's own, and where home's
// API server says the node is.
func PodLabelTravels(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	ours := prefixed && (domain == v1alpha1.GroupVersion.Group || strings.HasSuffix(domain, "."+v1alpha1.GroupVersion.Group))
	return !ours && key != corev1.LabelTopologyRegion && key != corev1.LabelTopologyZone
}

// annotationTravels says whether an annotation does: those with a prefix are orders to
// somebody's controllers.
func annotationTravels(key string) bool { return !strings.Contains(key, "/") }

// labelsOf are the labels that travel with a home object: the first of them, if there are
// too many.
func labelsOf(o client.Object) map[string]string {
	left := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(o.GetLabels())) {
		if labelTravels(key) && len(left) < maxLabels {
			left[key] = o.GetLabels()[key]
		}
	}
	return left
}

// annotationsOf are the annotations that travel with a home object: in order of their
// keys, as many as there is room for.
func annotationsOf(o client.Object) map[string]string {
	left, size := map[string]string{}, 0
	for _, key := range slices.Sorted(maps.Keys(o.GetAnnotations())) {
		value := o.GetAnnotations()[key]
		if !annotationTravels(key) || len(left) >= maxLabels || size+len(key)+len(value) > maxAnnotations {
			continue
		}
		left[key] = value
		size += len(key) + len(value)
	}
	return left
}

// cut says of labels or annotations that not all of them are among those that were taken.
func cut(all map[string]string, travels func(string) bool, taken map[string]string, what string) string {
	could := 0
	for key := range all {
		if travels(key) {
			could++
		}
	}
	if could == len(taken) {
		return ""
	}
	most := fmt.Sprintf("%d", maxLabels)
	if what == "annotations" {
		most += fmt.Sprintf(" with %d bytes", maxAnnotations)
	}
	return fmt.Sprintf("%d of its %d %s stay home, as at most %s travel, in order of their names; take some away", could-len(taken), could, what, most)
}

// checkMetadata says what is wrong with labels and annotations that somebody has sent.
// The API server judges their characters.
func (e *envelope[C]) checkMetadata(bare bool) string {
	size := 0
	for key, value := range e.Annotations {
		if !annotationTravels(key) {
			return "annotations: those with a prefix do not travel; leave them out"
		}
		size += len(key) + len(value)
	}
	for key := range e.Labels {
		if !labelTravels(key) {
			return "labels: those of pelago.dev, kubernetes.io and k8s.io do not travel; leave them out"
		}
	}
	switch {
	case bare && len(e.Annotations) > 0:
		return "annotations do not travel with this kind; leave them out"
	case len(e.Labels) > maxLabels || len(e.Annotations) > maxLabels:
		return fmt.Sprintf("%d labels and %d annotations, at most %d each", len(e.Labels), len(e.Annotations), maxLabels)
	case size > maxAnnotations:
		return fmt.Sprintf("annotations have %d bytes, at most %d", size, maxAnnotations)
	}
	return ""
}

// remember notes in an object which of its labels and annotations came from home: when
// one of them is gone at home, it goes, and those of others stay.
func remember(o client.Object) {
	var keys []string
	for key := range o.GetLabels() {
		keys = append(keys, "label:"+key)
	}
	for key := range o.GetAnnotations() {
		keys = append(keys, "annotation:"+key)
	}
	if len(keys) == 0 {
		return
	}
	slices.Sort(keys)
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationReflected] = strings.Join(keys, " ")
	o.SetAnnotations(annotations)
}

// mergeMetadata gives next the labels and annotations that are wanted, and takes those
// away that were wanted before.
func mergeMetadata(next, want client.Object) {
	labels, annotations := maps.Clone(next.GetLabels()), maps.Clone(next.GetAnnotations())
	for _, word := range strings.Fields(annotations[v1alpha1.AnnotationReflected]) {
		switch of, key, _ := strings.Cut(word, ":"); of {
		case "label":
			if labelTravels(key) {
				delete(labels, key)
			}
		case "annotation":
			if annotationTravels(key) {
				delete(annotations, key)
			}
		}
	}
	delete(annotations, v1alpha1.AnnotationReflected)
	next.SetLabels(joined(labels, want.GetLabels()))
	next.SetAnnotations(joined(annotations, want.GetAnnotations()))
}

// joined is both maps in one; the second one wins.
func joined(a, b map[string]string) map[string]string {
	if a == nil {
		a = map[string]string{}
	}
	maps.Copy(a, b)
	return a
}
