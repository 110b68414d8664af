package network

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ration"
)

// tenantSpeaks tells the decider that a tenant has changed what it says.
func tenantSpeaks(t *testing.T, r *decider, tenant string, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	t.Helper()
	c := &v1alpha1.NetworkConfig{ObjectMeta: at(v1alpha1.TenantNamespace(tenant), v1alpha1.NetworkConsumer)}
	r.rationed().Update(t.Context(), event.UpdateEvent{ObjectOld: c, ObjectNew: c}, q)
}

// asked counts how often a queue is asked for something.
type asked struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	times atomic.Int32
}

func (a *asked) Add(ctrl.Request) { a.times.Add(1) }

// TestRationed: a tenant that changes what it says all the time causes a burst of looks and then
// one a second, and those of others are asked for at once.
func TestRationed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, q := &decider{clock: clock.RealClock{}}, &asked{}
		const seconds = 10
		for range seconds * 100 {
			tenantSpeaks(t, r, "hostile", q)
			r.rations.Begin(time.Now()) // others cause looks all the time
			<-time.After(10 * time.Millisecond)
		}
		synctest.Wait() // for what is due in this moment
		before := q.times.Load()
		if later := before - ration.Burst; later < seconds-2 || later > seconds+1 {
			t.Errorf("%d looks in %d s", before, seconds)
		}
		if tenantSpeaks(t, r, "quiet", q); q.times.Load() != before+1 {
			t.Error("a quiet tenant waits")
		}
		<-time.After(ration.Every) // what is due
	})
}

// TestRationedInQueue: a look that has to wait comes when it is due in the queue of controllers too, which
// holds one request once, whatever others ask for before that.
func TestRationedInQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, q := &decider{clock: clock.RealClock{}}, priorityqueue.New[ctrl.Request]("network-rationed")
		defer q.ShutDown()
		look := func() {
			req, _ := q.Get()
			r.rations.Begin(time.Now())
			q.AddAfter(req, lookEvery)
			q.Done(req)
		}
		for range ration.Burst {
			tenantSpeaks(t, r, "rome", q)
			look()
		}
		tenantSpeaks(t, r, "rome", q)
		q.Add(whole)
		look()
		changed := time.Now()
		tenantSpeaks(t, r, "rome", q)
		look()
		if after := time.Since(changed); after > ration.Every {
			t.Errorf("a change is looked at after %s", after)
		}
	})
}
