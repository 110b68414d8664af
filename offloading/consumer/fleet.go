package consumer

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/offloading/shadow"
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
	// Peer returns the connection of a peering, if there is one.
	Peer(peering string) (Peer, bool)
	// Source tells of changes of a kind at the providers.
	Source(kind client.Object, mapper func(peering string, obj client.Object) []reconcile.Request) source.Source
	// StateSourceAt tells of changes of connections.
	StateSourceAt(pace fleet.Pace, mapper func(peering string) []reconcile.Request) source.Source
}

// Connections makes a Fleet for Options of the connections of this program.
func Connections(f *fleet.Fleet) Fleet { return fleet.As(f, func(p *fleet.Peer) Peer { return p }) }

// pace is how fast one provider may keep us busy: each pod that starts is one change.
var pace = fleet.Pace{Rate: 500, Burst: 1000}

// statePace lets all pods of a provider that went away be seen to at once.
var statePace = fleet.Pace{Rate: 500, Burst: 10_000}

// bounds are what a provider may show of ShadowPods: as many as a tenant may have, and
// what it may write of each without the pod that we wrote ourselves.
var bounds = fleet.Bounds{Beyond: true, Objects: v1alpha1.MaxShadowPods, Bytes: 256 << 20, Pace: pace, Trim: trim}

// annotationAsked on ShadowPods in the mirror, and nowhere else, is the hash of what they
// ask for.
const annotationAsked = "pelago.dev/asked"

// trim takes out of a ShadowPod what came from here and is not read back, and keeps the
// hash of it.
func trim(u *unstructured.Unstructured) {
	spec, ok := u.Object["spec"].(map[string]any)
	if !ok {
		return
	}
	if pod, ok := spec["pod"].(string); ok {
		labels, _, _ := unstructured.NestedStringMap(spec, "labels")
		annotations, _, _ := unstructured.NestedStringMap(spec, "annotations")
		hash := shadow.Hash(v1alpha1.ShadowPodSpec{Labels: labels, Annotations: annotations, Pod: pod})
		_ = unstructured.SetNestedField(u.Object, hash, "metadata", "annotations", annotationAsked) // where it does not fit nothing is read
	}
	delete(spec, "pod")
}
