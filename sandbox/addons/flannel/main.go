//go:build ignore

// Command flannel gives the pods of a node a network that reaches the pods of
// all nodes of its cluster: flannel's VXLAN backend with subnets taken from the
// Node objects and rules kept in nftables. It does what flanneld does with
// --kube-subnet-mgr and --ip-masq, from flannel's own packages; flanneld itself
// links the clients of clouds that a sandbox has no use for.
//
// It never writes CNI configuration: the node does that from the subnet file.
// It is built by file name, so that the module's own build does not see it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
	"k8s.io/klog/v2"
)

// Names that flanneld gives these things too, so that its documentation and
// tools hold for this program.
const (
	annotations = "flannel.alpha.coreos.com"
	configFile  = "/etc/kube-flannel/net-conf.json"
	subnetFile  = "/run/flannel/subnet.env"
)

// longerHeader is what an IPv6 header has more than an IPv4 one, in bytes: the
// VXLAN backend leaves room for the latter only, whatever it sends over.
const longerHeader = 20

// options are the command line.
type options struct {
	config, subnet, kubeconfig, device string
}

func main() {
	var o options
	flag.StringVar(&o.config, "net-config-path", configFile, "file with the network's configuration (JSON)")
	flag.StringVar(&o.subnet, "subnet-file", subnetFile, "file to write this node's subnet and MTU to")
	flag.StringVar(&o.kubeconfig, "kubeconfig-file", "", "kubeconfig; empty inside a pod")
	flag.StringVar(&o.device, "iface", "", "interface or address to send from; empty for the default route's")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, o)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		klog.ErrorS(err, "flannel ends")
		os.Exit(1)
	}
}

// run joins this node to the network and serves it until ctx ends. Interface,
// routes and rules stay, so pods keep talking while flannel restarts.
func run(ctx context.Context, o options) error {
	if os.Getenv("NODE_NAME") == "" {
		return errors.New("NODE_NAME is empty; set it to the name of this node")
	}
	nodes, err := kube.NewSubnetManager(ctx, "", o.kubeconfig, annotations, o.config, true)
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	config, err := nodes.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("reading the network's configuration: %w", err)
	}
	if config.BackendType != "vxlan" || !config.EnableNFTables {
		return fmt.Errorf("backend %q with EnableNFTables=%t: only vxlan with nftables is built in", config.BackendType, config.EnableNFTables)
	}
	var workers sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer func() { stop(); workers.Wait() }()
	network, err := register(ctx, nodes, config, o.device, &workers)
	if err != nil {
		return err
	}
	if err := applyRules(ctx, config, network); err != nil {
		return err
	}
	lease := network.Lease()
	if err := nodes.HandleSubnetFile(o.subnet, config, true, lease.Subnet, lease.IPv6Subnet, network.MTU()); err != nil {
		return fmt.Errorf("writing %s: %w", o.subnet, err)
	}
	workers.Go(func() { network.Run(ctx) })
	if err := nodes.CompleteLease(ctx, lease, &workers); err != nil {
		return fmt.Errorf("reporting the network as available: %w", err)
	}
	klog.InfoS("network is up", "subnet", lease.Subnet.String(), "mtu", network.MTU())
	<-ctx.Done()
	return nil
}

// register makes the VXLAN interface and claims the node's subnet.
func register(ctx context.Context, nodes subnet.Manager, config *subnet.Config, device string, workers *sync.WaitGroup) (backend.Network, error) {
	families, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return nil, fmt.Errorf("choosing address families: %w", err)
	}
	var public ipmatch.PublicIPOpts
	public.PublicIP, public.PublicIPv6 = nodes.GetStoredPublicIP(ctx)
	if device == "" {
		device = firstAddress(public.PublicIP, public.PublicIPv6)
	}
	external, err := ipmatch.LookupExtIface(device, "", "", families, public)
	if err != nil {
		return nil, fmt.Errorf("finding the interface to send from: %w", err)
	}
	if config.EnableIPv6 {
		external.Iface.MTU -= longerHeader
	}
	vxlan, err := backend.NewManager(ctx, nodes, external).GetBackend(config.BackendType)
	if err != nil {
		return nil, fmt.Errorf("starting the backend: %w", err)
	}
	network, err := vxlan.RegisterNetwork(ctx, workers, config)
	if err != nil {
		return nil, fmt.Errorf("joining the network: %w", err)
	}
	return network, nil
}

// firstAddress is the first of texts that is an address, or empty.
func firstAddress(texts ...string) string {
	for _, text := range texts {
		if net.ParseIP(text) != nil {
			return text
		}
	}
	return ""
}

// applyRules accepts forwarded pod traffic and masquerades what leaves the pod
// network. The rules are replaced as a whole, so earlier subnets do not matter.
func applyRules(ctx context.Context, config *subnet.Config, network backend.Network) error {
	var rules trafficmngr.TrafficManager = &nftables.NFTablesManager{}
	if err := rules.Init(ctx); err != nil {
		return fmt.Errorf("making nftables tables: %w", err)
	}
	var none4 ip.IP4Net
	var none6 ip.IP6Net
	const noResync, allowRandomPorts = 0, false
	err := rules.SetupAndEnsureMasqRules(ctx, config.Network, none4, none4, config.IPv6Network, none6, none6, network.Lease(), noResync, allowRandomPorts)
	if err != nil {
		return fmt.Errorf("writing masquerade rules: %w", err)
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, noResync)
	return nil
}
