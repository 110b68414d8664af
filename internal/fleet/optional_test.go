package fleet

import (
	"testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestOptional holds that a provider which refuses a kind that it is too old to know does not
// seem to refuse this cluster, and one that refuses another kind does.
func TestOptional(t *testing.T) {
	f := New(Options{Scheme: scheme()})
	if err := f.WatchWithin(&v1alpha1.NetworkConfig{}, Bounds{Optional: true}); err != nil {
		t.Fatal(err)
	}
	if err := f.Watch(&v1alpha1.ResourceOffer{}); err != nil {
		t.Fatal(err)
	}
	s, err := newSession(Connection{ServerURL: "https://192.0.2.1:1", Token: "x", TenantNamespace: "ns"}, f.kinds, &f.options)
	if err != nil {
		t.Fatal(err)
	}
	optional, other := s.reader.mirrors[v1alpha1.GroupVersion.WithKind("NetworkConfig")], s.reader.mirrors[v1alpha1.GroupVersion.WithKind("ResourceOffer")]
	optional.setHealth(forbidden, errNoAnswer)
	other.setHealth(up, nil)
	other.synced = true
	if state := s.state(); state.Reason != v1alpha1.ReasonPeerReachable || !s.synced() {
		t.Errorf("an optional kind is refused: %+v", state)
	}
	optional.setHealth(down, errNoAnswer)
	if state := s.state(); state.Reachable {
		t.Errorf("its watch is down: %+v", state)
	}
	optional.setHealth(up, nil)
	other.setHealth(forbidden, errNoAnswer)
	if state := s.state(); state.Reason != v1alpha1.ReasonForbidden {
		t.Errorf("another kind is refused: %+v", state)
	}
}
