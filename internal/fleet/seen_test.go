package fleet

import "testing"

// TestAs holds that a room sees the peers there are, and only these, as what it wants.
func TestAs(t *testing.T) {
	type identified interface{ ClusterID() string }
	f := New(Options{Scheme: scheme()})
	seen := As(f, func(p *Peer) identified { return p })
	if _, ok := seen.Peer("milan"); ok {
		t.Error("a peer that there is not")
	}
	if err := f.Set(t.Context(), Connection{Peering: "milan", ClusterID: "7b0d9c36", ServerURL: "https://milan.example:6443", TenantNamespace: "ns", Token: "token"}); err != nil {
		t.Fatal(err)
	}
	defer f.Remove("milan")
	if p, ok := seen.Peer("milan"); !ok || p.ClusterID() != "7b0d9c36" {
		t.Errorf("the peer is %v, %v", p, ok)
	}
}
