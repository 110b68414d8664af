package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// PauseImage is the image that holds a pod's namespaces.
const PauseImage = "pelago.local/pause:1"

// containerdSocket is where containerd listens inside a node.
const containerdSocket = "/run/containerd/containerd.sock"

// nodeSpec is the machine of a node. The pretended files are settings of the
// whole host that a kubelet insists on; it finds them as it wants them and the
// host is left alone.
func (c *Cluster) nodeSpec(i int) machine.Spec {
	spec := c.machineSpec(c.NodeName(i))
	spec.PrivateRoot = true
	spec.Visible = c.Visible
	spec.Disk = []string{
		"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers",
		"/opt/local-path-provisioner", "/etc/cni/net.d",
	}
	spec.Links = map[string]string{"/usr/lib/cni": "/opt/cni/bin"}
	spec.Pretend = map[string]string{
		"/proc/sys/vm/overcommit_memory": "1\n", "/proc/sys/vm/panic_on_oom": "0\n",
		"/proc/sys/kernel/panic": "10\n", "/proc/sys/kernel/panic_on_oops": "1\n",
		"/proc/sys/kernel/keys/root_maxkeys": "1000000\n", "/proc/sys/kernel/keys/root_maxbytes": "25000000\n",
	}
	spec.Sysctls["net/bridge/bridge-nf-call-iptables"] = "1"
	spec.Sysctls["net/bridge/bridge-nf-call-ip6tables"] = "1"
	return spec
}

func (c *Cluster) nodeFile(i int, name string) string {
	return filepath.Join(c.machineDir(c.NodeName(i)), "etc", name)
}

// nodeFiles is the text of every file a node needs, by path.
func (c *Cluster) nodeFiles(i int) map[string]string {
	files := map[string]string{
		c.nodeFile(i, "containerd.toml"): containerdConfig,
		c.nodeFile(i, "kubelet.yaml"):    c.kubeletConfig(i),
		c.nodeFile(i, "kube-proxy.yaml"): c.proxyConfig(),
		c.nodeFile(i, "resolv.conf"):     "# No name server: the sandbox reaches no network beyond itself.\n",
		c.nodeFile(i, "masquerade.nft"):  c.masquerade(),
	}
	if c.CNI == config.CNIBridge {
		cni := filepath.Join(c.machineDir(c.NodeName(i)), "disk", "etc-cni-net.d", "10-bridge.conflist")
		files[cni] = c.bridgeConflist(i)
	}
	return files
}

func writeFiles(files map[string]string) error {
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("making folder of %s: %w", filepath.Base(path), err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

// restrict_oom_score_adj lets containers start on hosts that withhold
// CAP_SYS_RESOURCE.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "` + containerdSocket + `"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + PauseImage + `"
  restrict_oom_score_adj = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
`

func (c *Cluster) kubeletConfig(i int) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: "%s"
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: "%s"}
authorization: {mode: Webhook}
tlsCertFile: "%s"
tlsPrivateKeyFile: "%s"
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
protectKernelDefaults: true
enforceNodeAllocatable: []
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
containerRuntimeEndpoint: unix://%s
clusterDomain: %s
clusterDNS: [%s]
resolvConf: "%s"
healthzBindAddress: 127.0.0.1
oomScoreAdj: 0
serializeImagePulls: false
registryPullQPS: 0
kubeAPIQPS: 100
kubeAPIBurst: 200
`, anyAddress(c.families(c.Net.Control())[0]), c.pki("ca.crt"), c.pki("kubelet-"+c.NodeName(i)+".crt"), c.pki("kubelet-"+c.NodeName(i)+".key"),
		containerdSocket, c.DNSDomain(), quoted(c.serviceAddresses(10)), c.nodeFile(i, "resolv.conf"))
}

func quoted(addresses []netip.Addr) string {
	words := make([]string, len(addresses))
	for i, a := range addresses {
		words[i] = `"` + a.String() + `"`
	}
	return strings.Join(words, ", ")
}

func (c *Cluster) proxyConfig() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: "%s"
bindAddress: "%s"
clientConnection: {kubeconfig: "%s"}
conntrack: {maxPerCore: 0, min: 0}
oomScoreAdj: 0
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
`, joined(c.PodRanges), anyAddress(c.families(c.Net.Control())[0]), c.kubeconfig("kube-proxy"))
}

// masquerade hides pods behind their node towards everything that is not a pod,
// since the world outside has no way back to pod addresses. Flannel brings its
// own rule.
func (c *Cluster) masquerade() string {
	var rules strings.Builder
	for _, r := range c.PodRanges {
		family := "ip"
		if r.Addr().Is6() {
			family = "ip6"
		}
		if c.CNI == config.CNIBridge {
			fmt.Fprintf(&rules, "    %s saddr %s %s daddr != %s oifname \"eth0\" masquerade\n", family, r, family, r)
		}
	}
	return "table inet pelago-sandbox\ndelete table inet pelago-sandbox\ntable inet pelago-sandbox {\n  chain postrouting {\n    type nat hook postrouting priority srcnat;\n" +
		rules.String() + "  }\n}\n"
}

// bridgeConflist configures the reference plugins: a bridge per node, addresses
// from the node's own part of the pod range, host ports.
func (c *Cluster) bridgeConflist(i int) string {
	var ranges, routes []string
	for _, p := range c.PodPrefixes(i) {
		ranges = append(ranges, fmt.Sprintf(`[{"subnet": "%s"}]`, p))
		if p.Addr().Is4() {
			routes = append(routes, `{"dst": "0.0.0.0/0"}`)
		} else {
			routes = append(routes, `{"dst": "::/0"}`)
		}
	}
	return fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "ranges": [%s], "routes": [%s]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, strings.Join(ranges, ", "), strings.Join(routes, ", "))
}

// masqueradeUnit puts the rules of masquerade in force.
func (c *Cluster) masqueradeUnit(i int) machine.Unit {
	return machine.Unit{Name: "masquerade", Once: true, Args: []string{"/usr/sbin/nft", "-f", c.nodeFile(i, "masquerade.nft")}}
}

// nodeUnits are the programs of a node, in the order to start them; containerd
// is the first.
func (c *Cluster) nodeUnits(i int) []machine.Unit {
	return []machine.Unit{
		{Name: "containerd", Args: []string{"/usr/bin/containerd", "--config", c.nodeFile(i, "containerd.toml"), "--log-level", "warn"}},
		c.unit("kubelet", "kubelet",
			"--config="+c.nodeFile(i, "kubelet.yaml"), "--kubeconfig="+c.kubeconfig("node-"+c.NodeName(i)),
			"--hostname-override="+c.NodeName(i), "--node-ip="+joined(c.families(c.Net.Node(i)))),
		c.unit("kube-proxy", "kube-proxy", "--config="+c.nodeFile(i, "kube-proxy.yaml"), "--hostname-override="+c.NodeName(i)),
	}
}
