package shadow

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// filled makes a value of a type that holds one of everything, and counts quantities.
func filled(t reflect.Type, depth int, quantities *int) reflect.Value {
	v := reflect.New(t).Elem()
	switch {
	case depth > 24:
	case t == quantity:
		*quantities++
	case t == reflect.TypeOf(metav1.Time{}), t == reflect.TypeOf(metav1.FieldsV1{}), t == reflect.TypeOf(intstr.IntOrString{}):
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		v.Elem().Set(filled(t.Elem(), depth+1, quantities))
	case t.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(t, 1, 1))
		v.Index(0).Set(filled(t.Elem(), depth+1, quantities))
	case t.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(reflect.New(t.Key()).Elem(), filled(t.Elem(), depth+1, quantities))
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if t.Field(i).IsExported() {
				v.Field(i).Set(filled(t.Field(i).Type, depth+1, quantities))
			}
		}
	}
	return v
}

// Every quantity that can be reached from what a peer sends is looked at before it is parsed.
func TestEveryQuantityIsGuarded(t *testing.T) {
	for _, of := range []any{corev1.PodSpec{}, corev1.PodStatus{}} {
		typ := reflect.TypeOf(of)
		want := 0
		b, err := json.Marshal(filled(typ, 0, &want).Interface())
		if err != nil {
			t.Fatal(err)
		}
		var raw any
		if err := json.Unmarshal(b, &raw); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		if err := (guard{look: func(path string) { seen[path] = true }}).value("", typ, raw, 0); err != nil {
			t.Fatal(err)
		}
		if len(seen) != want || want < 6 {
			t.Errorf("%s has %d quantities, of which the guard looks at %d: %v", typ, want, len(seen), seen)
		}
	}
}

func TestQuantities(t *testing.T) {
	for text, ok := range map[string]bool{
		`"1"`: true, `"250m"`: true, `"8Gi"`: true, `"1.5"`: true, `"1e3"`: true, `"+1"`: true, `"-1"`: false, `1`: true, `0.5`: true, `null`: true,
		`"1e999"`: false, `"1e-999999999"`: false, `""`: false, `" 1"`: false, `"1 "`: false, `"0x1"`: false, `"1Gi1"`: false, `true`: false, `{}`: false, `[]`: false,
		`"0.0000000001"`: false, `"99999999999999999999"`: false, `1e300`: false,
	} {
		start := time.Now()
		_, err := decodePod(`{"overhead":{"cpu":` + text + `}}`)
		if (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s took %s", text, took)
		}
	}
}

func TestDecodeStatusIsTolerant(t *testing.T) {
	s, err := decodeStatus(`{"phase":"Running","new":{"field":1},"phase":"Failed"}`)
	if err != nil || s.Phase != corev1.PodFailed {
		t.Errorf("%v, %v", s, err)
	}
	for _, bad := range []string{"", "[]", "null", "{", `{"phase":1}`, `{"allocatedResources":{"cpu":"1e999999999"}}`} {
		if _, err := decodeStatus(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}
