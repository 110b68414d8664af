package reflection

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestSliceIsPaced: however often endpoints change, a slice is written once a second.
func TestSliceIsPaced(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	s := sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", "node-1"))
	w.create(s)
	w.both("web-1")
	shadows := 0
	w.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*v1alpha1.ShadowObject); ok && verb != "status" {
			shadows++
		}
		return nil
	}
	const seconds = 6
	for second := range seconds {
		w.clock.Step(readEvery)
		for flap := range 4 { // ready, not ready, none at all
			s.Endpoints = []discoveryv1.Endpoint{endpoint("10.1.0.1", "node-1")}
			s.Endpoints[0].Conditions.Ready = new((second+flap)%3 == 0)
			if (second+flap)%3 == 2 {
				s.Endpoints = nil
			}
			w.update(s)
			if _, err := w.consumer.Reconcile(ctx, at(w.name, w.of("web-1"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if shadows > seconds || shadows < 2 {
		t.Errorf("%d writes in %d seconds", shadows, seconds)
	}
}

// indexed reads pods by their node as a cache does.
type indexed struct{ client.Reader }

func (r indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	by := o.FieldSelector
	o.FieldSelector = nil
	err := r.Reader.List(ctx, list, o)
	if pods, ok := list.(*corev1.PodList); ok && by != nil {
		pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
			return !slices.ContainsFunc(indices[byNode](&p), func(node string) bool { return by.Matches(fields.Set{byNode: node}) })
		})
	}
	return err
}

// TestBeyond: what is looked at when another provider begins or ceases to answer.
func TestBeyond(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	oslo := w.another()
	w.create(sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", oslo)))
	made := sliceOf(w.home, "made", "web", endpoint("10.1.0.1", oslo))
	made.Labels[v1alpha1.LabelManagedBy] = manager
	w.create(made)
	wakers := wakers{cache: indexed{w.raw}, fleet: w, spaces: w.consumer.spaces, addresses: true}
	ours := func(reason string, want ...reconcile.Request) {
		t.Helper()
		got := slices.DeleteFunc(wakers.beyond(oslo), func(r reconcile.Request) bool { // others use the same server
			return !strings.HasPrefix(r.Namespace, w.name)
		})
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
	}
	ours("no pod is there")
	w.podWith("beyond", func(spec *corev1.PodSpec) { spec.NodeName = oslo })
	ours("a pod is there", at(w.name, w.of("web-1")))
	wakers.addresses = false
	ours("there is no network")
}
