package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// facts is all that is known of one ShadowPod when it is decided what to do.
type facts struct {
	now    time.Time
	tenant string
	shadow *v1alpha1.ShadowPod
	hash   string           // of its spec
	terms  *v1alpha1.Tenant // nil if the tenant is gone or ending
	place  place
	// pod is the one that runs or ran, strays are others of the same home UID.
	pod    *corev1.Pod
	strays []*corev1.Pod
	// taken are those that we hold in namespaces which their owner took away from the tenant.
	taken []*corev1.Pod
	// holder is another pod, which has the name that pod is to have, if pod is not there.
	holder *corev1.Pod
	// warnings are what is remembered of events about pod.
	warnings []v1alpha1.PodWarning
	// dead are the nodes, of pods that are being deleted, that do not do their part:
	// true if the node is gone, false if it is not ready.
	dead map[string]bool
	// made is the pod as it is wanted, if it was worked out; refusal says why not, and leftOut
	// what it lacks of what is wanted.
	made    *corev1.Pod
	refusal error
	leftOut []string
	// lost are the fields of made that the API server has dropped from pod, as far as nobody has looked before.
	lost []string
	// patience is how long the pod may be unschedulable.
	patience time.Duration
	note     note
	// addresses of the pod are told.
	addresses bool
	// beyond is where the pod went onward; nil if it is on a node of this cluster's.
	beyond *beyond
}

// place is where a ShadowPod's pod belongs.
type place struct {
	name  string // of the namespace; empty if unknown
	ready bool
	why   string // it is not ready
	names string // the namespace by whose names its pods call each other
	// domain that these names are of
	domain string
}

const (
	// usualPatience is how long a pod may be unschedulable if the offer does not say.
	usualPatience = 10 * time.Second
	// longestPatience is the most that an offer may say.
	longestPatience = time.Hour
)

// podFinder lists the pods that say they are a tenant's for a home UID.
type podFinder func(ctx context.Context, tenant, uid string) ([]corev1.Pod, error)

// labelledPods finds pods by their labels.
func labelledPods(c client.Reader) podFinder {
	return func(ctx context.Context, tenant, uid string) ([]corev1.Pod, error) {
		list := &corev1.PodList{}
		err := c.List(ctx, list, client.MatchingLabels{v1alpha1.LabelTenant: tenant, v1alpha1.LabelHomeUID: uid})
		return list.Items, err
	}
}

// gather reads what concerns a ShadowPod.
func (r *reconciler) gather(ctx context.Context, s *v1alpha1.ShadowPod, n *note) (facts, error) {
	f := facts{now: r.clock.Now(), shadow: s, tenant: tenantName(s.Namespace), addresses: r.addresses, hash: n.hashOf(s, shadow.Hash)}
	if err := r.gatherTerms(ctx, &f); err != nil {
		return f, err
	}
	if err := r.gatherPods(ctx, &f, n); err != nil {
		return f, err
	}
	if f.pod != nil {
		f.warnings = r.book.of(f.pod.UID)
	}
	if err := r.gatherNodes(ctx, &f); err != nil {
		return f, err
	}
	if f.pod != nil && f.pod.Spec.NodeName != "" {
		var err error
		if f.beyond, err = whither(ctx, r.client, f.pod); err != nil {
			return f, err
		}
	}
	if f.pod != nil && (f.pod.Spec.NodeName == "" || f.beyond != nil) {
		if err := r.gatherPatience(ctx, &f); err != nil {
			return f, err
		}
	}
	unseen := f.pod != nil && n.whole != f.pod.UID && (s.Status.Ref == nil || s.Status.Ref.UID != string(f.pod.UID))
	if f.terms != nil && s.DeletionTimestamp == nil && !final(s) && (f.pod == nil || unseen || f.pod.Annotations[v1alpha1.AnnotationApplied] != f.hash) {
		ground := shadow.Ground{Namespace: f.place.name, Tenant: f.tenant, PodSecurity: f.terms.Spec.PodSecurity}
		if f.pod != nil {
			ground.Namespace = f.pod.Namespace
		}
		f.made, f.leftOut, f.refusal = shadow.Make(s, ground)
	}
	if unseen && f.made != nil { // made by a program that ended before it had looked, or without an answer
		if f.lost = shadow.Lost(f.pod, f.made); len(f.lost) == 0 {
			n.whole = f.pod.UID
		}
	}
	if f.pod == nil && !gaveUp(s) && (s.Status.Ref != nil || n.pod != "") {
		n.lose(f.now)
	}
	f.note = *n
	return f, nil
}

