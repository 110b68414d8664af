package agent

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// isPath reports whether a key is that of a direct path: those of peerings have no dot.
func isPath(key string) bool {
	of := func(namespaces string) bool { return strings.HasPrefix(key, v1alpha1.NetworkKey(namespaces)) }
	return strings.Contains(key, ".") && (of(v1alpha1.TenantNamespacePrefix) || of(v1alpha1.PeeringNamespacePrefix))
}

// pathKeys are the keys of all direct paths there are.
func (f facts) pathKeys() map[string]bool {
	all := map[string]bool{}
	for i := range f.paths {
		all[v1alpha1.NetworkPathKey(f.paths[i].Namespace, f.paths[i].Name)] = true
	}
	for _, p := range f.pairs() {
		for _, n := range p.said() {
			all[v1alpha1.NetworkPathKey(n.Namespace, n.Name)] = true
		}
	}
	return all
}

// said are the direct paths that a provider makes for this cluster.
func (p *pair) said() []v1alpha1.NetworkPath {
	if p.role != plan.Consumer {
		return nil
	}
	return p.peer.Paths()
}

// refusals are the reasons for which this cluster's manager lets a path not be.
var refusals = []string{v1alpha1.ReasonNotAllowed, v1alpha1.ReasonPrefixesRefused, v1alpha1.ReasonPathEnded}

// refusal is the condition that says that a path may not be, nil if it may.
func refusal(n *v1alpha1.NetworkPath) *metav1.Condition {
	c := apimeta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue || !slices.Contains(refusals, c.Reason) {
		return nil
	}
	return c
}

// trimPath leaves of a path what agents read: of the conditions, that it may not be.
func trimPath(n *v1alpha1.NetworkPath, meta metav1.ObjectMeta) *v1alpha1.NetworkPath {
	kept := &v1alpha1.NetworkPath{ObjectMeta: meta, Spec: n.Spec, Status: v1alpha1.NetworkPathStatus{PublicKey: n.Status.PublicKey, Port: n.Status.Port}}
	if c := refusal(n); c != nil {
		kept.Status.Conditions = []metav1.Condition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
	}
	return kept
}

// trimPaths does the same for those that are said in a NetworkConfig.
func trimPaths(all []v1alpha1.ConsumerPathStatus) (kept []v1alpha1.ConsumerPathStatus) {
	for i := range all {
		one := trimPath(&v1alpha1.NetworkPath{Status: all[i].NetworkPathStatus}, metav1.ObjectMeta{})
		kept = append(kept, v1alpha1.ConsumerPathStatus{Name: all[i].Name, NetworkPathStatus: one.Status})
	}
	return kept
}

// pathsOf are the direct paths of a peering that the manager here lets be, by name, as many as count.
func (k *known) pathsOf(f facts, p *pair) (all []*v1alpha1.NetworkPath) {
	wanted := f.paths
	if p.role == plan.Consumer {
		wanted = p.said()
	}
	for i := range wanted {
		n := &wanted[i]
		if n.Namespace == p.namespace && n.DeletionTimestamp == nil && refusal(n) == nil && f.now.Before(n.Spec.Until.Time) && n.Status.PublicKey != "" && n.Spec.PublicKey != "" {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.NetworkPath) int { return cmp.Compare(a.Name, b.Name) })
	if len(all) > v1alpha1.MaxNetworkPaths {
		k.wrong("peering "+v1alpha1.NetworkKey(p.namespace), "it has %d direct paths, of which only the first %d count", len(all), v1alpha1.MaxNetworkPaths)
		all = all[:v1alpha1.MaxNetworkPaths]
	}
	return all
}

