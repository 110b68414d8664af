package peering

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestFarewellWaitsForNodes holds that the provider is told goodbye only after the virtual
// nodes are gone, with and without force, and that the connection serves until then, also
// after a restart.
func TestFarewellWaitsForNodes(t *testing.T) {
	for _, forced := range []bool{false, true} {
		s := newStage(t)
		p := s.peer()
		q := &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.PeeringNamespace(s.name), Name: v1alpha1.DefaultRequestName}}
		s.exists(q)
		before := q.DeepCopy()
		q.Finalizers = append(q.Finalizers, v1alpha1.FinalizerNode)
		if err := s.client.Patch(t.Context(), q, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		if forced {
			before := p.DeepCopy()
			p.Annotations = map[string]string{v1alpha1.AnnotationForce: "true"}
			if err := s.client.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
				t.Fatal(err)
			}
		}
		s.delete(p)
		for range 3 {
			s.reconcile()
		}
		s.fleet.Remove(s.name)
		s.restart(s.client)
		s.reconcile()
		if _, ok := s.fleet.Peer(s.name); !ok {
			t.Error("there is no connection while the nodes are drained")
		}
		identity, namespace := s.identity(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: q.Namespace}}
		if !s.exists(identity) || identity.DeletionTimestamp != nil || !s.exists(namespace) || namespace.DeletionTimestamp != nil {
			t.Errorf("forced %v: the provider was told, or the namespace goes, before the node is gone", forced)
		}
		if !s.exists(q) || q.DeletionTimestamp == nil {
			t.Errorf("forced %v: the request is not being deleted", forced)
		}
		if c := meta.FindStatusCondition(s.peering().Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, "drained") {
			t.Errorf("it says %q", c.Message)
		}
		before = q.DeepCopy()
		q.Finalizers = slices.DeleteFunc(q.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerNode })
		if err := s.client.Patch(t.Context(), q, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		s.untilGone()
		if !forced {
			s.expectNothing()
		}
	}
}
