package test

import (
	"strings"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// both holds that one command has clusters of which one is behind NAT use each other in band, and
// that one ends it.
func (b *inBand) both(t *testing.T) {
	b.note(t)
	t.Cleanup(func() { b.part(t, "rome", "milan") })
	r := b.TryPelago(t, "rome", "peer", "--remote-kubeconfig", b.Files["milan"], "--in-band", "--bidirectional")
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s%s\n%s\n%s", r.Code, r.Out, r.Errs,
			b.TryPelago(t, "rome", "explain", "peering", "milan").Out, b.TryPelago(t, "milan", "explain", "peering", "rome").Out)
	}
	t.Logf("one command to peered both ways: %s", r.Took.Round(10*time.Millisecond))
	for _, side := range [][2]string{{"rome", "milan"}, {"milan", "rome"}} {
		peering, err := get[v1alpha1.Peering](b.continuum, side[0], "", side[1])
		if err != nil {
			t.Fatal(err)
		}
		if got := condition(peering.Status.Conditions, v1alpha1.ConditionReady); len(peering.Status.Roles) != 2 || !strings.HasPrefix(got, v1alpha1.ConditionReady+"=True") {
			t.Errorf("%s in %s: roles %v, %s", side[1], side[0], peering.Status.Roles, got)
		}
	}
	b.introduced(t)
	b.shut(t) // all that follows goes through tunnels
	t.Run("Works", func(t *testing.T) {
		b.uses(t, "rome", "milan")
		b.uses(t, "milan", "rome")
		b.Pelago(t, "rome", "test", "network", "--timeout", patience.String())
	})
	b.Pelago(t, "rome", "unpeer", "milan")
	b.left(t)
}
