package agent

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// Bounds of what one peering may have us do. The kinds have the same; this is for
// objects that came another way.
const (
	maxRanges    = 16
	maxViews     = 18
	maxEndpoints = 16
	// maxEndpoint is how long one of them is: a name of DNS, and a port.
	maxEndpoint = 261
	// maxReached is how many addresses may be reached, on one side of one peering.
	maxReached = 1 << 15
	// maxAddresses is how many addresses of a node count.
	maxAddresses = 8
)

// known is what plans are made of: the input, and the private keys by their entries.
type known struct {
	input    plan.Input
	secrets  map[string]tunnel.Secret
	problems []plan.Problem
	// transit are the views of others that a peer was told of, by the namespace of its peering.
	transit map[string][]netip.Prefix
	// via are the namespaces of the peerings with those whose views these are.
	via map[netip.Prefix]string
	// away are the virtual nodes of each provider, and hosts the tenant of each consumer, by the
	// keys of their peerings; read is up to where their pods are read.
	away  map[string][]string
	hosts map[string]string
	read  map[stream]progress
	// recent are the pods of each consumer here that changed last, by the keys of their peerings.
	recent map[string]health.Recent
	// calling are the pods here that are callers, of all tenants.
	calling []*corev1.Pod
	// unreached is how many addresses more than count may be reached on a side of a peering, by its key.
	unreached map[string]int
	// byAddress are the nodes that are no virtual ones by those of their addresses that peers are told.
	byAddress map[netip.Addr]string
	// again is when something else follows though nothing was heard, zero if never.
	again time.Time
}

// sooner is the first of two times, of which zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// wait is how long to wait for what follows though nothing is heard, at most for a time: for nothing if
// it was due meanwhile.
func (k *known) wait(most time.Duration, now time.Time) time.Duration {
	if k.again.IsZero() {
		return most
	}
	return min(most, max(k.again.Sub(now), 0)+time.Millisecond)
}

func (k *known) wrong(object, format string, args ...any) {
	k.problems = append(k.problems, plan.Problem{Object: object, Text: fmt.Sprintf(format, args...)})
}

// input makes the input for a plan of what is known of the cluster. It is pure, and alike
// on all nodes.
func input(f facts) known {
	f.groups = f.group() // of what f has now, whoever grouped it before
	k := known{input: plan.Input{Node: f.self, AtNodes: nodeAddresses(f.nodes)}, secrets: map[string]tunnel.Secret{}, transit: map[string][]netip.Prefix{}, via: map[netip.Prefix]string{},
		away: map[string][]string{}, unreached: map[string]int{}, hosts: map[string]string{}, recent: map[string]health.Recent{}, read: f.read, problems: slices.Clone(f.wrongRules)}
	peerings := f.pairs()
	behind := map[string][]string{} // virtual nodes, by peering
	place := map[string]int{}
	var real []*corev1.Node
	for i := range f.nodes {
		n := &f.nodes[i]
		if peering, is := virtual(n); is {
			behind[peering] = append(behind[peering], n.Name)
			continue
		}
		place[n.Name], real = len(k.input.Nodes), append(real, n)
		k.input.Nodes = append(k.input.Nodes, k.node(n, f))
	}
	k.byAddress = plan.ByAddress(real)
	viewed, openings := f.viewed(), f.openings(f.namespace)
	for _, namespace := range slices.Sorted(maps.Keys(peerings)) {
		k.own(peerings[namespace], viewed, peerings)
	}
	for _, name := range slices.Sorted(maps.Keys(openings)) { // they may be all there is
		k.own(openings[name], viewed, peerings)
	}
	for _, namespace := range slices.Sorted(maps.Keys(peerings)) {
		k.peering(f, peerings[namespace], behind)
	}
	for _, name := range slices.Sorted(maps.Keys(openings)) {
		k.opening(f, openings[name])
	}
	k.places(f, place)
	return k
}

// node is a node with the addresses by which others reach it.
func (k *known) node(n *corev1.Node, f facts) plan.Node {
	m := plan.Node{Name: n.Name, Alive: f.alive[n.Name], MTU: f.mtus[n.Name]}
	m.Addresses = addressesOf(n)
	m.Ranges = k.prefixes("node "+n.Name, "its pods' range", podCIDRs(n), maxRanges)
	return m
}

// addressesOf are those by which other nodes reach a node, as many as count.
func addressesOf(n *corev1.Node) []netip.Addr {
	all := plan.AddressesOf(n, plan.Neighbour)
	return all[:min(len(all), maxAddresses)]
}

// own takes what this cluster has published of itself in one peering. What is a view of another
// peer leads through this cluster, as long as it leads to that one, and not from tenant to tenant.
func (k *known) own(p *pair, viewed map[string]string, peerings map[string]*pair) {
	object := "peering " + v1alpha1.NetworkKey(p.namespace)
	for _, of := range []struct {
		to   *[]netip.Prefix
		text []string
	}{{&k.input.Pods, p.own.Spec.Pods}, {&k.input.External, p.own.Spec.External}} {
		for _, prefix := range k.prefixes(object, "this cluster's range", of.text, maxRanges) {
			via, isView := viewed[prefix.String()]
			switch {
			case isView && via != p.namespace && peerings[via] != nil && (p.role == plan.Consumer || peerings[via].role == plan.Consumer):
				k.transit[p.namespace] = append(k.transit[p.namespace], prefix)
				k.via[prefix] = via
			case !isView && !slices.Contains(*of.to, prefix):
				*of.to = append(*of.to, prefix)
			}
		}
	}
}

