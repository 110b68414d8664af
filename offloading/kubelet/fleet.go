package kubelet

import (
	"net/http"
	"net/url"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/internal/fleet"
)

// Peer is the connection to one provider.
type Peer interface {
	// TenantNamespace is this cluster's namespace there.
	TenantNamespace() string
	// Reader reads what is watched there.
	Reader() client.Reader
	// Stream is the address of its API server, and what carries streams there.
	Stream() (*url.URL, http.RoundTripper, error)
}

// Fleet is the connections to all providers.
type Fleet interface {
	// Watch adds a kind to what is watched in every tenant namespace.
	Watch(kind client.Object) error
	// Peer returns the connection of a peering, if there is one.
	Peer(peering string) (Peer, bool)
	// StateSource tells of changes of connections.
	StateSource(mapper func(peering string) []reconcile.Request) source.Source
}

// Connections makes a Fleet for Options of the connections of this program.
func Connections(f *fleet.Fleet) Fleet { return fleet.As(f, func(p *fleet.Peer) Peer { return p }) }
