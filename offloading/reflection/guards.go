package reflection

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Guards says when a pod may go to a provider: once the NetworkPolicies of its namespace are there,
// which have to be before it is, and the Secrets and ConfigMaps that it refers to are there as they
// were here when it came, as a kubelet would read them. It may be asked at any time, by many at once.
type Guards struct {
	cache client.Reader
	fleet Fleet
	notes *notes[note]
	waits *waits
	// wake has an object looked at; nil before Register.
	wake func(context.Context, reconcile.Request)
}

// NewGuards makes Guards, which know nothing until Register has them.
func NewGuards(cache client.Reader, fleet Fleet) *Guards {
	return &Guards{cache: cache, fleet: fleet, notes: newNotes[note](), waits: newWaits(clock.RealClock{})}
}

// memory is what the consumer remembers, and Guards read.
func (g *Guards) memory() *notes[note] {
	if g == nil {
		return newNotes[note]()
	}
	return g.notes
}

// waiting is which pods wait for what the consumer reads.
func (g *Guards) waiting(c clock.PassiveClock) *waits {
	if g == nil {
		return newWaits(c)
	}
	g.waits.clock = c
	return g.waits
}

// Unsettled is a NetworkPolicy of a pod's namespace, or a Secret or ConfigMap that the pod refers to, of
// which it is not known yet that the provider of a peering has it as it is here, or why it has not; "" if
// there is none. What is refused, stays home or is nowhere is settled, as events say why. For Secrets and
// ConfigMaps a pod waits at most ten seconds. Again is when to ask once more.
func (g *Guards) Unsettled(ctx context.Context, peering string, pod *corev1.Pod) (what string, again time.Duration, err error) {
	since, first := g.waits.since(pod)
	again = min(max(g.waits.clock.Since(since), askSoonest), askLatest)
	policy, err := g.policy(ctx, peering, pod.Namespace)
	if err != nil || policy != "" {
		return policy, again, err
	}
	if object := g.object(ctx, peering, pod, since, first); object != "" && g.waits.clock.Since(since) < heldFor {
		return object, again, nil
	}
	return "", 0, nil
}

const (
	// heldFor is the most that a pod waits for the objects that it refers to.
	heldFor = 10 * time.Second
	// A pod asks again after as long as it has waited, within these.
	askSoonest, askLatest = 50 * time.Millisecond, 500 * time.Millisecond
)

// object is a Secret or ConfigMap that a pod refers to, and that has not been read since, or is not at the
// provider as it was read.
func (g *Guards) object(ctx context.Context, peering string, pod *corev1.Pod, since time.Time, first bool) (what string) {
	for _, r := range references(pod) {
		home := v1alpha1.HomeObject{Kind: r.kind, Namespace: pod.Namespace, Name: r.name}
		if _, tokens := tokensOf(home); tokens {
			continue // these are made for the pod there, once it is
		}
		req := at(peering, home)
		n := g.notes.get(req.NamespacedName)
		unread := n.concluded.Before(since)
		if unread && first && g.wake != nil { // no event of the pod has told it to be read
			g.wake(ctx, req)
		}
		if what == "" && (unread || n.sent != "" && !g.answered(ctx, peering, home, n.sent)) {
			what = r.kind + " " + r.name
		}
	}
	return what
}

// policy is an unsettled NetworkPolicy of a namespace.
func (g *Guards) policy(ctx context.Context, peering, namespace string) (string, error) {
	list := metadataList(policyKind)
	if err := g.cache.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing the NetworkPolicies of namespace %s: %w", namespace, err)
	}
	if len(list.Items) == 0 {
		return "", nil
	}
	m := &v1alpha1.NamespaceMap{}
	if err := g.cache.Get(ctx, mapKey(peering), m, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the namespace map: %w", err)
	}
	if m.Status.Namespaces[namespace].Phase == v1alpha1.MappingRefused {
		return "", nil // no pod of it runs there, and the provider says why of the pod
	}
	for i := range list.Items {
		p := &list.Items[i]
		home := v1alpha1.HomeObject{Kind: kindPolicy, Namespace: namespace, Name: p.Name}
		n := g.notes.get(at(peering, home).NamespacedName)
		if n.looked == "" || n.looked != p.ResourceVersion || n.sent != "" && !g.answered(ctx, peering, home, n.sent) {
			return kindPolicy + " " + p.Name, nil
		}
	}
	return "", nil
}

// unanswered are reasons for which an object may be made in a moment.
var unanswered = []string{v1alpha1.ReasonNamespaceMissing, v1alpha1.ReasonWaiting, v1alpha1.ReasonPending}

// answered says whether a provider has said what it makes of what was sent.
func (g *Guards) answered(ctx context.Context, peering string, home v1alpha1.HomeObject, sent string) bool {
	peer, ok := g.fleet.Peer(peering)
	if !ok {
		return false
	}
	s := &v1alpha1.ShadowObject{}
	if err := peer.Reader().Get(ctx, client.ObjectKey{Namespace: peer.TenantNamespace(), Name: v1alpha1.ShadowObjectName(home)}, s); err != nil {
		return false // not shown yet
	}
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionAccepted)
	return s.DeletionTimestamp == nil && s.Annotations[v1alpha1.AnnotationApplied] == sent && c != nil && c.ObservedGeneration == s.Generation && !slices.Contains(unanswered, c.Reason)
}

// settle notes which version of an object the provider has, or is not to have. What went wrong, and
// what has to wait for the mirror, says nothing.
func (n *note) settle(f *facts, decided, done plan, err error) {
	carried := done.create || done.change || f.stays() != nil && !done.remove
	refused := done.refused && done.told != decided.told // by its API server, which keeps no answer
	switch {
	case err != nil || !f.wanted || !f.offloaded:
		return
	case f.found == absent && !(decided.remove && !done.remove):
		n.looked, n.sent = "", ""
	case f.home == nil:
		return
	case refused, f.over != "", !carried && (done.told != "" || f.empty):
		n.looked, n.sent = f.home.ResourceVersion, ""
	case carried && f.text != "" && decided.create == done.create && decided.change == done.change:
		n.looked, n.sent = f.home.ResourceVersion, hash(f.text)
		if f.known.version != "" {
			n.known, n.known.sent, n.known.shown = f.known, n.sent, shownBy(f.text, f.pieces)
		}
	default:
		return
	}
	n.concluded = n.read
}
