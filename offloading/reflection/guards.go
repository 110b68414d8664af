package reflection

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Guards says when the NetworkPolicies of a namespace are where a pod of it is about to go: a policy
// has to be there before the pod is. It may be asked at any time, by many at once.
type Guards struct {
	cache client.Reader
	fleet Fleet
	notes *notes[note]
}

// NewGuards makes Guards, which know nothing until Register has them.
func NewGuards(cache client.Reader, fleet Fleet) *Guards {
	return &Guards{cache: cache, fleet: fleet, notes: newNotes[note]()}
}

// memory is what the consumer remembers, and Guards read.
func (g *Guards) memory() *notes[note] {
	if g == nil {
		return newNotes[note]()
	}
	return g.notes
}

// Unsettled is a NetworkPolicy of a namespace of which it is not known yet that the provider of a
// peering has it as it is here, or why it has not; "" if there is none. What is refused or stays home
// is settled, as events on it say why.
func (g *Guards) Unsettled(ctx context.Context, peering, namespace string) (string, error) {
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
			return p.Name, nil
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
	carried := done.create || done.change || f.there != nil && !done.remove
	refused := done.refused && done.told != decided.told // by its API server, which keeps no answer
	switch {
	case err != nil || f.home == nil:
	case refused, !carried && (done.told != "" || f.empty):
		n.looked, n.sent = f.home.ResourceVersion, ""
	case carried && f.text != "" && decided.create == done.create && decided.change == done.change:
		n.looked, n.sent = f.home.ResourceVersion, hash(f.text)
		if f.known.version != "" {
			n.known, n.known.sent = f.known, n.sent
		}
	}
}
