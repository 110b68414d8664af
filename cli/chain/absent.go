package chain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// startsWithin is how long a pod usually takes to start.
const startsWithin = time.Minute

// Reference is a ConfigMap or Secret that has to be there before a pod starts.
type Reference struct {
	// Kind is ConfigMap or Secret.
	Kind string
	// Name of the object.
	Name string
	// Keys of it that the pod names.
	Keys []string
}

// Referred is what is known at home of what a pod refers to.
type Referred struct {
	Reference
	// Unread is why it could not be read, empty if it could.
	Unread string
	// Absent says that there is none.
	Absent bool
	// Labels and Annotations of it.
	Labels, Annotations map[string]string
	// Has are its keys.
	Has []string
	// Stays is the latest word of Pelago on why it does not travel, empty if there is none,
	// and Said when that was.
	Stays string
	Said  metav1.Time
}

func (r Referred) text() string { return r.Kind + " " + r.Name }

// References are the ConfigMaps and Secrets that have to be there before a pod starts, those
// for pulling images if that fails.
func References(pod *corev1.Pod) []Reference {
	var all []Reference
	note := func(kind, name string, optional *bool, keys ...string) {
		if name == "kube-root-ca.crt" || name == "" || optional != nil && *optional {
			return
		}
		i := slices.IndexFunc(all, func(r Reference) bool { return r.Kind == kind && r.Name == name })
		if i < 0 {
			i, all = len(all), append(all, Reference{Kind: kind, Name: name})
		}
		for _, key := range keys {
			if !slices.Contains(all[i].Keys, key) {
				all[i].Keys = append(all[i].Keys, key)
			}
		}
	}
	ofVolumes(pod.Spec.Volumes, note)
	ofContainers(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), note)
	if slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && (c.State.Waiting.Reason == "ImagePullBackOff" || c.State.Waiting.Reason == "ErrImagePull")
	}) {
		for _, s := range pod.Spec.ImagePullSecrets {
			note("Secret", s.Name, nil)
		}
	}
	return all
}

// noter takes a reference, and the keys that it names.
type noter = func(kind, name string, optional *bool, keys ...string)

func ofVolumes(volumes []corev1.Volume, note noter) {
	for _, v := range volumes {
		switch {
		case v.ConfigMap != nil:
			note("ConfigMap", v.ConfigMap.Name, v.ConfigMap.Optional, keys(v.ConfigMap.Items)...)
		case v.Secret != nil:
			note("Secret", v.Secret.SecretName, v.Secret.Optional, keys(v.Secret.Items)...)
		case v.Projected != nil && !strings.HasPrefix(v.Name, "kube-api-access-"): // that one is left at home
			for _, source := range v.Projected.Sources {
				if source.ConfigMap != nil {
					note("ConfigMap", source.ConfigMap.Name, source.ConfigMap.Optional, keys(source.ConfigMap.Items)...)
				}
				if source.Secret != nil {
					note("Secret", source.Secret.Name, source.Secret.Optional, keys(source.Secret.Items)...)
				}
			}
		}
	}
}

func keys(items []corev1.KeyToPath) []string {
	all := make([]string, len(items))
	for i, item := range items {
		all[i] = item.Key
	}
	return all
}

func ofContainers(containers []corev1.Container, note noter) {
	for _, c := range containers {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				note("ConfigMap", from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
			}
			if from.SecretRef != nil {
				note("Secret", from.SecretRef.Name, from.SecretRef.Optional)
			}
		}
		for _, env := range c.Env {
			if env.ValueFrom == nil {
				continue
			}
			if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
				note("ConfigMap", ref.Name, ref.Optional, ref.Key)
			}
			if ref := env.ValueFrom.SecretKeyRef; ref != nil {
				note("Secret", ref.Name, ref.Optional, ref.Key)
			}
		}
	}
}

// finding is what is known of one reference, and what to do.
type finding struct {
	words, remedy string
	wrong         bool // it is known to be what the pod lacks
}

