package v1alpha1

// Reachability says which pods of one side may be at that side's end of connections with a
// peer. Each side enforces its own, at its own gateway, so that of both the narrower holds.
// +kubebuilder:validation:Enum=none;offloaded-only;full
type Reachability string

// What of a cluster's pods may reach, and be reached by, a peer.
const (
	// ReachNone: none. The tunnel carries probes, and calls of home's API server.
	ReachNone Reachability = "none"
	// ReachOffloadedOnly: those that were offloaded, and at home those behind Services that
	// travelled.
	ReachOffloadedOnly Reachability = "offloaded-only"
	// ReachFull: all.
	ReachFull Reachability = "full"
)

// Reachabilities are all of them, from the narrowest on.
func Reachabilities() []Reachability {
	return []Reachability{ReachNone, ReachOffloadedOnly, ReachFull}
}

// OrDefault is what holds where nothing is said: ReachOffloadedOnly. What this build does not
// know is ReachNone.
func (r Reachability) OrDefault() Reachability {
	switch r {
	case "":
		return ReachOffloadedOnly
	case ReachOffloadedOnly, ReachFull:
		return r
	}
	return ReachNone
}
