package test

import (
	"testing"
	"time"
)

// soon holds that a peering in band can be ended at any moment after it was made, with the clusters far
// apart: while it still goes over from the tunnel of the invitation to its own.
func (b *inBand) soon(t *testing.T) {
	b.Run(t, "link", "set", "rome", "milan", "--delay", "25ms")
	t.Cleanup(func() {
		b.Run(t, "link", "set", "rome", "milan")
		b.part(t, "rome", "milan")
	})
	for wait := time.Duration(0); wait <= 2*time.Second; wait += 250 * time.Millisecond {
		line := b.Invite(t, "milan", "--in-band")
		if r := b.Shell(t, "rome", line); r.Code != 0 {
			t.Fatalf("exit %d\n%s%s\n%s", r.Code, r.Out, r.Errs, b.TryPelago(t, "rome", "explain", "peering", "milan").Out)
		}
		<-time.After(wait)
		r := b.TryPelago(t, "rome", "unpeer", "milan", "--timeout", "30s")
		if r.Code != 0 {
			t.Fatalf("unpeer %s after: exit %d\n%s%s\n%s", wait, r.Code, r.Out, r.Errs, b.TryPelago(t, "rome", "explain", "peering", "milan").Out)
		}
		t.Logf("%s after: unpeered in %s", wait, r.Took.Round(10*time.Millisecond))
		b.part(t, "rome", "milan")
	}
}
