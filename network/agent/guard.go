package agent

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/policy"
)

// watchman makes the Guard of one peering. Home's addresses are, at the provider, those that the
// gateway sees in packets already; at home those of the other side are translated from its views.
type watchman struct {
	known  *known
	object string
	pair   *pair
	key    string
	table  *ipam.Table
	// here are this cluster's ranges, and what leads through it.
	here []netip.Prefix
	// views are those of the other side's ranges.
	views []ipam.View
	// hosted are the tenant's pods here by their UIDs at home.
	hosted map[string][]*corev1.Pod

	guard   *dataplane.Guard
	taken   policy.Amount
	strange int
}

// guard is what the NetworkRules of a peering say, nil if there are none. Home's API server is free for all.
func (k *known) guard(f facts, object string, p *pair, table *ipam.Table, of plan.Peering, api door) *dataplane.Guard {
	homes := f.ruled(p)
	if len(homes) == 0 && !f.ruling[p.namespace] {
		return nil
	}
	key := v1alpha1.NetworkKey(p.namespace)
	w := &watchman{
		known: k, object: object, pair: p, key: key, table: table, here: slices.Concat(k.input.Pods, of.Transit),
		views: of.Views, hosted: map[string][]*corev1.Pod{}, guard: &dataplane.Guard{},
	}
	theirs := map[string][]*corev1.Pod{} // by their namespace at home
	if p.role == plan.Consumer {
		for _, node := range k.away[key] {
			for i := range f.away[node] {
				pod := &f.away[node][i]
				theirs[pod.Namespace] = append(theirs[pod.Namespace], pod)
			}
		}
	} else {
		mapped := f.mapped(tenantOf(p))
		for _, pod := range f.hostedOf(tenantOf(p)) {
			home, is := mapped[pod.Namespace]
			if !is { // not known yet, nor which rules are for it
				w.isolate(everybody.guarded, sides{here: w.own(podAddresses(pod))})
				continue
			}
			uid := pod.Labels[v1alpha1.LabelHomeUID]
			theirs[home], w.hosted[uid] = append(theirs[home], pod), append(w.hosted[uid], pod)
		}
		w.guard.Free = api.at
	}
	for _, home := range homes {
		if f.unread(p, home) {
			w.isolate(everybody.guarded, sides{here: w.own(inside(f, home))})
		}
		w.namespace(home, f.rules[ruleKey{p.namespace, home}], theirs[home])
	}
	if w.strange > 0 {
		k.wrong(object, "its NetworkRules name %d addresses that are in no range of home's, which are left out", w.strange)
	}
	return w.guard
}

// ruled are the namespaces at home for which there are NetworkRules in a peering, in order.
func (f facts) ruled(p *pair) (homes []string) {
	for key := range f.rules {
		if key.peering == p.namespace {
			homes = append(homes, key.home)
		}
	}
	slices.Sort(homes)
	return homes
}

// rule takes the NetworkRules that there are.
func (f *facts) rule(book *rulebook, all []v1alpha1.NetworkRules) {
	f.rules, f.wrongRules = book.update(all, f.counts())
	f.ruling = map[string]bool{}
	for i := range all {
		f.ruling[all[i].Namespace] = true
	}
}

// unread says that nothing good was ever read of a namespace's rules at home, whose pods are known to no rules
// then: they are followed for as long.
func (f facts) unread(p *pair, home string) bool {
	return p.role == plan.Consumer && f.rules[ruleKey{p.namespace, home}] == everybody
}

// mapped are the namespaces of a tenant here, by name, with their names at home.
func (f facts) mapped(tenant string) map[string]string {
	all := map[string]string{}
	for i := range f.namespaces {
		if n := &f.namespaces[i]; n.Labels[v1alpha1.LabelTenant] == tenant && n.Labels[v1alpha1.LabelHomeNamespace] != "" {
			all[n.Name] = n.Labels[v1alpha1.LabelHomeNamespace]
		}
	}
	return all
}

