package network

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/policy"
)

// guarding is what the rules of one namespace follow from, for one peering.
type guarding struct {
	namespace, peering string
	// policies of the namespace; none if it is not offloaded to the peering's provider and has no
	// pods there, or that has no network.
	policies []networkingv1.NetworkPolicy
	*scene
	// published are the ranges that the provider is told of.
	published []netip.Prefix
	// mapped is what is mapped in the namespace.
	mapped []policy.Mapped
	// known says that the provider knows NetworkRules.
	known bool
}

// gather reads what rules follow from.
func (r *ruler) gather(ctx context.Context, namespace, peering string) (*guarding, error) {
	g := &guarding{namespace: namespace, peering: peering, scene: &scene{}}
	mapped, config, p := &v1alpha1.NamespaceMap{}, &v1alpha1.NetworkConfig{}, &v1alpha1.Peering{}
	in := v1alpha1.PeeringNamespace(peering)
	for key, o := range map[client.ObjectKey]client.Object{
		{Namespace: in, Name: v1alpha1.NamespaceMapName}: mapped, {Namespace: in, Name: v1alpha1.NetworkConsumer}: config, {Name: peering}: p,
	} {
		switch err := r.client.Get(ctx, key, o); {
		case apierrors.IsNotFound(err) || err == nil && o.GetDeletionTimestamp() != nil && o != client.Object(p):
			return g, nil // while a peering ends its pods are there, and its tunnel
		case err != nil:
			return nil, fmt.Errorf("reading %s: %w", key.Name, err)
		}
	}
	policies := &networkingv1.NetworkPolicyList{}
	if err := r.client.List(ctx, policies, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing network policies: %w", err)
	}
	g.published, g.known = prefixes(config.Spec.Pods), p.Status.Remote != nil && slices.Contains(p.Status.Remote.Features, v1alpha1.FeatureNetworkPolicy)
	if g.policies = policies.Items; len(g.policies) == 0 {
		return g, nil
	}
	r.bind(types.NamespacedName{Namespace: namespace, Name: peering}, policy.ScopeOf(namespace, g.policies))
	var err error
	if g.scene, err = r.scenes.now(ctx, r.client); err != nil {
		return nil, err
	}
	mappings := &v1alpha1.IPMappingList{}
	if err := r.client.List(ctx, mappings, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing mappings: %w", err)
	}
	for i := range mappings.Items {
		real, is := mappedTo(&mappings.Items[i])
		if external, err := netip.ParseAddr(mappings.Items[i].Status.Address); is && err == nil {
			g.mapped = append(g.mapped, policy.Mapped{Real: real, External: external})
		}
	}
	if _, is := mapped.Spec.Namespaces[namespace]; !is && len(g.own(g.pods[peering])) == 0 {
		g.policies = nil // nobody of the namespace is there any more
	}
	return g, nil
}

// networked says whether a pod has a network of its own, and has not ended.
func networked(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// seen is a pod as policies see it.
func seen(p *corev1.Pod) policy.Pod {
	out := policy.Pod{Namespace: p.Namespace, UID: string(p.UID), Labels: p.Labels}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Zone() == "" {
			out.Addresses = append(out.Addresses, a.Unmap())
		}
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for _, port := range list[i].Ports {
				if port.Name != "" {
					out.Ports = append(out.Ports, policy.Port{Name: port.Name, Protocol: port.Protocol, Number: port.ContainerPort})
				}
			}
		}
	}
	return out
}

// world is what the rules are compiled of: for this cluster's gateways those that guard pods here,
// with the provider's as peers, and those at the provider once more, as its gateways may keep to
// nothing; for the provider's the latter alone, and there peers are also at other providers, as far
// as this one is told of their addresses.
func (g *guarding) world(here bool) policy.World {
	w := policy.World{Namespace: g.namespace, Policies: g.policies, Namespaces: g.namespaces, Mapped: g.mapped, ByUID: !here}
	if here {
		w.Guarded, w.Others = g.own(g.pods[""]), g.pods[g.peering]
		w.Far = g.own(w.Others)
	} else {
		w.Guarded = g.own(g.pods[g.peering])
	}
	for at, pods := range g.pods {
		switch {
		case at == g.peering:
			continue
		case here:
			w.Near = append(w.Near, pods...)
			continue
		}
		for _, p := range pods {
			p.Addresses = slices.DeleteFunc(slices.Clone(p.Addresses), func(a netip.Addr) bool { return !inRanges(g.published, a) })
			w.Others = append(w.Others, p)
		}
	}
	return w
}

// own are the pods of the namespace.
func (g *guarding) own(pods []policy.Pod) (own []policy.Pod) {
	for _, p := range pods {
		if p.Namespace == g.namespace {
			own = append(own, p)
		}
	}
	return own
}
