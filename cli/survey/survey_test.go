package survey

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"

	"k8s.io/client-go/discovery"
)

func labelled(label string) []corev1.Node {
	return []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubernetes.io/os": "linux", label: "x"}}}}
}

func provided(id string) []corev1.Node {
	return []corev1.Node{{Spec: corev1.NodeSpec{ProviderID: id}}}
}

func TestDetect(t *testing.T) {
	lb, np := corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort
	cases := []struct {
		reason string
		facts  Facts
		want   Distribution
		kind   corev1.ServiceType
	}{
		{"nothing special", Facts{Version: "v1.36.3"}, Kubernetes, np},
		{"kubeadm leaves its settings", Facts{Version: "v1.36.3", KubeadmConfig: "x: y"}, Kubeadm, np},
		{"with a load balancer of one's own", Facts{Version: "v1.36.3", KubeadmConfig: "x: y", LoadBalancer: true}, Kubeadm, lb},
		{"kubeadm in a cloud", Facts{KubeadmConfig: "x: y", Nodes: provided("aws:///eu-south-1a/i-0")}, Kubeadm, lb},
		{"k3s says so", Facts{Version: "v1.35.1+k3s1"}, K3s, lb},
		{"kind is kubeadm too", Facts{Version: "v1.35.0", KubeadmConfig: "x: y", Nodes: provided("kind://docker/kind/kind-control-plane")}, Kind, np},
		{"MicroK8s labels nodes", Facts{Version: "v1.35.0", Nodes: labelled("microk8s.io/cluster")}, MicroK8s, np},
		{"OpenShift has groups of its own", Facts{Groups: []string{"apps", "config.openshift.io"}, Nodes: provided("aws:///x")}, OpenShift, lb},
		{"OpenShift on bare metal", Facts{Groups: []string{"config.openshift.io"}}, OpenShift, np},
		{"EKS by version", Facts{Version: "v1.34.1-eks-abc123"}, EKS, lb},
		{"EKS by label", Facts{Version: "v1.34.1", Nodes: labelled("eks.amazonaws.com/nodegroup")}, EKS, lb},
		{"GKE by version", Facts{Version: "v1.34.1-gke.100"}, GKE, lb},
		{"GKE by label", Facts{Nodes: labelled("cloud.google.com/gke-nodepool")}, GKE, lb},
		{"AKS by label", Facts{Nodes: labelled("kubernetes.azure.com/cluster")}, AKS, lb},
	}
	for _, c := range cases {
		if got, kind := Detect(c.facts), ServiceType(c.facts); got != c.want || kind != c.kind {
			t.Errorf("%s: %s with %s, want %s with %s", c.reason, got, kind, c.want, c.kind)
		}
	}
	if CredentialType(EKS) != v1alpha1.CredentialToken || CredentialType(GKE) != v1alpha1.CredentialCertificate {
		t.Error("credentials are tokens on EKS, and certificates elsewhere")
	}
}

func TestSupported(t *testing.T) {
	cases := []struct {
		version       string
		warned, fails bool
	}{
		{"v1.34.0", false, false}, {"v1.36.3", false, false}, {"v1.36.3+k3s1", false, false}, {"1.35", false, false},
		{"v1.33.9", true, false}, {"v1.37.0-alpha.1", true, false}, {"v2.0.0", true, false}, {"", true, false},
		{"v1.32.11", false, true}, {"v1.9.0", false, true},
	}
	for _, c := range cases {
		warning, err := Supported(c.version)
		if (warning != "") != c.warned || (err != nil) != c.fails {
			t.Errorf("%q: warning %q, error %v; want %t, %t", c.version, warning, err, c.warned, c.fails)
		}
		if err != nil && !strings.Contains(err.Error(), "upgrade the cluster") {
			t.Errorf("%q: %v does not say what to do", c.version, err)
		}
	}
}

func TestPublicServer(t *testing.T) {
	for server, want := range map[string]string{
		"https://milan.example:6443": "https://milan.example:6443", "https://milan.example": "https://milan.example:443",
		"https://[2001:db8::1]:6443": "https://[2001:db8::1]:6443", "https://rancher.example/k8s/c-1": "https://rancher.example:443/k8s/c-1",
		"https://127.0.0.1:6443": "", "https://localhost:6443": "", "https://kind.localhost:1": "", "https://[::1]:1": "",
		"https://0.0.0.0:6443": "", "http://milan:8080": "", "https://169.254.1.1:6443": "", "": "",
	} {
		got, problem := PublicServer(server)
		if got != want || (problem == "") != (want != "") {
			t.Errorf("%q: %q, %q; want %q", server, got, problem, want)
		}
	}
}

func TestRanges(t *testing.T) {
	kubeadm := "networking:\n  dnsDomain: cluster.local\n  podSubnet: 10.244.0.0/16,fd00::/56\n  serviceSubnet: 10.96.0.0/12\n"
	node := func(ranges ...string) corev1.Node { return corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: ranges}} }
	flags := []string{"kube-controller-manager", "--cluster-cidr=10.0.0.0/16", "--service-cluster-ip-range=10.1.0.0/16"}
	cases := []struct {
		reason         string
		facts          Facts
		pods, services []string
	}{
		{"kubeadm", Facts{KubeadmConfig: kubeadm, ControllerManager: flags}, []string{"10.244.0.0/16", "fd00::/56"}, []string{"10.96.0.0/12"}},
		{"flags", Facts{ControllerManager: flags}, []string{"10.0.0.0/16"}, []string{"10.1.0.0/16"}},
		{"objects win for services", Facts{KubeadmConfig: kubeadm, ServiceCIDRs: []string{"10.2.0.0/16"}}, []string{"10.244.0.0/16", "fd00::/56"}, []string{"10.2.0.0/16"}},
		{"nodes", Facts{Nodes: []corev1.Node{node("10.42.1.0/24"), node("10.42.0.0/24"), node("10.42.1.0/24")}}, []string{"10.42.0.0/24", "10.42.1.0/24"}, nil},
		{"nothing", Facts{KubeadmConfig: "{"}, nil, nil},
	}
	for _, c := range cases {
		if d := cmp.Diff([][]string{c.pods, c.services}, [][]string{Pods(c.facts), Services(c.facts)}); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

func TestClusterName(t *testing.T) {
	cases := []struct {
		names []string
		want  string
	}{
		{[]string{"milan"}, "milan"},
		{[]string{"kubernetes-admin@Milan", "milan2"}, "milan"},
		{[]string{"arn:aws:eks:eu-south-1:123456789012:cluster/prod_1"}, "prod-1"},
		{[]string{"gke_project_europe_west"}, "gke-project-europe-west"},
		{[]string{"default", "home", "rome"}, "rome"},
		{[]string{"a-name-that-goes-on-and-on-for-more-than-forty-characters"}, "a-name-that-goes-on-and-on-for-more-than"},
		{[]string{"default"}, ""}, {nil, ""}, {[]string{"@@"}, ""},
	}
	for _, c := range cases {
		got, err := ClusterName(c.names)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q: %q, %v; want %q", c.names, got, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "--cluster-name") {
			t.Errorf("%q: %v does not say what to do", c.names, err)
		}
	}
}

// TestGather reads a real API server.
func TestGather(t *testing.T) {
	s := kubetest.Server(t)
	d, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Gather(t.Context(), s.Client(t), d, "v1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	if got := Services(f); len(got) == 0 || !strings.Contains(got[0], "/") {
		t.Errorf("service ranges are %q", got)
	}
	if got := Detect(f); got != Kubernetes {
		t.Errorf("a bare server is %s", got)
	}
}
