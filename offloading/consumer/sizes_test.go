package consumer

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// older is a client of an API server of before 1.36, which drops what a pod's status says of the pod's
// resources as a whole.
func older(t *testing.T, c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			data, err := patch.Data(obj)
			if err != nil {
				return err
			}
			fields := map[string]any{}
			if err := json.Unmarshal(data, &fields); err != nil {
				t.Error(err)
			}
			if status, is := fields["status"].(map[string]any); is {
				delete(status, "resources")
				delete(status, "allocatedResources")
			}
			if data, err = json.Marshal(fields); err != nil {
				t.Error(err)
			}
			return c.SubResource(sub).Patch(ctx, obj, client.RawPatch(patch.Type(), data), opts...)
		},
	})
}

// TestSizesThatAreDropped holds that a home whose API server drops what newer kubelets of a provider say of
// pods' resources writes it once, and not at each look.
func TestSizesThatAreDropped(t *testing.T) {
	w := newWorld(t)
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	plain := func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = amounts }
	whole := func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts} }
	runs := func(name string, edit func(*corev1.Pod)) *corev1.Pod {
		t.Helper()
		p := w.pod(name, edit)
		w.reconcile(p)
		said := running()
		said.Resources, said.AllocatedResources = &corev1.ResourceRequirements{Requests: amounts}, amounts
		w.tell(p, said, accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
		w.reconcile(p)
		if got := w.now(p); got.Status.Phase != corev1.PodRunning {
			t.Fatalf("%s is %s", name, got.Status.Phase)
		}
		return p
	}
	writes := func(p *corev1.Pod) int {
		before := w.total
		w.reconcile(p)
		return w.total - before
	}
	for i, edit := range []func(*corev1.Pod){plain, whole} {
		w.restart()
		w.pods.client = older(t, w.counted("here"))
		p := runs(fmt.Sprint("older-", i), edit)
		for range 2 {
			if n := writes(p); n != 0 {
				t.Errorf("%s runs, and a look at it writes %d times", p.Name, n)
			}
		}
		if s := w.now(p).Status; s.Resources != nil || s.AllocatedResources != nil {
			t.Fatalf("the API server has kept %v", s)
		}
		// What else changes is written.
		w.tell(p, ended(corev1.PodFailed, 1), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
		w.reconcile(p)
		if got := w.now(p); got.Status.Phase != corev1.PodFailed {
			t.Errorf("%s is %s", p.Name, got.Status.Phase)
		}
	}
	// One that has been upgraded meanwhile keeps them, of pods that ran before too from the next look on.
	early := runs("early", plain)
	w.pods.client = w.counted("here")
	for _, p := range []*corev1.Pod{runs("late", whole), runs("none", func(*corev1.Pod) {}), early} {
		w.reconcile(p)
		if s := w.now(p).Status; s.Resources == nil || s.AllocatedResources == nil && p.Name != "none" {
			t.Errorf("what %s has is not told: %v", p.Name, s)
		}
		if n := writes(p); n != 0 {
			t.Errorf("%s runs, and a look at it writes %d times", p.Name, n)
		}
	}
}
