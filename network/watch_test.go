package network

import (
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ration"
)

// asked counts what a queue is asked for at once, and later.
type asked struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	now, later int
	longest    time.Duration
}

func (a *asked) Add(ctrl.Request) { a.now++ }

func (a *asked) AddAfter(_ ctrl.Request, d time.Duration) {
	a.later++
	a.longest = max(a.longest, d)
}

// TestRationed: a tenant that changes what it says all the time causes a burst of looks and then
// one a second, and those of others are asked for at once.
func TestRationed(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	r := &decider{clock: clock}
	h, q := r.rationed(), &asked{}
	change := func(tenant string) {
		c := &v1alpha1.NetworkConfig{ObjectMeta: at(v1alpha1.TenantNamespace(tenant), v1alpha1.NetworkConsumer)}
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: c, ObjectNew: c}, q)
	}
	const seconds = 10
	for i := range seconds * 100 {
		clock.SetTime(noon.Add(time.Duration(i) * 10 * time.Millisecond))
		change("hostile")
		r.rations.Begin(clock.Now()) // others cause looks all the time
	}
	if q.now != ration.Burst || q.later < seconds-2 || q.later > seconds+1 || q.longest > ration.Every {
		t.Errorf("%d looks at once and %d later, after %s at most", q.now, q.later, q.longest)
	}
	change("quiet")
	if q.now != ration.Burst+1 {
		t.Error("a quiet tenant waits")
	}
}
