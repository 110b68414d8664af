package consumer

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/throttle"
)

// peers is a fleet of several.
type peers struct {
	*fakePeer
	all map[string]*fakePeer
}

func (p peers) Peer(peering string) (Peer, bool) {
	peer, ok := p.all[peering]
	return peer, ok
}

// hung answers no write: each ends with its caller's patience, or with the test. It returns how many wait.
func (w *world) hung() (creates, deletes *atomic.Int32) {
	creates, deletes = &atomic.Int32{}, &atomic.Int32{}
	over, cancel := context.WithCancel(ctx)
	w.t.Cleanup(cancel)
	wait := func(ctx context.Context, waiting *atomic.Int32) error {
		waiting.Add(1)
		defer waiting.Add(-1)
		select {
		case <-over.Done():
			return over.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.peer.client = interceptor.NewClient(w.admin, interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
			return wait(ctx, creates)
		},
		Delete: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.DeleteOption) error {
			return wait(ctx, deletes)
		},
	})
	return creates, deletes
}

// work has as many workers as a controller look at what is in the queue that it returns, until the test ends.
func work(t *testing.T, r reconcile.Reconciler, turns *throttle.Turns, workers int) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(throttle.NewLimiter())
	turns.Call(q.Add)
	t.Cleanup(q.ShutDown)
	for range workers {
		go func() {
			for {
				key, over := q.Get()
				if over {
					return
				}
				if _, err := r.Reconcile(ctx, key); err != nil {
					q.AddRateLimited(key)
				}
				q.Done(key)
			}
		}()
	}
	return q
}

// TestOneProviderHangs holds that a provider which answers no write keeps nobody from another one, however many pods it has.
func TestOneProviderHangs(t *testing.T) {
	bad, good := newWorld(t), newWorld(t)
	creates, deletes := bad.hung()
	fleet := peers{bad.peer, map[string]*fakePeer{bad.peering: bad.peer, good.peering: good.peer}}
	within := func(what string, condition func() bool) {
		t.Helper()
		begin := time.Now()
		good.await(what, condition)
		if took := time.Since(begin); took > remoteLimit/2 {
			t.Errorf("until %s it took %s", what, took)
		}
	}

	good.pods.fleet = fleet
	q := work(t, good.pods, good.pods.turns, workers)
	for i := range workers + 8 {
		q.Add(request(bad.pod(fmt.Sprintf("web-%d", i))))
	}
	good.await("the provider hangs", func() bool { return creates.Load() >= share })
	p := good.pod("web")
	q.Add(request(p))
	within("the other provider has its pod", func() bool { return good.shadow(p) != nil })
	good.tell(p, running())
	q.Add(request(p))
	within("home knows that it runs", func() bool { return good.now(p).Status.Phase == corev1.PodRunning })
	if n := creates.Load(); n > share {
		t.Errorf("%d workers wait for one provider, want %d at most", n, share)
	}

	orphan := func(w *world) *v1alpha1.ShadowPod {
		s := &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: w.peer.namespace, Name: string(uuid.NewUUID())},
			Spec: v1alpha1.ShadowPodSpec{Home: v1alpha1.HomePod{Namespace: w.home, Name: "gone"}, Request: "default", Pod: "{}"}}
		w.make(s)
		return s
	}
	good.orphans.fleet = fleet
	q = work(t, good.orphans, good.orphans.turns, orphanWorkers)
	for range orphanWorkers + 2 {
		q.Add(shadowAt(bad.peering, orphan(bad).Name))
	}
	good.await("the provider hangs", func() bool { return deletes.Load() >= orphanShare })
	s := orphan(good)
	q.Add(shadowAt(good.peering, s.Name))
	within("the other provider has none without a home pod", func() bool {
		return good.admin.Get(ctx, client.ObjectKeyFromObject(s), &v1alpha1.ShadowPod{}) != nil
	})
}