// gatherTerms reads the tenant and the namespace mapped for the pod.
func (r *reconciler) gatherTerms(ctx context.Context, f *facts) error {
	t := &v1alpha1.Tenant{}
	switch err := r.client.Get(ctx, client.ObjectKey{Name: f.tenant}, t); {
	case err == nil && t.DeletionTimestamp == nil:
		f.terms = t
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading the tenant: %w", err)
	}
	home := f.shadow.Spec.Home.Namespace
	m := &v1alpha1.NamespaceMap{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: f.shadow.Namespace, Name: v1alpha1.NamespaceMapName}, m)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the namespace map: %w", err)
	}
	mapped, there := m.Status.Namespaces[home]
	f.place.name = mapped.Name
	switch {
	case !there || mapped.Phase != v1alpha1.MappingReady || mapped.Name == "":
		f.place.why = "the namespace mapped for " + home + " is not ready"
		return nil
	}
	n := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: mapped.Name}, n); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the namespace %s: %w", mapped.Name, err)
	}
	origin, _, ok := v1alpha1.OriginOf(n.Labels)
	switch {
	case n.Name == "" || n.DeletionTimestamp != nil || n.Labels[v1alpha1.LabelTenant] != f.tenant || n.Labels[v1alpha1.LabelHomeNamespace] != home:
		f.place.why = "the namespace mapped for " + home + " is not there"
	case !ok:
		f.place.why = "the namespace mapped for " + home + " says wrongly where its pods were made"
	default:
		f.place.ready, f.place.names, f.place.domain = true, cmp.Or(origin, home), v1alpha1.DomainOf(n.Labels[v1alpha1.LabelHomeDomain])
	}
	return nil
}

// find lists the pods of a home UID that are in namespaces of the tenant, by age, and those
// that we hold in others. Whose a pod is, is told by its namespace; the label on the pod says
// only where to look.
func (r *reconciler) find(ctx context.Context, tenant, uid string) (pods, taken []*corev1.Pod, homes map[string]string, err error) {
	list, err := r.pods(ctx, tenant, uid)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("listing pods: %w", err)
	}
	homes = map[string]string{}
	for i := range list {
		pod, n := &list[i], &corev1.Namespace{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, n); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, nil, nil, fmt.Errorf("reading the namespace %s: %w", pod.Namespace, err)
		}
		if isSpace(n, tenant) {
			homes[n.Name] = n.Labels[v1alpha1.LabelHomeNamespace]
			pods = append(pods, pod)
			continue
		}
		if !pinnedByUs(pod) || pod.Labels[v1alpha1.LabelManagedBy] != shadow.ManagedBy {
			continue
		}
		// Past the cache: that a pod is let go cannot be undone.
		if err := r.live.Get(ctx, client.ObjectKey{Name: pod.Namespace}, n); client.IgnoreNotFound(err) != nil {
			return nil, nil, nil, fmt.Errorf("reading the namespace %s: %w", pod.Namespace, err)
		} else if err == nil && !isSpace(n, tenant) {
			taken = append(taken, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
	return pods, taken, homes, nil
}

// isSpace says whether a namespace is one that is mapped for the tenant, ending or not: it has
// both labels.
func isSpace(n *corev1.Namespace, tenant string) bool {
	return n.Labels[v1alpha1.LabelTenant] == tenant && n.Labels[v1alpha1.LabelHomeNamespace] != ""
}

// gatherPods sorts the pods of the ShadowPod's home UID into the one that counts and
// strays, and makes sure that one which is not found is not there.
func (r *reconciler) gatherPods(ctx context.Context, f *facts, n *note) error {
	pods, taken, homes, err := r.find(ctx, f.tenant, f.shadow.Name)
	if err != nil {
		return err
	}
	f.taken = taken
	home, ref := f.shadow.Spec.Home, f.shadow.Status.Ref
	for _, pod := range pods {
		right := pod.Name == home.Name && homes[pod.Namespace] == home.Namespace
		known := ref != nil && ref.UID == string(pod.UID)
		switch {
		case right && (f.pod == nil || known):
			if f.pod != nil {
				f.strays = append(f.strays, f.pod)
			}
			f.pod = pod
		default:
			f.strays = append(f.strays, pod)
		}
	}
	if f.pod != nil {
		n.saw(f.pod.UID)
		return nil
	}
	if err := r.gatherHolder(ctx, f); err != nil {
		return err
	}
	if n.seen && n.pod != "" && (ref == nil || ref.UID == string(n.pod)) {
		return nil // the cache has had it, and does not go back
	}
	return r.confirmGone(ctx, f, n)
}

// gatherHolder looks in the cache who has the name of the pod.
func (r *reconciler) gatherHolder(ctx context.Context, f *facts) error {
	if !f.place.ready || f.shadow.DeletionTimestamp != nil {
		return nil
	}
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: f.place.name, Name: f.shadow.Spec.Home.Name}, pod, client.UnsafeDisableDeepCopy)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for the pod's name in the cache: %w", err)
	case !isFor(pod, f.tenant, f.shadow.Name):
		f.holder = pod
	}
	return nil
}

