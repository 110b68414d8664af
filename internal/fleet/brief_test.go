package fleet

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestReadMetadata: a peer may answer in protobuf or JSON.
func TestReadMetadata(t *testing.T) {
	want := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "7", Finalizers: []string{"a/b"}, Labels: map[string]string{"x": "y"}}}
	inner, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := (&runtime.Unknown{Raw: inner}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range [][]byte{text, append([]byte(protobufMark), wrapped...)} {
		got, err := readMetadata(answer)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.ObjectMeta, got.ObjectMeta); diff != "" {
			t.Errorf("of %q (-want +got):\n%s", answer, diff)
		}
	}
	for _, broken := range []string{"", "k8s\x00\xff", "k8s\x00" + string(wrapped[:len(wrapped)/2]), "no"} {
		if _, err := readMetadata([]byte(broken)); err == nil {
			t.Errorf("%q is read", broken)
		}
	}
}