// counts says whose NetworkRules count: at a provider those of namespaces that home has offloaded to it, and at home all, which
// its manager alone writes: pods of a namespace that is being left are there for a while.
func (f facts) counts() func(ruleKey) bool {
	all, homes := map[ruleKey]bool{}, map[string]bool{}
	for namespace, p := range f.pairs() {
		if p.role == plan.Provider {
			for _, home := range f.mapped(tenantOf(p)) {
				all[ruleKey{namespace, home}] = true
			}
			continue
		}
		homes[namespace] = true
	}
	return func(key ruleKey) bool { return all[key] || homes[key.peering] }
}

// sides are the addresses of a pod at this end of the tunnel and at the other one.
type sides struct{ here, there []netip.Addr }

// namespace adds what the rules of one home namespace say, of whose pods some are here.
func (w *watchman) namespace(home string, set *ruleset, theirs []*corev1.Pod) {
	if more := w.taken.Plus(set.amount()); more.Fits() {
		w.taken = more
	} else {
		w.known.wrong(w.object, "the NetworkRules of all namespaces are more than %d rules or %d addresses, and all pods of %s are isolated", v1alpha1.MaxNetworkPeeringRules, v1alpha1.MaxNetworkPeeringElements, short(home))
		for i := range set.pods {
			if w.pair.role == plan.Consumer && len(set.pods[i].peerOf) == 0 { // whose pods here are known by these alone
				w.isolate(everybody.guarded, sides{here: w.find(&set.pods[i]).here})
			}
		}
		set = everybody
	}
	entries := make([]dataplane.Entry, 2*len(set.rules)) // of each rule one for pods here, and one for pods there
	theRules := map[int]bool{}                           // that pods there have
	for i, r := range set.rules {
		for j, there := range []bool{false, true} {
			e := &entries[2*i+j]
			*e = dataplane.Entry{Name: home + "/" + r.name + []string{"", "/there"}[j], There: there, Out: r.out, Protocol: r.protocol, Ports: r.ports, Named: r.perPod}
			e.Peers = w.blocks(r, !there)
		}
	}
	knows := map[string]bool{} // by UIDs, and at home by the addresses that pods there have there
	for i := range set.pods {
		pod := &set.pods[i]
		at := w.find(pod)
		knows[pod.uid] = true
		if w.pair.role == plan.Consumer && len(pod.peerOf) == 0 {
			for _, a := range at.there {
				knows[a.String()] = true
			}
		}
		w.isolate(pod.isolated, at)
		for _, r := range pod.selected {
			w.selected(set, entries, pod, r, at)
			theRules[int(r)] = theRules[int(r)] || len(at.there) > 0
		}
		for _, r := range pod.peerOf {
			w.peer(entries, r, at)
		}
		for r, ports := range pod.ports {
			if rule := set.rules[r]; rule.perPod && rule.out && (rule.anyPeer || slices.Contains(pod.peerOf, r)) {
				entries[2*r].Pairs = append(entries[2*r].Pairs, pairsOf(at.there, ports)...)
				entries[2*r+1].Pairs = append(entries[2*r+1].Pairs, pairsOf(at.here, ports)...)
			}
		}
	}
	for i := range entries {
		if i%2 == 0 || theRules[i/2] {
			w.guard.Entries = append(w.guard.Entries, entries[i])
		}
	}
	for _, pod := range theirs {
		switch {
		case w.pair.role == plan.Consumer:
			unknown := slices.DeleteFunc(w.find(&rulePod{addresses: meant(podAddresses(pod), itself)}).there, func(a netip.Addr) bool { return knows[a.String()] })
			w.isolate(set.guardedThere, sides{there: unknown})
		case !knows[pod.Labels[v1alpha1.LabelHomeUID]]:
			w.isolate(set.guarded, sides{here: w.own(podAddresses(pod))})
		}
	}
}

func itself(a netip.Addr) (netip.Addr, bool) { return a, true }

// amount is how much a set may become; home's manager counts the same.
func (s *ruleset) amount() policy.Amount {
	n := 0
	for _, r := range s.rules {
		n += 2 * (1 + len(r.peers) + len(r.ports))
	}
	for _, p := range s.pods {
		n += 2 * (1 + len(p.selected) + len(p.peerOf))
		for _, ports := range p.ports {
			n += 2 * len(ports)
		}
	}
	return policy.Amount{Rules: len(s.rules), Elements: n}
}