// confirmGone looks past the cache for a pod that may be there.
func (r *reconciler) confirmGone(ctx context.Context, f *facts, n *note) error {
	key := client.ObjectKey{Namespace: f.place.name, Name: f.shadow.Spec.Home.Name}
	if ref := f.shadow.Status.Ref; ref != nil {
		key = client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	} else if n.pod == "" && f.shadow.DeletionTimestamp == nil {
		return nil // never made: if it is there after all, making it says so
	}
	if key.Namespace == "" {
		return nil
	}
	pod := &corev1.Pod{}
	if err := r.live.Get(ctx, key, pod); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading the pod: %w", err)
	}
	if isFor(pod, f.tenant, f.shadow.Name) {
		ours, err := r.spaceOf(ctx, pod.Namespace, f.tenant)
		if ours {
			f.pod = pod
		}
		return err
	}
	return nil
}

// spaceOf says whether a namespace is the tenant's, ending or not.
func (r *reconciler) spaceOf(ctx context.Context, name, tenant string) (bool, error) {
	n := &corev1.Namespace{}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, n)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the namespace %s: %w", name, err)
	}
	return err == nil && isSpace(n, tenant), nil
}

// isFor says whether a pod says that it is a tenant's for a home UID.
func isFor(pod *corev1.Pod, tenant, uid string) bool {
	return pod.Labels[v1alpha1.LabelTenant] == tenant && pod.Labels[v1alpha1.LabelHomeUID] == uid
}

// gatherNodes looks at the nodes of pods that are being deleted. A virtual one that is gone may be
// made again in a moment, and the pod runs on: the cluster collects those whose node stays away.
func (r *reconciler) gatherNodes(ctx context.Context, f *facts) error {
	for _, pod := range append(slices.Clone(f.strays), f.pod) {
		if pod == nil || pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" {
			continue
		}
		gone, dead, err := r.nodeDead(ctx, pod.Spec.NodeName)
		if err != nil {
			return err
		}
		if dead && !(gone && mayBeBeyond(pod)) {
			if f.dead == nil {
				f.dead = map[string]bool{}
			}
			f.dead[pod.Spec.NodeName] = gone
		}
	}
	return nil
}

// nodeDead says whether a node is gone, or at least not ready. A virtual one is never taken for
// dead because its provider does not answer: the pod runs there, and its end is the consumer
// side's to find out.
func (r *reconciler) nodeDead(ctx context.Context, name string) (gone, dead bool, err error) {
	node := &corev1.Node{}
	err = r.client.Get(ctx, client.ObjectKey{Name: name}, node)
	if apierrors.IsNotFound(err) { // not in the cache: what follows cannot be undone
		err = r.live.Get(ctx, client.ObjectKey{Name: name}, node)
	}
	if apierrors.IsNotFound(err) {
		return true, true, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("reading the node %s: %w", name, err)
	}
	if node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
		return false, false, nil
	}
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return false, !ready, nil
}

// gatherPatience reads from the offer how long the pod may be unschedulable.
func (r *reconciler) gatherPatience(ctx context.Context, f *facts) error {
	f.patience = usualPatience
	o := &v1alpha1.ResourceOffer{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: f.shadow.Namespace, Name: f.shadow.Spec.Request}, o)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the offer: %w", err)
	}
	if d := o.Spec.SchedulingTimeout; err == nil && d != nil && d.Duration > 0 {
		f.patience = between(time.Second, d.Duration, longestPatience)
	}
	return nil
}

// tenantName is whose a tenant namespace is, "" if it is none.
func tenantName(namespace string) string {
	name, found := strings.CutPrefix(namespace, v1alpha1.TenantNamespacePrefix)
	if !found {
		return ""
	}
	return name
}

// keyOf is the key of the ShadowPod that a pod says it was made for.
func keyOf(pod client.Object) (types.NamespacedName, error) {
	tenant, uid := pod.GetLabels()[v1alpha1.LabelTenant], pod.GetLabels()[v1alpha1.LabelHomeUID]
	if tenant == "" || uid == "" {
		return types.NamespacedName{}, errors.New("the pod is nobody's")
	}
	return types.NamespacedName{Namespace: v1alpha1.TenantNamespace(tenant), Name: uid}, nil
}
