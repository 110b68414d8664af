package peering

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// fakeTunnels leads from one address to a provider, and knows what was called besides.
type fakeTunnels struct {
	mu        sync.Mutex
	at        []netip.Addr
	why       string
	api, auth string
	strays    []string
}

func (f *fakeTunnels) InBand(string) ([]netip.Addr, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at, f.why
}

func (f *fakeTunnels) InBandSource(func(string) []reconcile.Request) source.Source { return nil }

// set says at which addresses the provider is, of which the last one leads there.
func (f *fakeTunnels) set(at, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.why = nil, why
	for _, a := range strings.Fields(at) {
		f.at = append(f.at, netip.MustParseAddr(a))
	}
}

// dial leads where the tunnel does, and nowhere else.
func (f *fakeTunnels) dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	to, is := "", strings.HasPrefix(address, "[100::1]")
	for i, at := range f.at {
		for port, server := range map[uint16]string{443: f.api, 8443: f.auth} {
			if netip.AddrPortFrom(at, port).String() != address {
				continue
			}
			if is = true; i == len(f.at)-1 {
				to = server
			}
		}
	}
	if !is {
		f.strays = append(f.strays, address)
	}
	f.mu.Unlock()
	if to == "" {
		return nil, errors.New("no way there")
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

// inBandStage is a stage whose provider is reached by a tunnel alone.
func inBandStage(t *testing.T) (*stage, *fakeTunnels) {
	t.Helper()
	s := newStage(t)
	f := &fakeTunnels{why: "no tunnel yet", api: strings.TrimPrefix(s.server.Config.Host, "https://"), auth: strings.TrimPrefix(s.auth.url, "https://")}
	s.auth.bend = func(i *v1alpha1.IdentityStatus) { i.ServerURL = v1alpha1.InBandServer }
	s.dial, s.options.Dial, s.options.Tunnels = f.dial, f.dial, f
	s.startFleet()
	s.restart(s.client)
	return s, f
}

func throughTunnel(p *v1alpha1.Peering) {
	p.Spec.Consume.AuthURL = ""
	p.Spec.Consume.InBand = &v1alpha1.InBand{PublicKey: "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=", Endpoints: []string{"198.51.100.7:7100"}}
}

// TestInBand peers, works and parts through a tunnel, and never calls anything else: not before there
// is one, not when its address changes, and not when it is gone.
func TestInBand(t *testing.T) {
	s, tunnels := inBandStage(t)
	s.invite(throughTunnel)
	s.until("it waits for the tunnel", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonTunnelDown))
	if s.auth.calls != 0 || len(tunnels.strays) > 0 {
		t.Errorf("%d calls without a tunnel, %v", s.auth.calls, tunnels.strays)
	}
	tunnels.set("10.255.255.254 fd00::254", "") // the provider has one family alone
	s.until("there is a request", func(p *v1alpha1.Peering) bool {
		return p != nil && has(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonPending)(p)
	})
	s.accept()
	p := s.until("it is ready", ready)
	if p.Status.ServerURL != v1alpha1.InBandServer {
		t.Errorf("the provider is said to be at %s", p.Status.ServerURL)
	}
	tunnels.set("10.255.255.7 fd00::7", "")
	s.reconcile()
	s.until("the new address is used, of the family that leads there", func(*v1alpha1.Peering) bool {
		now, ok := s.fleet.Peer(s.name)
		return ok && now.State().Reachable && now.Client().Get(t.Context(), client.ObjectKeyFromObject(s.identity()), s.identity()) == nil
	})
	// What a provider announces leads nowhere but to the tunnel.
	s.say(func(i *v1alpha1.IdentityStatus) { i.ServerURL = "https://192.0.2.66:6443" })
	for range 3 {
		s.reconcile()
	}
	if _, cred := s.credential(); cred.Server != v1alpha1.InBandServer || cred.Proxy != "" {
		t.Errorf("the credential names %s by %q", cred.Server, cred.Proxy)
	}
	identity := s.identity()
	s.exists(identity)
	identity.Finalizers = []string{v1alpha1.FinalizerGoodbye}
	if err := s.client.Update(t.Context(), identity); err != nil {
		t.Fatal(err)
	}
	s.delete(p)
	s.until("the provider was told", func(*v1alpha1.Peering) bool {
		s.finalize(v1alpha1.PeeringNamespace(s.name))
		return s.exists(identity) && identity.DeletionTimestamp != nil
	})
	tunnels.set("", "it goes with the tenant")
	s.untilGone()
	s.free(identity)
	s.expectNothing()
	if len(tunnels.strays) > 0 {
		t.Errorf("called past the tunnel: %v", tunnels.strays)
	}
}

