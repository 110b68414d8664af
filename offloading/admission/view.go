package admission

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// view is the part of a pod that terms depend on. The rest is not decoded: it may be
// large, be of a later version, or hold quantities that take for ever to parse.
type view struct {
	Metadata *struct {
		OwnerReferences []metav1.OwnerReference    `json:"ownerReferences"`
		Annotations     map[string]json.RawMessage `json:"annotations"`
		Labels          map[string]json.RawMessage `json:"labels"`
	} `json:"metadata"`
	Spec *specView `json:"spec"`
}

// specView is what terms depend on of what a pod wants.
type specView struct {
	NodeName         string            `json:"nodeName"`
	NodeSelector     map[string]string `json:"nodeSelector"`
	RuntimeClassName *string           `json:"runtimeClassName"`
	Affinity         *struct {
		NodeAffinity *struct {
			Required *corev1.NodeSelector `json:"requiredDuringSchedulingIgnoredDuringExecution"`
		} `json:"nodeAffinity"`
	} `json:"affinity"`
	Tolerations    []corev1.Toleration `json:"tolerations"`
	InitContainers []containerView     `json:"initContainers"`
	Containers     []containerView     `json:"containers"`
	Resources      *resourcesView      `json:"resources"`
	Overhead       amountsView         `json:"overhead"`
	Volumes        []volumeView        `json:"volumes"`
}

// volumeView is what claims, and tokens of a tenant's home, are told by.
type volumeView struct {
	PersistentVolumeClaim *struct{} `json:"persistentVolumeClaim"`
	Ephemeral             *struct{} `json:"ephemeral"`
	Projected             *struct {
		Sources []struct {
			Secret *struct {
				Name string `json:"name"`
			} `json:"secret"`
		} `json:"sources"`
	} `json:"projected"`
}

// volumes have what they are made of, as far as it is looked at.
func volumes(views []volumeView) []corev1.Volume {
	all := make([]corev1.Volume, len(views))
	for i, v := range views {
		switch {
		case v.PersistentVolumeClaim != nil:
			all[i].PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{}
		case v.Ephemeral != nil:
			all[i].Ephemeral = &corev1.EphemeralVolumeSource{}
		case v.Projected != nil:
			all[i].Projected = &corev1.ProjectedVolumeSource{}
			for _, s := range v.Projected.Sources {
				if s.Secret != nil {
					all[i].Projected.Sources = append(all[i].Projected.Sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
						LocalObjectReference: corev1.LocalObjectReference{Name: s.Secret.Name}}})
				}
			}
		}
	}
	return all
}

type containerView struct {
	Name          string                         `json:"name"`
	RestartPolicy *corev1.ContainerRestartPolicy `json:"restartPolicy"`
	Resources     resourcesView                  `json:"resources"`
}

type resourcesView struct {
	Limits   amountsView `json:"limits"`
	Requests amountsView `json:"requests"`
}

type amountsView map[corev1.ResourceName]json.RawMessage

// plainQuantity is how quantities are written that are safe to parse.
var plainQuantity = regexp.MustCompile(`^"?[+-]?([0-9]{1,19}(\.[0-9]{0,9})?|\.[0-9]{1,9})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"?$`)

// list is the quantities that can be parsed; the API server judges the others.
func (a amountsView) list() corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, text := range a {
		var q resource.Quantity
		if plainQuantity.Match(text) && q.UnmarshalJSON(text) == nil {
			list[name] = q
		}
	}
	return list
}

func (r resourcesView) requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: r.Limits.list(), Requests: r.Requests.list()}
}

func containers(views []containerView) []corev1.Container {
	var all []corev1.Container
	for _, v := range views {
		all = append(all, corev1.Container{Name: v.Name, RestartPolicy: v.RestartPolicy, Resources: v.Resources.requirements()})
	}
	return all
}

// parents are the maps of a pod that it has, above what terms are written into.
type parents struct{ metadata, annotations, spec, affinity, node, tolerations bool }

