// Package cluster turns a checked configuration into running Kubernetes
// clusters on machines: certificates, control planes, nodes, wires, add-ons,
// and faults. Plans (addresses, flags, files) are pure; Up, Down and the faults
// carry them out. It never listens on an address of the host.
package cluster

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/pelago-dev/pelago/sandbox/address"
	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// Cluster is one cluster with everything that follows from its place in the
// sandbox.
type Cluster struct {
	config.Cluster
	Sandbox string          // name of the sandbox
	Dir     string          // folder of the sandbox
	Program string          // pelago-sandbox, as machines see it
	Kube    string          // the Kubernetes program of its version
	Visible []string        // host folders nodes must see
	Index   int             // which cluster of the sandbox
	Net     address.Network // its node network
	Transit address.Network // of the sandbox
	Port    int             // first of the ports of a cluster on loopback, 0 for one of machines

	api string // where the API server listens, if neither on the control machine nor at Port
}

// ControlName and NATName are names of machines; a node's is CLUSTER-N.
func (c *Cluster) ControlName() string { return c.Name + "-control" }

// NATName is the machine of a cluster's NAT box.
func (c *Cluster) NATName() string { return c.Name + "-nat" }

// NodeName is the name of node i, counted from 1, as machine and in Kubernetes.
func (c *Cluster) NodeName(i int) string { return fmt.Sprintf("%s-%d", c.Name, i) }

// NodeNames lists the nodes in order.
func (c *Cluster) NodeNames() []string {
	names := make([]string, c.Nodes)
	for i := range names {
		names[i] = c.NodeName(i + 1)
	}
	return names
}

func (c *Cluster) machineDir(name string) string { return filepath.Join(c.Dir, name) }
func (c *Cluster) files() string                 { return filepath.Join(c.Dir, "clusters", c.Name) }
func (c *Cluster) pki(name string) string        { return filepath.Join(c.files(), "pki", name) }

// Kubeconfig is the administrator's kubeconfig, good on the host and on every
// machine that reaches the API server.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.files(), "kubeconfig") }

func (c *Cluster) kubeconfig(who string) string { return c.pki(who + ".kubeconfig") }

// families picks from an address pair the families the cluster uses, primary
// first.
func (c *Cluster) families(pair address.Pair) []netip.Addr {
	var out []netip.Addr
	for _, r := range c.PodRanges {
		if r.Addr().Is4() {
			out = append(out, pair.V4.Addr())
		} else {
			out = append(out, pair.V6.Addr())
		}
	}
	return out
}

// API is the address of the API server, as host:port.
func (c *Cluster) API() string {
	switch {
	case c.api != "":
		return c.api
	case c.loopback():
		return c.local(portAPI)
	}
	return netip.AddrPortFrom(c.families(c.Net.Control())[0], 6443).String()
}

// serviceAddress returns the n-th address of each service range.
func (c *Cluster) serviceAddresses(n int) []netip.Addr {
	var out []netip.Addr
	for _, r := range c.ServiceRanges {
		a := r.Masked().Addr()
		for range n {
			a = a.Next()
		}
		out = append(out, a)
	}
	return out
}

// PodPrefixes is the part of each pod range that node i has: the i-th /24 or
// /64.
func (c *Cluster) PodPrefixes(i int) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range c.PodRanges {
		out = append(out, nthSubnet(r, i-1))
	}
	return out
}

// nthSubnet returns the n-th /24 of an IPv4 range or /64 of an IPv6 range.
func nthSubnet(r netip.Prefix, n int) netip.Prefix {
	bits := 24
	if r.Addr().Is6() {
		bits = 64
	}
	raw := r.Masked().Addr().AsSlice()
	for at := bits/8 - 1; at >= 0 && n > 0; at-- {
		sum := int(raw[at]) + n
		raw[at], n = byte(sum), sum>>8
	}
	a, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(a, bits)
}

func joined[T fmt.Stringer](items []T) string {
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = item.String()
	}
	return strings.Join(words, ",")
}

// machineSpec is what all machines of a cluster have in common.
func (c *Cluster) machineSpec(name string) machine.Spec {
	if c.loopback() {
		return machine.Spec{Sandbox: c.Sandbox, Name: name, Dir: c.machineDir(name), Program: c.Program, Bare: true}
	}
	return machine.Spec{
		Sandbox: c.Sandbox, Name: name, Dir: c.machineDir(name), Program: c.Program,
		Sysctls: map[string]string{
			"net/ipv4/ip_forward":              "1",
			"net/ipv6/conf/all/disable_ipv6":   "0", // whatever the host's kernel begins with
			"net/ipv6/conf/all/forwarding":     "1",
			"net/ipv4/conf/all/rp_filter":      "0",
			"net/ipv4/conf/default/rp_filter":  "0",
			"net/ipv6/conf/default/accept_ra":  "0",
			"net/ipv6/conf/default/accept_dad": "0",
			// What a bridge forwards is nobody's business but, on nodes, kube-proxy's.
			"net/bridge/bridge-nf-call-iptables":  "0",
			"net/bridge/bridge-nf-call-ip6tables": "0",
		},
	}
}
