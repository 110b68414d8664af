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
	"k8s.io/apimachinery/pkg/api/meta"
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
	labelled := &corev1.Namespace{}
	if err := g.get(ctx, client.ObjectKey{Name: namespace}, labelled); err != nil {
		return facts{}, fmt.Errorf("reading namespace %s: %w", namespace, err)
	}
	offloading, barred, err := g.offloading(ctx, namespace, labelled.Labels)
	if err != nil {
		return facts{}, err
	}
	f := facts{pod: pod, offloading: offloading, barred: barred}
	nodes := &corev1.NodeList{}
	if err := g.reader.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return facts{}, fmt.Errorf("reading the nodes: %w", err)
	}
	var virtual []*corev1.Node
	for i := range nodes.Items {
		if node := &nodes.Items[i]; node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
			virtual = append(virtual, node)
		} else {
			f.here = append(f.here, node)
		}
	}
	refused, err := g.refusals(ctx, Owner(pod, labelled.Labels[v1alpha1.LabelTenant]), virtual)
	if err != nil {
		return facts{}, err
	}
	for _, node := range virtual {
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
// it only has the label. One that is being deleted brings pods home, and so does the lack of
// a tenant's consent; reserved namespaces never leave, whatever they have. With it come the
// peerings that it must not go to.
func (g *gatherer) offloading(ctx context.Context, namespace string, labels map[string]string) (v1alpha1.NamespaceOffloadingSpec, []string, error) {
	local := v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsLocal}
	if v1alpha1.ReservedNamespace(namespace) || staysHere(labels) {
		return local, nil, nil
	}
	own := &v1alpha1.NamespaceOffloading{}
	err := g.get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, own)
	switch {
	case err == nil && own.DeletionTimestamp.IsZero():
		return own.Spec, barred(own), nil
	case err == nil:
		return local, nil, nil
	case !apierrors.IsNotFound(err):
		return v1alpha1.NamespaceOffloadingSpec{}, nil, fmt.Errorf("reading the NamespaceOffloading of namespace %s: %w", namespace, err)
	}
	if labels[v1alpha1.LabelOffload] == "true" {
		return v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsLocalAndRemote}, nil, nil
	}
	return local, nil, nil
}

// staysHere says whether the pods of a namespace are a tenant's that may not go onward, or were a
// tenant's: its NamespaceOffloading may not have been looked at since that is so.
func staysHere(labels map[string]string) bool {
	if labels[v1alpha1.LabelTenant] == "" {
		return labels[v1alpha1.LabelHomeNamespace] != ""
	}
	return labels[v1alpha1.LabelOnward] != "true" || labels[v1alpha1.LabelOriginNamespace] != "" || labels[v1alpha1.LabelOriginOwner] != ""
}

// barred are the peerings, sorted, whose builds would take what is a tenant's for this
// cluster's own. The cluster has been looked at: it is Unsupported and not required.
func barred(o *v1alpha1.NamespaceOffloading) []string {
	var names []string
	for i := range o.Status.Clusters {
		said := meta.FindStatusCondition(o.Status.Clusters[i].Conditions, v1alpha1.ConditionOffloadingRequired)
		if said != nil && said.Status == metav1.ConditionFalse && said.Reason == v1alpha1.ReasonUnsupported {
			names = append(names, o.Status.Clusters[i].Name)
		}
	}
	slices.Sort(names)
	return names
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

// refusals are by node those of a pod's owner that its next pods are to heed, with
// how often in a row it was refused.
func (g *gatherer) refusals(ctx context.Context, owner string, nodes []*corev1.Node) (map[string]v1alpha1.Refusal, error) {
	if owner == "" {
		return nil, nil
	}
	now := g.clock.Now()
	refused, seen := map[string]v1alpha1.Refusal{}, map[string]bool{}
	made := map[string]metav1.Time{}
	for i := range nodes {
		made[nodes[i].Name] = nodes[i].CreationTimestamp
	}
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
				if r.Owner == owner && r.Holds(made[r.Node], now) && r.Until.After(refused[r.Node].Until.Time) {
					r.Count = max(r.Count, refused[r.Node].Count, 1)
					refused[r.Node] = r
				}
			}
		}
	}
	return refused, nil
}
