package namespace

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// patience is how long pods have to leave before they are deleted, how long a
	// cluster without a virtual node keeps its namespaces, and how long is waited for a
	// peer that does not answer.
	patience = time.Minute
	// podsLimit is when the namespace is given up though pods have not left.
	podsLimit = 2 * time.Minute
	// giveUp is when the provider's last word is waited for no longer.
	giveUp = 5 * time.Minute
	// pollEvery is how often pods that leave are looked at.
	pollEvery = time.Second
	// evictions bounds how many pods are asked to leave in one look.
	evictions = 100
	// evictLimit bounds one eviction, and maxSlow how many that reach it are borne in one
	// look.
	evictLimit = 2 * time.Second
	maxSlow    = 3
	// retryRefused is when an entry is tried again that its NamespaceMap does not take.
	retryRefused = 30 * time.Second
)

// plan is what to do for an offloading.
type plan struct {
	mark   *string               // give the label this value, or take it off if empty
	disarm []*rbacv1.RoleBinding // take these rights of the manager there, before it is
	arm    []*rbacv1.RoleBinding // given these
	put    []*cluster            // write the entry for these
	drop   []string              // take the entry out
	evict  []*corev1.Pod
	remove []*corev1.Pod
	// waits says of clusters that are being left what is waited for.
	waits map[string]string
	// left are clusters that have not removed the namespace in time; they will when they
	// are back.
	left  []string
	done  bool          // nothing is left to do at the end
	again time.Duration // look again, if not zero
}

// in asks for a look after d.
func (p *plan) in(d time.Duration) {
	if p.again == 0 || d < p.again {
		p.again = d
	}
}

// decide says what to do. At the end the label changes first, so that no more pods are
// let through; then at each cluster the pods, the entry, the namespace.
func decide(f *facts) *plan {
	p := &plan{waits: map[string]string{}, done: true}
	marked := !f.over()
	for _, r := range f.rights {
		p.right(r, f.present, marked)
	}
	for _, c := range f.clusters {
		switch {
		case f.wants(c):
			if c.entry == nil || *c.entry != f.mapping(c) {
				p.put = append(p.put, c)
			}
		case !c.live: // all that belongs to a peering goes with it
		case c.required:
			// That it is not required any more is stored first: the carrier takes out only
			// what is not.
			p.waits[c.name], p.done = "the cluster is being left", false
			p.in(soon)
		default:
			p.leave(f, c)
		}
	}
	if f.ending != nil && f.now.Sub(f.ending.Time) < podsLimit {
		p.endUnbound(f.unbound)
	}
	if label := f.wantedLabel(marked, p.done); f.present && label != f.label {
		p.mark = &label
	}
	return p
}

// wantedLabel is what LabelOffloaded should be. While pods are asked to leave it stays, with
// another value: without it the manager may evict nobody.
func (f *facts) wantedLabel(marked, done bool) string {
	leaves := func(c *cluster) bool { return len(c.pods) > 0 }
	switch {
	case marked:
		return "true"
	case f.label != "" && !done && (len(f.unbound) > 0 || slices.ContainsFunc(f.clusters, leaves)):
		return v1alpha1.OffloadedLeaving
	}
	return ""
}

// right gives the manager a right of its own, or takes it. A RoleBinding of somebody else is
// left as it is.
func (p *plan) right(r right, present, marked bool) {
	arm := marked && r.due && present && (r.have == nil || own(r.have) && !isAs(r.have, r.want))
	if arm {
		p.arm = append(p.arm, r.want)
	}
	// What one refers to cannot be changed.
	if own(r.have) && (!marked || !r.due || arm && r.have.RoleRef != r.want.RoleRef) {
		p.disarm = append(p.disarm, r.have)
	}
}

// leave is the next step of leaving a cluster.
func (p *plan) leave(f *facts, c *cluster) {
	elapsed := c.elapsed(f)
	away := !c.reachable && elapsed >= patience
	wait := func(what string) {
		p.waits[c.name], p.done = what, false
		p.in(pollEvery)
	}
	if !f.over() && c.nodes == 0 && c.entry != nil && elapsed < patience {
		wait("the virtual node is gone; the namespace is kept for a minute in case it comes back")
		return
	}
	if len(c.pods) > 0 {
		p.bringHome(c.pods, elapsed)
		if !away && elapsed < podsLimit {
			wait("waiting for pods to leave the virtual node")
			return
		}
	}
	if c.entry != nil {
		p.drop = append(p.drop, c.name)
	}
	switch {
	case c.mapped == nil || c.mapped.Phase == v1alpha1.MappingKept || c.mapped.Phase == v1alpha1.MappingRefused:
	case away || elapsed >= giveUp:
		p.left = append(p.left, c.name)
	default:
		wait("waiting for " + c.name + " to remove the namespace")
	}
}

// bringHome asks pods to leave, and after a while makes them.
func (p *plan) bringHome(pods []*corev1.Pod, elapsed time.Duration) {
	for _, pod := range pods {
		switch {
		case pod.DeletionTimestamp != nil || len(p.evict)+len(p.remove) >= evictions:
		case elapsed < patience:
			p.evict = append(p.evict, pod)
		default:
			p.remove = append(p.remove, pod)
		}
	}
}

// endUnbound ends pods that were to go to virtual nodes, and have not run anywhere.
func (p *plan) endUnbound(pods []*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	p.done = false
	p.in(pollEvery)
	room := max(0, evictions-len(p.evict)-len(p.remove))
	p.evict = append(p.evict, pods[:min(room, len(pods))]...)
}

// elapsed is for how long a cluster has been being left.
func (c *cluster) elapsed(f *facts) time.Duration {
	since := c.since
	if since.IsZero() {
		since = f.now
	}
	if f.ending != nil && (c.since.IsZero() || f.ending.After(since)) {
		since = f.ending.Time
	}
	return f.now.Sub(since)
}