// paths are the direct ways of a tenant's pods here to its pods at other providers, and of pods here to
// those of this cluster's that run behind a provider. Nothing passes by them that would not pass by the
// cluster between the two.
func (k *known) paths(f facts, p *pair, out plan.Peering) (all []plan.Path) {
	if out.Closed {
		return nil
	}
	named := k.pathsOf(f, p)
	if len(named) == 0 {
		return nil
	}
	own := k.seenAs(p)
	if len(own) == 0 { // the other provider would be shown real addresses
		k.wrong("peering "+out.Key, "the other side has not said by which views it sees the pods here, so there are no direct paths")
		return nil
	}
	here, there := lacking(out.Here, out.ShutHere), out.There
	if p.role == plan.Consumer { // those of this cluster's tenants speak by the provider alone
		here = slices.DeleteFunc(slices.Clone(here), func(a netip.Addr) bool { return !prefixIn(k.input.Pods, a) })
		for _, party := range out.Parties {
			here, there = lacking(here, party.With), lacking(there, party.There)
		}
	}
	taken := map[netip.Prefix]bool{}
	whose := f.whose(p)
	for _, n := range named {
		key := v1alpha1.NetworkPathKey(p.namespace, n.Name)
		object := "path " + key
		if !pathName(n.Name) {
			k.wrong("peering "+out.Key, "the name %s of a direct path is not 16 digits of 0 to 9 and a to f", short(n.Name))
			continue
		}
		path := plan.Path{Key: key, Own: own, Here: ownedBy(p, whose, n.Spec.OriginOwner, here), Alive: f.carrying[key], Heard: f.heard[key], ListenPort: uint16(max(0, min(n.Status.Port, 65535)))}
		path.Prefixes = k.ledTo(object, n, p, out.Views, taken)
		if !k.pathTunnel(object, f, n, key, &path) || len(path.Prefixes) == 0 {
			continue
		}
		for _, prefix := range path.Prefixes {
			taken[prefix] = true
		}
		k.again = sooner(k.again, n.Spec.Until.Time)
		path.There = slices.DeleteFunc(slices.Clone(there), func(a netip.Addr) bool { return !prefixIn(path.Prefixes, a) })
		all = append(all, path)
	}
	return all
}

// ownedBy are those of some addresses of a tenant's pods here that are in namespaces of a word, "" for
// those that have none: a path is for the pods of one owner, and the tenant may bring those of others.
func ownedBy(p *pair, whose map[netip.Addr]owned, owner string, here []netip.Addr) []netip.Addr {
	if p.role == plan.Consumer {
		return here
	}
	return slices.DeleteFunc(slices.Clone(here), func(a netip.Addr) bool {
		his, is := whose[a]
		return !is || his.several || his.word != owner
	})
}

// owned is by which word of an owner's an address is, unless it is by several: it is of two pods for a moment.
type owned struct {
	word    string
	several bool
}

// whose says of the addresses of a tenant's pods here which words their namespaces have.
func (f facts) whose(p *pair) map[netip.Addr]owned {
	if p.role == plan.Consumer {
		return nil
	}
	words := map[string]string{}
	for i := range f.namespaces {
		if n := &f.namespaces[i]; n.Labels[v1alpha1.LabelTenant] == tenantOf(p) {
			words[n.Name] = n.Labels[v1alpha1.LabelOriginOwner]
		}
	}
	all := map[netip.Addr]owned{}
	for _, pod := range f.hostedOf(tenantOf(p)) {
		word := words[pod.Namespace]
		for _, a := range meant(podAddresses(pod), itself) {
			before, twice := all[a]
			all[a] = owned{word, twice && (before.several || before.word != word)}
		}
	}
	return all
}

// pathName says whether a path is named as the kind has it.
func pathName(name string) bool {
	return len(name) == 16 && strings.Trim(name, "0123456789abcdef") == ""
}

// lacking is some sorted addresses without others, also sorted.
func lacking(addrs, but []netip.Addr) []netip.Addr {
	if len(but) == 0 {
		return addrs
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
		_, is := slices.BinarySearchFunc(but, a, netip.Addr.Compare)
		return is
	})
}

