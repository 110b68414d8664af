package network

import (
	"testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestPathsShut holds that a path ends where a namespace that is offloaded to one of the two lets none of its
// pods be reached, as only this cluster's own gateways know of it, and that none is made.
func TestPathsShut(t *testing.T) {
	w := newLinked(t)
	w.talks(true)
	w.settleAll()
	if w.pathAt(w.rome.peer) == nil || w.pathAt(w.oslo) == nil {
		t.Fatal("they talk, and there is no path")
	}
	w.space("bank", nil)
	w.offloads(w.oslo, "shop", "bank")
	w.settleAll()
	if w.pathAt(w.rome.peer) == nil || w.pathAt(w.oslo) == nil {
		t.Fatal("one more namespace has ended the path")
	}
	w.create(&v1alpha1.NamespaceOffloading{ObjectMeta: at("bank", v1alpha1.OffloadingName), Spec: v1alpha1.NamespaceOffloadingSpec{Reachability: v1alpha1.ReachNone}})
	w.settleAll()
	if w.pathAt(w.rome.peer) != nil || w.pathAt(w.oslo) != nil {
		t.Error("a namespace that lets none of its pods be reached is at oslo, and there is a path")
	}
}
