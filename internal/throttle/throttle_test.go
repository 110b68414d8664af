package throttle

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestLimiter holds that the wait grows, by half as much again at most as it is spread, and ends to grow.
func TestLimiter(t *testing.T) {
	l := NewLimiter()
	for n := range 40 {
		low, wait := first/2<<min(n, 20), l.When(reconcile.Request{})
		if low = min(low, latest/2); wait < low || wait > 2*low {
			t.Errorf("attempt %d is after %s, want %s to %s", n, wait, low, 2*low)
		}
	}
	l.Forget(reconcile.Request{})
	if wait := l.When(reconcile.Request{}); wait > first {
		t.Errorf("after a success it is %s", wait)
	}
}
