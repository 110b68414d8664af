package policy

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// service is what one rule allows: all, all of a protocol, ports of it, or ports by name.
type service struct {
	protocol string
	ports    []v1alpha1.NetworkPortRange
	names    []string
}

// services are what the ports of an entry mean, in as few rules as they fit. Without ports all is
// meant; with some that cannot be, less.
func (c *compiler) services(policy, field string, ports []networkingv1.NetworkPolicyPort) (all []service) {
	if len(ports) == 0 {
		return []service{{}}
	}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		var ranges []v1alpha1.NetworkPortRange
		var names []string
		whole := false
		for _, p := range ports {
			if protocolOf(p.Protocol) != protocol {
				continue
			}
			switch {
			case p.Port == nil:
				whole = true
			case p.Port.Type == intstr.String:
				names = append(names, p.Port.StrVal)
			default:
				last := p.Port.IntVal
				if p.EndPort != nil {
					last = *p.EndPort
				}
				if first := p.Port.IntVal; first < 1 || last < first || last > 65535 {
					c.wrong("NetworkPolicy %s: %s: ports %d to %d allow nothing; write 1 to 65535, the lower one first", policy, field, first, last)
					continue
				}
				ranges = append(ranges, v1alpha1.NetworkPortRange{First: p.Port.IntVal, Last: last})
			}
		}
		if whole {
			all = append(all, service{protocol: string(protocol)})
			continue
		}
		for some := range slices.Chunk(merged(ranges), v1alpha1.MaxNetworkPorts) {
			all = append(all, service{protocol: string(protocol), ports: some})
		}
		slices.Sort(names)
		for some := range slices.Chunk(slices.Compact(names), v1alpha1.MaxNetworkPorts) {
			all = append(all, service{protocol: string(protocol), names: some})
		}
	}
	for _, p := range ports {
		if of := protocolOf(p.Protocol); of != corev1.ProtocolTCP && of != corev1.ProtocolUDP {
			c.wrong("NetworkPolicy %s: %s: %s is not carried between clusters, so its ports allow nothing there", policy, field, of)
		}
	}
	return all
}

func protocolOf(p *corev1.Protocol) corev1.Protocol {
	if p == nil {
		return corev1.ProtocolTCP
	}
	return *p
}

// merged are ranges in order that neither overlap nor touch.
func merged(ranges []v1alpha1.NetworkPortRange) (all []v1alpha1.NetworkPortRange) {
	slices.SortFunc(ranges, func(a, b v1alpha1.NetworkPortRange) int { return cmp.Compare(a.First, b.First) })
	for _, r := range ranges {
		if n := len(all); n > 0 && r.First <= all[n-1].Last+1 {
			all[n-1].Last = max(all[n-1].Last, r.Last)
			continue
		}
		all = append(all, r)
	}
	return all
}

// resolve are the numbers that names have in a pod, sorted, as many as one rule may have.
func resolve(pod *Pod, protocol string, names []string) []int32 {
	var numbers []int32
	for _, p := range pod.Ports {
		if slices.Contains(names, p.Name) && string(protocolOf(&p.Protocol)) == protocol && p.Number > 0 && p.Number <= 65535 {
			numbers = append(numbers, p.Number)
		}
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	return numbers[:min(len(numbers), v1alpha1.MaxNetworkPorts)]
}
