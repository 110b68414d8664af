package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"reflect"
	"slices"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// members are the guarded pods, all of them, and the others as far as they are peers. Those of this
// end that are peers of pods at the other one alone come last: they are what is left out first.
func (c *compiler) members() (all []Member) {
	for _, p := range sorted(c.world.Guarded) {
		if member := c.guardedPod(&p, c.world.ByUID); p.UID != "" && (member.UID != "" || len(member.Addresses) > 0) {
			all = append(all, Member{Key: p.UID, Pod: member})
		}
	}
	for _, p := range sorted(c.world.Far) {
		if p.UID != "" && len(p.Addresses) > 0 {
			all = append(all, Member{Key: p.UID, Pod: c.guardedPod(&p, false)})
		}
		for i := range c.rules {
			c.rules[i].far = c.rules[i].far || c.rules[i].selects(&p)
		}
	}
	peers := func(pods []Pod, of func(*rule) bool) {
		for _, p := range sorted(pods) {
			for _, member := range c.peer(&p, of) {
				all = append(all, Member{Key: p.UID, Pod: member, Peer: true})
			}
		}
	}
	peers(c.world.Others, func(*rule) bool { return true })
	peers(c.world.Near, func(r *rule) bool { return r.far })
	return all
}

func sorted(pods []Pod) []Pod {
	return slices.SortedFunc(slices.Values(pods), func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
}

func (c *compiler) guardedPod(p *Pod, byUID bool) v1alpha1.NetworkRulesPod {
	out := v1alpha1.NetworkRulesPod{UID: p.UID}
	if !byUID {
		out.UID, out.Addresses = "", texts(p.Addresses)
	}
	for _, i := range c.isolations {
		if i.selects(p) && !slices.Contains(out.Isolated, i.direction) {
			out.Isolated = append(out.Isolated, i.direction)
		}
	}
	slices.Sort(out.Isolated)
	for i, r := range c.rules {
		if !r.selects(p) {
			continue
		}
		if r.PerPod && r.Direction == v1alpha1.NetworkIngress {
			numbers := resolve(p, r.Protocol, r.names)
			if len(numbers) == 0 {
				continue
			}
			out.Ports = append(out.Ports, v1alpha1.NetworkRulesPorts{Rule: int32(i), Ports: numbers})
		}
		out.Selected = append(out.Selected, int32(i))
	}
	return out
}

// peer is what is said of a pod as a peer of some rules: once for addresses that are peers of the same.
func (c *compiler) peer(p *Pod, of func(*rule) bool) (all []v1alpha1.NetworkRulesPod) {
	for _, at := range p.Addresses {
		out := v1alpha1.NetworkRulesPod{Addresses: texts([]netip.Addr{at})}
		for i, r := range c.rules {
			if !of(&r) || !r.peer(p, at) {
				continue
			}
			if r.PerPod && r.Direction == v1alpha1.NetworkEgress {
				numbers := resolve(p, r.Protocol, r.names)
				if len(numbers) == 0 {
					continue
				}
				out.Ports = append(out.Ports, v1alpha1.NetworkRulesPorts{Rule: int32(i), Ports: numbers})
			}
			out.PeerOf = append(out.PeerOf, int32(i))
		}
		if len(out.PeerOf) == 0 {
			continue
		}
		if n := len(all); n > 0 && len(all[n-1].Addresses) < 2 && slices.Equal(all[n-1].PeerOf, out.PeerOf) && reflect.DeepEqual(all[n-1].Ports, out.Ports) {
			all[n-1].Addresses = append(all[n-1].Addresses, out.Addresses...)
			continue
		}
		all = append(all, out)
	}
	return all
}

func texts(all []netip.Addr) (out []string) {
	for _, a := range all[:min(len(all), 2)] {
		out = append(out, a.String())
	}
	return out
}

// Shards spreads rules over as few objects as hold them, none if there are no rules. Which one a
// pod is in follows from its UID, so that it stays there while as many shards do. As many as
// there are now stay unless they are too few, or four times too many. What fits nowhere is left out
// and said. Peers are none then. Guarded pods are isolated: as nothing at all is said of them, or, of those that
// gateways know by addresses alone, as nothing else is said of them, for which there is room before all rules.
func (c Compiled) Shards(namespace string, now int) (specs []v1alpha1.NetworkRulesSpec, problems []string) {
	if len(c.Guarded) == 0 {
		return nil, c.Problems
	}
	problems = slices.Clone(c.Problems)
	count := 1
	for count < v1alpha1.MaxNetworkShards && !c.fits(count) {
		count *= 2
	}
	if now > count && now < 4*count && now <= v1alpha1.MaxNetworkShards && c.fits(now) {
		count = now
	}
	specs = make([]v1alpha1.NetworkRulesSpec, count)
	sizes := make([]int, count)
	left, mentions := map[string]bool{}, 0
	// put says as much of a pod as another one, or what is at a place already, if there is room.
	put := func(key string, pod v1alpha1.NetworkRulesPod, at int) int {
		i := shardOf(key, count)
		var had v1alpha1.NetworkRulesPod
		more, size, said := 1, pod.Size(), pod.Mentions()
		if at >= 0 {
			had = specs[i].Pods[at]
			more, size, said = 0, size-had.Size(), said-had.Mentions()
		}
		if len(specs[i].Pods)+more > v1alpha1.MaxNetworkPods || sizes[i]+size > v1alpha1.MaxNetworkRulesSize || mentions+said > v1alpha1.MaxNetworkMentions {
			return -1
		}
		mentions += said
		sizes[i] += size
		if at < 0 {
			specs[i].Pods = append(specs[i].Pods, pod)
			return len(specs[i].Pods) - 1
		}
		specs[i].Pods[at] = pod
		return at
	}
	bare, loose := make([]int, len(c.Pods)), 0
	for n, m := range c.Pods {
		if bare[n] = -1; !m.Peer && m.Pod.UID == "" {
			if bare[n] = put(m.Key, v1alpha1.NetworkRulesPod{Addresses: m.Pod.Addresses, Isolated: m.Pod.Isolated}, -1); bare[n] < 0 {
				left[m.Key] = true
				loose++
			}
		}
	}
	for n, m := range c.Pods {
		if left[m.Key] || put(m.Key, m.Pod, bare[n]) < 0 {
			left[m.Key] = true
		}
	}
	if len(left) > 0 {
		problem := fmt.Sprintf("the NetworkPolicies of namespace %s are about more pods than can be told: %d of them reach nobody through the tunnel", namespace, len(left))
		if loose > 0 {
			problem += fmt.Sprintf(", but for %d that gateways do not know at all, which are guarded by their own network plugin alone", loose)
		}
		problems = append(problems, problem+"; select fewer peers, or allow them by ipBlock")
	}
	revision := c.revision(count)
	for i := range specs {
		specs[i].Namespace, specs[i].Shard, specs[i].Shards, specs[i].Revision = namespace, int32(i), int32(count), revision
	}
	specs[0].Guarded, specs[0].GuardedThere, specs[0].Rules = c.Guarded, c.GuardedThere, c.Rules
	return specs, problems
}

func (c Compiled) fits(count int) bool {
	pods, sizes := make([]int, count), make([]int, count)
	for _, m := range c.Pods {
		i := shardOf(m.Key, count)
		pods[i]++
		if sizes[i] += m.Pod.Size(); pods[i] > v1alpha1.MaxNetworkPods || sizes[i] > v1alpha1.MaxNetworkRulesSize {
			return false
		}
	}
	return true
}

func shardOf(key string, count int) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(count))
}

// revision is another one when anything is that pods of all shards go by.
func (c Compiled) revision(count int) string {
	text, err := json.Marshal([]any{count, c.Guarded, c.GuardedThere, c.Rules})
	if err != nil {
		panic(err) // of plain fields it is not possible
	}
	h := fnv.New64a()
	h.Write(text)
	return fmt.Sprintf("%016x", h.Sum64())
}
