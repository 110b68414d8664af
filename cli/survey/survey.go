// Package survey finds out what a cluster is before Pelago is installed into it: which
// distribution and version, where its API server is reached, which addresses its pods
// and services have, and whether it hands out load balancers. Gather reads; everything
// else is a function of what was read. It changes nothing.
package survey

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Distribution is a way Kubernetes comes.
type Distribution string

// The distributions that are told apart.
const (
	Kubernetes Distribution = "Kubernetes"
	Kubeadm    Distribution = "kubeadm"
	K3s        Distribution = "k3s"
	Kind       Distribution = "kind"
	MicroK8s   Distribution = "MicroK8s"
	OpenShift  Distribution = "OpenShift"
	EKS        Distribution = "EKS"
	AKS        Distribution = "AKS"
	GKE        Distribution = "GKE"
)

// The minor versions of Kubernetes 1 that Pelago is tested with, and the least it runs on.
const (
	least  = 33
	oldest = 34
	newest = 36
)

// Facts is what a cluster shows.
type Facts struct {
	// Version of the API server, like v1.36.3+k3s1.
	Version string
	// Groups of its API.
	Groups []string
	// Nodes of the cluster, as far as they could be read.
	Nodes []corev1.Node
	// KubeadmConfig is kubeadm's ClusterConfiguration, empty if there is none.
	KubeadmConfig string
	// ControllerManager is the command line of kube-controller-manager, if it is a pod.
	ControllerManager []string
	// ServiceCIDRs are those of the objects of that kind.
	ServiceCIDRs []string
	// LoadBalancer says that a Service of that type has an address.
	LoadBalancer bool
}

// Detect tells the distribution.
func Detect(f Facts) Distribution {
	switch {
	case slices.Contains(f.Groups, "config.openshift.io"):
		return OpenShift
	case strings.Contains(f.Version, "-eks-"), label(f, "eks.amazonaws.com/"):
		return EKS
	case strings.Contains(f.Version, "-gke."), label(f, "cloud.google.com/gke-"):
		return GKE
	case label(f, "kubernetes.azure.com/"):
		return AKS
	case strings.Contains(f.Version, "+k3s"):
		return K3s
	case label(f, "microk8s.io/"):
		return MicroK8s
	case provider(f, "kind://"):
		return Kind
	case f.KubeadmConfig != "":
		return Kubeadm
	}
	return Kubernetes
}

// label reports whether a node has a label with this prefix.
func label(f Facts, prefix string) bool {
	for _, node := range f.Nodes {
		for key := range node.Labels {
			if strings.HasPrefix(key, prefix) {
				return true
			}
		}
	}
	return false
}

// provider reports whether a node's provider id begins so.
func provider(f Facts, prefixes ...string) bool {
	for _, node := range f.Nodes {
		for _, prefix := range prefixes {
			if strings.HasPrefix(node.Spec.ProviderID, prefix) {
				return true
			}
		}
	}
	return false
}

var minorPattern = regexp.MustCompile(`^v?1\.([0-9]+)(\.|$)`)

// Supported says whether Pelago runs on a version of Kubernetes: an error if not, a
// warning if nobody has tried.
func Supported(version string) (warning string, err error) {
	match := minorPattern.FindStringSubmatch(version)
	if match == nil {
		return fmt.Sprintf("The version of Kubernetes, %q, is not understood; Pelago is tested with 1.%d to 1.%d.", version, oldest, newest), nil
	}
	minor, _ := strconv.Atoi(match[1])
	switch {
	case minor < least:
		return "", fmt.Errorf("version %s of Kubernetes is too old: Pelago needs 1.%d at least, and is tested with 1.%d to 1.%d; upgrade the cluster first", version, least, oldest, newest)
	case minor < oldest || minor > newest:
		return fmt.Sprintf("Pelago is tested with Kubernetes 1.%d to 1.%d, not with %s.", oldest, newest, version), nil
	}
	return "", nil
}

// PublicServer returns the address of the API server in a kubeconfig if others may
// reach it too, else the reason why they cannot.
func PublicServer(server string) (address, problem string) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return "", fmt.Sprintf("the kubeconfig's address %q is not https", server)
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	switch {
	case host == "localhost", strings.HasSuffix(host, ".localhost"), ip != nil && (ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast()):
		return "", fmt.Sprintf("the kubeconfig's address %s means this machine only", server)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return "https://" + net.JoinHostPort(host, port) + strings.TrimSuffix(u.Path, "/"), ""
}

// ServiceType is the type of Service by which others reach the authentication endpoint:
// a load balancer if the cluster is known to have any, else node ports.
func ServiceType(f Facts) corev1.ServiceType {
	if f.LoadBalancer || provider(f, "aws://", "azure://", "gce://") {
		return corev1.ServiceTypeLoadBalancer
	}
	switch Detect(f) {
	case EKS, AKS, GKE, K3s:
		return corev1.ServiceTypeLoadBalancer
	}
	return corev1.ServiceTypeNodePort
}

// CredentialType is how consumers prove who they are: EKS signs no client certificates.
func CredentialType(d Distribution) v1alpha1.CredentialType {
	if d == EKS {
		return v1alpha1.CredentialToken
	}
	return v1alpha1.CredentialCertificate
}

// Pods returns the ranges of pod addresses, as far as the cluster tells.
func Pods(f Facts) []string {
	if ranges := kubeadmRange(f, "podSubnet"); len(ranges) > 0 {
		return ranges
	}
	if ranges := argument(f, "--cluster-cidr="); len(ranges) > 0 {
		return ranges
	}
	var ranges []string
	for _, node := range f.Nodes {
		for _, r := range node.Spec.PodCIDRs {
			if !slices.Contains(ranges, r) {
				ranges = append(ranges, r)
			}
		}
	}
	slices.Sort(ranges)
	return ranges
}

// Services returns the ranges of service addresses, as far as the cluster tells.
func Services(f Facts) []string {
	if len(f.ServiceCIDRs) > 0 {
		return f.ServiceCIDRs
	}
	if ranges := kubeadmRange(f, "serviceSubnet"); len(ranges) > 0 {
		return ranges
	}
	return argument(f, "--service-cluster-ip-range=")
}

func kubeadmRange(f Facts, field string) []string {
	var config struct {
		Networking map[string]any `json:"networking"`
	}
	if yaml.Unmarshal([]byte(f.KubeadmConfig), &config) != nil {
		return nil
	}
	text, _ := config.Networking[field].(string)
	return split(text)
}

func argument(f Facts, flag string) []string {
	for _, arg := range f.ControllerManager {
		if value, found := strings.CutPrefix(arg, flag); found {
			return split(value)
		}
	}
	return nil
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// ClusterName makes a cluster's name of the first name of a kubeconfig that becomes one.
func ClusterName(names []string) (string, error) {
	for _, name := range names {
		name = strings.ToLower(name)
		if i := strings.LastIndexAny(name, "@/"); i >= 0 {
			name = name[i+1:] // admin@milan, arn:aws:eks:…:cluster/milan
		}
		name = strings.Trim(notInNames.ReplaceAllString(name, "-"), "-")
		if len(name) > v1alpha1.MaxClusterName {
			name = strings.Trim(name[:v1alpha1.MaxClusterName], "-")
		}
		if v1alpha1.CheckClusterName(name) == nil {
			return name, nil
		}
	}
	return "", fmt.Errorf("the kubeconfig's names %q make no name for the cluster; choose one: --cluster-name NAME", names)
}
