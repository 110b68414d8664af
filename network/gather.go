package network

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

// servers are the addresses of this cluster's API server, as they were last.
type servers struct {
	addresses []netip.Addr
	read      time.Time
}

// gather reads what a decision follows from, and the NetworkConfigs that nobody wants any
// more. It returns no facts while the cache is behind what was written.
func (r *decider) gather(ctx context.Context, now time.Time) (*facts, []*v1alpha1.NetworkConfig, error) {
	have, ending, err := r.configs(ctx)
	if err != nil {
		return nil, nil, err
	}
	paths, err := r.pathsThere(ctx)
	if err != nil {
		return nil, nil, err
	}
	if r.behind(have, paths, now) {
		return nil, nil, nil
	}
	f := &facts{now: now, id: r.home.ID(), settings: r.home.Config().Network, domain: r.network.options.Domain, nodes: map[string]*corev1.Node{}, refused: r.refused.all()}
	f.agents, f.candidates, f.away = r.agents.now()
	g := grounds{settings: f.settings, clusterID: r.home.ID()}
	if err := r.gatherPairs(ctx, f, &g, have); err != nil {
		return nil, nil, err
	}
	f.takePaths(paths)
	if err := r.gatherOwn(ctx, f, &g); err != nil {
		return nil, nil, err
	}
	f.property = own(g)
	if err := r.gatherStray(ctx, f); err != nil {
		return nil, nil, err
	}
	if err := r.gatherFronts(ctx, f); err != nil {
		return nil, nil, err
	}
	left := ending
	for _, c := range have {
		left = append(left, c)
	}
	return f, left, nil
}

// configs are the NetworkConfigs of peerings and tenants: those there are, and those that end.
func (r *decider) configs(ctx context.Context) (have map[types.NamespacedName]*v1alpha1.NetworkConfig, ending []*v1alpha1.NetworkConfig, err error) {
	list := &v1alpha1.NetworkConfigList{}
	if err := r.client.List(ctx, list); err != nil {
		return nil, nil, fmt.Errorf("listing network configs: %w", err)
	}
	have = map[types.NamespacedName]*v1alpha1.NetworkConfig{}
	for i := range list.Items {
		c := &list.Items[i]
		switch {
		case c.Namespace != r.network.options.Namespace && !strings.HasPrefix(c.Namespace, v1alpha1.PeeringNamespacePrefix) && !strings.HasPrefix(c.Namespace, v1alpha1.TenantNamespacePrefix):
		case c.DeletionTimestamp != nil:
			ending = append(ending, c)
		default:
			have[client.ObjectKeyFromObject(c)] = c
		}
	}
	return have, ending, nil
}

