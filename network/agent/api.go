package agent

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
)

// apiSubject is the Service in front of the API server in every cluster.
var apiSubject = subject{namespace: metav1.NamespaceDefault, service: "kubernetes"}

// apiPortName is what that Service calls its port.
const apiPortName = "https"

// apiDoor is the door of the API server here in a peering, for nobody; false if none is
// published, or there is no API server that it can lead to.
func (k *known) apiDoor(object string, f facts, p *pair) (dataplane.Door, bool) {
	if p.own.Spec.APIServer == "" {
		return dataplane.Door{}, false
	}
	at, err := netip.ParseAddrPort(p.own.Spec.APIServer)
	if err != nil {
		k.wrong(object, "this cluster's API server %s is no HOST:PORT", short(p.own.Spec.APIServer))
		return dataplane.Door{}, false
	}
	to := apiServers(f.api, at.Addr().Is4())
	if len(to) == 0 {
		k.wrong(object, "the Service kubernetes in default has no ready endpoint of %s, so pods there do not reach the API server", familyName(at.Addr().Is4()))
		return dataplane.Door{}, false
	}
	return dataplane.Door{At: at, To: to[0]}, true
}

// apiServers are the API servers of a family that are ready, in order.
func apiServers(all []discoveryv1.EndpointSlice, four bool) (servers []netip.AddrPort) {
	return readyAt(all, apiPortName, four)
}

// withTokens are the namespaces whose pods take tokens of this cluster's API server along.
func (f facts) withTokens() map[string]bool {
	all := map[string]bool{}
	for i := range f.offloaded {
		if o := &f.offloaded[i]; o.Name == v1alpha1.OffloadingName && o.Spec.ServiceAccountTokens == v1alpha1.TokensAllow {
			all[o.Namespace] = true
		}
	}
	return all
}

// door is a consumer's API server: where he has it, and as a list, by which address it is seen here.
type door struct {
	at   []netip.AddrPort
	view []string
}

// theirAPI is by which address this cluster sees a consumer's API server. The consumer says what
// he likes: only an address of his external range that has a view counts.
func (k *known) theirAPI(p *pair, key string, table *ipam.Table) door {
	if p.role != plan.Provider || p.peer.Spec.APIServer == "" {
		return door{}
	}
	at, err := netip.ParseAddrPort(p.peer.Spec.APIServer)
	view, ok := table.View(key, at.Addr())
	external := k.prefixes("peering "+key, "its peer's external range", p.peer.Spec.External, maxRanges)
	if err != nil || !ok || !prefixIn(external, at.Addr()) {
		k.wrong("peering "+key, "its peer's API server %s is no HOST:PORT in its external range", short(p.peer.Spec.APIServer))
		return door{}
	}
	return door{[]netip.AddrPort{at}, []string{view.String()}}
}
