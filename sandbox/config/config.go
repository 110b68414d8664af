// Package config reads sandbox.yaml: which clusters a sandbox has and how they
// differ. It is pure: text in, a checked Sandbox or an error out that names the
// line, the field and the remedy. It starts nothing.
package config

import (
	"cmp"
	"net/netip"
	"time"
)

// Defaults of a cluster. The ranges are the same in every cluster on purpose:
// independent owners choose alike, so overlap is the normal case.
const (
	DefaultVersion        = "v1.36.3"
	DefaultNodes          = 2
	DefaultPodRangeV4     = "10.42.0.0/16"
	DefaultServiceRangeV4 = "10.43.0.0/16"
	DefaultPodRangeV6     = "fd42::/48"
	DefaultServiceRangeV6 = "fd43::/112"
	DefaultDomain         = "cluster.local"
)

// ProfileControlPlane is the profile of sandboxes that have control planes on
// loopback and hollow nodes only, and need no root. Others have no profile: their
// nodes are machines that run pods.
const ProfileControlPlane = "control-plane"

// Defaults of hollow nodes. Where there are no others, a cluster has DefaultHollow.
const (
	DefaultHollow      = 2
	DefaultHollowStart = time.Second
)

// Names of the network plugins a cluster can have.
const (
	CNIBridge  = "bridge"
	CNIFlannel = "flannel"
)

// Names of the add-ons a cluster can have; all of them by default.
const (
	AddonDNS          = "coredns"
	AddonMetrics      = "metrics-server"
	AddonStorage      = "local-path"
	AddonLoadBalancer = "load-balancer"
)

// Sandbox is a whole sandbox: the clusters, in the order they were named.
type Sandbox struct {
	// Profile is ProfileControlPlane or nothing.
	Profile  string    `json:"profile,omitempty"`
	Clusters []Cluster `json:"clusters"`
}

// Cluster is one Kubernetes cluster.
type Cluster struct {
	// Name is a DNS label of at most 20 characters, unique in the sandbox.
	Name string `json:"name"`
	// Version is a Kubernetes release such as v1.36.3.
	Version string `json:"version"`
	// Labels say where and what the cluster is (region, provider, latitude,
	// longitude, anything); its nodes carry them.
	Labels map[string]string `json:"labels,omitempty"`
	// Nodes is the number of worker nodes, 1 to 50; none in ProfileControlPlane.
	Nodes int `json:"nodes"`
	// Hollow is the number of nodes that run pods in name only, at most 1000.
	Hollow int `json:"hollow,omitempty"`
	// HollowStart is how long a pod takes to start on a hollow node.
	HollowStart time.Duration `json:"hollowStart,omitempty"`
	// PodRanges and ServiceRanges hold one prefix per IP family, the primary
	// family first and the same in both.
	PodRanges     []netip.Prefix `json:"podRanges"`
	ServiceRanges []netip.Prefix `json:"serviceRanges"`
	// BehindNAT: the cluster can call out and cannot be called.
	BehindNAT bool `json:"behindNAT,omitempty"`
	// CNI is CNIBridge or CNIFlannel; nothing in ProfileControlPlane.
	CNI string `json:"cni"`
	// Domain is what the cluster is called in its own DNS; DefaultDomain if empty.
	Domain string `json:"domain,omitempty"`
	// Addons are the add-ons to install.
	Addons []string `json:"addons"`
}

// DNSDomain is what the cluster is called in its own DNS.
func (c Cluster) DNSDomain() string { return cmp.Or(c.Domain, DefaultDomain) }
