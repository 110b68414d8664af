package namespace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// facts are what is known of one NamespaceOffloading.
type facts struct {
	now      time.Time
	spec     v1alpha1.NamespaceOffloadingSpec
	name     string        // of the namespace
	label    string        // LabelOffloaded on the namespace
	present  bool          // the namespace is there
	rights   []right       // the manager's own
	ending   *metav1.Time  // since when the offloading or its namespace is being deleted
	refused  string        // why this namespace is not offloaded, now or ever
	from     origin        // of a namespace that is here for a tenant
	domain   string        // of this cluster, as it is exchanged
	wrong    error         // what is wrong with the selector
	nodes    []corev1.Node // virtual ones
	clusters []*cluster    // by name
	unbound  []*corev1.Pod // made under terms that end with the offloading, and on no node
}

// right is one that the manager gives itself in the namespace.
type right struct {
	have *rbacv1.RoleBinding // nil if there is none
	want *rbacv1.RoleBinding // as it should be
	due  bool                // while the namespace is offloaded as it is
}

// cluster is what is known of an offloading at one cluster.
type cluster struct {
	name      string // of the peering
	live      bool   // the peering is there, stays, and consumes
	nodes     int
	selected  bool
	reachable bool
	onward    bool                       // its build knows v1alpha1.FeatureOnward
	domains   bool                       // and v1alpha1.FeatureDomains
	entry     *v1alpha1.NamespaceMapping // in the NamespaceMap
	mapped    *v1alpha1.MappedNamespace  // what the provider answered
	waits     string                     // why the provider has not answered, if it is known
	required  bool                       // as stored in the status
	since     time.Time                  // when required became false, as stored
	pods      []*corev1.Pod              // bound there; read only if the cluster leaves
}

// mapping is the entry that the spec asks for at a cluster.
func (f *facts) mapping(c *cluster) v1alpha1.NamespaceMapping {
	m := v1alpha1.NamespaceMapping{Strategy: f.spec.NamespaceMappingStrategy, RemoteName: f.spec.RemoteNamespaceName}
	if m.Strategy == "" {
		m.Strategy = v1alpha1.MappingDefaultName
	}
	switch {
	case f.from != (origin{}):
		m.OriginNamespace, m.OriginOwner, m.Domain = f.from.namespace, f.from.owner, f.from.domain
	case f.spec.Onward == v1alpha1.OnwardAllow && c.onward:
		m.Onward, m.Domain = v1alpha1.OnwardAllow, f.domain
	default:
		m.Domain = f.domain
	}
	if !c.domains {
		m.Domain = ""
	}
	return m
}

// wants says whether the namespace is to be at a cluster.
func (f *facts) wants(c *cluster) bool {
	return !f.over() && c.live && f.chosen(c) && !f.lacks(c)
}

