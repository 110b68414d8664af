package network

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// bounds is what a provider may show of NetworkConfigs. Older ones know none.
var bounds = fleet.Bounds{Optional: true, Objects: v1alpha1.MaxNetworkConfigs, Bytes: 2 << 20}

// Peer is the connection to one provider.
type Peer interface {
	// TenantNamespace is this cluster's namespace there.
	TenantNamespace() string
	// Client reads and writes there, within a deadline of its own.
	Client() client.Client
	// Reader reads what is watched there.
	Reader() client.Reader
	// Reachable says whether it answers, since when, and what is wrong.
	Reachable() (bool, time.Time, error)
}

// Fleet is the connections to all providers.
type Fleet interface {
	// WatchWithin adds a kind to what is watched in every tenant namespace.
	WatchWithin(kind client.Object, b fleet.Bounds) error
	// Peer returns the connection of a peering, if there is one.
	Peer(peering string) (Peer, bool)
	// Source tells of changes of a kind at the providers.
	Source(kind client.Object, mapper func(peering string, obj client.Object) []reconcile.Request) source.Source
	// StateSource tells of changes of connections.
	StateSource(mapper func(peering string) []reconcile.Request) source.Source
}

// Connections makes a Fleet for Options of the connections of this program.
func Connections(f *fleet.Fleet) Fleet { return fleet.As(f, func(p *fleet.Peer) Peer { return p }) }
