package agent

import (
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// managerSubject and authSubject are the Services before the manager, which calls providers in
// band, and before the authentication endpoint.
var (
	managerSubject = subject{namespace: v1alpha1.SystemNamespace, service: v1alpha1.ManagerService}
	authSubject    = subject{namespace: v1alpha1.SystemNamespace, service: v1alpha1.AuthService}
)

// authPortName is what the Service of the authentication endpoint calls its port.
const authPortName = "auth"

// The connections that may begin through one tunnel, in a second and at once, whoever is at its other
// end: both servers see all tunnels of a node as one client.
const (
	apiPerSecond, apiBurst   = 50, 200
	authPerSecond, authBurst = 5, 20
)

// openings are the tunnels before there are peerings, each as a pair of what both sides say, by
// name. Only this cluster's manager writes where they are.
func (f facts) openings(namespace string) map[string]*pair {
	all := map[string]*pair{}
	for i := range f.configs {
		c := &f.configs[i]
		role := plan.Provider
		switch {
		case c.Namespace != namespace || c.DeletionTimestamp != nil || c.Spec.InBand == nil || c.Spec.PublicKey == "":
			continue
		case strings.HasPrefix(c.Name, v1alpha1.IntroductionPrefix):
			role = plan.Consumer
		case !strings.HasPrefix(c.Name, v1alpha1.InvitationPrefix):
			continue
		}
		peer := &v1alpha1.NetworkConfig{Spec: v1alpha1.NetworkConfigSpec{PublicKey: c.Spec.InBand.PublicKey, Endpoints: c.Spec.InBand.Endpoints}}
		all[c.Name] = &pair{namespace: c.Name, role: role, own: c, peer: peer}
	}
	return all
}

// speaking are the roles in which this cluster speaks with others through tunnels.
func (f facts) speaking() map[plan.Role]bool {
	all := map[plan.Role]bool{}
	for _, p := range f.pairs() {
		if p.own.Spec.InBand != nil {
			all[p.role] = true
		}
	}
	for _, p := range f.openings(f.namespace) {
		all[p.role] = true
	}
	return all
}

// opening takes what is said of a tunnel before there is a peering. It carries nothing but what
// clusters say to each other.
func (k *known) opening(f facts, p *pair) {
	object := "peering " + p.namespace
	out := plan.Peering{
		Key: p.namespace, Since: p.own.CreationTimestamp.Time, Role: p.role, Limited: true, Closed: true,
		ListenPort: uint16(max(0, min(p.own.Spec.Port, 65535))),
	}
	k.tunnel(object, f, p, &out)
	out.Line = k.line(object, f, p, true)
	k.input.Peerings = append(k.input.Peerings, out)
}

// line is what passes between the ends of a tunnel themselves, nil if nothing does: at the provider
// the API server may be called, and with an invitation the authentication endpoint too; at
// the consumer the manager may call both.
func (k *known) line(object string, f facts, p *pair, invited bool) *dataplane.Line {
	said := p.own.Spec.InBand
	if said == nil {
		return nil
	}
	if p.role == plan.Provider {
		return &dataplane.Line{Doors: k.lineDoors(object, f, invited)}
	}
	line := &dataplane.Line{Ports: []uint16{v1alpha1.InBandAPIPort}}
	for _, text := range []string{said.Address, said.OtherAddress} {
		at, err := netip.ParseAddr(text)
		switch {
		case text == "":
		case err != nil:
			k.wrong(object, "the address %s of its provider is none", short(text))
		default:
			line.Views = append(line.Views, at)
		}
	}
	if len(line.Views) == 0 {
		return nil
	}
	if invited {
		line.Ports = append(line.Ports, v1alpha1.InBandAuthPort)
	}
	var callers []string
	for i := range f.managers {
		callers = append(callers, sliceAddresses(&f.managers[i])...)
	}
	line.Callers = k.reached(object, callers, func(a netip.Addr) (netip.Addr, bool) { return a, prefixIn(k.input.Pods, a) })
	return line
}

// lineDoors are the doors of a provider, in each family that what they stand for has.
func (k *known) lineDoors(object string, f facts, invited bool) (doors []dataplane.LineDoor) {
	had := map[string][]string{}
	for _, four := range []bool{true, false} {
		for _, door := range []struct {
			port             uint16
			what             string
			to               []netip.AddrPort
			perSecond, burst uint32
		}{
			{v1alpha1.InBandAPIPort, apiServerWords, apiServers(f.api, four), apiPerSecond, apiBurst},
			{v1alpha1.InBandAuthPort, authWords, readyAt(f.auth, authPortName, four), authPerSecond, authBurst},
		} {
			if len(door.to) == 0 || door.what == authWords && !invited {
				continue
			}
			had[door.what] = append(had[door.what], familyName(four))
			doors = append(doors, dataplane.LineDoor{Port: door.port, To: door.to[0], PerSecond: door.perSecond, Burst: door.burst})
		}
	}
	api, auth := had[apiServerWords], had[authWords]
	if len(api) == 0 {
		k.wrong(object, "%s has no ready endpoint, so the consumer does not reach it", apiServerWords)
	}
	if !invited {
		return doors
	}
	if len(auth) == 0 {
		k.wrong(object, "%s has no ready endpoint, so the consumer does not reach it", authWords)
	}
	if len(api) == 1 && len(auth) == 1 && api[0] != auth[0] {
		k.wrong(object, "%s has an endpoint of %s alone, and %s one of %s, so a consumer of one family does not reach both: let Service %s be of %[2]s as well (pelago install --set auth.service.ipFamilyPolicy=PreferDualStack)",
			apiServerWords, api[0], authWords, auth[0], v1alpha1.AuthService)
	}
	return doors
}

// What doors stand for, as it is said.
const (
	apiServerWords = "the API server"
	authWords      = "the authentication endpoint"
)

func familyName(four bool) string { return map[bool]string{true: "IPv4", false: "IPv6"}[four] }

// readyAt are the endpoints of a family that are ready, in order, at the port of a name.
func readyAt(all []discoveryv1.EndpointSlice, port string, four bool) (ready []netip.AddrPort) {
	family := discoveryv1.AddressTypeIPv6
	if four {
		family = discoveryv1.AddressTypeIPv4
	}
	for i := range all {
		s := &all[i]
		at := slices.IndexFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return ptr.Deref(p.Name, "") == port })
		if at < 0 || s.AddressType != family {
			continue
		}
		number := ptr.Deref(s.Ports[at].Port, 0)
		for _, e := range s.Endpoints {
			if !ptr.Deref(e.Conditions.Ready, true) || len(e.Addresses) == 0 || number < 1 || number > 65535 {
				continue
			}
			if a, err := netip.ParseAddr(e.Addresses[0]); err == nil && a.Is4() == four && !a.Is4In6() {
				ready = append(ready, netip.AddrPortFrom(a, uint16(number)))
			}
		}
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return ready
}

