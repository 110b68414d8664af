package network

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestCrash ends the program at its writes, when a peering begins and when its keys are
// replaced, and in make test-all when Services are put before tunnels: what comes after is as if it had not.
func TestCrash(t *testing.T) {
	ways := []string{"begin", "rotate"}
	if kubetest.All() {
		ways = append(ways, "front")
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			var w *world
			kubetest.CrashPoints(t, func(after int) (int, bool) {
				if w == nil || way != "rotate" { // keys are replaced again and again
					w = newWorld(t)
				}
				if way == "front" {
					w.milan.config.Network.Service = corev1.ServiceTypeNodePort
				}
				return w.crash(way == "rotate", after)
			})
		})
	}
}

// crash lets the program die after some writes, and looks at what becomes of it.
func (w *world) crash(rotate bool, after int) (writes int, died bool) {
	w.t.Helper()
	if rotate {
		w.settle()
		w.change(&v1alpha1.Peering{ObjectMeta: named(w.rome.name)}, `{"metadata":{"annotations":{%q:"%d"}}}`, v1alpha1.AnnotationRotate, after)
		w.writes = 0
	}
	old := map[*side]*v1alpha1.NetworkConfig{w.rome: w.rome.own(), w.milan: w.milan.own()}
	w.dieAfter = after
	for i := 0; i < 16 && !w.died; i++ {
		_ = w.look()
		w.accept()
		if i == 11 {
			w.clock.Step(inUseAfter)
		}
	}
	writes, died = w.writes, w.died
	w.dieAfter, w.died = -1, false
	w.rome.restart()
	w.milan.restart()
	if w.milan.config.Network.Service != "" {
		w.agents() // somebody has to be gateway
	}
	w.settle()
	if rotate {
		w.accept()
		w.settle()
		w.clock.Step(inUseAfter)
		w.settle()
	}
	for _, s := range []*side{w.rome, w.milan} {
		own := s.own()
		if own.Spec.PublicKey == "" || len(own.Status.Views) != 2 || rotate && s == w.rome && own.Spec.PublicKey == old[s].Spec.PublicKey {
			w.t.Errorf("died after %d writes: %+v, %+v", after, own.Spec, own.Status)
		}
		if s.config.Network.Service != "" && (s.leads() == "" || len(own.Spec.Endpoints) == 0) {
			w.t.Errorf("died after %d writes: the Service leads to %q, and peers are told %v", after, s.leads(), own.Spec.Endpoints)
		}
		if l := unlocked(s.secret())[s.key()]; l.key.Public().String() != own.Spec.PublicKey || !l.next.IsZero() {
			w.t.Errorf("died after %d writes: the key that is kept is not the one that is published", after)
		}
	}
	return writes, died
}

// accept is what gateways do with next keys.
func (w *world) accept() {
	for _, s := range []*side{w.rome, w.milan} {
		other := w.rome
		if s == other {
			other = w.milan
		}
		if own := other.own(); own != nil && own.Spec.NextPublicKey != "" {
			s.report(s.nodes[0], map[string]v1alpha1.TunnelReport{s.key(): {Alive: true, Knows: own.Spec.NextPublicKey}})
		}
	}
}
