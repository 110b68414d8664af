package peering

import (
	"context"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// tunnelAgain is how soon is looked again for a tunnel that is not there, or dead.
const tunnelAgain = 5 * time.Second

// inBand says whether a provider is reached through the tunnel: its credential says so also when
// the Peering does not any more.
func inBand(consume *v1alpha1.Consume, c *credential) bool {
	return consume != nil && consume.InBand != nil || c != nil && c.Server == v1alpha1.InBandServer
}

// inside keeps a credential in the tunnel, whatever address the provider has named.
func (c *credential) inside(consume *v1alpha1.Consume) {
	if consume != nil && consume.InBand != nil {
		c.Server, c.Proxy = v1alpha1.InBandServer, ""
	}
}

// line are the addresses by which a provider in band is called, or why it cannot be.
func (r *reconciler) line(peering string) ([]netip.Addr, string) {
	if r.tunnels == nil {
		return nil, "spec.consume.inBand: the network is off in this cluster; switch it on (pelago install --set network.enabled=true), or peer by addresses"
	}
	return r.tunnels.InBand(peering)
}

// connection is how the provider of a Peering is reached with a credential.
func (r *reconciler) connection(peering string, consume *v1alpha1.Consume, c *credential) fleet.Connection {
	conn := c.connection(peering, consume)
	if inBand(consume, c) {
		conn.ServerURL, conn.ProxyURL = v1alpha1.InBandServer, ""
		at, _ := r.line(peering)
		if len(at) == 0 {
			at = []netip.Addr{nowhere}
		}
		conn.At = ported(at, v1alpha1.InBandAPIPort)
	}
	return conn
}

// nowhere is called where there is no tunnel: an address that leads nowhere (RFC 6666), so that
// what a name means here is never taken for the provider.
var nowhere = netip.MustParseAddr("100::1")

// lastWordLimit bounds the last word.
const lastWordLimit = 5 * time.Second

// lastWord tries once to say goodbye, where nobody can any more after that: a tombstone would have no
// tunnel to say it through, or no credential.
func (r *reconciler) lastWord(ctx context.Context, v *visit) error {
	ctx, cancel := context.WithTimeout(ctx, lastWordLimit)
	defer cancel()
	peer, closePeer, err := r.fleet.Client(r.connection(v.Name, v.Spec.Consume, v.cred))
	if err == nil {
		err = peer.Delete(ctx, &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: v.cred.TenantNamespace, Name: v1alpha1.IdentityName}})
		closePeer()
	}
	return client.IgnoreNotFound(err)
}

func ported(all []netip.Addr, port uint16) (at []netip.AddrPort) {
	for _, a := range all {
		at = append(at, netip.AddrPortFrom(a, port))
	}
	return at
}

// called is where to introduce this cluster, at one of some addresses if there are any; why says why
// that is not known yet.
func (r *reconciler) called(v *visit) (consume *v1alpha1.Consume, at []netip.AddrPort, why string) {
	if v.Spec.Consume.InBand == nil {
		return v.Spec.Consume, nil, ""
	}
	line, why := r.line(v.Name)
	if why != "" {
		return nil, nil, why
	}
	at = ported(line, v1alpha1.InBandAuthPort)
	consume = v.Spec.Consume.DeepCopy()
	consume.ProxyURL = ""
	consume.AuthURL = "https://" + at[0].String()
	return consume, at, ""
}

// silent is what may be wrong where a tunnel is there and the provider behind it does not answer.
func silent(at []netip.AddrPort) string {
	families := map[bool]string{}
	for _, a := range at {
		families[a.Addr().Is4()] = map[bool]string{true: "IPv4", false: "IPv6"}[a.Addr().Is4()]
	}
	if len(families) != 1 {
		return ""
	}
	family := families[at[0].Addr().Is4()]
	return "; this cluster calls by " + family + ", the only one that its pods have: has the provider's API server an endpoint of " + family +
		" (kubectl get endpointslices kubernetes), and its Service " + v1alpha1.AuthService + " one (auth.service.ipFamilyPolicy)? If not, peer without --in-band"
}
