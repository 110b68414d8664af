package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// liveLimit is how long it may take to read what the cache does not have yet.
const liveLimit = 2 * time.Second

// Whoever reaches the webhook can ask about namespaces that are nowhere: for all of them
// together the API server is asked this often. A namespace is in the cache within a moment.
const (
	liveRate  = 20 // a second
	liveBurst = 40
)

// errTooMany is why something is not read live.
var errTooMany = errors.New("too many pods at once of namespaces that are not known here yet")

// gatherer collects the facts about a pod.
type gatherer struct {
	reader, live client.Reader
	clock        clock.PassiveClock
	limit        *rate.Limiter // of live reads; nil for none
}

// gather returns the facts about a pod of a namespace.
func (g *gatherer) gather(ctx context.Context, namespace string, pod *corev1.Pod) (facts, error) {
	offloading, err := g.offloading(ctx, namespace)
	if err != nil {
		return facts{}, err
	}
	f := facts{pod: pod, offloading: offloading}
	nodes := &corev1.NodeList{}
	if err := g.reader.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}, client.UnsafeDisableDeepCopy); err != nil {
		return facts{}, fmt.Errorf("reading the virtual nodes: %w", err)
	}
	refused, err := g.refusals(ctx, pod, nodes.Items)
	if err != nil {
		return facts{}, err
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		r := refused[node.Name]
		n := virtualNode{name: node.Name, labels: node.Labels, closed: closed(node), refused: r.Count, until: r.Until.Time}
		if n.offer, err = g.offer(ctx, node); err != nil {
			return facts{}, err
		}
		f.nodes = append(f.nodes, n)
	}
	return f, nil
}

// offloading is what holds for a namespace: its NamespaceOffloading, or the defaults if
// it only has the label. One that is being deleted brings pods home.
func (g *gatherer) offloading(ctx context.Context, namespace string) (v1alpha1.NamespaceOffloadingSpec, error) {
	own := &v1alpha1.NamespaceOffloading{}
	err := g.get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, own)
	switch {
	case err == nil && own.DeletionTimestamp.IsZero():
		return own.Spec, nil
	case err == nil:
		return v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsLocal}, nil
	case !apierrors.IsNotFound(err):
		return v1alpha1.NamespaceOffloadingSpec{}, fmt.Errorf("reading the NamespaceOffloading of namespace %s: %w", namespace, err)
	}
	labelled := &corev1.Namespace{}
	if err := g.get(ctx, client.ObjectKey{Name: namespace}, labelled); err != nil {
		return v1alpha1.NamespaceOffloadingSpec{}, fmt.Errorf("reading namespace %s: %w", namespace, err)
	}
	if labelled.Labels[v1alpha1.LabelOffload] == "true" {
		return v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsLocalAndRemote}, nil
	}
	return v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsLocal}, nil
}

// get reads from the cache, and what it does not have from the API server: the label
// that made the API server ask may be younger than our cache.
func (g *gatherer) get(ctx context.Context, key client.ObjectKey, into client.Object) error {
	err := g.reader.Get(ctx, key, into)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if g.limit != nil && !g.limit.AllowN(g.clock.Now(), 1) {
		return errTooMany
	}
	ctx, cancel := context.WithTimeout(ctx, liveLimit)
	defer cancel()
	return g.live.Get(ctx, key, into)
}

// offer is the one behind a virtual node, nil if there is none.
func (g *gatherer) offer(ctx context.Context, node *corev1.Node) (*v1alpha1.ResourceOfferSpec, error) {
	peering, request := node.Labels[v1alpha1.LabelPeering], node.Labels[v1alpha1.LabelRequest]
	if peering == "" || request == "" {
		return nil, nil
	}
	offer := &v1alpha1.ResourceOffer{}
	err := g.reader.Get(ctx, client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(peering), Name: request}, offer)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the offer behind node %s: %w", node.Name, err)
	}
	return &offer.Spec, nil
}

// closed says whether a virtual node takes no pods now. One whose offer does not hold is
// not ready or about to be removed.
func closed(node *corev1.Node) bool {
	if node.Spec.Unschedulable || !node.DeletionTimestamp.IsZero() {
		return true
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// refusals are by node those of a pod's controller that its next pods are to heed, with
// how often in a row it was refused.
func (g *gatherer) refusals(ctx context.Context, pod *corev1.Pod, nodes []corev1.Node) (map[string]v1alpha1.Refusal, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil, nil
	}
	now := g.clock.Now()
	refused, seen := map[string]v1alpha1.Refusal{}, map[string]bool{}
	for i := range nodes {
		peering := nodes[i].Labels[v1alpha1.LabelPeering]
		if peering == "" || seen[peering] {
			continue
		}
		seen[peering] = true
		maps := &v1alpha1.NamespaceMapList{} // not copied: there may be hundreds of entries
		if err := g.reader.List(ctx, maps, client.InNamespace(v1alpha1.PeeringNamespace(peering)), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("reading refusals of %s: %w", peering, err)
		}
		for m := range maps.Items {
			for _, r := range maps.Items[m].Status.Refusals {
				if r.Owner == string(owner.UID) && now.Before(r.Until.Time) && r.Until.After(refused[r.Node].Until.Time) {
					r.Count = max(r.Count, refused[r.Node].Count, 1)
					refused[r.Node] = r
				}
			}
		}
	}
	return refused, nil
}
