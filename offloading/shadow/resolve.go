package shadow

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Bounds of kubelets and API servers on what a pod's resolver is told.
const (
	maxServers    = 3
	maxSearches   = 32
	maxSearchText = 2048
)

// homeSearches are the search domains of a pod in that namespace of a cluster with that domain.
func homeSearches(home, domain string) []string {
	return []string{home + ".svc." + domain, "svc." + domain, domain}
}

// homeDots is how many dots make a name a full one that is tried first.
var homeDots = corev1.PodDNSConfigOption{Name: "ndots", Value: ptr.To("5")}

// Resolve makes a pod that is about to be created find the names of its home's namespace, in home's
// domain, at name servers, if it wants those of its cluster: as a kubelet at home would tell it, with what the
// pod itself asks for beside that. Without any, and for all other pods, nothing changes. What
// Compare and Apply are given has to be without this, since a pod that runs keeps what it has.
// Annotations say what it was given, by which Forge takes it back and a node knows what it asks for.
func Resolve(pod *corev1.Pod, home, domain string, servers ...netip.Addr) {
	if len(servers) == 0 || !clusterNames(pod.Spec.DNSPolicy) {
		return
	}
	next := &corev1.PodDNSConfig{Searches: homeSearches(home, domain), Options: []corev1.PodDNSConfigOption{homeDots}}
	for _, s := range servers {
		next.Nameservers = append(next.Nameservers, s.String())
	}
	next.Nameservers = next.Nameservers[:min(len(next.Nameservers), maxServers)]
	given := strings.Join(next.Nameservers, " ")
	if own := pod.Spec.DNSConfig; own != nil {
		next.Nameservers = distinct(next.Nameservers, own.Nameservers)
		next.Searches = distinct(next.Searches, own.Searches)
		next.Options = override(next.Options, own.Options)
	}
	next.Nameservers = next.Nameservers[:min(len(next.Nameservers), maxServers)]
	next.Searches = next.Searches[:min(len(next.Searches), maxSearches)]
	for len(strings.Join(next.Searches, " ")) > maxSearchText {
		next.Searches = next.Searches[:len(next.Searches)-1]
	}
	pod.Spec.DNSPolicy, pod.Spec.DNSConfig = corev1.DNSNone, next
	pod.Annotations = with(pod.Annotations, map[string]string{})
	pod.Annotations[v1alpha1.AnnotationNameServers] = given
	ofDomain(pod, domain)
}

// ofDomain says in the pod what domain it knows names by.
func ofDomain(pod *corev1.Pod, domain string) {
	if domain != v1alpha1.DefaultDomain {
		pod.Annotations = with(pod.Annotations, map[string]string{})
		pod.Annotations[v1alpha1.AnnotationHomeDomain] = domain
	}
}

// unresolve takes back what Resolve gave a pod that goes onward: its name servers are on nodes of
// this cluster, and the next one has its own. What the pod asks for itself is left.
func unresolve(pod *corev1.Pod, spec *corev1.PodSpec) {
	given := strings.Fields(pod.Annotations[v1alpha1.AnnotationNameServers])
	if len(given) == 0 || spec.DNSPolicy != corev1.DNSNone || spec.DNSConfig == nil {
		return
	}
	ours := homeSearches(pod.Annotations[v1alpha1.AnnotationHomeNamespace], v1alpha1.DomainOf(pod.Annotations[v1alpha1.AnnotationHomeDomain]))
	own := &corev1.PodDNSConfig{
		Nameservers: without(spec.DNSConfig.Nameservers, func(s string) bool { return slices.Contains(given, s) }),
		Searches:    without(spec.DNSConfig.Searches, func(s string) bool { return slices.Contains(ours, s) }),
		Options: without(spec.DNSConfig.Options, func(o corev1.PodDNSConfigOption) bool {
			return o.Name == homeDots.Name && ptr.Equal(o.Value, homeDots.Value)
		}),
	}
	if len(own.Nameservers)+len(own.Searches)+len(own.Options) == 0 {
		own = nil
	}
	spec.DNSPolicy, spec.DNSConfig = corev1.DNSClusterFirst, own
}

// clusterNames says whether a policy means the names of the pod's cluster. No pod here has
// the host's network, so both that do mean the same.
func clusterNames(p corev1.DNSPolicy) bool {
	return p == "" || p == corev1.DNSClusterFirst || p == corev1.DNSClusterFirstWithHostNet
}

// distinct appends what is not there yet.
func distinct(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// override puts options in the place of those of the same name, or at the end.
func override(list, more []corev1.PodDNSConfigOption) []corev1.PodDNSConfigOption {
	for _, o := range more {
		at := slices.IndexFunc(list, func(l corev1.PodDNSConfigOption) bool { return l.Name == o.Name })
		if at < 0 {
			list = append(list, o)
		} else {
			list[at] = o
		}
	}
	return list
}
