package agent

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/netns"
)

const (
	// surveyEvery is how often it is looked what a node is connected to.
	surveyEvery = 10 * time.Second
	// connectedFor is how long a network counts that a node is not connected to any more: a
	// link that fails for a while, as a VPN's, must not leave its network to a peer.
	connectedFor = 24 * time.Hour
	// maxHosts is how many single addresses count before all networks.
	maxHosts = 16
	// maxRoutes is how many routes are kept in mind while they are read.
	maxRoutes = 4096
	// ourDevices is what names of our own devices begin with.
	ourDevices = "pelago-"
)

// connections are what a node is connected to.
type connections struct {
	// networks are those that it has a route to, or an address in.
	networks []netip.Prefix
	// hosts are single addresses that it cannot do without: of its routers, name servers and
	// the API server.
	hosts []netip.Addr
}

// survey looks what this node is connected to, until ctx ends, and has its Lease say so.
func (a *Agent) survey(ctx context.Context) {
	if !a.cluster.wait(ctx) {
		return
	}
	known := connected{}
	for begun := false; ctx.Err() == nil; pause(ctx, surveyEvery) {
		if !begun {
			before, err := a.lease.networks(ctx)
			if err != nil {
				a.options.Log.V(1).Info("what this node was connected to is not known", "error", err.Error())
				continue
			}
			known.see(before, time.Now())
			begun = true
		}
		now, err := lookAround(a.options.Host)
		if err != nil {
			a.options.Log.Error(err, "looking what this node is connected to")
			continue
		}
		now.hosts = append(now.hosts, a.servers()...)
		known.see(now.report(a.cluster.podRanges()), time.Now())
		text := networksText(known.all())
		a.mu.Lock()
		news := a.networks == nil || *a.networks != text
		if news {
			a.networks = &text
		}
		a.mu.Unlock()
		if news {
			signal(a.renewal)
		}
	}
}

// networks are those that the Lease says already.
func (l lease) networks(ctx context.Context) ([]netip.Prefix, error) {
	limited, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	o := &coordinationv1.Lease{}
	err := l.client.Get(limited, types.NamespacedName{Namespace: l.namespace, Name: v1alpha1.AgentLease(l.node)}, o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading this node's Lease: %w", err)
	}
	return ipam.ParseNetworks(o.Annotations[v1alpha1.AnnotationNetworks], v1alpha1.MaxNetworks), nil
}

// servers are the addresses of the API server and of the name servers that the agent itself asks.
// The node's own ones are in files of the node, of which no program of Pelago sees any.
func (a *Agent) servers() (all []netip.Addr) {
	var names []string
	if a.options.Names != nil {
		names = slices.Clone(a.options.Names.Upstream)
	}
	if u, err := url.Parse(a.options.Config.Host); err == nil {
		names = append(names, cmp.Or(u.Hostname(), a.options.Config.Host))
	}
	for _, name := range names {
		if at, err := netip.ParseAddrPort(name); err == nil {
			name = at.Addr().String()
		}
		if addr, err := netip.ParseAddr(name); err == nil {
			all = append(all, addr.WithZone("").Unmap())
		}
	}
	return all
}

