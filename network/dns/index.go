package dns

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Index knows which addresses are those of tenants' pods on a node. Whose a pod is, its
// namespace says. It is safe for use by many goroutines.
type Index struct {
	node string
	news chan struct{} // has room for one

	mu         sync.RWMutex
	pods       map[podKey]pod
	addresses  map[netip.Addr][]podKey
	namespaces map[string]namespace
	// tenants are the names of the namespaces of each, and clients those who have been asked for since
	// anything of their tenant's changed.
	tenants map[string]map[string]bool
	clients map[whose]Client
}

// whose is whose pods see the same names: a tenant's own, or those of one owner whose pods are
// here by way of a tenant.
type whose struct{ tenant, owner string }

type podKey struct{ namespace, name string }

// pod is a pod on the node that has addresses of its own.
type pod struct {
	addresses []netip.Addr
	created   time.Time
	domain    string // of its search domains; empty if it is the usual one
}

// namespace is one that is mapped for a tenant.
type namespace struct {
	whose
	// home is its name at the tenant's, origin where its pods were made, if it has an owner.
	home, origin string
	created      time.Time
	ending       bool
}

// called is what those know a namespace by, "" if they know nothing of it. A tenant's own pods
// know all that is at the tenant's, as they do there; others what is their owner's.
func (n namespace) called(by whose) string {
	switch {
	case n.tenant != by.tenant:
		return ""
	case by.owner == "":
		return n.home
	case by.owner == n.owner:
		return n.origin
	}
	return ""
}

// +kubebuilder:rbac:groups="",resources=pods;namespaces,verbs=list;watch,roleName=pelago-agent

// NewIndex makes an empty one for a node.
func NewIndex(node string) *Index {
	return &Index{node: node, news: make(chan struct{}, 1), pods: map[podKey]pod{}, addresses: map[netip.Addr][]podKey{}, namespaces: map[string]namespace{}, tenants: map[string]map[string]bool{}, clients: map[whose]Client{}}
}

// Client says who has an address.
func (x *Index) Client(a netip.Addr) (Client, bool) {
	x.mu.RLock()
	by, domain, known := x.find(a)
	c, made := x.clients[by]
	x.mu.RUnlock()
	if known && !made {
		x.mu.Lock()
		defer x.mu.Unlock()
		if by, domain, known = x.find(a); known { // as it is now
			c = x.client(by)
			x.clients[by] = c
		}
	}
	if !known {
		return Client{}, false
	}
	c.Domain = domain
	return c, true
}

// find says whose the pod with an address is, and what domain it has.
func (x *Index) find(a netip.Addr) (by whose, domain string, known bool) {
	var latest podKey // an address may have a new pod before the old one is known to be gone
	var found bool
	for _, key := range x.addresses[a.Unmap()] {
		if !found || x.pods[key].created.After(x.pods[latest].created) {
			latest, found = key, true
		}
	}
	space, mapped := x.namespaces[latest.namespace]
	if !found || !mapped {
		return whose{}, "", false
	}
	return space.whose, x.pods[latest].domain, true
}

// SetPod takes in a pod as it is now.
func (x *Index) SetPod(p *corev1.Pod) {
	key := podKey{p.Namespace, p.Name}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(key)
	over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	if p.Spec.NodeName != x.node || p.Spec.HostNetwork || over {
		return
	}
	next := pod{created: p.CreationTimestamp.Time, domain: v1alpha1.Unusual(p.Annotations[v1alpha1.AnnotationHomeDomain])}
	for _, text := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(text.IP); err == nil && !slices.Contains(next.addresses, a.Unmap()) {
			next.addresses = append(next.addresses, a.Unmap())
		}
	}
	if len(next.addresses) > 0 {
		x.put(key, next)
	}
}

// put takes in a pod that is not there.
func (x *Index) put(key podKey, p pod) {
	x.pods[key] = p
	for _, a := range p.addresses {
		x.addresses[a] = append(x.addresses[a], key)
	}
	x.stirred()
}

// DeletePod forgets a pod that is gone.
func (x *Index) DeletePod(namespace, name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(podKey{namespace, name})
}

func (x *Index) remove(key podKey) {
	if _, known := x.pods[key]; !known {
		return
	}
	for _, a := range x.pods[key].addresses {
		left := slices.DeleteFunc(x.addresses[a], func(k podKey) bool { return k == key })
		if x.addresses[a] = left; len(left) == 0 {
			delete(x.addresses, a)
		}
	}
	delete(x.pods, key)
	x.stirred()
}

// SetNamespace takes in a namespace as it is now. One that says wrongly where its pods were made
// is nobody's.
func (x *Index) SetNamespace(n *corev1.Namespace) {
	origin, owner, ok := v1alpha1.OriginOf(n.Labels)
	next := namespace{
		whose: whose{n.Labels[v1alpha1.LabelTenant], owner}, home: n.Labels[v1alpha1.LabelHomeNamespace], origin: origin,
		created: n.CreationTimestamp.Time, ending: n.DeletionTimestamp != nil,
	}
	if !ok || next.tenant == "" || next.home == "" {
		x.DeleteNamespace(n.Name)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget(n.Name)
	x.space(n.Name, next)
}

// space takes in a namespace that is not there.
func (x *Index) space(name string, n namespace) {
	x.namespaces[name] = n
	if x.tenants[n.tenant] == nil {
		x.tenants[n.tenant] = map[string]bool{}
	}
	x.tenants[n.tenant][name] = true
	x.changed(n.whose)
}

// DeleteNamespace forgets a namespace that is gone.
func (x *Index) DeleteNamespace(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget(name)
}

func (x *Index) forget(name string) {
	before, known := x.namespaces[name]
	if !known {
		return
	}
	delete(x.namespaces, name)
	if delete(x.tenants[before.tenant], name); len(x.tenants[before.tenant]) == 0 {
		delete(x.tenants, before.tenant)
	}
	x.changed(before.whose)
}

// changed has those made anew who know a namespace of these, when they are asked for: those before may be in use.
func (x *Index) changed(of whose) {
	delete(x.clients, of)
	delete(x.clients, whose{tenant: of.tenant})
	x.stirred()
}

// client is those who know namespaces by the same names.
func (x *Index) client(by whose) Client {
	c := Client{Tenant: by.tenant, Namespaces: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(x.tenants[by.tenant])) {
		n := x.namespaces[name]
		called := n.called(by)
		if called == "" {
			continue
		}
		if other, taken := c.Namespaces[called]; taken && !n.before(x.namespaces[other]) {
			continue
		}
		c.Namespaces[called] = name
	}
	return c
}

// before says which of two namespaces for the same one of home is used: one that stays, and
// then the younger one.
func (n namespace) before(other namespace) bool {
	return cmp.Or(boolCompare(other.ending, n.ending), n.created.Compare(other.created)) > 0
}

// boolCompare is 1 if only a holds, and -1 if only b does.
func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