// providers are the keys of the peerings with providers whose views transit has.
func (k *known) providers() map[netip.Prefix]string {
	all := map[netip.Prefix]string{}
	for prefix, namespace := range k.via {
		if strings.HasPrefix(namespace, v1alpha1.PeeringNamespacePrefix) {
			all[prefix] = v1alpha1.NetworkKey(namespace)
		}
	}
	return all
}

// peering takes what both sides say.
func (k *known) peering(f facts, p *pair, behind map[string][]string) {
	key := v1alpha1.NetworkKey(p.namespace)
	object := "peering " + key
	out := plan.Peering{
		Key: key, Since: p.own.CreationTimestamp.Time, Role: p.role, Limited: true, ListenPort: uint16(max(0, min(p.own.Spec.Port, 65535))), Transit: k.transit[p.namespace],
	}
	out.Views = k.views(object, p.peer.Status.Views)
	k.tunnel(object, f, p, &out)
	out.Line = k.line(object, f, p, false)
	table := ipam.NewTable(map[string]ipam.Result{key: {Views: out.Views}})
	real := func(a netip.Addr) (netip.Addr, bool) {
		_, real, ok := table.Real(a)
		return real, ok
	}
	api := k.theirAPI(p, key, table)
	here, there := hostedBy(f, p), givenTo(f, p)
	if p.role == plan.Consumer {
		nodes := behind[p.namespace[len(v1alpha1.PeeringNamespacePrefix):]]
		spaces, tokens := f.spaces(), f.withTokens()
		here, there = slices.Concat(servedTo(f, p, k.input.Pods), givenBeyond(f, p)), awayAt(f, nodes, func(namespace string) bool { return spaces[namespace] != v1alpha1.ReachNone })
		k.away[key] = nodes
		if door, ok := k.apiDoor(object, f, p); ok {
			door.From = k.reached(object, awayAt(f, nodes, func(namespace string) bool { return tokens[namespace] }), real)
			out.Doors = append(out.Doors, door)
		}
		out.Doors = append(out.Doors, k.mappedDoors(object, f, p, nodes, real)...)
		out.Open = k.reached(object, openTo(f, p, k.input.Pods), k.ownPod)
	} else {
		out.Callers = k.callers(f, object, p)
		k.hosts[key] = tenantOf(p)
		k.recent[key] = recent(f, k.hosts[key])
	}
	within := func(a netip.Addr) (netip.Addr, bool) { return a, prefixIn(k.input.Pods, a) || prefixIn(out.Transit, a) }
	out.Here, out.There = k.reached(object, here, within), k.reached(object, append(there, api.view...), real)
	out.Parties = k.parties(f, object, p, within, real)
	k.reach(f, p, &out, api, within, real)
	out.Paths = k.paths(f, p, out)
	out.Guard = k.guard(f, object, p, table, out, api)
	k.input.Peerings = append(k.input.Peerings, out)
}

func (k *known) views(object string, all []v1alpha1.NetworkView) (views []ipam.View) {
	for _, v := range all[:min(len(all), maxViews)] {
		real, err := netip.ParsePrefix(v.Real)
		view, err2 := netip.ParsePrefix(v.View)
		if err != nil || err2 != nil {
			k.wrong(object, "its view %s of %s is none", short(v.View), short(v.Real))
			continue
		}
		views = append(views, ipam.View{Real: real, View: view})
	}
	return views
}

// reached are addresses as meaning makes them, each once, in order, as many as count.
func (k *known) reached(object string, texts []string, meaning func(netip.Addr) (netip.Addr, bool)) []netip.Addr {
	addrs := meant(texts, meaning)
	if len(addrs) > maxReached {
		k.wrong(object, "%d addresses may be reached on one side, and only %d of them are", len(addrs), maxReached)
		key := strings.TrimPrefix(object, "peering ")
		k.unreached[key] = max(k.unreached[key], len(addrs)-maxReached)
		addrs = addrs[:maxReached]
	}
	return addrs
}

// meant are addresses as meaning makes them, each once, in order.
func meant(texts []string, meaning func(netip.Addr) (netip.Addr, bool)) []netip.Addr {
	var addrs []netip.Addr
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			continue
		}
		if a, ok := meaning(a.Unmap()); ok {
			addrs = append(addrs, a)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// prefixes reads prefixes, and leaves out what is none.
func (k *known) prefixes(object, what string, texts []string, most int) (prefixes []netip.Prefix) {
	if len(texts) > most {
		k.wrong(object, "it has %d ranges, of which only %d count", len(texts), most)
		texts = texts[:most]
	}
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			k.wrong(object, "%s %s is no prefix", what, short(text))
			continue
		}
		prefixes = append(prefixes, p)
	}
	return prefixes
}

