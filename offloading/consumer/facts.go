package consumer

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// link is how the connection to a provider is.
type link int

const (
	unknown  link = iota // there is none, or the first attempt is not over
	up                   // it answers, and what it shows is true
	blind                // it answers, and its ShadowPods have not been read
	refusing             // it answers, and refuses this cluster
	away                 // it does not answer
)

// facts are all that is known of a home pod and of what became of it.
type facts struct {
	pod       *corev1.Pod
	peering   string
	at        shadow.Place
	made      metav1.Time // when its node was
	now       time.Time
	offloaded bool   // the pod's namespace is
	tenant    string // whose that is, if it is here for one
	mapped    bool   // and has a place at the provider, or is to have one
	link      link
	since     time.Time           // since when link is so, at least
	shadow    *v1alpha1.ShadowPod // at the provider, as far as the mirror knows
	view      shadow.View         // how the provider's pods are seen, nil without a network
	viewed    bool                // views are known
	tunnel    tunnel
	behind    func(here, there int64) (home, provider bool) // see Gateways; nil without a network
	heralded  func(here, there int64) (known, may bool)     // the same
	waits     time.Time                                     // since when the pod waits for gateways, zero if it does not
	began     time.Time                                     // when this process first looked at a pod
	memory    entry
	sizeless  bool // this cluster's API server drops what a status says of a pod's resources as a whole
	// unsettled is what has to be there before the pod is, and is not yet; ask again then.
	unsettled string
	askAgain  time.Duration
	// closing is the pod's namespace, if it is being deleted and is home's own: a tenant's pods may be made anew elsewhere.
	closing *corev1.Namespace
	leaving bool // nobody waits for the provider for long: something ends here
	// elsewhere: the pod's owner's next one could go to another place than this node, or
	// perhaps at until, if that is set. Known of pods only that may be sent home.
	elsewhere bool
	until     time.Time
}

// gather reads the facts of a pod. It returns nil for pods that are not this room's.
func (r *reconciler) gather(ctx context.Context, pod *corev1.Pod) (*facts, Peer, error) {
	node := &corev1.Node{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); err != nil {
		return nil, nil, client.IgnoreNotFound(err) // the cluster collects pods of nodes that are gone
	}
	peering := node.Labels[v1alpha1.LabelPeering]
	if node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode || peering == "" {
		return nil, nil, nil
	}
	namespace := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, namespace); apierrors.IsNotFound(err) {
		return nil, nil, nil // nothing is left in it
	} else if err != nil {
		return nil, nil, fmt.Errorf("reading the namespace: %w", err)
	}
	key := client.ObjectKeyFromObject(pod)
	f := &facts{
		pod: pod, peering: peering, made: node.CreationTimestamp, now: r.clock.Now(), memory: r.ledger.of(key, pod.UID),
		at:        shadow.Place{Node: node.Name, Request: node.Labels[v1alpha1.LabelRequest], Address: address(node)},
		offloaded: namespace.Labels[v1alpha1.LabelOffloaded] == "true",
		tenant:    namespace.Labels[v1alpha1.LabelTenant],
		since:     r.began(), began: r.began(), view: r.view(peering), tunnel: r.tunnel(peering),
		behind: r.knownTo(peering, node.Name), heralded: r.foretoldTo(peering, node.Name), waits: r.waiters.since(key),
		viewed:   r.views == nil || r.views.Known(), // before any is asked for
		sizeless: r.sizeless.Load(),
	}
	if !namespace.DeletionTimestamp.IsZero() && f.tenant == "" {
		f.closing = namespace
	}
	if kube.Idle(pod, f.offloaded) {
		return nil, nil, nil // the room of virtual nodes answers for these, and nobody else
	}
	var err error
	if f.mapped, err = isMapped(ctx, r.client, peering, pod.Namespace); err != nil {
		return nil, nil, err
	}
	if f.memory.ended && !terminal(pod.Status.Phase) {
		return nil, nil, nil // the cache is behind what we wrote, which brings us back
	}
	peer, ok := r.fleet.Peer(peering)
	if ok {
		f.look(ctx, peer)
	}
	if f.at.Tokens, err = r.tokens(ctx, f); err != nil {
		return nil, nil, err
	}
	if f.shadow == nil && f.link == up && f.offloaded && r.needs != nil && !f.memory.seen && f.now.Sub(f.memory.created) >= behind {
		if f.unsettled, f.askAgain, err = r.needs.Unsettled(ctx, peering, pod); err != nil {
			return nil, nil, fmt.Errorf("finding out whether what the pod needs is at the provider: %w", err)
		}
	}
	if f.shadow != nil {
		r.ledger.saw(key, pod.UID, peering)
		f.memory.seen = true
		if f.memory.told.IsZero() && !pod.DeletionTimestamp.IsZero() && !f.shadow.DeletionTimestamp.IsZero() {
			f.memory.told = f.now
			r.ledger.change(key, pod.UID, func(e *entry) { e.told = f.now })
		}
	}
	if !pod.DeletionTimestamp.IsZero() && f.link != up {
		if f.leaving, err = r.leaving(ctx, node, namespace, peering); err != nil {
			return nil, nil, err
		}
	}
	if sendable(*f) {
		choice, err := r.choices.Of(ctx, pod)
		if err != nil {
			return nil, nil, fmt.Errorf("finding out where the next pod could go: %w", err)
		}
		f.elsewhere, f.until = choice.Elsewhere(node.Name), choice.Until
	}
	return f, peer, nil
}

