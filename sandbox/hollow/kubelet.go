package hollow

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// workers is how many pods are written at once.
const workers = 32

// kubelet brings the pods of all hollow nodes to life and to their end.
type kubelet struct {
	client    kubernetes.Interface
	options   Options
	mine      map[string]bool
	addresses *pool
	log       *slog.Logger
	queue     workqueue.TypedRateLimitingInterface[string]
	pods      cache.Store

	mu    sync.Mutex
	known map[types.UID]*life
}

// life is what is known of a pod beside its object.
type life struct {
	seen   time.Time
	number int // of its addresses, 0 for none
	done   deed
}

func newKubelet(client kubernetes.Interface, o Options, addresses *pool, log *slog.Logger) *kubelet {
	k := &kubelet{client: client, options: o, mine: map[string]bool{}, addresses: addresses, log: log, known: map[types.UID]*life{}}
	for _, name := range o.Nodes {
		k.mine[name] = true
	}
	k.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 10*time.Second))
	return k
}

// run watches the pods that are bound to any node, and serves its own.
func (k *kubelet) run(ctx context.Context) error {
	bound := fields.OneTermNotEqualSelector("spec.nodeName", "")
	source := cache.NewListWatchFromClient(k.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, bound)
	informer := cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, cache.Indexers{})
	if err := informer.SetTransform(slim); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	k.pods = informer.GetStore()
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    k.see,
		UpdateFunc: func(_, now any) { k.see(now) },
		DeleteFunc: k.forget,
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer k.queue.ShutDown()
	group.Go(func() { informer.RunWithContext(ctx) })
	// Addresses in use must be known before any is given out.
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return ctx.Err()
	}
	for range workers {
		group.Go(func() {
			for k.work(ctx) {
			}
		})
	}
	<-ctx.Done()
	return ctx.Err()
}

// slim drops what is not needed of a pod, for there are many.
func slim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Generation: pod.Generation,
		DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds, Finalizers: pod.Finalizers,
	}}
	if life := pod.Annotations[EndsAfter]; life != "" {
		out.Annotations = map[string]string{EndsAfter: life}
	}
	out.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork}
	out.Spec.Containers, out.Spec.InitContainers = slimContainers(pod.Spec.Containers), slimContainers(pod.Spec.InitContainers)
	out.Status = corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, StartTime: pod.Status.StartTime}
	return out, nil
}

func slimContainers(all []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for _, c := range all {
		out = append(out, corev1.Container{Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy})
	}
	return out
}

// see notes a pod of ours and has it looked at.
func (k *kubelet) see(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok || !k.mine[pod.Spec.NodeName] {
		return
	}
	k.mu.Lock()
	if k.known[pod.UID] == nil {
		k.known[pod.UID] = &life{seen: time.Now(), number: k.addresses.claim(pod.Status.PodIP)}
	}
	k.mu.Unlock()
	k.queue.Add(pod.Namespace + "/" + pod.Name)
}

// forget gives back what a pod had that is gone.
func (k *kubelet) forget(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.known[pod.UID]; l != nil {
		k.addresses.release(l.number)
		delete(k.known, pod.UID)
	}
}

// work serves one pod of the queue; it returns false when there is no more.
func (k *kubelet) work(ctx context.Context) bool {
	key, stop := k.queue.Get()
	if stop {
		return false
	}
	defer k.queue.Done(key)
	if ctx.Err() != nil {
		return true
	}
	wait, err := k.serve(ctx, key)
	switch {
	case err != nil:
		k.log.Warn("a pod could not be served", "pod", key, "error", err)
		k.queue.AddRateLimited(key)
		return true
	case wait > 0:
		k.queue.AddAfter(key, wait)
	}
	k.queue.Forget(key)
	return true
}

// serve does what a pod needs now, and tells when to look again.
func (k *kubelet) serve(ctx context.Context, key string) (time.Duration, error) {
	object, found, err := k.pods.GetByKey(key)
	if err != nil || !found {
		return 0, err
	}
	pod := object.(*corev1.Pod)
	k.mu.Lock()
	l := k.known[pod.UID]
	k.mu.Unlock()
	if l == nil {
		return 0, nil
	}
	now := time.Now()
	todo, wait := decide(pod, l.seen, now, k.options.Start)
	if todo == nothing || todo == l.done {
		// The watch may not have brought yet what was done to it.
		return wait, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.do(ctx, pod, l, todo, now); err != nil {
		return 0, err
	}
	l.done = todo // one worker at a time has the key
	return 0, nil
}

// do is the one request for a deed. A pod that is gone wants nothing more.
func (k *kubelet) do(ctx context.Context, pod *corev1.Pod, l *life, todo deed, now time.Time) error {
	var err error
	switch todo {
	case run:
		var own []netip.Addr
		if own, err = k.addressesOf(pod, l); err == nil {
			err = k.write(ctx, pod, running(pod, own, k.options.Addresses, now))
		}
	case succeed:
		err = k.write(ctx, pod, endedAs(pod, exitFine, now))
	case fail:
		err = k.write(ctx, pod, endedAs(pod, exitKilled, now))
	case remove:
		at := metav1.NewDeleteOptions(0)
		at.Preconditions = &metav1.Preconditions{UID: &pod.UID}
		err = k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *at)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("making it %s: %w", todo, err)
	}
	return nil
}

// addressesOf gives a pod its addresses, once. One on the network of its node
// has none of its own, and one that is gone needs none.
func (k *kubelet) addressesOf(pod *corev1.Pod, l *life) ([]netip.Addr, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if pod.Spec.HostNetwork || k.known[pod.UID] == nil {
		return nil, nil
	}
	if l.number == 0 {
		number, err := k.addresses.take()
		if err != nil {
			return nil, err
		}
		l.number = number
	}
	return k.addresses.addresses(l.number), nil
}

// write patches a status. The answer is not read: the watch brings it.
func (k *kubelet) write(ctx context.Context, pod *corev1.Pod, p patch) error {
	text, err := p.text(pod.UID)
	if err != nil {
		return err
	}
	return k.client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).
		Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("status").Body(text).Do(ctx).Error()
}
