package provider

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A cache that is behind must not make a pod again that has ended.
func TestStaleCacheMakesNothing(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyNever)
	b.settle()
	b.status(running)
	b.settle()
	old := b.get(b.uid)
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(endedAs(corev1.PodFailed, 1, time.Now().Add(-time.Minute)))
	b.settle()
	b.must(b.c.Delete(t.Context(), b.pod()))
	b.noPod()
	// A new process whose cache has the ShadowPod of before its first status or its end.
	for _, was := range []*v1alpha1.ShadowPod{old, withoutStatus(old)} {
		b.reconciler = newReconciler(stale{b.c, was}, b.c, Options{Clock: b.clock})
		_, err := b.once(b.uid)
		b.must(err)
		b.noPod()
	}
	b.want("phase", b.get(b.uid).Status.Phase, "Failed")
}

func withoutStatus(s *v1alpha1.ShadowPod) *v1alpha1.ShadowPod {
	s = s.DeepCopy()
	s.Status = v1alpha1.ShadowPodStatus{}
	return s
}

// stale reads one ShadowPod as it was.
type stale struct {
	client.WithWatch
	shadow *v1alpha1.ShadowPod
}

func (s stale) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if into, ok := obj.(*v1alpha1.ShadowPod); ok {
		s.shadow.DeepCopyInto(into)
		return nil
	}
	return s.WithWatch.Get(ctx, key, obj, opts...)
}

// blind sees no pods, like a cache that has not got them yet.
type blind struct{ client.WithWatch }

func (b blind) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok {
		return nil
	}
	return b.WithWatch.List(ctx, list, opts...)
}

// A cache that has not got the pod yet makes neither a second one nor a replacement, and
// does not let the ShadowPod go.
func TestBlindCache(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.reconciler = newReconciler(blind{b.c}, b.c, Options{Clock: b.clock})
	b.clockBack()
	for range 4 {
		_, err := b.once(b.uid)
		b.must(err)
		b.clock.SetTime(b.clock.Now().Add(2 * time.Second))
	}
	pod := b.pod()
	b.reconciler = newReconciler(blind{b.c}, b.c, Options{Clock: b.clock}) // knows not even that it made it
	for range 3 {
		_, err := b.once(b.uid)
		b.must(err)
		b.clock.SetTime(b.clock.Now().Add(2 * time.Second))
	}
	b.want("pod", string(b.pod().UID), string(pod.UID))
	if s := b.get(b.uid); s.Status.Replaced != 0 || s.Status.Ref == nil || s.Status.Ref.UID != string(pod.UID) {
		t.Fatalf("it counts as lost: %s", b.show())
	}
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.must(b.c.Delete(t.Context(), b.get(b.uid)))
	_, err := b.once(b.uid)
	b.must(err)
	if b.get(b.uid) == nil {
		t.Fatal("the shadow pod went before its pod")
	}
}
