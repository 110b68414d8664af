package shadow

import (
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiHost is the name by which pods call the API server, for which its certificate is good.
const apiHost = "kubernetes.default.svc"

// apiShort is its name in the namespace default, and apiNames are those in all namespaces of a
// cluster with that domain.
const apiShort = "kubernetes"

func apiNames(domain string) []string {
	return []string{apiHost, "kubernetes.default", apiHost + "." + domain}
}

// ReachHome makes a pod that is about to be created find the API server of its home at an
// address, by the names and the environment that it would have at home. What the pod has
// itself of these stays, and without an address nothing changes. What Compare and Apply are given
// has to be without this, since a pod that runs keeps what it has.
func ReachHome(pod *corev1.Pod, home, domain string, at netip.AddrPort) {
	if !at.IsValid() {
		return
	}
	port := strconv.Itoa(int(at.Port()))
	known := []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: apiHost},
		{Name: "KUBERNETES_SERVICE_PORT", Value: port},
		{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port},
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			own := list[i].Env
			// Before its own, which may refer to these.
			list[i].Env = append(without(known, func(e corev1.EnvVar) bool {
				return slices.ContainsFunc(own, func(o corev1.EnvVar) bool { return o.Name == e.Name })
			}), own...)
		}
	}
	names := apiNames(domain)
	if home == metav1.NamespaceDefault {
		names = append(names, apiShort)
	}
	names = without(names, func(name string) bool {
		return slices.ContainsFunc(pod.Spec.HostAliases, func(a corev1.HostAlias) bool { return slices.Contains(a.Hostnames, name) })
	})
	ofDomain(pod, domain)
	if len(names) > 0 {
		pod.Spec.HostAliases = append(pod.Spec.HostAliases, corev1.HostAlias{IP: at.Addr().String(), Hostnames: names})
	}
}

// besideHome is the aliases that a pod has without the one by ReachHome, if it has more than
// were asked for.
func besideHome(has, asked []corev1.HostAlias, domain string) []corev1.HostAlias {
	last, names := len(has)-1, apiNames(domain)
	if last < len(asked) || slices.ContainsFunc(has[last].Hostnames, func(name string) bool { return name != apiShort && !slices.Contains(names, name) }) {
		return has
	}
	return has[:last]
}
