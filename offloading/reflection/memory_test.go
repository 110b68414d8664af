package reflection

import (
	"testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// links is a fleet with one connection.
type links struct {
	Fleet
	peering string
}

func (l links) Peer(peering string) (Peer, bool) { return nil, peering == l.peering }

// What is remembered of a provider goes with the connection to it, whether it answers or
// not.
func TestNotesOfPeeringsThatAreGone(t *testing.T) {
	r := &consumer{fleet: links{peering: "milan-2"}, budget: fleet.NewBudget(), notes: newNotes[note]()}
	for _, peering := range []string{"milan", "milan-2"} {
		for _, namespace := range []string{"shop", "bank"} {
			r.notes.set(at(peering, v1alpha1.HomeObject{Kind: kindSecret, Namespace: namespace, Name: "key"}).NamespacedName, note{told: "x"})
		}
	}
	if r.left("milan-2"); r.notes.count() != 4 {
		t.Errorf("%d notes are left of two providers", r.notes.count())
	}
	r.left("milan")
	if r.notes.count() != 2 || r.notes.get(at("milan-2", v1alpha1.HomeObject{Kind: kindSecret, Namespace: "shop", Name: "key"}).NamespacedName).told == "" {
		t.Errorf("left of the other provider: %v", r.notes.of)
	}
}
