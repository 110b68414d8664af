package network

import (
	"net/netip"
	"strconv"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ipam"
)

// apiPort is where API servers are for pods, as the Service kubernetes has it.
const apiPort = 443

// apiServer is where providers' pods reach the API server here: the second address of the
// external range of IPv4, as the first one stands for all that calls and is no pod. It is
// empty if there is none.
func apiServer(external []netip.Prefix) string {
	for _, p := range external {
		if at := p.Addr().Next().Next(); p.Addr().Is4() && p.Contains(at) {
			return at.String() + ":" + strconv.Itoa(apiPort)
		}
	}
	return ""
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