// gatherPairs finds the peerings that have a network, and takes their objects out of have.
func (r *decider) gatherPairs(ctx context.Context, f *facts, g *grounds, have map[types.NamespacedName]*v1alpha1.NetworkConfig) error {
	peerings := &v1alpha1.PeeringList{}
	if err := r.client.List(ctx, peerings); err != nil {
		return fmt.Errorf("listing peerings: %w", err)
	}
	tenants := &v1alpha1.TenantList{}
	if err := r.client.List(ctx, tenants); err != nil {
		return fmt.Errorf("listing tenants: %w", err)
	}
	maps := &v1alpha1.NamespaceMapList{}
	if err := r.client.List(ctx, maps, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing namespace maps: %w", err)
	}
	spaces, words := mapped(maps.Items), owners(maps.Items)
	namespaces := &corev1.NamespaceList{}
	if err := r.client.List(ctx, namespaces, client.HasLabels{v1alpha1.LabelTenant, v1alpha1.LabelHomeNamespace}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	rules := &v1alpha1.NetworkRulesList{}
	if err := r.client.List(ctx, rules, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing network rules: %w", err)
	}
	hosts, guarded := hosted(namespaces.Items), guarded(namespaces.Items, rules.Items)
	offloaded := &v1alpha1.NamespaceOffloadingList{}
	if err := r.client.List(ctx, offloaded, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing namespace offloadings: %w", err)
	}
	shut := closed(offloaded.Items)
	for i := range peerings.Items {
		p := &peerings.Items[i]
		f.peerings = append(f.peerings, p.Name)
		inBand := p.Spec.Consume != nil && p.Spec.Consume.InBand != nil
		if p.Spec.Consume == nil && controllerutil.ContainsFinalizer(p, v1alpha1.FinalizerConsume) {
			own := have[types.NamespacedName{Namespace: v1alpha1.PeeringNamespace(p.Name), Name: v1alpha1.NetworkConsumer}]
			inBand = own != nil && own.Spec.InBand != nil // the provider is yet to be told goodbye
		}
		if p.Spec.Consume == nil && !inBand {
			continue
		}
		if a, ok := addressOf(p.Status.ServerURL); ok {
			g.reached = append(g.reached, a)
		}
		said := features(p.Status.Remote)
		at := spaces[v1alpha1.PeeringNamespace(p.Name)]
		f.pairs = append(f.pairs, &pair{
			namespace: v1alpha1.PeeringNamespace(p.Name), consumes: true, peering: p.Name, peer: p.Name,
			since: p.CreationTimestamp.Time, asked: p.Annotations[v1alpha1.AnnotationRotate], wanted: said != no, unsure: said == unknown,
			spaces: at, shut: overlap(at, shut), reach: p.Spec.Reachability, inBand: inBand, translate: p.Spec.Translate,
			direct: p.Spec.DirectPaths, able: knowsPaths(p.Status.Remote, v1alpha1.FeatureDirectPaths), uid: p.UID,
			owners: words[v1alpha1.PeeringNamespace(p.Name)], ableBehind: knowsPaths(p.Status.Remote, v1alpha1.FeaturePathsBehind),
			unnamed: unnamed(f.domain, p.Status.Remote),
		})
	}
	for i := range tenants.Items {
		t := &tenants.Items[i]
		said := features(t.Status.Cluster)
		p := &pair{
			namespace: v1alpha1.TenantNamespace(t.Name), peer: t.Name, since: t.CreationTimestamp.Time, reach: t.Spec.Reachability, callers: t.Spec.Callers, inBand: t.Spec.InBand,
			direct: t.Spec.DirectPaths, ableBehind: knowsPaths(t.Status.Cluster, v1alpha1.FeaturePathsBehind), uid: t.UID,
			hosts: hosts[t.Name], guarded: guarded[t.Name], translate: t.Spec.Translate,
			wanted: said != no && (t.DeletionTimestamp == nil || t.Spec.InBand),
			unsure: said == unknown || !status.IsTrue(t.Status.Conditions, v1alpha1.ConditionNamespaceReady),
		}
		if t.DeletionTimestamp != nil { // in band the consumer is to hear of it, and no pod
			p.reach = v1alpha1.ReachNone
		}
		for j := range peerings.Items {
			if of := &peerings.Items[j]; of.Spec.Provide != nil && of.Spec.Provide.Tenant == t.Name {
				p.peering, p.asked = of.Name, of.Annotations[v1alpha1.AnnotationRotate]
			}
		}
		f.pairs = append(f.pairs, p)
	}
	for _, p := range f.pairs {
		if err := r.gatherPair(ctx, p, have); err != nil {
			return err
		}
	}
	if err := r.gatherOpenings(ctx, f, peerings.Items, have); err != nil {
		return err
	}
	r.begin(f)
	slices.SortFunc(f.pairs, func(a, b *pair) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key, b.key)) })
	for _, p := range f.pairs {
		if own := p.own(); p.wanted && own != nil {
			g.before = append(g.before, prefixes(own.Spec.External)...)
			if len(g.published) == 0 {
				g.published = prefixes(own.Spec.Pods)
			}
		}
		if theirs := p.theirs(); p.wanted && theirs != nil {
			for _, v := range parsed(theirs.Status.Views) {
				g.views = append(g.views, v.View)
			}
		}
	}
	// What is published for others is not this cluster's.
	g.published = slices.DeleteFunc(g.published, func(p netip.Prefix) bool { return slices.Contains(g.views, p) })
	return nil
}

