package content

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestPlainAddresses: nothing but addresses and names of hosts passes, whoever says them.
func TestPlainAddresses(t *testing.T) {
	var many, first []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("192.0.2.%d", 100+i), fmt.Sprintf("192.0.2.%d", 100+i))
	}
	for i := range maxAddresses {
		first = append(first, fmt.Sprintf("192.0.2.%d", 100+i))
	}
	for _, c := range []struct {
		reason     string
		said, want []string
	}{
		{"none", nil, nil},
		{"both kinds, in order", []string{"lb.example", "192.0.2.7", "2001:db8::7", "::1:2:3"}, []string{"192.0.2.7", "2001:db8::7", "::1:2:3", "lb.example"}},
		{"one twice, in other words", []string{"192.0.2.7", "::ffff:192.0.2.7", "LB.example", "lb.example"}, []string{"192.0.2.7", "lb.example"}},
		{"too many", many, first},
		{"one after many that are none", append(make([]string, maxSaid), "192.0.2.7"), nil},
		{"what means nothing elsewhere", []string{"127.0.0.1", "169.254.1.1", "fe80::1", "fe80::1%eth0", "0.0.0.0", "224.0.0.1"}, nil},
		{"no addresses", []string{"", " ", "a b", "a\nb", "\x1b[31m", "$(reboot)", "https://lb.example", "lb.example:80", "*.example", "-a", "a.", "999.0.0.1/8", strings.Repeat("a", 254)}, nil},
	} {
		if diff := cmp.Diff(c.want, PlainAddresses(c.said)); diff != "" && len(c.want)+len(PlainAddresses(c.said)) > 0 {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}

// TestAddresses: load balancers and Ingresses have addresses, others none, whatever their status says.
func TestAddresses(t *testing.T) {
	balancer := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	balancer.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}, {Hostname: "lb.example"}}
	inner := balancer.DeepCopy()
	inner.Spec.Type = corev1.ServiceTypeClusterIP
	ingress := &networkingv1.Ingress{}
	ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{Hostname: "in.example"}}
	for _, c := range []struct {
		reason string
		obj    client.Object
		want   []string
	}{
		{"a load balancer", balancer, []string{"192.0.2.7", "lb.example"}},
		{"none any more", inner, nil},
		{"an Ingress", ingress, []string{"in.example"}},
		{"a ConfigMap", &corev1.ConfigMap{}, nil},
	} {
		if diff := cmp.Diff(c.want, Addresses(c.obj)); diff != "" || Addressed(c.obj) != (c.want != nil) {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}
