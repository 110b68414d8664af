package network

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/network/plan"
)

// TestNewNode has a node join that by its hash is gateway at once, while the peer hears nothing: what it was told
// of stays gateway until it has heard.
func TestNewNode(t *testing.T) {
	w := newWorld(t)
	for _, s := range []*side{w.milan, w.rome} { // who consumes is called as well, and asked to answer
		w.agents()
		w.settle()
		before := s.own().Spec.Endpoints
		if len(before) != 2 {
			t.Fatalf("the peer calls %v", before)
		}
		name := ""
		for i := 0; name == ""; i++ {
			if n := fmt.Sprintf("%s-new%d", s.peer, i); plan.Gateway(s.key(), append(slices.Clone(s.nodes), n), nil) == n {
				name = n
			}
		}
		n := w.create(&corev1.Node{ObjectMeta: w.named(name), Spec: corev1.NodeSpec{PodCIDRs: []string{"10.42.9.0/24"}}}).(*corev1.Node)
		address := fmt.Sprintf("198.18.9.%d", len(s.key()))
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		w.status(n)
		s.nodes = append(s.nodes, name)
		w.agents()
		late := append(slices.Clone(before), fmt.Sprintf("%s:%d", address, s.own().Spec.Port))
		for range 4 { // and nobody carries anything
			w.clock.Step(lookRest)
			if _, err := s.decider.Reconcile(ctx, whole); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(late, s.own().Spec.Endpoints); d != "" {
			t.Errorf("before the peer of %s has heard of %s (-want +got):\n%s", s.key(), name, d)
		}
		s.restart()
		w.agents()
		for range 4 {
			w.clock.Step(lookRest)
			if _, err := s.decider.Reconcile(ctx, whole); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(late, s.own().Spec.Endpoints); d != "" {
			t.Errorf("and after a restart (-want +got):\n%s", d)
		}
		w.agents()
		w.settle()
		first := append(late[2:3:3], before...)
		if d := cmp.Diff(first, s.own().Spec.Endpoints); d != "" {
			t.Errorf("when it has heard (-want +got):\n%s", d)
		}
		if !s.pairHeard() {
			t.Error("the peer has not heard of that")
		}
		writes := w.writes
		w.agents()
		w.settle()
		if w.writes != writes {
			t.Errorf("at rest there are the writes\n%s", w.since(writes))
		}
	}
}

// pairHeard says whether the other side has taken what this one says.
func (s *side) pairHeard() bool {
	own := s.own()
	return own.Status.ObservedGeneration == own.Generation
}
