package peering

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// TestBeyond holds that a provider which shows more than is kept is reachable, and that it is
// said until it is over.
func TestBeyond(t *testing.T) {
	v := &visit{Peering: &v1alpha1.Peering{}}
	for _, beyond := range []error{errors.New("more than 2000 shadowobjects"), nil} {
		if !v.reach(fleet.State{Reachable: true, Reason: v1alpha1.ReasonPeerReachable, Beyond: beyond}) {
			t.Error("it is not reachable")
		}
		c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReachable)
		if c == nil || c.Status != "True" || strings.Contains(c.Message, "more than 2000 shadowobjects") != (beyond != nil) || beyond == nil && c.Message != "" {
			t.Errorf("%v: %+v", beyond, c)
		}
	}
}
