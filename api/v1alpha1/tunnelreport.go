package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationTunnels on the Lease of an agent holds, as JSON, a TunnelReport of each tunnel
// whose gateway its node is, by NetworkKey; there is none if it is gateway of nothing.
const AnnotationTunnels = "pelago.dev/tunnels"

// AnnotationAppliedPods on the Lease of an agent holds, as JSON, the AppliedPods of each peering in which
// this cluster is the consumer and whose gateway its node is, by NetworkKey. It is told as soon as it
// changes, and apart from AnnotationTunnels: it changes whenever pods come and go.
const AnnotationAppliedPods = "pelago.dev/applied-pods"

// AnnotationNetworks on the Lease of an agent lists the networks that its node is connected to, as
// prefixes separated by spaces: no view may cover them. Without it they are not known. It stays while
// the agent is away, and goes with the Lease, which ends with its Node.
const AnnotationNetworks = "pelago.dev/networks"

// MaxNetworks is how many prefixes of AnnotationNetworks count.
const MaxNetworks = 64

// AnnotationMTU on the Lease of an agent holds the largest packet that the device carries by which
// other nodes reach its node, in bytes: tunnels and the ways to them carry no more than the node that
// carries least. Without it that is not known, and the node does not count. It stays while the agent is away.
const AnnotationMTU = "pelago.dev/mtu"

// MaxThrough bounds TunnelReport.Through.
const MaxThrough = 16

// TunnelReport is what an agent has measured of a tunnel. It is told at once when Alive,
// Peer, Knows or Through change or Unreached comes and goes, and else at most every half minute.
type TunnelReport struct {
	// Alive says that probes are answered. Without Since it is not known yet.
	Alive bool `json:"alive"`
	// Since is when Alive became what it is.
	Since *metav1.Time `json:"since,omitempty"`
	// LatencyMicros is the median of the last minute, there and back.
	LatencyMicros int64 `json:"latencyMicros,omitempty"`
	// Loss is the part of the last minute's probes without an answer, 0 to 1.
	Loss float64 `json:"loss,omitempty"`
	// Endpoint is where the other side was heard last, or is sought.
	Endpoint string `json:"endpoint,omitempty"`
	// Handshake is when keys were agreed on last.
	Handshake *metav1.Time `json:"handshake,omitempty"`
	// Kernel says that the kernel's WireGuard carries it.
	Kernel bool `json:"kernel,omitempty"`
	// Peer is the other side's public key that is in use.
	Peer string `json:"peer,omitempty"`
	// Knows is the other side's next public key, which the tunnel accepts already.
	Knows string `json:"knows,omitempty"`
	// Through are the peerings, by NetworkKey and in order, at whose provider pods have exchanged more
	// than a mebibyte within the last minute with pods at the provider of this one, by way of
	// this cluster; at most MaxThrough. Only a consumer has some.
	Through []string `json:"through,omitempty"`
	// Used is when a direct path carried something of pods last, to the minute.
	Used *metav1.Time `json:"used,omitempty"`
	// Unreached is how many addresses more may be reached on a side of the peering than a gateway
	// knows of: these are not.
	Unreached int `json:"unreached,omitempty"`
	// Problem says why there is no tunnel, where there should be one.
	Problem string `json:"problem,omitempty"`
}

// AppliedPods is which pods the gateways of a peering know. A resourceVersion stands for all pods as
// they were then: what a data plane was made of last.
type AppliedPods struct {
	// Away is the resourceVersion of the pods on each virtual node, by its name, that the gateway
	// here knows.
	Away map[string]int64 `json:"away,omitempty"`
	// Peer is that of this cluster's pods at the provider that the provider's gateway knows. It is
	// nil if that has said nothing.
	Peer *int64 `json:"peer,omitempty"`
	// Heralded are the pods at the provider whose addresses the gateway here knows from the
	// provider's. It is nil if that has told of none.
	Heralded *HeraldedPods `json:"heralded,omitempty"`
}

// HeraldedPods are this cluster's pods at a provider that have an address there since a resourceVersion
// there greater than After and at most UpTo.
type HeraldedPods struct {
	After int64 `json:"after"`
	UpTo  int64 `json:"upTo"`
}