// TestInBandSilent holds what is said of a provider that does not answer in the only family by which this
// cluster calls.
func TestInBandSilent(t *testing.T) {
	for _, c := range []struct{ at, want, not string }{
		{"", "", "calls by"},
		{"10.255.255.254", "calls by IPv4, the only", "IPv6"},
		{"fd43::ff", "calls by IPv6, the only", "IPv4"},
		{"10.255.255.254 fd43::ff", "", "calls by"},
	} {
		f := &fakeTunnels{}
		f.set(c.at, "")
		r := unanswered(introduction{consume: &v1alpha1.Consume{AuthURL: "https://x:1"}, at: ported(f.at, 8443)}, errors.New("timeout"))
		if r.reason != v1alpha1.ReasonAuthUnreachable || !strings.Contains(r.message, c.want) || strings.Contains(r.message, c.not) {
			t.Errorf("of %q is said %s: %s", c.at, r.reason, r.message)
		}
	}
}

// TestInBandNamespaceLast holds that the namespace with the way to the provider goes after the provider
// was told.
func TestInBandNamespaceLast(t *testing.T) {
	s, tunnels := inBandStage(t)
	tunnels.set("10.255.255.254", "")
	p := s.peer(throughTunnel)
	tunnels.set("10.255.255.254", "dead")
	tunnels.mu.Lock()
	tunnels.api = "127.0.0.1:1"
	tunnels.mu.Unlock()
	s.fleet.Remove(s.name)
	s.delete(p)
	s.until("it says how to force", func(p *v1alpha1.Peering) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool { return strings.Contains(c.Message, "--force") })
	})
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringNamespace(s.name)}}
	if !s.exists(n) || n.DeletionTimestamp != nil {
		t.Error("the way to the provider goes before it is told")
	}
	before := s.peering()
	after := before.DeepCopy()
	after.Annotations = map[string]string{v1alpha1.AnnotationForce: "true"}
	if err := s.client.Patch(t.Context(), after, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.untilGone()
	secrets := &corev1.SecretList{}
	if err := s.client.List(t.Context(), secrets, client.InNamespace(s.namespace)); err != nil || len(secrets.Items) > 0 {
		t.Errorf("%d Secrets are left, %v: a tombstone would have no tunnel", len(secrets.Items), err)
	}
	if !s.told(v1alpha1.ReasonPeerUnreachable) {
		t.Error("nobody was told that the provider was not")
	}
}

// TestInBandTold holds that an end goes on whose goodbye was taken, though the tunnel has gone with the
// tenant and whoever said it has forgotten.
func TestInBandTold(t *testing.T) {
	s, tunnels := inBandStage(t)
	tunnels.set("10.255.255.254", "")
	p := s.peer(throughTunnel)
	secret, cred := s.credential()
	cred.Farewell, cred.Told = true, true
	secret.Data = cred.store()
	if err := s.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	tunnels.set("", "it went with the tenant")
	s.fleet.Remove(s.name)
	s.restart(s.client)
	s.delete(p)
	s.untilGone()
}

// TestInBandWithoutNetwork says what to do where the network is off.
func TestInBandWithoutNetwork(t *testing.T) {
	s := newStage(t)
	s.invite(throughTunnel)
	p := s.until("it says why", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonTunnelDown))
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.ConditionIdentityReady && !strings.Contains(c.Message, "the network is off in this cluster") {
			t.Errorf("said is %q", c.Message)
		}
	}
}
