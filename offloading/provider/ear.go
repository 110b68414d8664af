package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// sweepEvery is how often it is looked after namespaces without pods and old warnings.
	sweepEvery = time.Minute
	// maxSpaces are the namespaces of one tenant that are listened in at a time: each is a
	// watch, and API servers answer those of events from their database.
	maxSpaces = 64
)

// In namespaces that are mapped for tenants, by a RoleBinding made with them:
//
// +kubebuilder:rbac:groups="",resources=events,verbs=list;watch,roleName=pelago-manager-mapped

// ear hears of warnings about pods: of the events of mapped namespaces in which pods of
// ours were not ready, those of type Warning about pods. It watches one namespace at a
// time, as API servers keep events of all others from a watch only by reading them, and as
// this program has no right to see those. Of each tenant it watches the first ones, and
// says in the log when there are more. What was warned of before a watch began is heard
// as well, as long as the API server keeps it.
type ear struct {
	cache  cache.Cache
	direct client.WithWatch
	book   *book
	clock  clock.PassiveClock
	heard  chan event.GenericEvent

	mu     sync.Mutex
	spaces map[string]*space
	came   int
	told   map[string]bool // tenants of whom the log says that more namespaces wait
	done   sync.WaitGroup
}

// space is a mapped namespace that had an unready pod, and has pods still. It is listened in
// if it has a stop, else it waits for a place.
type space struct {
	tenant string
	came   int // orders those of all tenants
	stop   context.CancelFunc
}

// newEar adds an ear to a manager.
func newEar(mgr ctrl.Manager, b *book, c clock.PassiveClock) (*ear, error) {
	direct, err := client.NewWithWatch(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return nil, fmt.Errorf("making a client for events: %w", err)
	}
	e := &ear{
		cache: mgr.GetCache(), direct: direct, book: b, clock: c,
		heard: make(chan event.GenericEvent), spaces: map[string]*space{}, told: map[string]bool{},
	}
	if err := mgr.Add(e); err != nil {
		return nil, fmt.Errorf("adding the watch of events: %w", err)
	}
	return e, nil
}

// source wakes the ShadowPods of pods that there was a warning about.
func (e *ear) source() source.Source {
	return source.Channel(e.heard, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, pod client.Object) []reconcile.Request {
		key, err := keyOf(pod)
		if err != nil {
			return nil
		}
		return []reconcile.Request{{NamespacedName: key}}
	}))
}

// Start implements manager.Runnable.
func (e *ear) Start(ctx context.Context) error {
	pods, err := e.cache.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("following pods: %w", err)
	}
	following, err := pods.AddEventHandler(e.follow(ctx))
	if err != nil {
		return fmt.Errorf("following pods: %w", err)
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			err := pods.RemoveEventHandler(following)
			e.done.Wait()
			return err
		case <-tick.C:
			e.sweep(ctx)
		}
	}
}

// follow opens namespaces with the first unready pod in them, and forgets pods that are
// gone.
func (e *ear) follow(ctx context.Context) toolscache.ResourceEventHandler {
	open := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			e.open(ctx, pod)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    open,
		UpdateFunc: func(_, obj any) { open(obj) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				e.book.drop(pod.UID)
			}
		},
	}
}

// waits says whether a pod may have something to be told of: it is not ready, and has not
// ended.
func waits(pod *corev1.Pod) bool {
	_, unready := unreadySince(pod)
	return unready && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// open listens in the namespace of a pod that is not ready, if both are a tenant's. The
// namespace may have been another tenant's before.
func (e *ear) open(ctx context.Context, pod *corev1.Pod) {
	if _, err := keyOf(pod); err != nil || !waits(pod) {
		return
	}
	tenant := pod.Labels[v1alpha1.LabelTenant]
	known := func() bool {
		s := e.spaces[pod.Namespace]
		return s != nil && s.tenant == tenant
	}
	e.mu.Lock()
	done := known()
	e.mu.Unlock()
	if done {
		return
	}
	n := &corev1.Namespace{}
	if err := e.cache.Get(ctx, client.ObjectKey{Name: pod.Namespace}, n); err != nil || !mappedFor(n, tenant) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if known() || ctx.Err() != nil {
		return
	}
	e.close(n.Name)
	e.came++
	e.spaces[n.Name] = &space{tenant: tenant, came: e.came}
	e.begin(ctx)
}

// close listens in a namespace no more. The caller holds the lock.
func (e *ear) close(name string) {
	if s := e.spaces[name]; s != nil && s.stop != nil {
		s.stop()
	}
	delete(e.spaces, name)
}

// begin listens where there is a place. The caller holds the lock.
func (e *ear) begin(ctx context.Context) {
	for _, name := range next(e.spaces) {
		here, stop := context.WithCancel(ctx)
		s := e.spaces[name]
		s.stop = stop
		e.done.Go(func() { e.listen(here, s.tenant, name) })
	}
}

// next are the namespaces for which there is a place: of those of each tenant that wait,
// the ones that came first.
func next(spaces map[string]*space) []string {
	taken, waiting := map[string]int{}, []string{}
	for name, s := range spaces {
		if s.stop != nil {
			taken[s.tenant]++
		} else {
			waiting = append(waiting, name)
		}
	}
	slices.SortFunc(waiting, func(a, b string) int { return spaces[a].came - spaces[b].came })
	return slices.DeleteFunc(waiting, func(name string) bool {
		tenant := spaces[name].tenant
		taken[tenant]++
		return taken[tenant] > maxSpaces
	})
}

// mappedFor says that a namespace is mapped for a tenant.
func mappedFor(n *corev1.Namespace, tenant string) bool {
	return n.Labels[v1alpha1.LabelTenant] == tenant && n.Labels[v1alpha1.LabelHomeNamespace] != ""
}

// sweep ends listening where no pod is left, and where none is unready if others wait for
// the place; forgets what is old, and says of whom there are too many.
func (e *ear) sweep(ctx context.Context) {
	e.book.sweep(e.clock.Now())
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := e.waiting()
	for name, s := range e.spaces {
		list := &corev1.PodList{}
		err := e.cache.List(ctx, list, client.InNamespace(name), client.HasLabels{v1alpha1.LabelTenant, v1alpha1.LabelHomeUID}, client.UnsafeDisableDeepCopy)
		needed := slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool { return waits(&pod) })
		if err == nil && (len(list.Items) == 0 || !needed && waiting[s.tenant] > 0) {
			e.close(name)
		}
	}
	e.begin(ctx)
	e.tell(ctx)
}

