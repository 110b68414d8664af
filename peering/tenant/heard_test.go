package tenant

import (
	"fmt"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestHearIsPaced holds that a consumer that says something else of itself all the time causes few writes, and
// that a change counts at once where there was none before it, and the last one in the end.
func TestHearIsPaced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settle()
	b.introduce()
	b.renew(b.clock.Now())
	b.settle()
	say := func(version string) {
		t.Helper()
		i := get(b, b.space(), v1alpha1.IdentityName, &v1alpha1.Identity{})
		i.Spec.Cluster.Version = version
		if err := b.c.Update(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	say("v0.2.0")
	b.reconcile()
	if got := b.tenant().Status.Cluster.Version; got != "v0.2.0" {
		t.Errorf("an upgrade is not seen at once: %s", got)
	}
	versions := map[string]bool{}
	const flips = 50
	for n := range flips {
		say(fmt.Sprint("v0.3.", n))
		b.step(100 * time.Millisecond)
		if res := b.reconcile(); b.tenant().Status.Cluster.Version != fmt.Sprint("v0.3.", n) && (res.RequeueAfter <= 0 || res.RequeueAfter > hearEvery) {
			t.Fatalf("what was not taken over is looked at after %s", res.RequeueAfter)
		}
		versions[b.tenant().ResourceVersion] = true
	}
	if len(versions) > 3 {
		t.Errorf("%d changes made %d versions of the tenant", flips, len(versions))
	}
	b.step(hearEvery)
	b.reconcile()
	if got := b.tenant().Status.Cluster.Version; got != fmt.Sprint("v0.3.", flips-1) {
		t.Errorf("the last change is not seen: %s", got)
	}
}
