package shadow

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// conflicts names what of want a running pod has otherwise and cannot change. What want
// leaves open is the provider's: defaults, and what its webhooks put in.
func conflicts(now, want *corev1.Pod) []string {
	has, asked := fixed(&now.Spec), fixed(&want.Spec)
	if clusterNames(asked.DNSPolicy) && has.DNSPolicy == corev1.DNSNone { // by Resolve
		asked.DNSPolicy, asked.DNSConfig = "", nil
	}
	has.HostAliases = besideHome(has.HostAliases, asked.HostAliases, v1alpha1.DomainOf(now.Annotations[v1alpha1.AnnotationHomeDomain]))
	c := &conflict{}
	c.value("spec", reflect.ValueOf(*has), reflect.ValueOf(*asked))
	return c.paths
}

type conflict struct{ paths []string }

func (c *conflict) note(path string) {
	if len(c.paths) < maxReasonCount {
		c.paths = append(c.paths, path+": cannot change in a pod that runs; delete the pod so that it is made anew")
	}
}

func (c *conflict) value(path string, now, want reflect.Value) {
	if want.IsZero() {
		return
	}
	switch want.Kind() {
	case reflect.Pointer:
		if now.IsNil() {
			c.note(path)
			return
		}
		c.value(path, now.Elem(), want.Elem())
	case reflect.Struct:
		if want.Type() == quantity {
			if !sameQuantity(now, want) {
				c.note(path)
			}
			return
		}
		for i := range want.NumField() {
			f := want.Type().Field(i)
			inner := path + "." + jsonName(f)
			if f.Anonymous {
				inner = path
			}
			c.value(inner, now.Field(i), want.Field(i))
		}
	case reflect.Slice:
		c.list(path, now, want)
	case reflect.Map:
		for _, key := range want.MapKeys() {
			at := fmt.Sprintf("%s[%v]", path, key)
			if n := now.MapIndex(key); !n.IsValid() {
				c.note(at)
			} else {
				c.value(at, n, want.MapIndex(key))
			}
		}
	default:
		if !now.Equal(want) {
			c.note(path)
		}
	}
}

// list compares by name what has names, in any order, as more may have been put in
// between; other lists item by item.
func (c *conflict) list(path string, now, want reflect.Value) {
	if key := listKey(want.Type().Elem()); key != "" {
		for i := range want.Len() {
			w := want.Index(i)
			at := fmt.Sprintf("%s[%v]", path, w.FieldByName(key))
			if n := find(now, key, w.FieldByName(key)); n.IsValid() {
				c.value(at, n, w)
			} else {
				c.note(at)
			}
		}
		return
	}
	if now.Len() != want.Len() {
		c.note(path)
		return
	}
	for i := range want.Len() {
		c.value(fmt.Sprintf("%s[%d]", path, i), now.Index(i), want.Index(i))
	}
}

func listKey(t reflect.Type) string {
	switch t {
	case reflect.TypeOf(corev1.Container{}), reflect.TypeOf(corev1.Volume{}), reflect.TypeOf(corev1.EnvVar{}),
		reflect.TypeOf(corev1.LocalObjectReference{}):
		return "Name"
	case reflect.TypeOf(corev1.VolumeMount{}):
		return "MountPath"
	}
	return ""
}

func find(list reflect.Value, key string, value reflect.Value) reflect.Value {
	for i := range list.Len() {
		if list.Index(i).FieldByName(key).Equal(value) {
			return list.Index(i)
		}
	}
	return reflect.Value{}
}