// ledTo are the prefixes that a path leads to: such that the other side has published, a provider as
// what is not its own, that this cluster has a view of as they are, and that no other path leads to.
func (k *known) ledTo(object string, n *v1alpha1.NetworkPath, p *pair, views []ipam.View, taken map[netip.Prefix]bool) (all []netip.Prefix) {
	if len(n.Spec.Prefixes) > v1alpha1.MaxNetworkPathPrefixes {
		k.wrong(object, "spec.prefixes: %d of them; name at most %d", len(n.Spec.Prefixes), v1alpha1.MaxNetworkPathPrefixes)
		return nil
	}
	for _, text := range n.Spec.Prefixes {
		prefix, err := netip.ParsePrefix(text)
		published := slices.Contains(p.peer.Spec.Pods[:min(len(p.peer.Spec.Pods), maxRanges)], text) &&
			(p.role == plan.Provider || slices.Contains(p.peer.Spec.Transit, text))
		seen := slices.ContainsFunc(views, func(v ipam.View) bool { return v.Real == prefix })
		switch {
		case err != nil || prefix != prefix.Masked() || !published || !seen:
			k.wrong(object, "spec.prefixes: %s is none that the other side has published and this cluster has a view of; name one of its NetworkConfig's spec.pods", short(text))
		case taken[prefix]:
			k.wrong(object, "spec.prefixes: another path leads to %s", prefix)
		case !slices.Contains(all, prefix):
			all = append(all, prefix)
		}
	}
	return all
}

// seenAs are this cluster's pods as the other side says that it sees them, as far as that can be: ranges
// that were published to it, one view each, of the same size and apart from each other. What
// it says may not be so; then its own packets go astray.
func (k *known) seenAs(p *pair) (all []ipam.View) {
	object := "peering " + v1alpha1.NetworkKey(p.namespace)
	var said []ipam.View
	for _, v := range p.own.Status.Views[:min(len(p.own.Status.Views), maxViews)] {
		real, err := netip.ParsePrefix(v.Real)
		view, err2 := netip.ParsePrefix(v.View)
		if err == nil && err2 == nil && slices.Contains(p.own.Spec.Pods, v.Real) && slices.Contains(k.input.Pods, real) {
			said = append(said, ipam.View{Real: real, View: view})
		}
	}
	for _, v := range said {
		overlaps := func(o ipam.View) bool { return o.Real.Overlaps(v.Real) || o.View.Overlaps(v.View) }
		a := v.View.Addr()
		switch {
		case v.View != v.View.Masked() || v.View.Bits() == 0 || v.View.Bits() != v.Real.Bits() || a.BitLen() != v.Real.Addr().BitLen() || a.Is4In6(),
			a.IsUnspecified(), a.IsLoopback(), a.IsMulticast(), a.IsLinkLocalUnicast():
			k.wrong(object, "the other side cannot see %s as %s", v.Real, v.View)
		case slices.ContainsFunc(all, overlaps):
			k.wrong(object, "the other side sees %s as %s, which overlaps another one of its views", v.Real, v.View)
		default:
			all = append(all, v)
		}
	}
	return all
}

// pathTunnel takes what both sides say of a path's tunnel, and reports whether there can be one.
func (k *known) pathTunnel(object string, f facts, n *v1alpha1.NetworkPath, key string, out *plan.Path) bool {
	peer, err := tunnel.ParsePublicKey(n.Spec.PublicKey)
	if err != nil {
		k.wrong(object, "spec.publicKey: %s is no key of WireGuard", short(n.Spec.PublicKey))
		return false
	}
	secret, err := secretAt(f.keys, n.Status.PublicKey, key)
	if err != nil {
		k.wrong(object, "%v", err)
		return false
	}
	public := secret.Public()
	if public == peer {
		k.wrong(object, "spec.publicKey: is this end's own, not the other one's")
		return false
	}
	k.secrets[key] = secret
	out.Secret, out.Peer, out.First = key, peer, bytes.Compare(public[:], peer[:]) < 0
	for i, e := range n.Spec.Endpoints[:min(len(n.Spec.Endpoints), maxEndpoints)] {
		if _, _, err := tunnel.SplitEndpoint(e); err != nil || len(e) > maxEndpoint {
			k.wrong(object, "spec.endpoints[%d]: %s is no HOST:PORT", i, short(e))
			continue
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return true
}

// nodeAddresses are all addresses of nodes, whoever reaches them by these.
func nodeAddresses(nodes []corev1.Node) (all []netip.Addr) {
	for i := range nodes {
		for _, at := range nodes[i].Status.Addresses {
			if a, err := netip.ParseAddr(at.Address); err == nil {
				all = append(all, a.Unmap().WithZone(""))
			}
		}
	}
	return all
}
