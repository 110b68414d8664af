package offer

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// maxRequest bounds what one pod counts for: more than any node has, and little enough
// that no number of pods overflows a sum.
const maxRequest = int64(1) << 45

// monitor knows what is free on this cluster's nodes: what a scheduler could give to
// new pods. It is fed with nodes, pods and classes one change at a time and keeps
// sums, so that a change costs the same on a large cluster as on a small one; only
// shapes, and what the pods of tenants use, are looked at as a whole, when somebody reads
// after a change. What is free is the same for all consumers.
type monitor struct {
	mu       sync.Mutex
	synced   bool
	nodes    map[string]*machine
	pods     map[types.UID]placed
	capacity amounts // of nodes that count
	free     amounts
	classes  classes
	tenants  map[string]string // tenant by namespace
	snapshot *Resources        // nil after a change
	used     map[string]map[string]v1alpha1.ResourceList

	notified []func(string)
}

// machine is a node.
type machine struct {
	counts       bool
	arch, os     string
	allocatable  amounts
	used         amounts // requests of its pods, and their number
	claims       map[claim]amounts
	free         amounts // as it is in the sum; nil if the node does not count
	nodeIsAbsent bool    // only pods are known of it so far
}

// placed is a pod where it counts.
type placed struct {
	node     string
	requests amounts
	claim    claim
}

// claim is for whom a pod says it runs; believed if its namespace is the tenant's. The
// zero claim is that of ordinary pods.
type claim struct{ namespace, tenant, request string }

func claimOf(pod *corev1.Pod) claim {
	c := claim{pod.Namespace, pod.Labels[v1alpha1.LabelTenant], pod.Labels[v1alpha1.LabelRequest]}
	if c.tenant == "" || c.request == "" {
		return claim{}
	}
	return c
}

func newMonitor() *monitor {
	return &monitor{
		nodes: map[string]*machine{}, pods: map[types.UID]placed{},
		capacity: amounts{}, free: amounts{}, classes: newClasses(), tenants: map[string]string{},
	}
}

// Read answers from memory.
func (m *monitor) Read(_ context.Context, c Consumer) (Resources, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.synced {
		return Resources{}, errUnknown
	}
	if m.snapshot == nil {
		m.snapshot, m.used = m.look(), m.lookUsed()
	}
	r := *m.snapshot
	r.Used = m.used[c.Tenant]
	return r, nil
}

// Notify adds a listener for any change of what is free.
func (m *monitor) Notify(changed func(clusterID string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notified = append(m.notified, changed)
}

// Remove does nothing: the answer is the same for everyone.
func (m *monitor) Remove(string) {}

// start says that all there was at first has been seen.
func (m *monitor) start() { m.alter(func() bool { m.synced = true; return true }) }

// alter changes something under the lock, and tells listeners if it mattered.
func (m *monitor) alter(change func() bool) {
	m.mu.Lock()
	mattered := change()
	var tell []func(string)
	if mattered {
		m.snapshot = nil
		if m.synced {
			tell = m.notified
		}
	}
	m.mu.Unlock()
	for _, f := range tell {
		f("")
	}
}

// setNode takes a node as it is now.
func (m *monitor) setNode(node *corev1.Node) {
	next := machine{
		counts: accepts(node), allocatable: amountsOfCore(node.Status.Allocatable),
		arch: cmp.Or(node.Status.NodeInfo.Architecture, node.Labels[corev1.LabelArchStable]),
		os:   cmp.Or(node.Status.NodeInfo.OperatingSystem, node.Labels[corev1.LabelOSStable]),
	}
	m.alter(func() bool {
		n := m.node(node.Name)
		same := n.counts == next.counts && n.arch == next.arch && n.os == next.os && maps.Equal(n.allocatable, next.allocatable)
		if same && !n.nodeIsAbsent {
			return false
		}
		mattered := n.counts || next.counts
		m.uncount(n)
		n.counts, n.arch, n.os, n.allocatable, n.nodeIsAbsent = next.counts, next.arch, next.os, next.allocatable, false
		m.count(n)
		return mattered
	})
}

// dropNode takes a node away; pods may still say that they are on it.
func (m *monitor) dropNode(name string) {
	m.alter(func() bool {
		n, ok := m.nodes[name]
		if !ok {
			return false
		}
		mattered := n.counts
		m.uncount(n)
		n.counts, n.nodeIsAbsent, n.allocatable = false, true, nil
		m.forget(name)
		return mattered
	})
}

// setPod takes a pod as it is now.
func (m *monitor) setPod(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		m.dropPod(pod.UID)
		return
	}
	next := placed{node: pod.Spec.NodeName, requests: requests(pod), claim: claimOf(pod)}
	m.alter(func() bool {
		old, known := m.pods[pod.UID]
		if known && old.node == next.node && old.claim == next.claim && maps.Equal(old.requests, next.requests) {
			return false
		}
		m.pods[pod.UID] = next
		mattered := m.place(next, 1)
		if known {
			mattered = m.place(old, -1) || mattered
		}
		return mattered
	})
}

// dropPod takes a pod away.
func (m *monitor) dropPod(uid types.UID) {
	m.alter(func() bool {
		old, known := m.pods[uid]
		if !known {
			return false
		}
		delete(m.pods, uid)
		return m.place(old, -1)
	})
}

// place adds a pod to its node, or takes it off with sign -1.
func (m *monitor) place(p placed, sign int64) bool {
	n := m.node(p.node)
	m.uncount(n)
	n.used.add(p.requests, sign)
	for name, v := range n.used {
		if v == 0 {
			delete(n.used, name)
		}
	}
	if p.claim != (claim{}) {
		n.charge(p.claim, p.requests, sign)
	}
	m.count(n)
	m.forget(p.node)
	return n.counts || p.claim != (claim{})
}

