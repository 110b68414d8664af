package network

import (
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dns"
	"github.com/pelago-dev/pelago/network/ipam"
)

// apiPort is where API servers are for pods, as the Service kubernetes has it.
const apiPort = 443

// apiServer is where a provider's pods reach the API server here: the second address of an
// external range, as the first one stands for all that calls and is no pod. It is of a family
// in which there is an API server here and that pods there have, as far as that is known, and of
// IPv4 where both are. It is empty if there is none.
func apiServer(external []netip.Prefix, servers []netip.Addr, there []netip.Prefix) string {
	for _, four := range []bool{true, false} {
		here := slices.ContainsFunc(servers, func(a netip.Addr) bool { return a.Is4() == four })
		if len(servers) > 0 && !here || len(there) > 0 && !hasFamily(there, four) {
			continue
		}
		for _, p := range external {
			if at := p.Addr().Next().Next(); p.Addr().Is4() == four && p.Contains(at) {
				return netip.AddrPortFrom(at, apiPort).String()
			}
		}
	}
	return ""
}

// nameServers are where pods here ask for names: what has no IPv4 has an address of IPv6. There
// are none while nothing is known.
func nameServers(o ipam.Own) []netip.Addr {
	switch ranges := slices.Concat(o.Pods, o.Services); {
	case len(ranges) == 0:
		return nil
	case hasFamily(ranges, true):
		return []netip.Addr{dns.Address()}
	}
	return []netip.Addr{dns.Address6()}
}

// hasFamily says whether there is a prefix of a family.
func hasFamily(all []netip.Prefix, four bool) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Addr().Is4() == four })
}

// theirAPI is where pods here reach the API server of a consumer, who says what he likes: only
// an address of his external range that has a view here counts.
func theirAPI(s v1alpha1.NetworkConfigSpec, key string, views *ipam.Table) (netip.AddrPort, bool) {
	at, err := netip.ParseAddrPort(s.APIServer)
	if err != nil || at.Port() == 0 {
		return netip.AddrPort{}, false
	}
	for _, p := range prefixes(s.External) {
		if p.Contains(at.Addr()) {
			view, ok := views.View(key, at.Addr())
			return netip.AddrPortFrom(view, at.Port()), ok
		}
	}
	return netip.AddrPort{}, false
}