// tunnel takes what both sides say of the tunnel itself.
func (k *known) tunnel(object string, f facts, p *pair, out *plan.Peering) {
	out.Endpoints = p.peer.Spec.Endpoints[:min(len(p.peer.Spec.Endpoints), maxEndpoints)]
	out.Endpoints = slices.DeleteFunc(slices.Clone(out.Endpoints), func(e string) bool { return len(e) > maxEndpoint })
	out.Heard = f.heard[out.Key]
	out.Told = p.told(k.byAddress)
	var err error
	if out.Peer, err = tunnel.ParsePublicKey(p.peer.Spec.PublicKey); err != nil {
		k.wrong(object, "its peer's key %s is none", short(p.peer.Spec.PublicKey))
	}
	if next := p.peer.Spec.NextPublicKey; next != "" {
		if out.NextPeer, err = tunnel.ParsePublicKey(next); err != nil {
			k.wrong(object, "its peer's next key %s is none", short(next))
		}
	}
	secret, entry, err := secretOf(f.keys, p.namespace, p.own.Spec.PublicKey)
	if err != nil {
		k.wrong(object, "%v", err)
		return
	}
	out.Secret = entry
	k.secrets[entry] = secret
	if own := secret.Public(); own == out.Peer || own == out.NextPeer {
		k.wrong(object, "its peer says that this cluster's key is its own")
		out.Peer = tunnel.PublicKey{}
	}
}
