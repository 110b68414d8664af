package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
)

// What is kept of an object: one that is larger than the manager of any consumer makes it is as good
// as wrong, and is not kept, as tenants may write many.
const (
	maxRulesSize = 2 * v1alpha1.MaxNetworkRulesSize
	tooLarge     = "too large"
)

// trimRules keeps what is read of NetworkRules.
func trimRules(o *v1alpha1.NetworkRules, meta metav1.ObjectMeta) *v1alpha1.NetworkRules {
	kept := &v1alpha1.NetworkRules{ObjectMeta: meta, Spec: o.Spec}
	if o.Spec.Size() > maxRulesSize {
		kept.Spec = v1alpha1.NetworkRulesSpec{Namespace: o.Spec.Namespace, Shard: o.Spec.Shard, Shards: o.Spec.Shards, Revision: tooLarge}
	}
	return kept
}

// directions are those of connections, seen from a pod.
type directions struct{ in, out bool }

// ruleset is what all shards of the NetworkRules of a home namespace say. It never changes.
type ruleset struct {
	// guarded are the directions in which pods are isolated that it does not know, and guardedThere
	// those of such at the peer.
	guarded, guardedThere directions
	rules                 []rule
	pods                  []rulePod
}

// rule allows connections.
type rule struct {
	// name is the same as long as the policy has this rule, whatever comes before it.
	name     string
	out      bool
	protocol uint8
	ports    []dataplane.Ports
	perPod   bool
	// peers are those that are no pods, which do not overlap.
	peers   []netip.Prefix
	anyPeer bool
}

// rulePod is a pod, by its UID or its addresses.
type rulePod struct {
	uid              string
	addresses        []netip.Addr
	isolated         directions
	selected, peerOf []int32
	// ports are those of the pod that rules mean by a name.
	ports map[int32][]uint16
}

// errIncomplete is that not all shards are there, as while they are being written.
var errIncomplete = errors.New("not all of its shards are there yet")

// readRules reads the shards of a home namespace. It is pure, and takes whatever anybody has written.
func readRules(shards []*v1alpha1.NetworkRules) (*ruleset, error) {
	slices.SortFunc(shards, func(a, b *v1alpha1.NetworkRules) int { return cmp.Compare(a.Spec.Shard, b.Spec.Shard) })
	if slices.ContainsFunc(shards, func(s *v1alpha1.NetworkRules) bool { return s.Spec.Revision == tooLarge }) {
		return nil, fmt.Errorf("a shard is larger than about %d bytes", maxRulesSize)
	}
	first := &shards[0].Spec
	if first.Shards < 1 || first.Shards > v1alpha1.MaxNetworkShards {
		return nil, fmt.Errorf("spec.shards: %d is not in 1 to %d", first.Shards, v1alpha1.MaxNetworkShards)
	}
	if len(shards) != int(first.Shards) {
		return nil, errIncomplete
	}
	for i, s := range shards {
		if s.Spec.Shard != int32(i) || s.Spec.Shards != first.Shards || s.Spec.Revision != first.Revision {
			return nil, errIncomplete
		}
	}
	set := &ruleset{}
	var err error
	if set.guarded, err = readDirections("spec.guarded", first.Guarded); err != nil {
		return nil, err
	}
	if set.guardedThere, err = readDirections("spec.guardedThere", first.GuardedThere); err != nil {
		return nil, err
	}
	if set.rules, err = readEntries(first.Rules); err != nil {
		return nil, err
	}
	mentions := 0
	for i, s := range shards {
		if len(s.Spec.Pods) > v1alpha1.MaxNetworkPods || i > 0 && len(s.Spec.Rules)+len(s.Spec.Guarded)+len(s.Spec.GuardedThere) > 0 {
			return nil, fmt.Errorf("shard %d: it has %d pods, of which at most %d may be, or rules, which are in shard 0", i, len(s.Spec.Pods), v1alpha1.MaxNetworkPods)
		}
		for j := range s.Spec.Pods {
			pod, err := set.readPod(&s.Spec.Pods[j])
			if err != nil {
				return nil, fmt.Errorf("shard %d: spec.pods[%d].%w", i, j, err)
			}
			if mentions += s.Spec.Pods[j].Mentions(); mentions > v1alpha1.MaxNetworkMentions {
				return nil, fmt.Errorf("spec.pods: they name rules, ports and addresses more than %d times", v1alpha1.MaxNetworkMentions)
			}
			set.pods = append(set.pods, pod)
		}
	}
	return set, nil
}

func readDirections(field string, all []v1alpha1.NetworkDirection) (d directions, err error) {
	for _, one := range all {
		switch one {
		case v1alpha1.NetworkIngress:
			d.in = true
		case v1alpha1.NetworkEgress:
			d.out = true
		default:
			return d, fmt.Errorf("%s: %s is neither %s nor %s", field, short(string(one)), v1alpha1.NetworkIngress, v1alpha1.NetworkEgress)
		}
	}
	return d, nil
}

