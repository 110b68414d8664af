package shadow

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"
)

// plain is how quantities are written that are safe to parse: a large exponent keeps
// the parser busy for minutes.
var plain = regexp.MustCompile(`^[+-]?([0-9]{1,19}(\.[0-9]{0,9})?|\.[0-9]{1,9})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$`)

// maxQuantity is how long a quantity's text may be.
const maxQuantity = 32

// guard looks at a peer's JSON before it is decoded into Go's types.
type guard struct {
	// look, in tests, sees the path of every quantity.
	look func(path string)
	// asked says that somebody asks for what is there: a negative request would make room for others.
	asked bool
}

// decodePod reads spec.pod of a ShadowPod: unknown and repeated fields are refused.
func decodePod(text string) (*corev1.PodSpec, error) {
	spec := &corev1.PodSpec{}
	if err := decode(text, spec, maxPodText, true); err != nil {
		return nil, &Refusal{Reasons: []string{"spec.pod: " + cut(err.Error(), 256)}}
	}
	return spec, nil
}

// decodeStatus reads status.pod of a ShadowPod: fields of newer providers are ignored.
func decodeStatus(text string) (*corev1.PodStatus, error) {
	status := &corev1.PodStatus{}
	if err := decode(text, status, maxStatusText, false); err != nil {
		return nil, fmt.Errorf("reading status.pod: %s", cut(err.Error(), 256))
	}
	return status, nil
}

func decode(text string, into any, most int, strict bool) error {
	if len(text) > most {
		return fmt.Errorf("%d bytes, at most %d", len(text), most)
	}
	var raw any
	again, err := kjson.UnmarshalStrict([]byte(text), &raw)
	if err != nil {
		return err
	}
	if strict && len(again) > 0 {
		return again[0]
	}
	if _, ok := raw.(map[string]any); !ok {
		return fmt.Errorf("not an object")
	}
	t := reflect.TypeOf(into).Elem()
	if err := (guard{asked: strict}).value("", t, raw, 0); err != nil {
		return err
	}
	// What was looked at is decoded, not the text: it may say things twice.
	clean, err := json.Marshal(raw)
	if err != nil {
		return err
	}
	unknown, err := kjson.UnmarshalStrict(clean, into)
	if err != nil {
		return err
	}
	if strict && len(unknown) > 0 {
		return unknown[0]
	}
	return nil
}

var quantity = reflect.TypeOf(resource.Quantity{})

// value goes through JSON and the type it is for together: lists are bounded, and no
// quantity is passed over.
func (g guard) value(path string, t reflect.Type, v any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested more than %d deep", maxDepth)
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == quantity {
		return g.quantity(path, v)
	}
	switch v := v.(type) {
	case []any:
		if most := bound(t); len(v) > most {
			return fmt.Errorf("%s: %d items, at most %d", short(path), len(v), most)
		}
		for i := range v {
			if err := g.value(path+"["+strconv.Itoa(i)+"]", elem(t), v[i], depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		if len(v) > maxItems {
			return fmt.Errorf("%s: %d keys, at most %d", short(path), len(v), maxItems)
		}
		for key, inner := range v {
			if err := g.value(path+"."+key, member(t, key), inner, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g guard) quantity(path string, v any) error {
	if g.look != nil {
		g.look(path)
	}
	var text string
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		text = v
	case int64, float64:
		number, err := json.Marshal(v)
		if err != nil {
			return err
		}
		text = string(number)
	}
	if g.asked && strings.HasPrefix(text, "-") {
		return fmt.Errorf("%s: negative; leave it out", short(path))
	}
	if len(text) > maxQuantity || !plain.MatchString(text) {
		return fmt.Errorf("%s: not a quantity like 4, 250m or 8Gi", short(path))
	}
	return nil
}

// bound is how many items a list may have.
func bound(list reflect.Type) int {
	switch elem(list) {
	case reflect.TypeOf(corev1.Container{}), reflect.TypeOf(corev1.EphemeralContainer{}), reflect.TypeOf(corev1.ContainerStatus{}):
		return maxContainers
	case reflect.TypeOf(corev1.Volume{}):
		return maxVolumes
	}
	return maxItems
}

// elem is the type of a list's items; nil if t is no list.
func elem(t reflect.Type) reflect.Type {
	if t != nil && t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return nil
}

// member is the type of what an object holds under a key; nil if that is not known.
func member(t reflect.Type, key string) reflect.Type {
	switch {
	case t == nil:
	case t.Kind() == reflect.Map:
		return t.Elem()
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if jsonName(f) == key {
				return f.Type
			}
			if f.Anonymous && jsonName(f) == "" {
				if inner := member(f.Type, key); inner != nil {
					return inner
				}
			}
		}
	}
	return nil
}

// short is a path to show: the end of one that a peer made long.
func short(path string) string { return cut(path, 160) }
