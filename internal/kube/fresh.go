package kube

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fresh empties what it decodes into first: JSON leaves what an answer does not name, and adds to maps.
type fresh struct{ runtime.NegotiatedSerializer }

// DecoderToVersion is that of the serializer, for an empty object.
func (f fresh) DecoderToVersion(d runtime.Decoder, v runtime.GroupVersioner) runtime.Decoder {
	return emptied{f.NegotiatedSerializer.DecoderToVersion(d, v)}
}

type emptied struct{ runtime.Decoder }

// Decode decodes into nothing but data.
func (e emptied) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into != nil {
		reflect.ValueOf(into).Elem().SetZero()
	}
	return e.Decoder.Decode(data, defaults, into)
}