// look reads what matters of a pod.
func look(raw []byte) (*corev1.Pod, parents, error) {
	var v view // keys are told apart by case, as the API server does
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &v); err != nil {
		return nil, parents{}, fmt.Errorf("reading the pod: %w", err)
	}
	has := parents{metadata: v.Metadata != nil, spec: v.Spec != nil}
	if !has.spec { // which the API server refuses later
		v.Spec = new(specView)
	}
	pod := &corev1.Pod{}
	pod.Spec = corev1.PodSpec{
		NodeName: v.Spec.NodeName, NodeSelector: v.Spec.NodeSelector, RuntimeClassName: v.Spec.RuntimeClassName, Tolerations: v.Spec.Tolerations,
		InitContainers: containers(v.Spec.InitContainers), Containers: containers(v.Spec.Containers),
		Volumes: volumes(v.Spec.Volumes),
	}
	if v.Spec.Overhead != nil {
		pod.Spec.Overhead = v.Spec.Overhead.list()
	}
	if v.Spec.Resources != nil {
		own := v.Spec.Resources.requirements()
		pod.Spec.Resources = &own
	}
	has.tolerations, has.affinity = len(v.Spec.Tolerations) > 0, v.Spec.Affinity != nil
	if has.metadata {
		pod.OwnerReferences, has.annotations = v.Metadata.OwnerReferences, v.Metadata.Annotations != nil
		if raw, ok := v.Metadata.Annotations[AnnotationAvoids]; ok {
			pod.Annotations = map[string]string{AnnotationAvoids: text(raw)}
		}
		pod.Labels = map[string]string{}
		for _, key := range []string{v1alpha1.LabelTenant, v1alpha1.LabelManagedBy, v1alpha1.LabelHomeUID} {
			pod.Labels[key] = text(v.Metadata.Labels[key])
		}
	}
	if has.affinity && v.Spec.Affinity.NodeAffinity != nil {
		has.node = true
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: v.Spec.Affinity.NodeAffinity.Required,
		}}
	}
	return pod, has, nil
}

// text is what a value says; what is no text is the API server's to judge.
func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patch is what turns a pod into one with its terms. It touches only what terms are
// about, so that fields this version does not know stay.
func (t terms) patch(has parents) []operation {
	var all []operation
	if !has.spec && (t.required != nil || len(t.add) > 0) {
		all = append(all, operation{"add", "/spec", struct{}{}})
	}
	if t.required != nil {
		const required = "requiredDuringSchedulingIgnoredDuringExecution"
		switch {
		case has.node:
			all = append(all, operation{"add", "/spec/affinity/nodeAffinity/" + required, t.required})
		case has.affinity:
			all = append(all, operation{"add", "/spec/affinity/nodeAffinity", map[string]any{required: t.required}})
		default:
			all = append(all, operation{"add", "/spec/affinity", map[string]any{"nodeAffinity": map[string]any{required: t.required}}})
		}
	}
	if t.avoids != nil {
		all = append(all, t.annotate(has))
	}
	for _, at := range t.unlimited {
		all = append(all, operation{Op: "remove", Path: fmt.Sprintf("/spec/tolerations/%d/tolerationSeconds", at)})
	}
	switch {
	case len(t.add) == 0:
	case has.tolerations:
		for _, toleration := range t.add {
			all = append(all, operation{"add", "/spec/tolerations/-", toleration})
		}
	default:
		all = append(all, operation{"add", "/spec/tolerations", t.add})
	}
	return all
}

// annotate is the operation that makes the annotation what it should be.
func (t terms) annotate(has parents) operation {
	const path = "/metadata/annotations"
	one := map[string]any{AnnotationAvoids: *t.avoids}
	own := path + "/" + strings.ReplaceAll(AnnotationAvoids, "/", "~1")
	switch {
	case *t.avoids == "":
		return operation{Op: "remove", Path: own}
	case has.annotations:
		return operation{"add", own, *t.avoids}
	case has.metadata:
		return operation{"add", path, one}
	}
	return operation{"add", "/metadata", map[string]any{"annotations": one}}
}
