package tenant

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Usage sums what the pods of tenants request, pod by pod as they come, change and
// go: no event costs more than one pod. A tenant's pods are those in namespaces
// labelled v1alpha1.LabelTenant. Pods that have ended count for nothing. It is safe
// for use by several goroutines.
type Usage struct {
	mu       sync.Mutex
	spaces   map[string]*space              // by namespace; only those of tenants
	sums     map[string]corev1.ResourceList // by tenant
	complete bool
	changed  func(tenant string)
	pods     func(namespace string) ([]*corev1.Pod, error)
}

// space is a namespace of a tenant with what each pod in it requests.
type space struct {
	tenant string
	pods   map[types.NamespacedName]entry
}

// entry is what one pod counts for. A pod's name may be taken by a new pod, so the
// end of the old one must not remove the new one.
type entry struct {
	uid      types.UID
	requests corev1.ResourceList
}

// NewUsage returns an accounting that knows of nothing yet.
func NewUsage() *Usage {
	return &Usage{spaces: map[string]*space{}, sums: map[string]corev1.ResourceList{}}
}

// notify sets what is called with the name of a tenant whose sum may have changed.
func (u *Usage) notify(changed func(tenant string)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changed = changed
}

// podsOf sets where the pods of a namespace are read that turns into a tenant's.
func (u *Usage) podsOf(pods func(namespace string) ([]*corev1.Pod, error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pods = pods
}

// Complete says that all pods and namespaces there are have been counted once. Until
// then sums are too small.
func (u *Usage) Complete() {
	u.mu.Lock()
	u.complete = true
	tenants := map[string]bool{}
	for _, s := range u.spaces {
		tenants[s.tenant] = true
	}
	changed := u.changed
	u.mu.Unlock()
	if changed == nil {
		return
	}
	for tenant := range tenants {
		changed(tenant)
	}
}

// Used returns what the pods of a tenant request together, without resources that
// come to zero, and whether everything has been counted yet.
func (u *Usage) Used(tenant string) (v1alpha1.ResourceList, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	used := make(v1alpha1.ResourceList, len(u.sums[tenant]))
	for name, quantity := range u.sums[tenant] {
		used[string(name)] = quantity.DeepCopy()
	}
	return used, u.complete
}

// Counts says whether this very pod is in the sum of its tenant.
func (u *Usage) Counts(pod *corev1.Pod) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.spaces[pod.Namespace]
	return s != nil && s.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}].uid == pod.UID
}

// SetNamespace says whose a namespace is, nobody's if tenant is empty. The pods that
// are in it already are read and counted.
func (u *Usage) SetNamespace(namespace, tenant string) {
	u.tell(func() []string {
		old := u.spaces[namespace]
		switch {
		case old == nil && tenant == "", old != nil && old.tenant == tenant:
			return nil
		case old != nil:
			for key := range old.pods {
				u.remove(old, key)
			}
			delete(u.spaces, namespace)
		}
		touched := []string{tenant}
		if old != nil {
			touched = append(touched, old.tenant)
		}
		if tenant == "" {
			return touched
		}
		s := &space{tenant: tenant, pods: map[types.NamespacedName]entry{}}
		u.spaces[namespace] = s
		if u.pods == nil {
			return touched
		}
		// Read under the lock: the store is ahead of the events, so whatever is missed or
		// read twice here is set right by an event that waits for the lock.
		pods, err := u.pods(namespace)
		if err != nil {
			return touched // the pods' own events count them
		}
		for _, pod := range pods {
			u.put(s, pod)
		}
		return touched
	})
}

// SetPod counts a pod as it is now.
func (u *Usage) SetPod(pod *corev1.Pod) {
	u.tell(func() []string {
		s := u.spaces[pod.Namespace]
		if s == nil || !u.put(s, pod) {
			return nil
		}
		return []string{s.tenant}
	})
}

// DeletePod stops counting a pod.
func (u *Usage) DeletePod(pod *corev1.Pod) {
	u.tell(func() []string {
		s := u.spaces[pod.Namespace]
		if s == nil {
			return nil
		}
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		if s.pods[key].uid != pod.UID || !u.remove(s, key) {
			return nil
		}
		return []string{s.tenant}
	})
}

// tell runs a change under the lock and then names those it has touched.
func (u *Usage) tell(change func() []string) {
	u.mu.Lock()
	touched := change()
	changed := u.changed
	u.mu.Unlock()
	if changed == nil {
		return
	}
	for _, tenant := range touched {
		if tenant != "" {
			changed(tenant)
		}
	}
}

// put counts a pod in place of what it counted for before, and says whether that
// makes a difference.
func (u *Usage) put(s *space, pod *corev1.Pod) bool {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return u.remove(s, key)
	}
	requests := Requests(pod)
	old, there := s.pods[key]
	if there && old.uid == pod.UID && sameList(old.requests, requests) {
		return false
	}
	u.remove(s, key)
	s.pods[key] = entry{uid: pod.UID, requests: requests}
	sum := u.sums[s.tenant]
	if sum == nil {
		sum = corev1.ResourceList{}
		u.sums[s.tenant] = sum
	}
	for name, quantity := range requests {
		total := sum[name]
		total.Add(quantity)
		store(sum, name, total)
	}
	return true
}

// remove takes a pod out of the sum of its tenant; false if it was not in it.
func (u *Usage) remove(s *space, key types.NamespacedName) bool {
	old, there := s.pods[key]
	if !there {
		return false
	}
	delete(s.pods, key)
	sum := u.sums[s.tenant]
	for name, quantity := range old.requests {
		total := sum[name]
		total.Sub(quantity)
		store(sum, name, total)
	}
	if len(sum) == 0 {
		delete(u.sums, s.tenant)
	}
	return true
}

// store keeps a quantity that is not zero.
func store(list corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
	if quantity.IsZero() {
		delete(list, name)
		return
	}
	list[name] = quantity
}

// sameList compares two lists by value.
func sameList[K ~string](a, b map[K]resource.Quantity) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}
