// Package addon knows what a cluster of a sandbox has beyond Kubernetes itself:
// DNS, metrics, volumes, load balancers and a second pod network. It says which
// programs and images an add-on is made of, fills its manifests, and names the
// objects to wait for.
//
// It is pure: it builds nothing, talks to no cluster and generates no secret.
// The manifests are our own; each add-on runs as its users would run it, only
// smaller. No registry exists, so no image is ever pulled.
package addon

import (
	"fmt"
	"strings"

	"github.com/pelago-dev/pelago/sandbox/config"
)

// Addon is one add-on of a cluster.
type Addon struct {
	// Name is one of the config.Addon constants or config.CNIFlannel.
	Name string
	// Images are the references of the images its pods use.
	Images []string
	// Waits are the objects that must serve before the add-on does.
	Waits []Wait

	// stages are the manifest files, in the order to apply them.
	stages []string
	// check tells which value the manifests lack, if any.
	check func(Values) error
}

// Wait is an object to wait for. Kind is Deployment, DaemonSet, APIService or
// StorageClass; Namespace is empty for the last two.
type Wait struct{ Namespace, Kind, Name string }

// all lists every add-on once. CRDs and namespaces come a stage before what
// needs them, and MetalLB's own objects a stage after MetalLB.
var all = []Addon{
	{
		Name:   config.AddonDNS,
		Images: []string{CoreDNSRef},
		Waits:  []Wait{{"kube-system", "Deployment", "coredns"}},
		stages: []string{"coredns.yaml"},
		check:  checkDNS,
	},
	{
		Name:   config.AddonMetrics,
		Images: []string{MetricsRef},
		Waits:  []Wait{{"kube-system", "Deployment", "metrics-server"}, {"", "APIService", "v1beta1.metrics.k8s.io"}},
		stages: []string{"metrics-server.yaml"},
		check:  checkMetrics,
	},
	{
		Name:   config.AddonStorage,
		Images: []string{StorageRef, BusyboxRef},
		Waits:  []Wait{{"local-path-storage", "Deployment", "local-path-provisioner"}, {"", "StorageClass", "local-path"}},
		stages: []string{"local-path-namespace.yaml", "local-path.yaml"},
	},
	{
		Name:   config.AddonLoadBalancer,
		Images: []string{ControllerRef, SpeakerRef},
		Waits:  []Wait{{"metallb-system", "Deployment", "controller"}, {"metallb-system", "DaemonSet", "speaker"}},
		stages: []string{"metallb-crds.yaml", "metallb.yaml", "metallb-pool.yaml"},
		check:  checkLoadBalancer,
	},
	{
		Name:   config.CNIFlannel,
		Images: []string{FlannelRef},
		Waits:  []Wait{{"kube-flannel", "DaemonSet", "kube-flannel-ds"}},
		stages: []string{"flannel-namespace.yaml", "flannel.yaml"},
		check:  checkPodRanges,
	},
}

// For returns the add-on of a name. The error lists the names there are.
func For(name string) (Addon, error) {
	var names []string
	for _, a := range all {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return Addon{}, fmt.Errorf("add-on %q does not exist; choose from %s", name, strings.Join(names, ", "))
}
