package shadow

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// Lost names the fields that an API server, which is older than home's, has dropped without a
// word from a pod that was asked for: those that the table says are newer, and without which the
// pod does something else. A container that is not there by its name is the provider's doing; of a
// volume such an API server drops all.
func Lost(stored, asked *corev1.Pod) []string {
	return lost(nil, "spec", reflect.ValueOf(stored.Spec), reflect.ValueOf(asked.Spec))
}

// lost adds to paths what a part of a pod lacks that it was asked to have.
func lost(paths []string, path string, has, want reflect.Value) []string {
	switch want.Kind() {
	case reflect.Pointer:
		if want.IsNil() {
			return paths
		}
		if has.IsNil() { // it goes when nothing is left in it
			has = reflect.New(want.Type().Elem())
		}
		return lost(paths, path, has.Elem(), want.Elem())
	case reflect.Slice:
		for i := range want.Len() {
			at := called(i, want.Index(i))
			if h := itemOf(has, at); h.IsValid() {
				paths = lost(paths, fmt.Sprintf("%s[%s]", path, at), h, want.Index(i))
			}
		}
	case reflect.Struct:
		t := want.Type()
		if t.PkgPath() != core {
			return paths
		}
		for i := range t.NumField() {
			f, below := t.Field(i), path
			if !f.Anonymous {
				below += "." + jsonName(f)
			}
			if table[t.Name()+"."+f.Name].newer && !want.Field(i).IsZero() && has.Field(i).IsZero() {
				paths = append(paths, below)
				continue
			}
			paths = lost(paths, below, has.Field(i), want.Field(i))
		}
	}
	return paths
}

// itemOf is the item of a list that is called so; of a volume that is not there an empty one.
func itemOf(list reflect.Value, name string) reflect.Value {
	for i := range list.Len() {
		if called(i, list.Index(i)) == name {
			return list.Index(i)
		}
	}
	if list.Type().Elem() == reflect.TypeFor[corev1.Volume]() {
		return reflect.ValueOf(corev1.Volume{})
	}
	return reflect.Value{}
}

// called is what tells the i-th item of a list from the others.
func called(i int, item reflect.Value) string {
	if item.Kind() == reflect.Struct {
		for _, key := range []string{"MountPath", "Path", "Name"} {
			if f := item.FieldByName(key); f.IsValid() {
				return f.String()
			}
		}
	}
	return fmt.Sprint(i)
}
