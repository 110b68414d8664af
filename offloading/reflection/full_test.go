package reflection

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestFull holds that no object is sent beyond what is read of a provider, that its owner is
// told, and that what is there still follows home and goes.
func TestFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := pullSecret(w.home, "before", "s3cret-1")
	w.create(before)
	w.create(pullSecret(w.home, "after", "s3cret-2"))
	first := w.pod("one", "before")
	w.both("before")
	w.full = true
	w.pod("two", "after")
	w.both("after")
	if w.shadow("after") != nil || w.told("this cluster has as many objects there as it keeps") == 0 {
		t.Error("it is sent to a full provider, or nobody is told")
	}
	before.Data[jsonKey] = login("s3cret-3")
	if err := w.raw.Update(ctx, before); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(rereadEvery)
	w.both("before")
	if got := w.password("before"); got != "s3cret-3" {
		t.Errorf("what is there does not follow home: %q", got)
	}
	if err := w.raw.Delete(ctx, first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.both("before")
	w.clock.Step(2 * grace)
	w.both("before")
	w.clock.Step(2 * grace)
	w.both("before")
	if w.shadow("before") != nil {
		t.Error("what is not needed stays")
	}
	w.full = false
	w.clock.Step(rereadEvery)
	w.both("after")
	if w.shadow("after") == nil {
		t.Error("it does not go where there is room again")
	}
}
