package network

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/network/policy"
)

var errRefused = errors.New("refused")

// denying is an API server, and a provider, that have nothing and refuse what tries.
type denying struct {
	fakeFleet
	client client.WithWatch
	tries  atomic.Int32
	well   atomic.Bool
}

func (d *denying) try() error {
	d.tries.Add(1)
	if d.well.Load() {
		return nil
	}
	return errRefused
}

func (d *denying) Peer(string) (Peer, bool)            { return d, true }
func (d *denying) TenantNamespace() string             { return "tenant-rome" }
func (d *denying) Client() client.Client               { return d.client }
func (d *denying) Reader() client.Reader               { return d.client }
func (d *denying) Reachable() (bool, time.Time, error) { return true, time.Time{}, nil }

// TestRetries: what fails is tried less and less often, whatever rests there are between looks, but at once when
// something changes, and after it went well as if it had never failed.
func TestRetries(t *testing.T) {
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "milan"}}
	for name, c := range map[string]struct {
		funcs func(*denying) interceptor.Funcs
		make  func(*denying, *Network) (reconcile.Reconciler, workqueue.TypedRateLimiter[ctrl.Request])
	}{
		"network": {func(d *denying) interceptor.Funcs {
			return interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
					if _, is := o.(*corev1.Secret); is && d.try() != nil {
						return errRefused
					}
					return apierrors.NewNotFound(schema.GroupResource{}, "")
				},
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
			}
		}, func(d *denying, n *Network) (reconcile.Reconciler, workqueue.TypedRateLimiter[ctrl.Request]) {
			r := newDecider(n, d.client, d.client, nil)
			return r, &r.retries
		}},
		"network-rules": {func(d *denying) interceptor.Funcs {
			return interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return apierrors.NewNotFound(schema.GroupResource{}, "")
				},
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return d.try() },
			}
		}, func(d *denying, n *Network) (reconcile.Reconciler, workqueue.TypedRateLimiter[ctrl.Request]) {
			r := &ruler{client: d.client, clock: n.options.Clock, fleet: d, looked: map[types.NamespacedName]time.Time{},
				told: map[types.NamespacedName]said{}, bound: map[types.NamespacedName]policy.Scope{}}
			return r, &r.retries
		}},
		"network-paths": {func(d *denying) interceptor.Funcs {
			return interceptor.Funcs{
				List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
					list.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{*remotePath(d.TenantNamespace(), "unwanted")}
					return nil
				},
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return d.try() },
			}
		}, func(d *denying, n *Network) (reconcile.Reconciler, workqueue.TypedRateLimiter[ctrl.Request]) {
			n.paths.want(nil, time.Now())
			r := newPather(n, d.client, nil)
			return r, &r.retries
		}},
		"network-config-consumer": {func(d *denying) interceptor.Funcs {
			return interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
					if far, is := o.(*unstructured.Unstructured); is {
						far.Object["spec"] = map[string]any{"pods": []any{"10.42.0.0/16"}}
					}
					return nil
				},
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return d.try()
				},
			}
		}, func(d *denying, n *Network) (reconcile.Reconciler, workqueue.TypedRateLimiter[ctrl.Request]) {
			r := &carrier{client: d.client, clock: n.options.Clock, fleet: d, refused: &notes{}, tell: func() {}}
			return r, &r.retries
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &denying{}
				d.client = interceptor.NewClient(nil, c.funcs(d))
				r, limiter := c.make(d, New(Options{Home: &side{id: "x"}, Fleet: d, Clock: clock.RealClock{}}))
				controller, err := controller.NewUnmanaged(name, controller.Options{Reconciler: r, RateLimiter: limiter, SkipNameValidation: new(true)})
				if err != nil {
					t.Fatal(err)
				}
				var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
				if err := controller.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
					queue = q
					q.Add(request)
					return nil
				})); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(ctx)
				ended := make(chan error)
				go func() { ended <- controller.Start(ctx) }()
				within := func(limit time.Duration) (tries int32) {
					synctest.Wait()
					before := d.tries.Load()
					<-time.After(limit)
					synctest.Wait()
					return d.tries.Load() - before
				}
				const first = 10 * time.Second
				if n := within(first); n < 5 || n > 10 {
					t.Errorf("%d tries in the first %s", n, first)
				}
				within(throttle.RestsMost)
				if n := within(10 * throttle.RestsMost); n < 9 || n > 13 {
					t.Errorf("then %d tries in %s", n, 10*throttle.RestsMost)
				}
				before := d.tries.Load()
				queue.Add(request)
				if within(time.Second); d.tries.Load() != before+1 {
					t.Errorf("%d tries as something changes", d.tries.Load()-before)
				}
				d.well.Store(true)
				if within(throttle.RestsMost); limiter.NumRequeues(request) > 0 {
					t.Error("what went well is taken for one more failure")
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
