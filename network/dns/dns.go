// Package dns gives pods that a provider runs for its tenants the names that they have at
// home: db, db.shop and db.shop.svc.cluster.local are home's Service, whatever the namespace
// is called here, and no name of the provider's own things gets through. A Server on each
// node answers at an address that only the node itself has, and knows who asks by the source
// address; it asks the cluster's own DNS and translates the names in questions and answers.
// Pods that were made at a third cluster, and came by way of a tenant, have the names of that.
// It keeps nothing, and never asks anybody but the cluster's DNS.
//
// Whoever runs it on a node gives it an Index, and keeps that true: SetPod and SetNamespace
// for every pod and namespace with the label pelago.dev/tenant that is there or changes,
// DeletePod and DeleteNamespace for each that is gone, in any order; what is not a tenant's or
// not on this node is left out by the Index. Of pods it reads namespace, name, creation, nodeName, hostNetwork,
// phase and addresses, of namespaces name, labels, creation and deletion; caches may drop all
// else. Upstream and Domain are what ReadResolver finds in the agent's own /etc/resolv.conf,
// with the DNS policy ClusterFirstWithHostNet:
//
//	index := dns.NewIndex(node)
//	server, err := dns.New(dns.Options{Upstream: servers, Domain: domain, Clients: index.Client, …})
//	err = server.Run(ctx) // goes on until ctx ends
//	err = dns.Remove(host) // when this node is left for good
//
// For one that begins while nobody tells it of pods there are Index.Note and ReadIndex.
package dns

import (
	"net/netip"
	"os"
	"time"

	"github.com/go-logr/logr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// defaultDomain is that of nearly all clusters.
const defaultDomain = v1alpha1.DefaultDomain

// Bounds of what clients may ask and get.
const (
	// questionsEach and questionsAll are answered at once: for one tenant and for all.
	questionsEach, questionsAll = 128, 1024
	// connectionsEach and connectionsAll are open at once.
	connectionsEach, connectionsAll = 32, 256
	// strangerMost is how many questions of one address are answered, and how many of its connections are open, at once
	// while it is not known whose it is: it may be a pod's that has just begun, for which others leave room.
	strangerMost = 8
	// maxQuestion is the longest packet that is looked at.
	maxQuestion = 4096
	// maxDatagram is the longest answer over UDP, whatever the client would take.
	maxDatagram = 1232
	// idle is how long a connection may take for its next question, and slow for its answer.
	idle, slow = 10 * time.Second, 2 * time.Second
)

// Bounds of asking the cluster's DNS: resolvers in pods wait 5 s.
const (
	patience    = 2 * time.Second
	allPatience = 4 * time.Second
	maxServers  = 3
)

// missTTL is how long a client may believe in seconds that a name is not there.
const missTTL = 5

// Address is where tenants' pods find the server of their node.
func Address() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 77, 53}) }

// Address6 is where those find it that have no IPv4. Pods have no way to link-local addresses of
// IPv6 on their node, so it is a unique local one: its 40 bits are the first of the SHA-256 of
// pelago.dev, so that hardly anybody else has it, and the same everywhere, so that a
// NetworkPolicy can name it.
func Address6() netip.Addr {
	return netip.AddrFrom16([16]byte{0xfd, 0x46, 0xc7, 0x3d, 0x1b, 0x8d, 15: 0x53})
}

// Addresses are those at which a node answers where the cluster's DNS is at these servers, with
// or without a port. Pods of a cluster whose DNS has IPv4 have it too.
func Addresses(upstream []string) []netip.Addr {
	for _, text := range upstream {
		if a, err := serverAddress(text); err == nil && a.Addr().Unmap().Is6() {
			return []netip.Addr{Address(), Address6()}
		}
	}
	return []netip.Addr{Address()}
}

// Client is who asks: a tenant, or one whose pods are here by way of a tenant.
type Client struct {
	// Tenant is its name, or that of the tenant between.
	Tenant string
	// Domain of its home cluster; cluster.local if empty.
	Domain string
	// Namespaces of home by what they are called here. It is not changed any more.
	Namespaces map[string]string
}

// Options is what a Server needs.
type Options struct {
	// Addresses at which it answers; those of Addresses if none. Run gives them to the device lo.
	Addresses []netip.Addr
	// Host is the network namespace of the node; that of this program if nil.
	Host *os.File
	// Upstream are the addresses of the cluster's DNS, with or without a port; at most three
	// are asked, in their order.
	Upstream []string
	// Domain of this cluster; cluster.local if empty.
	Domain string
	// Clients says who has a source address.
	Clients func(netip.Addr) (Client, bool)
	// Log tells when it answers and when it cannot.
	Log logr.Logger
	// Metrics, if any.
	Metrics *Metrics
}
