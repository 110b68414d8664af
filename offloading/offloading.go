// Package offloading makes pods created here run there. Its rooms are: namespace, which
// agrees with providers on namespaces; admission, which gives pods of these namespaces
// their terms and keeps all others off virtual nodes; vnode, the virtual nodes; consumer,
// which carries home pods to providers as ShadowPods and their status home; provider,
// which runs them; reflection, which carries the Secrets and ConfigMaps they refer to and
// what else their namespaces have for them, and content, what travels of each kind; shadow, the pure table of what becomes of each
// field of a pod on the way; kubelet, the API by which logs are read and commands run; and stats, what pods use.
// This package puts them together, with the listener that the API server calls. It never
// touches a pod of a namespace that is not offloaded.
package offloading

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/access"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/serving"
	"github.com/pelago-dev/pelago/internal/trust"
	"github.com/pelago-dev/pelago/offloading/admission"
	"github.com/pelago-dev/pelago/offloading/consumer"
	"github.com/pelago-dev/pelago/offloading/kubelet"
	"github.com/pelago-dev/pelago/offloading/namespace"
	"github.com/pelago-dev/pelago/offloading/provider"
	"github.com/pelago-dev/pelago/offloading/reflection"
	"github.com/pelago-dev/pelago/offloading/stats"
	"github.com/pelago-dev/pelago/offloading/vnode"
)

// Options is what Register needs beside a manager. All are required but what the network
// is asked for.
type Options struct {
	// Home is this cluster.
	Home vnode.Home
	// Fleet is the connections to providers. It does not run yet.
	Fleet *fleet.Fleet
	// Limits of tenants.
	Limits provider.Limits
	// Direct reads and writes without a cache.
	Direct client.Client
	// Namespace of Pelago.
	Namespace string
	// Version of Pelago.
	Version string
	// Address by which the API server reaches this program.
	Address string
	// Listen is the address for what the API server calls, like :9443. Ports of virtual
	// nodes are opened at its host.
	Listen string
	// Socket is what listens there.
	Socket *serving.Socket
	// NameServers that know tenants' names of home by who asks; nil if there are none.
	NameServers func() []netip.Addr
	// Domain is what this cluster is called in its own DNS; cluster.local if empty.
	Domain string
	// Homes says where pods of tenants reach the API servers of their homes; nil while there is
	// no network.
	Homes provider.Homes
	// Addresses says by which addresses providers reach what is here, Allowed which ones
	// tenants may give their Services here, Views by which this cluster sees the pods of
	// providers. All are nil while there is no network.
	Addresses reflection.Addresses
	Allowed   reflection.Allowed
	Views     consumer.Views
	// Tunnels says what is reached through the network, nil while there is none.
	Tunnels Tunnels
}

// Tunnels says which tunnels carry packets both ways.
type Tunnels interface {
	consumer.Tunnels
	reflection.Tunnels
}

// Register adds all of offloading to a manager, before the fleet runs.
func Register(mgr ctrl.Manager, o Options) error {
	authorities, err := trust.Follow(mgr)
	if err != nil {
		return err
	}
	if err := registerServer(mgr, o, authorities); err != nil {
		return err
	}
	if err := namespace.Register(mgr, namespace.Options{Namespace: o.Namespace, Fleet: namespace.Connections(o.Fleet), Domain: o.Domain}); err != nil {
		return err
	}
	if err := provider.Register(mgr, provider.Options{Limits: o.Limits, Addresses: o.Allowed != nil, NameServers: o.NameServers, Homes: o.Homes}); err != nil {
		return err
	}
	carried := reflection.Connections(o.Fleet)
	guards := reflection.NewGuards(mgr.GetClient(), carried)
	if err := consumer.Register(mgr, consumer.Options{Fleet: consumer.Connections(o.Fleet), Views: o.Views, Tunnels: o.Tunnels, Needs: guards}); err != nil {
		return err
	}
	if err := reflection.Register(mgr, reflection.Options{Fleet: carried, Addresses: o.Addresses, Allowed: o.Allowed, Tunnels: o.Tunnels, NameServers: o.NameServers, Domain: o.Domain, Guards: guards}); err != nil {
		return err
	}
	usage := stats.NewClient(func(peering string) (stats.Peer, bool) { p, ok := o.Fleet.Peer(peering); return p, ok }, nil)
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("reading the address for what the API server calls: %w", err)
	}
	ports, err := kubelet.Register(mgr, kubelet.Options{Fleet: kubelet.Connections(o.Fleet), Address: host, Stats: usage, Authorities: authorities})
	if err != nil {
		return err
	}
	return vnode.Register(mgr, vnode.Options{
		Home: o.Home, Fleet: vnode.Connections(o.Fleet), Address: o.Address, Ports: ports.Ports,
		Version: o.Version, Namespace: o.Namespace,
	})
}

// registerServer adds the listener that the API server calls: for admission of pods, and
// with what tenants ask about theirs.
func registerServer(mgr ctrl.Manager, o Options, authorities *access.Authorities) error {
	authority := admission.NewAuthority(o.Direct, o.Namespace)
	options := admission.Options{Reader: mgr.GetClient(), Live: mgr.GetAPIReader(), Authority: authority}
	pods, err := admission.Handler(options)
	if err != nil {
		return err
	}
	if err := admission.Register(mgr, options); err != nil {
		return err
	}
	usage, err := stats.Handler(stats.Options{
		Reader: mgr.GetClient(), Config: mgr.GetConfig(), Writer: o.Direct, Namespace: o.Namespace,
		Authorities: authorities, Logger: mgr.GetLogger().WithName("stats"),
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(admission.Path, pods)
	mux.Handle(admission.KeepHomePath, pods)
	mux.Handle(stats.Path+"/", usage)
	mux.Handle(stats.Path, usage)
	server := &serving.Server{Address: o.Listen, Socket: o.Socket, Authority: authority, Handler: mux}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("adding the server for the API server: %w", err)
	}
	if err := mgr.AddReadyzCheck("api", server.Ready); err != nil {
		return fmt.Errorf("adding the check of the server for the API server: %w", err)
	}
	return nil
}
