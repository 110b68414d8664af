package cluster

import (
	"crypto/x509/pkix"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/pelago-dev/pelago/sandbox/addon"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
  resources: [{group: "", resources: [events]}]
- level: None
  resources: [{group: coordination.k8s.io, resources: [leases]}, {group: "", resources: [events]}]
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version"]
- level: Metadata
`

// credentials makes every certificate, key and kubeconfig of the cluster that
// is not there yet.
func (c *Cluster) credentials() error {
	ca, err := openAuthority(filepath.Join(c.files(), "pki"), "ca")
	if err != nil {
		return err
	}
	front, err := openAuthority(filepath.Join(c.files(), "pki"), "front-proxy-ca")
	if err != nil {
		return err
	}
	local := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	server := append(append(local, c.Net.Control().Addresses()...), c.serviceAddresses(1)...)
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + c.DNSDomain(), c.ControlName()}
	if err := ca.server("apiserver", pkix.Name{CommonName: "kube-apiserver"}, names, server); err != nil {
		return err
	}
	if err := ca.server("etcd", pkix.Name{CommonName: "etcd"}, []string{"localhost"}, local); err != nil {
		return err
	}
	if err := ca.server("metrics-server", pkix.Name{CommonName: "metrics-server"}, []string{addon.MetricsName}, nil); err != nil {
		return err
	}
	if err := randomFile(c.pki("memberlist.key"), 32); err != nil {
		return err
	}
	if err := front.client("front-proxy-client", "front-proxy-client"); err != nil {
		return err
	}
	if !isWritten(c.pki("service-accounts.key")) {
		if _, err := newKey(c.pki("service-accounts.key")); err != nil {
			return err
		}
	}
	type identity struct{ file, user, group string }
	clients := []identity{
		{"apiserver-etcd", "kube-apiserver", ""},
		{"apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters"},
		{"admin", "kubernetes-admin", "system:masters"},
		{"controller-manager", "system:kube-controller-manager", ""},
		{"scheduler", "system:kube-scheduler", ""},
		{"kube-proxy", "system:kube-proxy", ""},
	}
	if c.Hollow > 0 {
		clients = append(clients, identity{"hollow", "pelago-hollow", "system:masters"})
	}
	for _, client := range clients {
		if err := c.client(ca, client.file, client.user, client.group); err != nil {
			return err
		}
	}
	if err := writeKubeconfig(c.Kubeconfig(), c.Name, "https://"+c.API(), c.pki("ca.crt"), c.pki("admin.crt"), c.pki("admin.key")); err != nil {
		return err
	}
	for i := 1; i <= c.Nodes; i++ {
		if err := c.nodeCredentials(ca, i); err != nil {
			return err
		}
	}
	return os.WriteFile(c.pki("audit.yaml"), []byte(auditPolicy), 0o644)
}

// client makes a certificate and a kubeconfig that uses it.
func (c *Cluster) client(ca *authority, file, user, group string) error {
	var groups []string
	if group != "" {
		groups = []string{group}
	}
	if err := ca.client(file, user, groups...); err != nil {
		return err
	}
	return writeKubeconfig(c.kubeconfig(file), c.Name, "https://"+c.API(), c.pki("ca.crt"), c.pki(file+".crt"), c.pki(file+".key"))
}

func (c *Cluster) nodeCredentials(ca *authority, i int) error {
	name := c.NodeName(i)
	if err := c.client(ca, "node-"+name, "system:node:"+name, "system:nodes"); err != nil {
		return err
	}
	subject := pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}
	return ca.server("kubelet-"+name, subject, []string{name}, c.Net.Node(i).Addresses())
}

func (c *Cluster) unit(name, program string, flags ...string) machine.Unit {
	return machine.Unit{Name: name, Args: append([]string{c.Kube, program}, flags...)}
}

// etcdUnit is the database of the cluster.
func (c *Cluster) etcdUnit() machine.Unit {
	flags := []string{
		"--data-dir=" + filepath.Join(c.machineDir(c.ControlName()), "etcd"),
		"--cert-file=" + c.pki("etcd.crt"), "--key-file=" + c.pki("etcd.key"), "--trusted-ca-file=" + c.pki("ca.crt"),
	}
	if c.loopback() {
		flags = append(flags, "--listen-client-url=https://"+c.local(portEtcd), "--listen-peer-url="+peerSocket)
	}
	return c.unit("etcd", "etcd", flags...)
}

// apiServerUnit is the API server; it listens on every address of its machine.
func (c *Cluster) apiServerUnit() machine.Unit {
	place := []string{
		"--bind-address=" + anyAddress(c.families(c.Net.Control())[0]),
		"--advertise-address=" + c.families(c.Net.Control())[0].String(),
		"--etcd-servers=https://127.0.0.1:2379",
		"--secure-port=6443",
	}
	if c.loopback() {
		place = c.loopbackFlags()
	}
	return c.unit("kube-apiserver", "kube-apiserver", c.apiServerFlags(append(place,
		"--audit-policy-file="+c.pki("audit.yaml"),
		"--audit-log-path="+filepath.Join(c.machineDir(c.ControlName()), "log", "audit.log"),
		"--audit-log-maxsize=50", "--audit-log-maxbackup=2",
	)...)...)
}

// apiServerFlags adds what every API server of ours has, wherever it listens.
func (c *Cluster) apiServerFlags(more ...string) []string {
	return append([]string{
		"--etcd-cafile=" + c.pki("ca.crt"), "--etcd-certfile=" + c.pki("apiserver-etcd.crt"), "--etcd-keyfile=" + c.pki("apiserver-etcd.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
		"--tls-cert-file=" + c.pki("apiserver.crt"), "--tls-private-key-file=" + c.pki("apiserver.key"),
		"--kubelet-client-certificate=" + c.pki("apiserver-kubelet.crt"), "--kubelet-client-key=" + c.pki("apiserver-kubelet.key"),
		"--kubelet-certificate-authority=" + c.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc." + c.DNSDomain(),
		"--service-account-key-file=" + c.pki("service-accounts.key"), "--service-account-signing-key-file=" + c.pki("service-accounts.key"),
		"--service-cluster-ip-range=" + joined(c.ServiceRanges),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--requestheader-client-ca-file=" + c.pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pki("front-proxy-client.crt"), "--proxy-client-key-file=" + c.pki("front-proxy-client.key"),
		"--enable-aggregator-routing=true",
		"--profiling=false",
	}, more...)
}

func (c *Cluster) controllerUnits() []machine.Unit {
	as := func(who string, port int) []string {
		flags := []string{"--kubeconfig=" + c.kubeconfig(who), "--authentication-kubeconfig=" + c.kubeconfig(who), "--authorization-kubeconfig=" + c.kubeconfig(who),
			"--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false"}
		if c.loopback() {
			flags = append(flags, fmt.Sprintf("--secure-port=%d", c.Port+port))
		}
		return flags
	}
	return []machine.Unit{
		c.unit("kube-controller-manager", "kube-controller-manager", append(as("controller-manager", portControllers),
			"--use-service-account-credentials=true",
			"--root-ca-file="+c.pki("ca.crt"), "--service-account-private-key-file="+c.pki("service-accounts.key"),
			"--client-ca-file="+c.pki("ca.crt"),
			"--requestheader-client-ca-file="+c.pki("front-proxy-ca.crt"),
			"--cluster-signing-cert-file="+c.pki("ca.crt"), "--cluster-signing-key-file="+c.pki("ca.key"),
			fmt.Sprintf("--allocate-node-cidrs=%t", c.Hollow == 0), "--cluster-cidr="+joined(c.PodRanges), "--service-cluster-ip-range="+joined(c.ServiceRanges),
			"--cluster-name="+c.Name)...),
		c.unit("kube-scheduler", "kube-scheduler", as("scheduler", portScheduler)...),
	}
}

func anyAddress(like netip.Addr) string {
	if like.Is6() {
		return "::"
	}
	return "0.0.0.0"
}

func fail(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
