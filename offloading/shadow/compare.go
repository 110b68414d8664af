package shadow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// annotationParts on a made pod lists what was asked of it, in digests of its parts.
// Compare goes by what is asked now and was asked then: what the provider's webhooks and
// defaults made of it is the provider's, and no reason to change the pod.
const annotationParts = "pelago.dev/applied-parts"

// Changes are what a running pod needs to become as wanted. They may be made in any
// order and one at a time: a further Compare asks for what is left.
type Changes struct {
	// Pod: metadata, images or activeDeadlineSeconds differ; one patch of what Apply does.
	Pod bool
	// Ephemeral containers to append, by the subresource ephemeralcontainers.
	Ephemeral []corev1.EphemeralContainer
	// Resize: resources differ; what ApplyResize does, by the subresource resize.
	Resize bool
	// Impossible names the fields that no running pod can change; the others still can.
	Impossible []string
}

// Compare says what makes now, a pod as the API server has it, as want, which is made by
// Make. It is empty for a pod that was just created, whatever defaults it was given.
func Compare(now, want *corev1.Pod) Changes {
	asked, then := partsOf(want), readParts(now.Annotations[annotationParts])
	c := Changes{
		Ephemeral:  missing(now, want),
		Resize:     len(unsized(now, want, then)) > 0,
		Impossible: impossible(now, want, asked, then),
	}
	if tooMany(now, c.Ephemeral) {
		c.Ephemeral = nil
	}
	next := now.DeepCopy()
	Apply(next, want)
	c.Pod = !equality.Semantic.DeepEqual(next.ObjectMeta, now.ObjectMeta) || !equality.Semantic.DeepEqual(next.Spec, now.Spec)
	return c
}

// Apply writes into now what Changes.Pod stands for: labels, annotations, images and
// activeDeadlineSeconds. The annotation pelago.dev/applied becomes want's once nothing
// but this patch is missing, and nothing of want is impossible.
func Apply(now, want *corev1.Pod) {
	asked, then := partsOf(want), readParts(now.Annotations[annotationParts])
	left := unsized(now, want, then)
	done := len(left) == 0 && len(missing(now, want)) == 0 && len(impossible(now, want, asked, then)) == 0

	now.Labels = merge(now.Labels, want.Labels, "l", then)
	applied := now.Annotations[v1alpha1.AnnotationApplied]
	now.Annotations = merge(now.Annotations, want.Annotations, "a", then)
	if !done {
		asked = asked.besides(left, then)
		if applied == "" {
			delete(now.Annotations, v1alpha1.AnnotationApplied)
		} else {
			now.Annotations[v1alpha1.AnnotationApplied] = applied
		}
	}
	now.Annotations[annotationParts] = asked.String()

	setImages(now.Spec.InitContainers, want.Spec.InitContainers, then)
	setImages(now.Spec.Containers, want.Spec.Containers, then)
	if d := want.Spec.ActiveDeadlineSeconds; d != nil && !later(d, now.Spec.ActiveDeadlineSeconds) {
		now.Spec.ActiveDeadlineSeconds = d
	}
}

// ApplyResize writes into now the resources that want asks for, and leaves those it says
// nothing about: defaults are the provider's.
func ApplyResize(now, want *corev1.Pod) {
	then := readParts(now.Annotations[annotationParts])
	left := unsized(now, want, then)
	for _, pair := range sized(now, want) {
		if slices.Contains(left, pair.part) {
			pair.now.Requests = overlay(pair.now.Requests, pair.want.Requests)
			pair.now.Limits = overlay(pair.now.Limits, pair.want.Limits)
		}
	}
	if want.Spec.Resources != nil && now.Spec.Resources == nil && slices.Contains(left, sizePart("", want.Spec.Resources)) {
		now.Spec.Resources = want.Spec.Resources.DeepCopy()
	}
}

// impossible names what differs from what was asked then, and cannot be changed.
func impossible(now, want *corev1.Pod, asked, then parts) []string {
	var paths []string
	if !then.has(asked.rest) {
		paths = conflicts(now, want)
	}
	if then.deadline() && !asked.deadline() || later(want.Spec.ActiveDeadlineSeconds, now.Spec.ActiveDeadlineSeconds) {
		paths = append(paths, "spec.activeDeadlineSeconds: can only be set or shortened in a pod that runs; delete the pod so that it is made anew")
	}
	if tooMany(now, missing(now, want)) {
		paths = append(paths, fmt.Sprintf("spec.ephemeralContainers: the pod keeps those that it has had, and may have at most %d in %d bytes of JSON; delete the pod so that it is made anew",
			maxContainers, maxPodText))
	}
	return paths
}