func readEntries(all []v1alpha1.NetworkRule) (rules []rule, err error) {
	if len(all) > v1alpha1.MaxNetworkRules {
		return nil, fmt.Errorf("spec.rules: there are %d, and at most %d may be", len(all), v1alpha1.MaxNetworkRules)
	}
	prefixes, named := 0, map[string]int{}
	for i := range all {
		r, err := readRule(&all[i])
		if err != nil {
			return nil, fmt.Errorf("spec.rules[%d].%w", i, err)
		}
		if prefixes += len(r.peers); prefixes > v1alpha1.MaxNetworkPrefixes {
			return nil, fmt.Errorf("spec.rules: their blocks are more than %d prefixes", v1alpha1.MaxNetworkPrefixes)
		}
		// Which one of those that are alike so far.
		named[r.name]++
		r.name = fmt.Sprintf("%s#%d", r.name, named[r.name])
		rules = append(rules, r)
	}
	return rules, nil
}

func readRule(of *v1alpha1.NetworkRule) (r rule, err error) {
	d, err := readDirections("direction", []v1alpha1.NetworkDirection{of.Direction})
	if err != nil {
		return r, err
	}
	r.out, r.perPod, r.anyPeer = d.out, of.PerPod, of.AnyPeer
	switch of.Protocol {
	case "":
	case "TCP":
		r.protocol = unix.IPPROTO_TCP
	case "UDP":
		r.protocol = unix.IPPROTO_UDP
	default:
		return r, fmt.Errorf("protocol: %s is neither TCP nor UDP", short(of.Protocol))
	}
	if r.protocol == 0 && (of.PerPod || len(of.Ports) > 0) {
		return r, errors.New("protocol: empty, where there are ports")
	}
	if len(of.Ports) > v1alpha1.MaxNetworkPorts || len(of.Blocks) > v1alpha1.MaxNetworkBlocks {
		return r, fmt.Errorf("ports, blocks: %d and %d, of which at most %d and %d may be", len(of.Ports), len(of.Blocks), v1alpha1.MaxNetworkPorts, v1alpha1.MaxNetworkBlocks)
	}
	for _, p := range of.Ports {
		if p.First < 1 || p.Last < p.First || p.Last > 65535 {
			return r, fmt.Errorf("ports: %d to %d are none", p.First, p.Last)
		}
		r.ports = append(r.ports, dataplane.Ports{First: uint16(p.First), Last: uint16(p.Last)})
	}
	for _, b := range of.Blocks {
		first, err := netip.ParseAddr(b.First)
		last, err2 := netip.ParseAddr(b.Last)
		if err != nil || err2 != nil || first.BitLen() != last.BitLen() || last.Less(first) || first.Is4In6() || last.Is4In6() || first.Zone() != "" || last.Zone() != "" {
			return r, fmt.Errorf("blocks: from %s to %s there is no address", short(b.First), short(b.Last))
		}
		r.peers = append(r.peers, ipam.Between(first, last)...)
	}
	r.peers = plan.Union(r.peers)
	r.name = strings.Join([]string{cut(of.Policy, 253), string(of.Direction), of.Protocol, fmt.Sprint(of.PerPod)}, "/")
	return r, nil
}

func (s *ruleset) readPod(of *v1alpha1.NetworkRulesPod) (p rulePod, err error) {
	p.uid = of.UID
	if (of.UID == "") == (len(of.Addresses) == 0) || len(of.UID) > 36 || len(of.Addresses) > 2 {
		return p, errors.New("uid, addresses: exactly one of them must be given, and at most two addresses")
	}
	for _, text := range of.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return p, fmt.Errorf("addresses: %s is none", short(text))
		}
		p.addresses = append(p.addresses, a)
	}
	if p.isolated, err = readDirections("isolated", of.Isolated); err != nil {
		return p, err
	}
	if p.selected, err = s.indexes("selected", of.Selected); err != nil {
		return p, err
	}
	if p.peerOf, err = s.indexes("peerOf", of.PeerOf); err != nil {
		return p, err
	}
	for _, ports := range of.Ports {
		if _, err := s.indexes("ports", []int32{ports.Rule}); err != nil {
			return p, err
		}
		if len(ports.Ports) > v1alpha1.MaxNetworkPorts {
			return p, fmt.Errorf("ports: %d of rule %d, of which at most %d may be", len(ports.Ports), ports.Rule, v1alpha1.MaxNetworkPorts)
		}
		if p.ports == nil {
			p.ports = map[int32][]uint16{}
		}
		for _, port := range ports.Ports {
			if port < 1 || port > 65535 {
				return p, fmt.Errorf("ports: %d is none", port)
			}
			p.ports[ports.Rule] = append(p.ports[ports.Rule], uint16(port))
		}
	}
	return p, nil
}

// indexes are those of rules that there are, each once.
func (s *ruleset) indexes(field string, all []int32) ([]int32, error) {
	if len(all) > v1alpha1.MaxNetworkRules {
		return nil, fmt.Errorf("%s: it names %d rules, and there are at most %d", field, len(all), v1alpha1.MaxNetworkRules)
	}
	for _, i := range all {
		if i < 0 || int(i) >= len(s.rules) {
			return nil, fmt.Errorf("%s: there is no rule %d", field, i)
		}
	}
	sorted := slices.Clone(all)
	slices.Sort(sorted)
	return slices.Compact(sorted), nil
}