// waiting is how many namespaces of each tenant wait for a place. The caller holds the lock.
func (e *ear) waiting() map[string]int {
	all := map[string]int{}
	for _, s := range e.spaces {
		if s.stop == nil {
			all[s.tenant]++
		}
	}
	return all
}

// tell says in the log of which tenants namespaces wait for a place, once as long as that
// is so. The caller holds the lock.
func (e *ear) tell(ctx context.Context) {
	waiting := e.waiting()
	for tenant, n := range waiting {
		if !e.told[tenant] {
			log.FromContext(ctx).Info("a tenant has more namespaces with pods that are not ready than this cluster listens in: of the pods in the others it is told no warnings",
				"tenant", tenant, "listened in", maxSpaces, "others", n)
		}
		e.told[tenant] = true
	}
	maps.DeleteFunc(e.told, func(tenant string, _ bool) bool { return waiting[tenant] == 0 })
}

// listen follows the warnings of a tenant's namespace until ctx ends. What fails is tried again, ever
// later.
func (e *ear) listen(ctx context.Context, tenant, namespace string) {
	warnings := client.MatchingFieldsSelector{Selector: fields.Set{
		"type": corev1.EventTypeWarning, "involvedObject.kind": "Pod",
	}.AsSelector()}
	with := func(o metav1.ListOptions) []client.ListOption {
		return []client.ListOption{&client.ListOptions{Raw: &o, Limit: o.Limit, Continue: o.Continue}, client.InNamespace(namespace), warnings}
	}
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.EventList{}
			return list, e.direct.List(ctx, list, with(o)...)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return e.direct.Watch(ctx, &corev1.EventList{}, with(o)...)
		},
	}
	store := hearer(func(said *corev1.Event) { e.hear(ctx, tenant, said) })
	toolscache.NewReflectorWithOptions(lw, &corev1.Event{}, store, toolscache.ReflectorOptions{Name: "warnings"}).RunWithContext(ctx)
}

// hear takes note of an event about a pod of a tenant, and wakes the ShadowPod of that. Of
// pods that are gone nothing is to be told, and there may be a great many events. A pod
// that is not known yet will be warned of again.
func (e *ear) hear(ctx context.Context, tenant string, said *corev1.Event) {
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: said.Namespace, Name: said.InvolvedObject.Name}
	if err := e.cache.Get(ctx, key, pod); err != nil || pod.UID != said.InvolvedObject.UID || pod.Labels[v1alpha1.LabelTenant] != tenant {
		return
	}
	beyond, err := whither(ctx, e.cache, pod)
	if err != nil {
		return
	}
	hidden := beyond.hidden()
	w, ok := warningOf(said, func(name string) bool { return isHidden(hidden, name) || e.isNode(ctx, name) })
	if !ok {
		return
	}
	e.book.note(tenant, pod.UID, said.Name, w)
	select {
	case e.heard <- event.GenericEvent{Object: pod}:
	case <-ctx.Done():
	}
}

// isNode says whether this cluster has a node of a name.
func (e *ear) isNode(ctx context.Context, name string) bool {
	return e.cache.Get(ctx, client.ObjectKey{Name: name}, &corev1.Node{}) == nil
}

// hearer is where a reflector puts events. It keeps none.
type hearer func(*corev1.Event)

var _ toolscache.ReflectorStore = hearer(nil)

// Add implements cache.ReflectorStore.
func (h hearer) Add(obj any) error {
	if said, ok := obj.(*corev1.Event); ok {
		h(said)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (h hearer) Update(obj any) error { return h.Add(obj) }

// Delete implements cache.ReflectorStore.
func (hearer) Delete(any) error { return nil }

// Replace implements cache.ReflectorStore.
func (h hearer) Replace(all []any, _ string) error {
	for _, obj := range all {
		_ = h.Add(obj)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (hearer) Resync() error { return nil }
