package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestRemade: what a node's provider refused before the node was made is not heeded: a provider that drains
// its tenant has the node go, and a new one means that it takes pods again.
func TestRemade(t *testing.T) {
	const owner = "u-1"
	pod := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":%q,"controller":true}]},"spec":{}}`, owner)
	for _, c := range []struct {
		reason string
		since  time.Duration // the refusal, from the making of the node
		want   bool
	}{
		{"before", -time.Second, false},
		{"after", time.Second, true},
	} {
		s := newShelf()
		made := time.Now().Add(-10 * time.Second)
		for i := range s.nodes {
			s.nodes[i].CreationTimestamp = metav1.NewTime(made)
		}
		until := metav1.NewTime(made.Add(c.since).Add(v1alpha1.AvoidFor(2)))
		s.refusals["pelago-peering-milan"] = []v1alpha1.Refusal{{Owner: owner, Node: "milan", Count: 2, Until: until, Reason: v1alpha1.ReasonDrained}}
		h, _ := handlerOf(t, s)
		got := answerOf(t, post(h, reviewOf("labelled", pod)))
		if avoids := strings.Contains(string(got.Patch), `"values":["milan"]`); !got.Allowed || avoids != c.want {
			t.Errorf("refused %s the node was made: avoids it %t, %s", c.reason, avoids, got.Patch)
		}
	}
}
