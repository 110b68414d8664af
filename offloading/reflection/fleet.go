package reflection

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// Peer is the connection to one provider.
type Peer interface {
	// TenantNamespace is this cluster's namespace there.
	TenantNamespace() string
	// Client reads and writes there, within a deadline of its own.
	Client() client.Client
	// Reader reads what is watched there.
	Reader() client.Reader
	// State says whether it answers, since when, and why not.
	State() fleet.State
	// Full says whether it shows as many objects of a kind as this cluster reads.
	Full(kind client.Object) bool
}

// Fleet is the connections to all providers.
type Fleet interface {
	// WatchWithin adds a kind to what is watched in every tenant namespace.
	WatchWithin(kind client.Object, b fleet.Bounds) error
	// Watch is WatchWithin with bounds that somebody else sets.
	Watch(kind client.Object) error
	// Peer returns the connection of a peering, if there is one.
	Peer(peering string) (Peer, bool)
	// Source tells of changes of a kind at the providers.
	Source(kind client.Object, mapper func(peering string, obj client.Object) []reconcile.Request) source.Source
	// StateSourceAt tells of changes of connections.
	StateSourceAt(pace fleet.Pace, mapper func(peering string) []reconcile.Request) source.Source
}

// Connections makes a Fleet for Options of the connections of this program.
func Connections(f *fleet.Fleet) Fleet { return fleet.As(f, func(p *fleet.Peer) Peer { return p }) }

// pace is how fast one provider may keep us busy.
var pace = fleet.Pace{Rate: 100, Burst: 1000}

// bounds are what a provider may show of ShadowObjects: as many as a tenant may have,
// without the content that we wrote ourselves.
var bounds = fleet.Bounds{Beyond: true, Objects: v1alpha1.MaxShadowObjects, Bytes: 16 << 20, Pace: pace, Trim: trim}

// trim takes out of a ShadowObject what came from here and is not read back.
func trim(u *unstructured.Unstructured) {
	if spec, ok := u.Object["spec"].(map[string]any); ok {
		delete(spec, "object")
	}
}
