package peering

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// line is the address by which a provider in band is called, or why it cannot be.
func (r *reconciler) line(peering string) (netip.Addr, string) {
	if r.tunnels == nil {
		return netip.Addr{}, "spec.consume.inBand: the network is off in this cluster; switch it on (pelago install --set network.enabled=true), or peer by addresses"
	}
	return r.tunnels.InBand(peering)
}

// connection is how the provider of a Peering is reached with a credential.
func (r *reconciler) connection(peering string, consume *v1alpha1.Consume, c *credential) fleet.Connection {
	conn := c.connection(peering, consume)
	if inBand(consume, c) {
		conn.ServerURL, conn.ProxyURL = v1alpha1.InBandServer, ""
		at, _ := r.line(peering)
		if !at.IsValid() {
			at = nowhere
		}
		conn.At = netip.AddrPortFrom(at, v1alpha1.InBandAPIPort)
	}
	return conn
}

// nowhere is called where there is no tunnel: an address that leads nowhere (RFC 6666), so that
// what a name means here is never taken for the provider.
var nowhere = netip.MustParseAddr("100::1")

// lastWordLimit bounds the last word.
const lastWordLimit = 5 * time.Second

// lastWord tries once to say goodbye: a tombstone would have no tunnel to say it through.
func (r *reconciler) lastWord(ctx context.Context, v *visit) {
	ctx, cancel := context.WithTimeout(ctx, lastWordLimit)
	defer cancel()
	peer, closePeer, err := r.fleet.Client(r.connection(v.Name, v.Spec.Consume, v.cred))
	if err == nil {
		err = peer.Delete(ctx, &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: v.cred.TenantNamespace, Name: v1alpha1.IdentityName}})
		closePeer()
	}
	if err != nil && !delivered(err) {
		r.event(v.Peering, corev1.EventTypeWarning, v1alpha1.ReasonPeerUnreachable, "Unpeer",
			"the provider could not be told, and cannot be any more, as the tunnel to it ends; its owner has to run pelago unpeer there")
	}
}

// called is where to introduce this cluster; why says why that is not known yet.
func (r *reconciler) called(v *visit) (consume *v1alpha1.Consume, why string) {
	if v.Spec.Consume.InBand == nil {
		return v.Spec.Consume, ""
	}
	at, why := r.line(v.Name)
	if why != "" {
		return nil, why
	}
	consume = v.Spec.Consume.DeepCopy()
	consume.AuthURL = "https://" + netip.AddrPortFrom(at, v1alpha1.InBandAuthPort).String()
	return consume, ""
}
