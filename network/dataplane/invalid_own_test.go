package dataplane

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/nftables"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestStrayHere is TestStray for who calls by a Service and is no pod: a process on a node, and one elsewhere that
// calls a port of the node, and of whom the peer sees the node. To each the segments are for the node.
func TestStrayHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	services := map[bool]netip.Addr{true: netip.MustParseAddr("10.96.0.10"), false: netip.MustParseAddr("fd96::10")}
	own, ports := chain{priority: -100}, chain{priority: -100}
	for _, v4 := range families {
		server := netip.AddrPortFrom(podAt(w.rome.view, 2, 5, v4), netnstest.Port)
		own.add(destinationIs(netip.AddrPortFrom(services[v4], netnstest.Port), false), dnatTo(server))
		for i := range w.rome.nodes {
			ports.add(destinationIs(netip.AddrPortFrom(netnstest.NodeAddr(i, v4), netnstest.Port), false), dnatTo(server))
		}
	}
	gateway := w.gateway(w.rome)
	for i, n := range w.rome.nodes {
		n.Sysctl("netfilter/nf_conntrack_tcp_be_liberal", "0")
		n.rules("own", own, *nftables.ChainHookOutput, nftables.ChainTypeNAT)
		n.rules("ports", ports, *nftables.ChainHookPrerouting, nftables.ChainTypeNAT)
		for _, v4 := range families {
			n.Route(netip.PrefixFrom(services[v4], services[v4].BitLen()).String(), netnstest.NodeAddr(1-i, v4).String(), "eth0")
		}
	}
	for i, n := range w.rome.nodes {
		for _, v4 := range families {
			for who, call := range map[string]struct {
				from *place
				to   netip.Addr
			}{
				"a process":       {n.Place, services[v4]},
				"a port's caller": {w.rome.nodes[1-i].Place, netnstest.NodeAddr(i, v4)},
			} {
				t.Run(fmt.Sprintf("node %d, %s, IPv4 %t", i+1, who, v4), func(t *testing.T) {
					w.strays(t, n, gateway, call.from, call.to)
				})
			}
		}
	}
}