// tokens says whether tokens of home travel with the pod: as it was forged, which home knows better than
// its provider, else as its namespace says now.
func (r *reconciler) tokens(ctx context.Context, f *facts) (bool, error) {
	switch {
	case shadow.IsBare(f.pod):
		return false, nil
	case f.shadow != nil:
		return shadow.HasTokens(f.shadow) && !f.memory.bare, nil
	}
	o := &v1alpha1.NamespaceOffloading{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: f.pod.Namespace, Name: v1alpha1.OffloadingName}, o)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the namespace offloading: %w", err)
	}
	return o.Spec.ServiceAccountTokens == v1alpha1.TokensAllow, nil
}

// sendable says whether the pod may have to be sent home.
func sendable(f facts) bool {
	if !f.offloaded || !replaceable(f.pod, f.tenant) || !f.pod.DeletionTimestamp.IsZero() || terminal(f.pod.Status.Phase) {
		return false
	}
	switch {
	case f.link != up && f.link != refusing:
		return false
	case f.shadow == nil:
		return !f.memory.seen && f.now.Sub(f.memory.created) >= behind
	}
	return refused(f.shadow) != nil
}

// look finds out how the provider is and what it shows of the pod.
func (f *facts) look(ctx context.Context, peer Peer) {
	state := peer.State()
	f.since = state.Since
	switch {
	case !state.Reachable && state.Reason != v1alpha1.ReasonPending:
		f.link = away
	case !state.Reachable:
		return
	case state.Err != nil:
		f.link = refusing
	default:
		f.link = up
	}
	s := &v1alpha1.ShadowPod{}
	switch err := peer.Reader().Get(ctx, client.ObjectKey{Namespace: peer.TenantNamespace(), Name: string(f.pod.UID)}, s); {
	case err == nil:
		f.shadow = s
	case apierrors.IsNotFound(err):
	case f.link == away:
	default: // not read yet, or not what it should be
		f.link = blind
	}
}

// leaving says whether the pod's end is part of a larger one, which a provider that is
// away must not hold up. That a tenant's namespace is not offloaded any more is none: its pods
// would be made again here, and nobody has asked the tenant whether they may run twice.
func (r *reconciler) leaving(ctx context.Context, node *corev1.Node, namespace *corev1.Namespace, peering string) (bool, error) {
	if !node.DeletionTimestamp.IsZero() || !namespace.DeletionTimestamp.IsZero() {
		return true, nil
	}
	for _, one := range []struct {
		key client.ObjectKey
		obj client.Object
	}{
		{client.ObjectKey{Namespace: namespace.Name, Name: v1alpha1.OffloadingName}, &v1alpha1.NamespaceOffloading{}},
		{client.ObjectKey{Name: peering}, &v1alpha1.Peering{}},
	} {
		if _, offloading := one.obj.(*v1alpha1.NamespaceOffloading); offloading && namespace.Labels[v1alpha1.LabelTenant] != "" {
			continue
		}
		err := r.client.Get(ctx, one.key, one.obj)
		if apierrors.IsNotFound(err) {
			return true, nil
		} else if err != nil {
			return false, fmt.Errorf("reading what may be ending: %w", err)
		}
		if one.obj.GetDeletionTimestamp() != nil {
			return true, nil
		}
	}
	return false, nil
}

// address is where a node's pods seem to be.
func address(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
