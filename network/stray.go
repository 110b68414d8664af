package network

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// strays are the pods whose addresses are in no range that is published.
type strays struct {
	text   string         // "" if there are none
	around []netip.Prefix // networks that they are in
	// astray says of pods that have addresses of other nodes' ranges, and that agents do not know of.
	astray string
	read   time.Time
}

// maxNear bounds the networks that are left to them.
const maxNear = 256

// gatherStray looks, from time to time, for pods whose addresses are in no range that is
// published: nobody elsewhere reaches them, and no view may cover them. And for such as packets
// from elsewhere are sent to the wrong node for.
func (r *decider) gatherStray(ctx context.Context, f *facts) error {
	if age := f.now.Sub(r.strays.read); r.strays.read.IsZero() || age >= lookEvery || age < 0 {
		pods := &corev1.PodList{}
		if err := r.client.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing pods: %w", err)
		}
		r.strays = findStrays(pods.Items, f.nodes, f.property.Pods)
		r.strays.astray = findAstray(pods.Items, f.nodes, f.followed)
		r.strays.read = f.now
	}
	f.stray, f.astray = r.strays.text, r.strays.astray
	f.property.Nodes = sorted(slices.Concat(f.property.Nodes, r.strays.around))
	return nil
}

// followed says whether agents know where a pod is, whatever ranges say: it is here for a tenant, or in a
// namespace that may run at a provider.
func (f *facts) followed(p *corev1.Pod) bool {
	return p.Labels[v1alpha1.LabelTenant] != "" && p.Labels[v1alpha1.LabelHomeUID] != "" ||
		slices.ContainsFunc(f.pairs, func(of *pair) bool { return of.consumes && of.spaces[p.Namespace] })
}

// oddities are pods of which something is to be told.
type oddities struct {
	count   int
	example string
}

func (o *oddities) add(p *corev1.Pod, a netip.Addr) {
	o.count++
	if name := p.Namespace + "/" + p.Name + " with " + a.String(); o.example == "" || name < o.example {
		o.example = name
	}
}

// addressesHere are those of a pod that runs on a node of this cluster, in a network of its own.
func addressesHere(p *corev1.Pod, nodes map[string]*corev1.Node) (all []netip.Addr) {
	if p.Spec.HostNetwork || p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil || nodes[p.Spec.NodeName] == nil {
		return nil
	}
	texts := []string{p.Status.PodIP}
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(all, a.Unmap()) {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// findStrays finds the pods that have addresses outside of ranges. A second address of a family that
// has no range at all is nobody's business elsewhere.
func findStrays(pods []corev1.Pod, nodes map[string]*corev1.Node, ranges []netip.Prefix) strays {
	var s strays
	var odd oddities
	for i := range pods {
		p := &pods[i]
		for j, a := range addressesHere(p, nodes) {
			known := slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Addr().Is4() == a.Is4() })
			if holds(ranges, a) || j > 0 && !known {
				continue
			}
			odd.add(p, a)
			if p := near(a); len(s.around) < maxNear && !slices.Contains(s.around, p) {
				s.around = append(s.around, p)
			}
		}
	}
	if odd.count > 0 {
		s.text = fmt.Sprintf("pods here, as %s, have addresses outside of the ranges that peers are told (%s): set network.pods in ConfigMap %s to the ranges of the pods here",
			odd.example, strings.Join(texts(ranges), ", "), v1alpha1.ConfigName)
	}
	return s
}

// findAstray says of the pods that have addresses of other nodes' ranges, but for those of which agents
// know where they are.
func findAstray(pods []corev1.Pod, nodes map[string]*corev1.Node, followed func(*corev1.Pod) bool) string {
	var all []netip.Prefix
	ranges := map[string][]netip.Prefix{}
	for name, n := range nodes {
		ranges[name] = podRanges(n)
		all = append(all, ranges[name]...)
	}
	whole := map[bool]netip.Prefix{} // most addresses are in one range, and all ranges are many
	for _, four := range []bool{true, false} {
		whole[four], _ = around(all, four)
	}
	var odd oddities
	for i := range pods {
		p := &pods[i]
		for _, a := range addressesHere(p, nodes) {
			if w := whole[a.Is4()]; w.IsValid() && w.Contains(a) && !holds(ranges[p.Spec.NodeName], a) && holds(all, a) && !followed(p) {
				odd.add(p, a)
			}
		}
	}
	if odd.count == 0 {
		return ""
	}
	return fmt.Sprintf("pods here, as %s, have addresses in spec.podCIDRs of other nodes (%d of them), where what peers answer to these pods is sent: offload their namespaces, or have the network plugin keep to spec.podCIDRs",
		odd.example, odd.count)
}

func holds(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}