// gather reads the facts.
func (r *offloader) gather(ctx context.Context, o *v1alpha1.NamespaceOffloading) (*facts, error) {
	f := &facts{now: r.clock.Now(), spec: o.Spec, name: o.Namespace, ending: o.DeletionTimestamp, domain: r.domain}
	n, err := read(ctx, r.client, "", o.Namespace, &corev1.Namespace{})
	if err != nil {
		return nil, err
	}
	if n != nil {
		f.present, f.label = true, n.Labels[v1alpha1.LabelOffloaded]
		if f.ending == nil {
			f.ending = n.DeletionTimestamp
		}
		if f.from, f.refused, err = r.here(ctx, n); err != nil {
			return nil, err
		}
	}
	f.rights = []right{
		// In a tenant's namespace the manager has its rights as the provider of it.
		{want: homeBinding(o.Namespace, r.system), due: f.from == (origin{})},
		{want: tokensBinding(o.Namespace, r.system), due: o.Spec.ServiceAccountTokens == v1alpha1.TokensAllow},
	}
	for i := range f.rights {
		if f.rights[i].have, err = read(ctx, r.client, o.Namespace, f.rights[i].want.Name, &rbacv1.RoleBinding{}); err != nil {
			return nil, err
		}
	}
	nodes := &corev1.NodeList{}
	if err := r.client.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}, client.HasLabels{v1alpha1.LabelPeering}); err != nil {
		return nil, fmt.Errorf("listing virtual nodes: %w", err)
	}
	f.nodes = nodes.Items
	slices.SortFunc(f.nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	chosen, wrong := selected(o.Spec.ClusterSelector, f.nodes)
	f.wrong = wrong
	maps, err := r.maps(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.gatherClusters(ctx, f, o, chosen, maps); err != nil {
		return nil, err
	}
	return f, r.gatherPods(ctx, f)
}

// gatherClusters puts together all clusters that have, had or may get the namespace.
func (r *offloader) gatherClusters(ctx context.Context, f *facts, o *v1alpha1.NamespaceOffloading, chosen map[string]bool, maps map[string]*v1alpha1.NamespaceMap) error {
	known := map[string]*cluster{}
	of := func(name string) *cluster {
		if known[name] == nil {
			known[name] = &cluster{name: name, selected: chosen[name]}
		}
		return known[name]
	}
	for i := range f.nodes {
		of(f.nodes[i].Labels[v1alpha1.LabelPeering]).nodes++
	}
	for _, s := range o.Status.Clusters {
		c := of(s.Name)
		if said := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionOffloadingRequired); said != nil {
			c.required = said.Status == metav1.ConditionTrue
			if !c.required {
				c.since = said.LastTransitionTime.Time
			}
		}
	}
	for peering, m := range maps {
		entry, wanted := m.Spec.Namespaces[f.name]
		answer, answered := m.Status.Namespaces[f.name]
		if !wanted && !answered && known[peering] == nil {
			continue
		}
		c := of(peering)
		if wanted {
			c.entry = &entry
		}
		if answered {
			c.mapped = &answer
		}
		if ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
			c.waits = ready.Message
		}
	}
	for _, c := range known {
		peering, err := read(ctx, r.client, "", c.name, &v1alpha1.Peering{})
		if err != nil {
			return err
		}
		if peering == nil {
			r.memory.left(c.name)
		}
		c.live = peering != nil && peering.DeletionTimestamp == nil && peering.Spec.Consume != nil
		c.onward = peering != nil && knowsOnward(peering, c.entry)
		c.domains = peering != nil && knowsDomains(peering, c.entry)
		if peer, ok := r.fleet.Peer(c.name); ok {
			c.reachable, _, _ = peer.Reachable()
		}
		f.clusters = append(f.clusters, c)
	}
	slices.SortFunc(f.clusters, func(a, b *cluster) int { return strings.Compare(a.name, b.name) })
	return nil
}

// gatherPods reads the pods at clusters that are to be left. Pods of DaemonSets have
// nothing at a virtual node, and would come back at once.
func (r *offloader) gatherPods(ctx context.Context, f *facts) error {
	by := map[string]*cluster{}
	for _, c := range f.clusters {
		if c.live && c.nodes > 0 && !f.wants(c) && (c.entry != nil || f.over()) {
			by[c.name] = c
		}
	}
	if len(by) == 0 && (f.ending == nil || f.label == "") {
		return nil
	}
	of := map[string]*cluster{}
	for i := range f.nodes {
		if c := by[f.nodes[i].Labels[v1alpha1.LabelPeering]]; c != nil {
			of[f.nodes[i].Name] = c
		}
	}
	pods := &corev1.PodList{}
	if err := r.client.List(ctx, pods, client.InNamespace(f.name)); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
			continue
		}
		if c := of[pod.Spec.NodeName]; c != nil {
			c.pods = append(c.pods, pod)
		}
		if f.outlived(pod) {
			f.unbound = append(f.unbound, pod)
		}
	}
	return nil
}

// outlived says whether a pod was let through to virtual nodes, is on no node, and may wait for one for ever when the
// offloading has ended: its owner makes another one, as any pod here is. That of a Job would count it as failed.
func (f *facts) outlived(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return f.ending != nil && f.label != "" && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && kube.Tolerates(pod) &&
		owner != nil && owner.Kind != "Job" && owner.Kind != "DaemonSet" &&
		!pod.CreationTimestamp.After(f.ending.Add(pollEvery)) // later ones tolerate it by themselves
}

// maps reads the NamespaceMaps of all peerings. They must not be changed.
func (r *offloader) maps(ctx context.Context) (map[string]*v1alpha1.NamespaceMap, error) {
	list := &v1alpha1.NamespaceMapList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespace maps: %w", err)
	}
	found := map[string]*v1alpha1.NamespaceMap{}
	for i := range list.Items {
		m := &list.Items[i]
		if peering, ok := strings.CutPrefix(m.Namespace, v1alpha1.PeeringNamespacePrefix); ok && m.Name == v1alpha1.NamespaceMapName {
			found[peering] = m
		}
	}
	return found, nil
}

// read gets one object; nil if it is not there.
func read[T client.Object](ctx context.Context, c client.Reader, namespace, name string, into T) (T, error) {
	var none T
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	switch {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	return into, nil
}
