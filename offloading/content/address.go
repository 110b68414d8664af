package content

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxAddresses is how many addresses an object has at most, maxSaid how many are looked at.
const maxAddresses, maxSaid = 16, 256

// Addressed says whether an object gets addresses by which others reach it, from controllers
// of the cluster in which it is.
func Addressed(obj client.Object) bool {
	s, ok := obj.(*corev1.Service)
	_, is := obj.(*networkingv1.Ingress)
	return is || ok && s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// Addresses are those by which others reach an object, as far as controllers have said it.
func Addresses(obj client.Object) []string {
	if !Addressed(obj) {
		return nil
	}
	var all []string
	switch o := obj.(type) {
	case *corev1.Service:
		for _, at := range o.Status.LoadBalancer.Ingress {
			all = append(all, at.IP, at.Hostname)
		}
	case *networkingv1.Ingress:
		for _, at := range o.Status.LoadBalancer.Ingress {
			all = append(all, at.IP, at.Hostname)
		}
	}
	return PlainAddresses(all)
}

// PlainAddresses are the addresses and names of hosts in what somebody says, each once and in
// order, as many as there may be. The others mean nothing to anybody else, or are no such thing.
func PlainAddresses(said []string) []string {
	var all []string
	for _, text := range said[:min(len(said), maxSaid)] {
		if len(text) > validation.DNS1123SubdomainMaxLength {
			continue
		}
		a, err := netip.ParseAddr(text)
		switch {
		case err == nil && a.Zone() == "" && !Special(a):
			all = append(all, a.Unmap().String())
		case err != nil && len(validation.IsDNS1123Subdomain(strings.ToLower(text))) == 0:
			all = append(all, strings.ToLower(text))
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxAddresses):min(len(all), maxAddresses)]
}