// begin remembers since when networks are wanted, or may be.
func (r *decider) begin(f *facts) {
	was := r.begun
	r.begun = map[string]begun{}
	for _, p := range f.pairs {
		if !p.wanted && !p.unsure {
			continue
		}
		b, known := was[p.key]
		if !known || b.wanted != p.wanted || b.at.After(f.now) {
			b = begun{p.wanted, f.now}
		}
		r.begun[p.key], p.begun = b, b.at
	}
}

// gatherPair finds the objects of a peering, and whether they are wanted: in a namespace that
// is Pelago's for it and stays. What exists stays while it is not sure what the peer can.
func (r *decider) gatherPair(ctx context.Context, p *pair, have map[types.NamespacedName]*v1alpha1.NetworkConfig) error {
	p.key = v1alpha1.NetworkKey(p.namespace)
	names := map[string]**v1alpha1.NetworkConfig{v1alpha1.NetworkConsumer: &p.consumer, v1alpha1.NetworkProvider: &p.provider}
	for name, into := range names {
		*into = have[types.NamespacedName{Namespace: p.namespace, Name: name}]
	}
	if p.unsure && p.consumer == nil && p.provider == nil {
		p.wanted = false
	}
	if !p.wanted {
		return nil
	}
	n := &corev1.Namespace{}
	err := r.client.Get(ctx, client.ObjectKey{Name: p.namespace}, n)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading namespace %s: %w", p.namespace, err)
	}
	label := v1alpha1.LabelTenant
	if p.consumes {
		label = v1alpha1.LabelPeering
	}
	if apierrors.IsNotFound(err) || n.DeletionTimestamp != nil || n.Labels[label] != p.peer {
		p.wanted = false
		return nil
	}
	for name := range names {
		delete(have, types.NamespacedName{Namespace: p.namespace, Name: name})
	}
	return nil
}

// ability is whether a cluster has its network on.
type ability int

const (
	no ability = iota
	yes
	unknown
)

func features(of *v1alpha1.ClusterInfo) ability {
	switch {
	case of == nil:
		return unknown
	case slices.Contains(of.Features, v1alpha1.FeatureNetwork):
		return yes
	}
	return no
}

// gatherOwn reads what this cluster's own ranges follow from.
func (r *decider) gatherOwn(ctx context.Context, f *facts, g *grounds) error {
	nodes := &corev1.NodeList{}
	if err := r.client.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if n.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode {
			f.nodes[n.Name] = n
			g.nodes = append(g.nodes, n)
		}
	}
	for _, a := range f.agents {
		if f.nodes[a.node] != nil {
			g.connected = append(g.connected, a.networks...)
		}
	}
	cidrs := &networkingv1.ServiceCIDRList{}
	if err := r.client.List(ctx, cidrs); err != nil {
		return fmt.Errorf("listing ranges of services: %w", err)
	}
	g.services = cidrs.Items
	addresses, err := r.apiServer(ctx, f.now)
	if err != nil {
		return err
	}
	g.servers, f.servers = addresses, r.servers.addresses
	mappings := &v1alpha1.IPMappingList{}
	if err := r.client.List(ctx, mappings, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing mappings: %w", err)
	}
	for i := range mappings.Items {
		if a, is := mappedTo(&mappings.Items[i]); is {
			g.mapped = append(g.mapped, single(a))
		}
	}
	g.mapped = sorted(g.mapped)
	return nil
}

// apiServer are the addresses of this cluster's API server: those behind its Service, and that
// at which consumers reach it.
func (r *decider) apiServer(ctx context.Context, now time.Time) ([]netip.Addr, error) {
	if age := now.Sub(r.servers.read); r.servers.read.IsZero() || age >= lookEvery || age < 0 {
		s := &discoveryv1.EndpointSlice{}
		err := r.live.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceDefault, Name: "kubernetes"}, s)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading where the API server is: %w", err)
		}
		var all []netip.Addr
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					all = append(all, a.Unmap())
				}
			}
		}
		r.servers = servers{all, now}
	}
	all := slices.Clone(r.servers.addresses)
	if url, _, _, err := r.home.APIServer(); err == nil || url != "" { // there, though its authority cannot be told
		if a, ok := addressOf(url); ok && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all, nil
}
