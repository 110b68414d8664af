package agent

import (
	"net/netip"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/plan"
)

// spaces are the namespaces that say of themselves that all of their pods may be reached, or
// none.
func (f facts) spaces() map[string]v1alpha1.Reachability {
	all := map[string]v1alpha1.Reachability{}
	for i := range f.offloaded {
		o := &f.offloaded[i]
		if r := o.Spec.Reachability.OrDefault(); o.Name == v1alpha1.OffloadingName && r != v1alpha1.ReachOffloadedOnly {
			all[o.Namespace] = r
		}
	}
	return all
}

// inside are the addresses of the pods of a namespace, wherever they run.
func inside(f facts, namespace string) (addrs []string) {
	for i := range f.inside[namespace] {
		addrs = append(addrs, podAddresses(&f.inside[namespace][i])...)
	}
	return addrs
}

// reach narrows or widens a peering to what this cluster says of its own pods. What the peer
// says of his is his gateway's.
func (k *known) reach(f facts, p *pair, out *plan.Peering, api door, within, real func(netip.Addr) (netip.Addr, bool)) {
	said := p.own.Spec.Reachability
	switch said.OrDefault() {
	case v1alpha1.ReachFull:
		out.Limited = false
	case v1alpha1.ReachNone:
		out.Closed, out.Calls = true, api.at
		out.There = nil
		if p.role == plan.Consumer {
			out.Here = nil
		}
		if said != v1alpha1.ReachNone {
			k.wrong("peering "+out.Key, "this build does not know the reachability %s, and lets nothing pass", short(string(said)))
		}
		return
	}
	var shut []string
	for namespace, r := range f.spaces() {
		if r != v1alpha1.ReachNone {
			continue
		}
		if _, read := f.inside[namespace]; !read {
			out.Limited = true // nobody knows yet whom not to reach, so that only those are reached who may be
		}
		shut = append(shut, inside(f, namespace)...)
	}
	out.ShutHere = meant(shut, within) // however many there are
	if p.role == plan.Consumer {
		out.ShutThere = meant(shut, real)
	}
}