// charge adds what a pod requests to its claim. What is left when the last pod has gone
// is nothing at all, as each is taken off as it was put on.
func (n *machine) charge(c claim, requests amounts, sign int64) {
	if n.claims == nil {
		n.claims = map[claim]amounts{}
	}
	sum, ok := n.claims[c]
	if !ok {
		sum = amounts{}
		n.claims[c] = sum
	}
	sum.add(requests, sign)
	if sum[pods] == 0 {
		delete(n.claims, c)
	}
}

// setNamespace says whose a namespace is, nobody's if tenant is empty.
func (m *monitor) setNamespace(name, tenant string) {
	m.alter(func() bool {
		if m.tenants[name] == tenant {
			return false
		}
		if m.tenants[name] = tenant; tenant == "" {
			delete(m.tenants, name)
		}
		return true
	})
}

// lookUsed sums what pods of tenants request, by tenant and request, on nodes of any kind: a
// consumer takes all that its pods request off what it is offered, wherever the provider has them
// run. What is on a cordoned node, or went onward, has to be in there for the rest to be what is
// free, until the pod is gone.
func (m *monitor) lookUsed() map[string]map[string]v1alpha1.ResourceList {
	sums := map[claim]amounts{}
	for _, n := range m.nodes {
		for c, a := range n.claims {
			if m.tenants[c.namespace] != c.tenant {
				continue
			}
			c.namespace = ""
			if sums[c] == nil {
				sums[c] = amounts{}
			}
			sums[c].add(a, 1)
		}
	}
	used := map[string]map[string]v1alpha1.ResourceList{}
	for c, a := range sums {
		for name, v := range a {
			if a[name] = min(v, maxAmount-1); v == 0 {
				delete(a, name)
			}
		}
		if used[c.tenant] == nil {
			used[c.tenant] = map[string]v1alpha1.ResourceList{}
		}
		used[c.tenant][c.request] = a.only(a.names()).list()
	}
	return used
}

func (m *monitor) node(name string) *machine {
	n, ok := m.nodes[name]
	if !ok {
		n = &machine{used: amounts{}, nodeIsAbsent: true}
		m.nodes[name] = n
	}
	return n
}

// forget drops a node that nothing is known of any more.
func (m *monitor) forget(name string) {
	if n := m.nodes[name]; n.nodeIsAbsent && len(n.used) == 0 {
		delete(m.nodes, name)
	}
}

// count adds a node to the sums, uncount takes it out.
func (m *monitor) count(n *machine) {
	if n.counts {
		n.free = n.allocatable.minus(n.used)
		m.capacity.add(n.allocatable, 1)
		m.free.add(n.free, 1)
	}
}

func (m *monitor) uncount(n *machine) {
	if n.counts {
		m.capacity.add(n.allocatable, -1)
		m.free.add(n.free, -1)
		n.free = nil
	}
}

// look makes an answer of the sums.
func (m *monitor) look() *Resources {
	there := amounts{}
	for name, v := range m.capacity {
		if v > 0 || slices.Contains(essential, name) {
			there[name] = v
		}
	}
	for _, name := range essential {
		there[name] += 0
	}
	names := there.names()
	free := amounts{}
	for _, name := range names {
		free[name] = m.free[name]
	}
	return &Resources{
		Capacity: there.only(names).list(), Free: free.list(), Shapes: m.shapes(names),
		StorageClasses: m.classes.storage.list(), IngressClasses: m.classes.ingress.list(),
		LoadBalancerClasses: m.classes.balancers.list(),
	}
}

// shapes groups the nodes that count.
func (m *monitor) shapes(names []string) []v1alpha1.NodeShape {
	type key struct{ arch, os, extended string }
	free := map[key][]amounts{}
	for _, n := range m.nodes {
		if !n.counts {
			continue
		}
		var extended []string
		for name, v := range n.allocatable {
			if v > 0 && strings.Contains(name, "/") {
				extended = append(extended, name)
			}
		}
		slices.Sort(extended)
		k := key{n.arch, n.os, strings.Join(extended, ",")}
		known := n.free.only(names)
		for name := range known {
			if n.allocatable[name] <= 0 {
				delete(known, name)
			}
		}
		free[k] = append(free[k], known)
	}
	keys := slices.SortedFunc(maps.Keys(free), func(a, b key) int {
		return cmp.Or(cmp.Compare(len(free[b]), len(free[a])),
			cmp.Compare(a.arch, b.arch), cmp.Compare(a.os, b.os), cmp.Compare(a.extended, b.extended))
	})
	var shapes []v1alpha1.NodeShape
	for _, k := range keys[:min(len(keys), maxShapes)] {
		shapes = append(shapes, v1alpha1.NodeShape{
			Architecture: k.arch, OperatingSystem: k.os, Nodes: int32(len(free[k])), Largest: lists(largest(free[k])),
		})
	}
	return shapes
}

// freeNow returns the sums, for the metrics.
func (m *monitor) freeNow() amounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.free)
}

// accepts says whether a scheduler may place ordinary pods on a node that is real.
func accepts(node *corev1.Node) bool {
	kind, virtual := node.Labels[v1alpha1.LabelType], node.Labels["type"] == "virtual-kubelet"
	if node.Spec.Unschedulable || virtual || kind == v1alpha1.TypeVirtualNode || !node.DeletionTimestamp.IsZero() {
		return false
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute {
			return false
		}
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// requests is what the scheduler counts for a pod.
func requests(pod *corev1.Pod) amounts {
	a := amountsOfCore(resource.PodRequests(pod, resource.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}))
	for name, v := range a {
		if v <= 0 {
			delete(a, name)
			continue
		}
		a[name] = min(v, maxRequest)
	}
	a[pods] = 1
	return a
}