// find is where a pod is. At the provider one that runs here has a UID, and what has addresses is
// home's; at home nothing has a UID.
func (w *watchman) find(pod *rulePod) (at sides) {
	if w.pair.role == plan.Provider {
		for _, p := range w.hosted[pod.uid] {
			at.here = append(at.here, w.own(podAddresses(p))...)
		}
		for _, a := range pod.addresses {
			if _, ok := w.table.View(w.key, a); ok {
				at.there = append(at.there, a)
			} else {
				w.strange++
			}
		}
		return at
	}
	for _, a := range pod.addresses {
		if _, real, ok := w.table.Real(a); ok {
			at.there = append(at.there, real)
		} else if prefixIn(w.here, a) {
			at.here = append(at.here, a)
		}
	}
	return at
}

// own are addresses that are of pods here.
func (w *watchman) own(texts []string) (addrs []netip.Addr) {
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && prefixIn(w.here, a.Unmap()) {
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

func (w *watchman) isolate(d directions, at sides) {
	g := w.guard
	if d.in {
		g.HereIn, g.ThereIn = append(g.HereIn, at.here...), append(g.ThereIn, at.there...)
	}
	if d.out {
		g.HereOut, g.ThereOut = append(g.HereOut, at.here...), append(g.ThereOut, at.there...)
	}
}

// selected adds a pod to the entries of a rule that is about it.
func (w *watchman) selected(set *ruleset, entries []dataplane.Entry, pod *rulePod, r int32, at sides) {
	for j, addrs := range [][]netip.Addr{at.here, at.there} {
		e := &entries[2*int(r)+j]
		e.Pods = append(e.Pods, addrs...)
		if set.rules[r].perPod && !e.Out {
			e.Pairs = append(e.Pairs, pairsOf(addrs, pod.ports[r])...)
		}
	}
}

// peer adds a pod to the peers of a rule: of its pods at the other end.
func (w *watchman) peer(entries []dataplane.Entry, r int32, at sides) {
	for j, addrs := range [][]netip.Addr{at.there, at.here} {
		e := &entries[2*int(r)+j]
		for _, a := range addrs {
			e.Peers = append(e.Peers, netip.PrefixFrom(a, a.BitLen()))
		}
	}
}

func pairsOf(addrs []netip.Addr, ports []uint16) (pairs []netip.AddrPort) {
	for _, a := range addrs {
		for _, port := range ports {
			pairs = append(pairs, netip.AddrPortFrom(a, port))
		}
	}
	return pairs
}

// blocks are the peers of a rule that are no pods, at the other end of the tunnel or at this one.
func (w *watchman) blocks(r rule, there bool) (peers []netip.Prefix) {
	if r.anyPeer {
		return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	for _, p := range r.peers {
		switch {
		case w.pair.role == plan.Provider || !there:
			peers = append(peers, p) // what is of nobody comes from nobody
		default:
			for _, v := range w.views {
				peers = append(peers, w.within(p, v)...)
			}
		}
	}
	return peers
}

// within is the part of a prefix that is in a view, as it is at the peer.
func (w *watchman) within(p netip.Prefix, v ipam.View) []netip.Prefix {
	if !v.View.Overlaps(p) {
		return nil
	}
	if p.Bits() < v.View.Bits() {
		p = v.View.Masked()
	}
	_, real, ok := w.table.Real(p.Addr())
	if !ok {
		return nil
	}
	return []netip.Prefix{netip.PrefixFrom(real, p.Bits())}
}

// untold are the addresses here of pods of guarded namespaces that no NetworkRules know yet, as of
// slices: until they do, the peer of a pair does not reach these.
func (f facts) untold(p *pair, home string, pods []netip.Prefix) func(string) bool {
	set := f.rules[ruleKey{p.namespace, home}]
	if set == nil || !set.guarded.in {
		return func(string) bool { return false }
	}
	told := map[netip.Addr]bool{}
	for i := range set.pods {
		for _, a := range set.pods[i].addresses {
			told[a] = true
		}
	}
	return func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && prefixIn(pods, a.Unmap()) && !told[a.Unmap()]
	}
}
