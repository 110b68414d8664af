package deploy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestOrder holds that what programs need is there before them, and that nothing asks or
// refuses anybody before the rest is there.
func TestOrder(t *testing.T) {
	var objects []*unstructured.Unstructured
	for _, kind := range []string{"MutatingWebhookConfiguration", "LimitRange", "ValidatingAdmissionPolicyBinding", "DaemonSet", "Deployment", "ValidatingAdmissionPolicy",
		"APIService", "Secret", "RuntimeClass", "PriorityClass", "CustomResourceDefinition", "Namespace"} {
		o := &unstructured.Unstructured{}
		o.SetKind(kind)
		objects = append(objects, o)
	}
	slices.SortStableFunc(objects, inOrder)
	var got []string
	for _, o := range objects {
		got = append(got, o.GetKind())
	}
	want := []string{"Namespace", "CustomResourceDefinition", "PriorityClass", "Secret", "Deployment", "DaemonSet", "LimitRange", "RuntimeClass", "APIService", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding", "MutatingWebhookConfiguration"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the order (-want +got):\n%s", d)
	}
}