// podRanges are where this cluster's pods are, as far as agents know.
func (c *cluster) podRanges() (ranges []netip.Prefix) {
	var nodes corev1.NodeList
	var configs v1alpha1.NetworkConfigList
	for _, list := range []kube.List{&nodes, &configs} {
		if err := c.main.List(context.Background(), list); err != nil { // the cache is not there
			c.options.Log.V(1).Info("a cache cannot be read", "error", err.Error())
		}
	}
	texts := []string{}
	for i := range nodes.Items {
		texts = append(texts, nodes.Items[i].Spec.PodCIDRs...)
	}
	for _, p := range (facts{configs: configs.Items}).pairs() {
		texts = append(texts, p.own.Spec.Pods...)
	}
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

// lookAround reads the devices, addresses and the main routing table of a node.
func lookAround(host *os.File) (c connections, err error) {
	kernel, err := netns.Netlink(host)
	if err != nil {
		return c, err
	}
	defer kernel.Close()
	links, err := netns.Whole(kernel.LinkList)
	if err != nil {
		return c, fmt.Errorf("listing devices: %w", err)
	}
	out := map[int]bool{} // devices that do not count
	dummy := map[int]bool{}
	for _, l := range links {
		at := l.Attrs()
		out[at.Index] = strings.HasPrefix(at.Name, ourDevices) || at.Flags&net.FlagLoopback != 0
		dummy[at.Index] = l.Type() == "dummy"
	}
	addrs, err := netns.Whole(func() ([]netlink.Addr, error) { return kernel.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return c, fmt.Errorf("listing addresses: %w", err)
	}
	for _, a := range addrs {
		for _, of := range []*net.IPNet{a.IPNet, a.Peer} {
			// kube-proxy and others give devices of no use otherwise the addresses of Services.
			if p, ok := prefixOf(of); ok && !out[a.LinkIndex] && !(dummy[a.LinkIndex] && p.IsSingleIP()) {
				c.networks = append(c.networks, p)
			}
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		c, err = netns.Whole(func() (connections, error) {
			with := connections{networks: slices.Clone(c.networks), hosts: slices.Clone(c.hosts)}
			return with, kernel.RouteListFilteredIter(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
				with.route(r, out)
				return true
			})
		})
		if err != nil {
			return c, fmt.Errorf("listing routes: %w", err)
		}
	}
	return c, nil
}

// route takes what a route leads to: of a default route its routers, and of others a network. One to
// a single address that is right here is a pod's or the like.
func (c *connections) route(r netlink.Route, out map[int]bool) {
	hops := []netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via}}
	if len(r.MultiPath) > 0 {
		hops = hops[:0]
		for _, hop := range r.MultiPath {
			hops = append(hops, *hop)
		}
	}
	var routers []netip.Addr
	ours := true
	for _, hop := range hops {
		ours = ours && out[hop.LinkIndex]
		gw := hop.Gw
		if via, ok := hop.Via.(*netlink.Via); ok {
			gw = via.Addr
		}
		if a, ok := netip.AddrFromSlice(gw); ok {
			routers = append(routers, a.Unmap())
		}
	}
	to, ok := prefixOf(r.Dst)
	switch {
	case r.Type != unix.RTN_UNICAST || ours:
	case !ok || to.Bits() == 0:
		c.hosts = append(c.hosts, routers...)
	case !to.IsSingleIP() || len(routers) > 0:
		if c.networks = append(c.networks, to); len(c.networks) > maxRoutes {
			c.networks = ipam.Networks(c.networks, maxRoutes/2)
		}
	}
}

// prefixOf is a prefix as the kernel has it, without bits of hosts.
func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	if !ok || a.Unmap().BitLen() != size {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a.Unmap(), bits).Masked(), true
}

// report is what of connections is told: the single addresses and then the widest networks. What is
// a pod's here is known otherwise.
func (c connections) report(pods []netip.Prefix) []netip.Prefix {
	not := func(p netip.Prefix) bool {
		return slices.ContainsFunc(pods, func(pod netip.Prefix) bool { return pod.Bits() <= p.Bits() && pod.Overlaps(p) })
	}
	var hosts []netip.Prefix
	for _, a := range c.hosts {
		hosts = append(hosts, netip.PrefixFrom(a, a.BitLen()))
	}
	hosts = ipam.Networks(slices.DeleteFunc(hosts, not), maxHosts)
	networks := ipam.Networks(slices.DeleteFunc(slices.Clone(c.networks), not), v1alpha1.MaxNetworks-len(hosts))
	return ipam.Networks(slices.Concat(hosts, networks), v1alpha1.MaxNetworks)
}

// connected remembers the networks of a node, by when they were seen last.
type connected map[netip.Prefix]time.Time

// see takes those of now, and forgets what was not seen for long.
func (c connected) see(all []netip.Prefix, now time.Time) {
	for _, p := range all {
		c[p] = now
	}
	for p, at := range c {
		if now.Sub(at) >= connectedFor {
			delete(c, p)
		}
	}
	if len(c) <= v1alpha1.MaxNetworks {
		return
	}
	var old []netip.Prefix // of which only as many are kept as there is room for
	for p, at := range c {
		if !at.Equal(now) {
			old = append(old, p)
		}
	}
	kept := ipam.Networks(old, v1alpha1.MaxNetworks-min(len(all), v1alpha1.MaxNetworks))
	for _, p := range old {
		if !slices.Contains(kept, p) {
			delete(c, p)
		}
	}
}

func (c connected) all() []netip.Prefix {
	var all []netip.Prefix
	for p := range c {
		all = append(all, p)
	}
	return ipam.Networks(all, v1alpha1.MaxNetworks)
}

// networksText is networks as they are written.
func networksText(all []netip.Prefix) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, " ")
}
