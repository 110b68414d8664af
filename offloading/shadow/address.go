package shadow

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/offloading/content"
)

// View is the address by which home sees a pod that has a real one at its provider; false
// if it does not see it.
type View func(real netip.Addr) (here netip.Addr, ok bool)

// tellAddresses are a pod's addresses as its provider tells them: real ones, at most one
// of each family.
func tellAddresses(status *corev1.PodStatus) []corev1.PodIP {
	return seen(status.PodIPs, func(a netip.Addr) (netip.Addr, bool) { return a, true })
}

// seen are the views of what a provider says are the addresses of a pod: at most one of
// each family, none of them of a machine itself, of its link, or of many. What is no such
// address is passed over, before it is viewed and after.
func seen(reported []corev1.PodIP, view View) (all []corev1.PodIP) {
	if view == nil {
		return nil
	}
	families := map[bool]bool{}
	for _, p := range reported {
		a, err := netip.ParseAddr(p.IP)
		if a = a.Unmap(); err != nil || content.Special(a) || a.Zone() != "" || families[a.Is4()] {
			continue
		}
		families[a.Is4()] = true
		v, ok := view(a)
		if ok && !content.Special(v) && v.Zone() == "" && v.Is4() == a.Is4() {
			all = append(all, corev1.PodIP{IP: v.String()})
		}
	}
	return all
}

// SetAddresses gives a status the addresses of its pod, none if there is none.
func SetAddresses(status *corev1.PodStatus, all []corev1.PodIP) {
	status.PodIP, status.PodIPs = "", all
	if len(all) > 0 {
		status.PodIP = all[0].IP
	}
}
