package shadow

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// fate is what happens to a field.
type fate string

const (
	kept       fate = "kept"
	translated fate = "translated"
	dropped    fate = "dropped"
	refused    fate = "refused"
)

// rule is the fate of one field and why.
type rule struct {
	fate fate
	why  string
	// bad says which values of a refused field are; if nil, all but the zero value.
	bad func(*walk, reflect.Value) bool
	// change translates a field in place.
	change func(*walk, string, reflect.Value)
	// shadow, of a dropped field: a ShadowPod that has it is refused, for this reason.
	shadow string
	// newer, of a kept field: not all API servers know it; see Lost.
	newer bool
}

// walk applies the table to one pod.
type walk struct {
	// home and at are set while a ShadowPod is forged, nil while a pod is made.
	home *corev1.Pod
	at   Place
	// uid of the home pod.
	uid string
	// level bounds what the security context may ask for.
	level v1alpha1.PodSecurity
	// labels are the pod's.
	labels map[string]string
	// access are the names of volumes with automatic API credentials.
	access map[string]bool
	// shown are annotations that the downward API will read, by key.
	shown   map[string]string
	reasons []string
	more    int
}

// core is the package whose types the table speaks of.
var core = reflect.TypeOf(corev1.PodSpec{}).PkgPath()

// pod applies the table to a whole pod, but for its ephemeral containers.
func (w *walk) pod(spec *corev1.PodSpec) {
	w.shown = map[string]string{}
	if !w.at.Tokens {
		w.access = accessVolumes(spec.Volumes)
	}
	w.value("spec", reflect.ValueOf(spec))
	if a := spec.Affinity; a != nil && a.PodAntiAffinity == nil {
		spec.Affinity = nil
	}
	w.names(spec)
}

// value goes down into whatever may hold fields of the table.
func (w *walk) value(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			w.value(path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			w.value(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Struct:
		if v.Type().PkgPath() == core {
			w.fields(path, v)
		}
	}
}

func (w *walk) fields(path string, v reflect.Value) {
	t := v.Type()
	for i := range t.NumField() {
		f, field := t.Field(i), v.Field(i)
		if f.Anonymous {
			w.value(path, field)
			continue
		}
		if !field.IsZero() {
			w.field(path+"."+jsonName(f), table[t.Name()+"."+f.Name], field)
		}
	}
}

func (w *walk) field(path string, r rule, v reflect.Value) {
	switch r.fate {
	case kept:
		w.value(path, v)
	case translated:
		r.change(w, path, v)
		w.value(path, v)
	case dropped:
		if r.shadow != "" && w.home == nil {
			w.refuse(path, r.shadow)
		}
		v.SetZero()
	case refused:
		if r.bad == nil || r.bad(w, v) {
			w.refuse(path, r.why)
		} else {
			w.value(path, v)
		}
	default:
		w.refuse(path, "this version of Pelago does not know the field; leave it out")
	}
}

// refuse notes a reason; of very many only how many they are.
func (w *walk) refuse(path, why string) {
	if len(w.reasons) >= maxReasonCount {
		w.more++
		return
	}
	w.reasons = append(w.reasons, path+": "+why)
}

// verdict is the walk's *Refusal, or nil.
func (w *walk) verdict() error {
	if len(w.reasons) == 0 {
		return nil
	}
	if w.more > 0 {
		w.reasons = append(w.reasons, fmt.Sprintf("and %d more fields", w.more))
	}
	return &Refusal{Reasons: w.reasons}
}

// names refuses two containers or two volumes of one name: what follows goes by names.
func (w *walk) names(spec *corev1.PodSpec) {
	seen := map[string]bool{}
	again := func(path, name string) {
		if name == "" || seen[name] {
			w.refuse(path, "empty, or there twice; give each a name of its own")
		}
		seen[name] = true
	}
	for i := range spec.InitContainers {
		again(fmt.Sprintf("spec.initContainers[%d].name", i), spec.InitContainers[i].Name)
	}
	for i := range spec.Containers {
		again(fmt.Sprintf("spec.containers[%d].name", i), spec.Containers[i].Name)
	}
	clear(seen)
	for i := range spec.Volumes {
		again(fmt.Sprintf("spec.volumes[%d].name", i), spec.Volumes[i].Name)
	}
}

// jsonName is what a field is called in JSON.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// when is a bad for fields of one type.
func when[T any](bad func(*walk, T) bool) func(*walk, reflect.Value) bool {
	return func(w *walk, v reflect.Value) bool { return bad(w, v.Interface().(T)) }
}

// on is a change for fields of one type.
func on[T any](change func(*walk, string, *T)) func(*walk, string, reflect.Value) {
	return func(w *walk, path string, v reflect.Value) { change(w, path, v.Addr().Interface().(*T)) }
}

// without returns what is left of a list, in a new list, nil if nothing is.
func without[T any](list []T, gone func(T) bool) []T {
	var left []T
	for _, item := range list {
		if !gone(item) {
			left = append(left, item)
		}
	}
	return left
}
