package offer

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// oneRequest is a cache that holds one request of one tenant.
type oneRequest struct{ client.Reader }

func (oneRequest) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	switch l := l.(type) {
	case *v1alpha1.ResourceRequestList:
		r := v1alpha1.ResourceRequest{}
		r.Name, r.Namespace = "default", v1alpha1.TenantNamespace("rome")
		l.Items = []v1alpha1.ResourceRequest{r}
	case *v1alpha1.TenantList:
		t := v1alpha1.Tenant{}
		t.Name, t.Spec.ClusterID = "rome", "id-1"
		l.Items = []v1alpha1.Tenant{t}
	}
	return nil
}

// The first change counts at once; any number within the next second counts once, at
// its end.
func TestPulse(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	p := newPulse(clock, oneRequest{})
	ctx, cancel := context.WithCancel(context.Background())
	var looked atomic.Int32
	ended := make(chan struct{})
	go func() {
		p.run(ctx, func(reconcile.Request) { looked.Add(1) })
		close(ended)
	}()
	expect := func(reason string, want int32) {
		t.Helper()
		eventually(t, reason, clock.HasWaiters) // the look is over
		if got := looked.Load(); got != want {
			t.Errorf("%s: looked %d times, want %d", reason, got, want)
		}
	}
	p.notify("")
	expect("the first change", 1)
	for range 1000 {
		p.notify("")
	}
	clock.Step(pulseEvery - time.Millisecond)
	expect("within the second", 1)
	clock.Step(time.Millisecond)
	eventually(t, "the second is over", func() bool { return looked.Load() == 2 })
	expect("after the second", 2)
	p.notify("id-1")
	clock.Step(pulseEvery)
	eventually(t, "one consumer", func() bool { return looked.Load() == 3 })
	expect("one consumer", 3)
	p.notify("somebody else")
	clock.Step(pulseEvery)
	eventually(t, "the look at nothing is over", clock.HasWaiters)
	expect("another consumer", 3)
	cancel()
	<-ended
}
