package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestTrimOfConsumers(t *testing.T) {
	meta := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: namespace, ManagedFields: []metav1.ManagedFieldsEntry{{}},
			Labels:      map[string]string{v1alpha1.LabelTenant: "rome", "pelago.dev.example.com/x": "large", "color": "red"},
			Annotations: map[string]string{v1alpha1.AnnotationForce: "true", "note": "large"},
		}
	}
	theirs := meta(v1alpha1.TenantNamespace("rome"))
	own := meta(v1alpha1.PeeringNamespace("milan"))
	for _, c := range []struct {
		reason  string
		obj     client.Object
		trimmed bool
	}{
		{"a request of a consumer", &v1alpha1.ResourceRequest{ObjectMeta: theirs}, true},
		{"an identity", &v1alpha1.Identity{ObjectMeta: theirs}, true},
		{"an offer", &v1alpha1.ResourceOffer{ObjectMeta: theirs}, true},
		{"a shadow pod", &v1alpha1.ShadowPod{ObjectMeta: theirs}, true},
		{"what is read of a shadow object", &metav1.PartialObjectMetadata{ObjectMeta: theirs}, true},
		{"a namespace map", &v1alpha1.NamespaceMap{ObjectMeta: theirs}, true},
		{"a lease", &coordinationv1.Lease{ObjectMeta: theirs}, true},
		{"a request of our own people", &v1alpha1.ResourceRequest{ObjectMeta: own}, false},
		{"what a consumer cannot write", &corev1.ResourceQuota{ObjectMeta: theirs}, false},
	} {
		obj := c.obj.DeepCopyObject().(client.Object)
		got, err := trim(obj)
		if err != nil || got != any(obj) {
			t.Fatalf("%s: %v, %v", c.reason, got, err)
		}
		labels, annotations := c.obj.GetLabels(), c.obj.GetAnnotations()
		if c.trimmed {
			labels, annotations = map[string]string{v1alpha1.LabelTenant: "rome"}, map[string]string{v1alpha1.AnnotationForce: "true"}
		}
		if d := cmp.Diff([]map[string]string{labels, annotations}, []map[string]string{obj.GetLabels(), obj.GetAnnotations()}); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
		if obj.GetManagedFields() != nil {
			t.Errorf("%s keeps managed fields", c.reason)
		}
	}
	if got, err := trim("not an object"); got != "not an object" || err != nil {
		t.Errorf("what is no object: %v, %v", got, err)
	}
}

// What a consumer sends of its pods takes little room, however large it is.
func TestTrimOfLargeShadowPods(t *testing.T) {
	s := &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("rome")},
		Spec: v1alpha1.ShadowPodSpec{Home: v1alpha1.HomePod{Name: "web"}, Pod: strings.Repeat("x", 65536)}}
	if _, err := trim(s); err != nil || s.Spec.Pod != "" || s.Spec.Home.Name != "web" {
		t.Errorf("%d bytes are kept, %v", len(s.Spec.Pod), err)
	}
}