// find says what is known of a reference of a pod at a provider: whether it is there at home,
// whether something keeps it there, and whether the provider misses it.
func find(f PodFacts, n NodeFacts, r Referred) finding {
	space := f.Pod.Namespace
	if r.Unread != "" {
		return finding{words: r.text() + " could not be read: " + r.Unread}
	}
	if r.Absent {
		return finding{wrong: true, words: fmt.Sprintf("there is no %s in namespace %s of this cluster", r.text(), space),
			remedy: "make " + r.text() + " in namespace " + space + "; it travels by itself"}
	}
	if words, remedy := kept(f.Offloading, r, space); words != "" {
		return finding{wrong: true, words: r.text() + " does not travel: " + words, remedy: remedy}
	}
	for _, key := range r.Keys {
		if !slices.Contains(r.Has, key) {
			return finding{wrong: true, words: fmt.Sprintf("%s is there at home, without the key %s", r.text(), key), remedy: fmt.Sprintf("add the key %s to %s; it follows within a minute", key, r.text())}
		}
	}
	if r.Stays != "" {
		return finding{wrong: true, words: r.text() + " is there at home and has not travelled to " + n.peering() + ": " + r.Stays + " (said " + stamp(r.Said) + ")",
			remedy: "docs/reflection.md says what to do about each reason; what was corrected travels within a minute"}
	}
	if missed(f, r) {
		return finding{wrong: true, words: r.text() + " is there at home, and " + n.peering() + " does not have it yet",
			remedy: fmt.Sprintf("it travels within a minute; if it stays so, see kubectl -n %s get events --field-selector reason=NotReflected", space)}
	}
	return finding{words: r.text() + " is there at home, and nothing says that " + n.peering() + " lacks it"}
}

// kept says by what the owner of a namespace keeps an object at home.
func kept(o *v1alpha1.NamespaceOffloading, r Referred, space string) (words, remedy string) {
	if r.Annotations[v1alpha1.AnnotationReflect] == "false" {
		return "its annotation " + v1alpha1.AnnotationReflect + " keeps it home", fmt.Sprintf("let it travel: kubectl -n %s annotate %s %s %s-", space, strings.ToLower(r.Kind), r.Name, v1alpha1.AnnotationReflect)
	}
	if o == nil {
		return "", ""
	}
	for i, rule := range o.Spec.Reflection {
		selector, err := metav1.LabelSelectorAsSelector(rule.Selector)
		switch {
		case rule.Kind != r.Kind:
		case rule.Selector != nil && err != nil, rule.Policy == v1alpha1.ReflectDeny && (rule.Selector == nil || selector.Matches(labels.Set(r.Labels))):
			return fmt.Sprintf("spec.reflection[%d] of the NamespaceOffloading keeps it home", i),
				fmt.Sprintf("change that rule: kubectl -n %s edit namespaceoffloading %s", space, v1alpha1.OffloadingName)
		case rule.Selector == nil || selector.Matches(labels.Set(r.Labels)):
			return "", "" // the first one that matches decides
		}
	}
	return "", ""
}

// missed reports whether the provider's kubelet says that it does not find an object.
func missed(f PodFacts, r Referred) bool {
	said := slices.Clone(f.Warnings)
	for _, c := range slices.Concat(f.Pod.Status.InitContainerStatuses, f.Pod.Status.ContainerStatuses) {
		if c.State.Waiting != nil {
			said = append(said, c.State.Waiting.Message)
		}
	}
	kind := strings.ToLower(r.Kind)
	return slices.ContainsFunc(said, func(text string) bool {
		return strings.Contains(text, fmt.Sprintf("%s %q not found", kind, r.Name)) || strings.Contains(text, fmt.Sprintf("%s \"%s/%s\" not found", kind, mappedName(f), r.Name))
	})
}

func mappedName(f PodFacts) string {
	if f.Mapped == nil {
		return ""
	}
	return f.Mapped.Name
}

// mostFindings are the references that are told of one pod.
const mostFindings = 5

// referredStep adds to the step of a pod that is not ready over there what is known of what it
// refers to. What is well is told only of one that takes long to start.
func referredStep(f PodFacts, s Step) Step {
	away := f.away()
	if away == nil || s.State == Done || s.State == Aside || !f.Pod.DeletionTimestamp.IsZero() {
		return s
	}
	late := s.State == Broken || f.Pod.Status.StartTime != nil && f.Now.Sub(f.Pod.Status.StartTime.Time) > startsWithin
	var wrong, others []finding
	for _, r := range f.Referred {
		if found := find(f, *away, r); found.wrong {
			wrong = append(wrong, found)
		} else {
			others = append(others, found)
		}
	}
	if len(wrong) > 0 {
		s.State, s.Remedy = Broken, ""
		others = nil
	} else if !late {
		return s
	}
	var remedies []string
	all := append(wrong, others...)
	for _, found := range all[:min(len(all), mostFindings)] {
		s.Evidence += "; " + found.words
		if found.remedy != "" && !slices.Contains(remedies, found.remedy) {
			remedies = append(remedies, found.remedy)
		}
	}
	s.Remedy = cmp.Or(s.Remedy, strings.Join(remedies, "; "))
	return s
}
