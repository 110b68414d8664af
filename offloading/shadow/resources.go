package shadow

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// size is what a container, or the whole pod, has and should have.
type size struct {
	part      string
	now, want *corev1.ResourceRequirements
}

// sized pairs what can be resized, by container.
func sized(now, want *corev1.Pod) []size {
	var pairs []size
	pair := func(now, want []corev1.Container) {
		for i := range want {
			for j := range now {
				if now[j].Name == want[i].Name {
					pairs = append(pairs, size{sizePart(want[i].Name, &want[i].Resources), &now[j].Resources, &want[i].Resources})
				}
			}
		}
	}
	pair(now.Spec.InitContainers, want.Spec.InitContainers)
	pair(now.Spec.Containers, want.Spec.Containers)
	if now.Spec.Resources != nil && want.Spec.Resources != nil {
		pairs = append(pairs, size{sizePart("", want.Spec.Resources), now.Spec.Resources, want.Spec.Resources})
	}
	return pairs
}

// unsized are the parts whose resources are neither as wanted nor were asked for before.
func unsized(now, want *corev1.Pod, then parts) []string {
	var left []string
	for _, p := range sized(now, want) {
		if !then.has(p.part) && !(holds(p.now.Requests, p.want.Requests) && holds(p.now.Limits, p.want.Limits)) {
			left = append(left, p.part)
		}
	}
	if r := want.Spec.Resources; r != nil && now.Spec.Resources == nil && !then.has(sizePart("", r)) {
		left = append(left, sizePart("", r))
	}
	return left
}

// holds says whether all that is wanted is there; more may be, by the provider's defaults.
func holds(now, want corev1.ResourceList) bool {
	for name, w := range want {
		if n, ok := now[name]; !ok || n.Cmp(w) != 0 {
			return false
		}
	}
	return true
}

func overlay(now, want corev1.ResourceList) corev1.ResourceList {
	if len(want) == 0 {
		return now
	}
	next := corev1.ResourceList{}
	for name, q := range now {
		next[name] = q
	}
	for name, q := range want {
		next[name] = q
	}
	return next
}

func sameQuantity(now, want reflect.Value) bool {
	n, w := now.Interface().(resource.Quantity), want.Interface().(resource.Quantity)
	return n.Cmp(w) == 0
}
