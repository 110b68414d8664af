package network

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// unread lets a side look while the Secret with its keys cannot be read, as it has begun or long after that.
// What it says of its tunnel stays, and its owner is told why there is no key if none is known.
func (s *side) unread(begun bool) {
	w := s.world
	w.t.Helper()
	w.clock.Step(rereadEvery)
	w.renewed()
	was := s.networkReady()
	s.decider.keys.live = unreadable{}
	if _, err := s.decider.Reconcile(ctx, whole); err == nil || !strings.Contains(err.Error(), "does not answer") {
		w.t.Errorf("keys that cannot be read: %v", err)
	}
	s.decider.keys.live = s.client
	switch is := s.networkReady(); {
	case begun && is != "False/Waiting: the private key of the tunnel is not known: reading the keys of tunnels: the API server does not answer":
		w.t.Errorf("without keys NetworkReady is %s", is)
	case !begun && is != was:
		w.t.Errorf("keys that are known cannot be read again, and NetworkReady is %s, was %s", is, was)
	}
}

// TestUnread holds that a direct path stays what it is, at both ends, while the keys cannot be read.
func TestUnread(t *testing.T) {
	w := newLinked(t)
	w.talks(true)
	w.settleAll()
	here := w.pathAt(w.rome.peer)
	key := v1alpha1.NetworkPathKey(here.Namespace, here.Name)
	w.osloSays(keyOf(31).Public().String(), v1alpha1.ReasonReady)
	w.milan.report(w.milan.nodes[0], map[string]v1alpha1.TunnelReport{key: {Alive: true, Used: &metav1.Time{Time: w.clock.Now()}}, w.milan.key(): {Alive: true}})
	w.settleAll()
	if w.reason() != v1alpha1.ReasonReady {
		t.Fatalf("the path is %s", w.reason())
	}
	for _, begun := range []bool{false, true} {
		here, there := w.pathAt(w.rome.peer), w.pathAt(w.oslo)
		if begun {
			w.anew()
		}
		w.milan.unread(begun)
		for peering := range w.spaces {
			if _, err := w.pather.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: peering}}); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(here.Status, w.pathAt(w.rome.peer).Status); d != "" {
			t.Errorf("begun %t: milan says something else (-was +is):\n%s", begun, d)
		}
		if d := cmp.Diff(there.Spec, w.pathAt(w.oslo).Spec); d != "" {
			t.Errorf("begun %t: oslo is told something else (-was +is):\n%s", begun, d)
		}
		w.settleAll()
	}
}

// TestUnreadBehind holds the same of a consumer's end, which it says in the status of its provider's NetworkConfig.
func TestUnreadBehind(t *testing.T) {
	w := newLain(t)
	w.talks(true)
	for _, begun := range []bool{false, true} {
		_, was := w.ends()
		if was == nil || was.Status.PublicKey == "" {
			t.Fatalf("rome says %+v", was)
		}
		if begun {
			w.anew()
		}
		w.rome.unread(begun)
		if said := w.rome.pair(v1alpha1.NetworkProvider).Status.ConsumerPaths; len(said) != 1 || cmp.Diff(was.Status, said[0].NetworkPathStatus) != "" {
			t.Errorf("begun %t: rome says %+v, said %+v", begun, said, was.Status)
		}
		w.settleAll()
	}
}
