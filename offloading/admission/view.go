package admission

import (
	"encoding/json"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// view is the part of a pod that terms depend on. The rest is not decoded: it may be
// large, be of a later version, or hold quantities that take for ever to parse.
type view struct {
	Metadata struct {
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		NodeName         string  `json:"nodeName"`
		RuntimeClassName *string `json:"runtimeClassName"`
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
	} `json:"spec"`
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

// parents are the maps of a pod above its required node affinity that it has.
type parents struct{ affinity, node, tolerations bool }

// look reads what matters of a pod.
func look(raw []byte) (*corev1.Pod, parents, error) {
	var v view // keys are told apart by case, as the API server does
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &v); err != nil {
		return nil, parents{}, fmt.Errorf("reading the pod: %w", err)
	}
	pod := &corev1.Pod{}
	pod.OwnerReferences = v.Metadata.OwnerReferences
	pod.Spec = corev1.PodSpec{
		NodeName: v.Spec.NodeName, RuntimeClassName: v.Spec.RuntimeClassName, Tolerations: v.Spec.Tolerations,
		InitContainers: containers(v.Spec.InitContainers), Containers: containers(v.Spec.Containers),
	}
	if v.Spec.Overhead != nil {
		pod.Spec.Overhead = v.Spec.Overhead.list()
	}
	if v.Spec.Resources != nil {
		own := v.Spec.Resources.requirements()
		pod.Spec.Resources = &own
	}
	has := parents{tolerations: len(v.Spec.Tolerations) > 0, affinity: v.Spec.Affinity != nil}
	if has.affinity && v.Spec.Affinity.NodeAffinity != nil {
		has.node = true
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: v.Spec.Affinity.NodeAffinity.Required,
		}}
	}
	return pod, has, nil
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
