package provider

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A ShadowPod without our finalizer, as nobody of ours would write it.
func TestHostileFinalizers(t *testing.T) {
	b := newBench(t)
	s := b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Finalizers = nil })
	_, err := b.once(b.uid)
	b.must(err)
	b.noPod()
	if !strings.Contains(b.show(), v1alpha1.FinalizerShadowPod) {
		t.Fatal("the finalizer was not added before the pod")
	}
	b.settle()
	b.pod()
	// The finalizer is taken off and the ShadowPod deleted behind our back.
	b.must(b.c.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	b.must(b.c.Delete(t.Context(), s))
	b.settle()
	b.noPod()
}

// TestTakenAway: where an owner takes a namespace away from the tenant, what is in it ends as its
// new owner asks: pods that can end by themselves are let go of, at once if their ShadowPod is
// there, else when they are deleted.
func TestTakenAway(t *testing.T) {
	for _, label := range []string{v1alpha1.LabelTenant, v1alpha1.LabelHomeNamespace} {
		for _, there := range []bool{true, false} {
			b := newBench(t)
			s := b.shadowPod(corev1.RestartPolicyNever)
			b.settle()
			b.bind(b.node(corev1.ConditionTrue).Name)
			b.status(running)
			b.settle()
			take := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":null}}}`))
			b.must(b.c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.space}}, take))
			if !there {
				b.must(b.c.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
				b.must(b.c.Delete(t.Context(), s))
			}
			b.settle()
			if pod := b.pod(); pod.DeletionTimestamp != nil || len(pod.Finalizers) > 0 {
				t.Errorf("without %s, ShadowPod there %t: it is held by %v, deleted %v", label, there, pod.Finalizers, pod.DeletionTimestamp)
			}
			b.kubeletDone()
			b.noPod()
		}
	}
}

// Labels prove nothing: pods in namespaces that are not the tenant's are not touched.
func TestForeignPods(t *testing.T) {
	b := newBench(t)
	other := newBench(t)
	uid := "11111111-2222-3333-4444-555555555555"
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: other.space, Name: "x",
		Labels: map[string]string{v1alpha1.LabelTenant: b.tenant, v1alpha1.LabelHomeUID: uid}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}}}
	b.must(b.c.Create(t.Context(), stranger))
	_, err := b.once(uid)
	b.must(err)
	if len(b.podsOf(uid)) != 1 {
		t.Fatal("a pod was deleted that is not the tenant's")
	}
	orphan := stranger.DeepCopy()
	orphan.ObjectMeta = metav1.ObjectMeta{Namespace: b.space, Name: "x", Labels: stranger.Labels, Finalizers: []string{v1alpha1.FinalizerShadowPod}}
	b.must(b.c.Create(t.Context(), orphan))
	for range 3 {
		_, err := b.once(uid)
		b.must(err)
	}
	if pods := b.podsOf(uid); len(pods) != 1 || pods[0].Namespace != other.space {
		t.Fatalf("the orphan was not removed: %d pods", len(pods))
	}
}