// tooMany says that a pod may not have more ephemeral containers, as it never loses one.
func tooMany(now *corev1.Pod, more []corev1.EphemeralContainer) bool {
	if len(more) == 0 {
		return false
	}
	all := slices.Concat(now.Spec.EphemeralContainers, more)
	text, _ := json.Marshal(all) // the type has no field that cannot be written
	return len(all) > maxContainers || len(text) > maxPodText
}

// later says whether a deadline is a longer one than there is.
func later(want, now *int64) bool { return want != nil && now != nil && *want > *now }

// missing are the ephemeral containers that the pod has not got yet, by name.
func missing(now, want *corev1.Pod) []corev1.EphemeralContainer {
	return without(want.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool {
		return slices.ContainsFunc(now.Spec.EphemeralContainers, func(n corev1.EphemeralContainer) bool { return n.Name == e.Name })
	})
}

// merge puts what is wanted over what is there, without what was wanted once.
func merge(now, want map[string]string, kind string, then parts) map[string]string {
	next := map[string]string{}
	for key, value := range now {
		if _, still := want[key]; still || !then.has(part(kind, key)) {
			next[key] = value
		}
	}
	maps.Copy(next, want)
	return next
}

func setImages(now, want []corev1.Container, then parts) {
	for i := range now {
		for _, c := range want {
			if c.Name == now[i].Name && !then.has(part("i", c.Name, c.Image)) {
				now[i].Image = c.Image
			}
		}
	}
}

// parts are digests of what is asked of a pod.
type parts struct {
	list []string
	// rest is that of all that cannot change.
	rest string
}

func (p parts) has(one string) bool { return slices.Contains(p.list, one) }

func (p parts) String() string { return strings.Join(p.list, " ") }

func (p parts) deadline() bool {
	return slices.ContainsFunc(p.list, func(s string) bool { return strings.HasPrefix(s, "d:") })
}

// besides is p with what is not done yet as it was then.
func (p parts) besides(left []string, then parts) parts {
	list := without(p.list, func(s string) bool { return lasting(s) || slices.Contains(left, s) })
	list = append(list, without(then.list, func(s string) bool { return !lasting(s) })...)
	slices.Sort(list)
	return parts{list: slices.Compact(list), rest: p.rest}
}

// lasting parts are recorded only when all is done.
func lasting(one string) bool { return strings.HasPrefix(one, "s:") || strings.HasPrefix(one, "d:") }

func readParts(text string) parts { return parts{list: strings.Fields(text)} }

// part is the digest of one thing that is asked.
func part(kind string, of ...string) string {
	text, _ := json.Marshal(of) // texts only: cannot fail
	return kind + ":" + digest(text)[:10]
}

func sizePart(container string, r *corev1.ResourceRequirements) string {
	text, _ := json.Marshal(r) // the type has no field that cannot be written
	return part("r", container, string(text))
}

// partsOf takes a pod apart that was made by Make: keys of labels and annotations (l, a),
// images (i), resources (r), the deadline (d) and all that cannot change (s).
func partsOf(want *corev1.Pod) parts {
	var p parts
	for key := range want.Labels {
		p.list = append(p.list, part("l", key))
	}
	for key := range want.Annotations {
		if key != annotationParts && key != v1alpha1.AnnotationApplied {
			p.list = append(p.list, part("a", key))
		}
	}
	for _, c := range slices.Concat(want.Spec.InitContainers, want.Spec.Containers) {
		p.list = append(p.list, part("i", c.Name, c.Image), sizePart(c.Name, &c.Resources))
	}
	if want.Spec.Resources != nil {
		p.list = append(p.list, sizePart("", want.Spec.Resources))
	}
	if want.Spec.ActiveDeadlineSeconds != nil {
		p.list = append(p.list, "d:1")
	}
	text, _ := json.Marshal(fixed(&want.Spec))
	p.rest = part("s", string(text))
	p.list = append(p.list, p.rest)
	slices.Sort(p.list)
	p.list = slices.Compact(p.list)
	return p
}

// fixed is what of a spec cannot change. Texts of the environment are not in it: they
// show home's labels as they were when the pod began, as they would at home.
func fixed(spec *corev1.PodSpec) *corev1.PodSpec {
	f := spec.DeepCopy()
	f.EphemeralContainers, f.ActiveDeadlineSeconds, f.Resources = nil, nil, nil
	for _, list := range [][]corev1.Container{f.InitContainers, f.Containers} {
		for i := range list {
			list[i].Image, list[i].Resources = "", corev1.ResourceRequirements{}
			for j := range list[i].Env {
				list[i].Env[j].Value = ""
			}
		}
	}
	return f
}