// tenantOf is the tenant of a peering in which this cluster is the provider.
func tenantOf(p *pair) string {
	return p.namespace[min(len(p.namespace), len(v1alpha1.TenantNamespacePrefix)):]
}

// hostedBy are the addresses of a tenant's pods here.
func hostedBy(f facts, p *pair) (addrs []string) {
	for _, pod := range f.hostedOf(tenantOf(p)) {
		addrs = append(addrs, podAddresses(pod)...)
	}
	return addrs
}

// givenTo are the addresses that a tenant has given its Services here, as this cluster sees
// them.
func givenTo(f facts, p *pair) (addrs []string) {
	for _, s := range f.grouped().given[tenantOf(p)] {
		addrs = append(addrs, sliceAddresses(s)...)
	}
	return addrs
}

// awayAt are the addresses by which this cluster sees its pods on virtual nodes, of some
// namespaces.
func awayAt(f facts, nodes []string, in func(namespace string) bool) (addrs []string) {
	for _, node := range nodes {
		for i := range f.away[node] {
			if pod := &f.away[node][i]; in(pod.Namespace) {
				addrs = append(addrs, podAddresses(pod)...)
			}
		}
	}
	return addrs
}

// servedTo are the addresses behind the Services in the namespaces that a provider has part
// in, and those of all pods where a namespace says so, but for those of pods here that policies may
// isolate and that these do not know yet.
func servedTo(f facts, p *pair, pods []netip.Prefix) (addrs []string) {
	spaces := f.spaces()
	for i := range f.maps {
		if f.maps[i].Namespace != p.namespace {
			continue
		}
		for namespace := range f.maps[i].Spec.Namespaces {
			if spaces[namespace] == v1alpha1.ReachNone {
				continue
			}
			untold := f.untold(p, namespace, pods)
			for j := range f.home[namespace] {
				addrs = append(addrs, slices.DeleteFunc(sliceAddresses(&f.home[namespace][j]), untold)...)
			}
			if spaces[namespace] == v1alpha1.ReachFull {
				addrs = append(addrs, slices.DeleteFunc(inside(f, namespace), untold)...)
			}
		}
	}
	return addrs
}

// podAddresses are those of a pod, while it has them: one that has ended may have lost
// them to another.
func podAddresses(pod *corev1.Pod) (addrs []string) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.Spec.HostNetwork {
		return nil
	}
	for _, a := range pod.Status.PodIPs {
		addrs = append(addrs, a.IP)
	}
	return addrs
}

// sliceAddresses are those of its endpoints, of which the first one counts.
func sliceAddresses(s *discoveryv1.EndpointSlice) (addrs []string) {
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	for i := range s.Endpoints {
		if e := &s.Endpoints[i]; len(e.Addresses) > 0 {
			addrs = append(addrs, e.Addresses[0])
		}
	}
	return addrs
}

// places tells of pods that may be reached and are not in their nodes' ranges where they are,
// as with CNIs that keep to none. Slices can be written by users: where ranges say whose an
// address is, they say nothing, but for those of Pelago's own namespace.
func (k *known) places(f facts, place map[string]int) {
	var ranges []netip.Prefix
	for _, n := range k.input.Nodes {
		ranges = append(ranges, n.Ranges...)
	}
	at := func(node string, addrs []string, but []netip.Prefix) {
		i, ok := place[node]
		if !ok {
			return
		}
		n := &k.input.Nodes[i]
		for _, text := range addrs {
			a, err := netip.ParseAddr(text)
			if a = a.Unmap(); err == nil && a.Zone() == "" && prefixIn(k.input.Pods, a) && !prefixIn(n.Ranges, a) && !prefixIn(but, a) {
				n.Pods = append(n.Pods, a)
			}
		}
	}
	for i := range f.hosted {
		at(f.hosted[i].Spec.NodeName, podAddresses(&f.hosted[i]), nil)
	}
	for _, pods := range f.inside {
		for i := range pods {
			at(pods[i].Spec.NodeName, podAddresses(&pods[i]), nil)
		}
	}
	for _, pod := range k.calling {
		at(pod.Spec.NodeName, podAddresses(pod), nil)
	}
	said := func(slices []discoveryv1.EndpointSlice, but []netip.Prefix) {
		for i := range slices {
			for _, e := range placed(&slices[i]) {
				at(*e.NodeName, e.Addresses[:1], but)
			}
		}
	}
	said(f.managers, nil)
	said(f.auth, nil)
	for _, slices := range f.home {
		said(slices, ranges)
	}
	for i := range k.input.Nodes {
		n := &k.input.Nodes[i]
		slices.SortFunc(n.Pods, netip.Addr.Compare)
		n.Pods = slices.Compact(n.Pods)
	}
	slices.SortFunc(k.problems, func(a, b plan.Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Text, b.Text))
	})
	k.problems = slices.Compact(k.problems)
}
