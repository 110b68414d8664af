package plan

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestAddressesOf: by what others call a node, wherever they are.
func TestAddressesOf(t *testing.T) {
	const in, out = corev1.NodeInternalIP, corev1.NodeExternalIP
	type all = []corev1.NodeAddress
	for _, c := range []struct {
		reason             string
		addresses          all
		neighbour, strange []string
	}{
		{"none", nil, nil, nil},
		{"internal ones alone", all{{Type: in, Address: "10.0.0.1"}, {Type: in, Address: "fd00::1"}}, []string{"10.0.0.1", "fd00::1"}, []string{"10.0.0.1", "fd00::1"}},
		{"both, whatever their order", all{{Type: out, Address: "198.51.100.1"}, {Type: in, Address: "10.0.0.1"}}, []string{"10.0.0.1"}, []string{"198.51.100.1", "10.0.0.1"}},
		{"both, in the other order", all{{Type: in, Address: "10.0.0.1"}, {Type: out, Address: "198.51.100.1"}}, []string{"10.0.0.1"}, []string{"198.51.100.1", "10.0.0.1"}},
		{"IPv6 outside only", all{{Type: in, Address: "10.0.0.1"}, {Type: out, Address: "2001:db8::1"}}, []string{"10.0.0.1", "2001:db8::1"}, []string{"2001:db8::1", "10.0.0.1"}},
		{"several external ones of a family", all{{Type: out, Address: "198.51.100.1"}, {Type: out, Address: "198.51.100.2"}}, []string{"198.51.100.1", "198.51.100.2"}, []string{"198.51.100.1", "198.51.100.2"}},
		{"one that is both", all{{Type: in, Address: "10.0.0.1"}, {Type: out, Address: "10.0.0.1"}}, []string{"10.0.0.1"}, []string{"10.0.0.1"}},
		{"twice", all{{Type: in, Address: "10.0.0.1"}, {Type: in, Address: "::ffff:10.0.0.1"}}, []string{"10.0.0.1"}, []string{"10.0.0.1"}},
		{"names, and what is no address of a machine", all{{Type: corev1.NodeHostName, Address: "10.0.0.9"}, {Type: in, Address: "node-1"}, {Type: in, Address: "fe80::1%eth0"}, {Type: corev1.NodeExternalDNS, Address: "n.example"}}, nil, nil},
	} {
		t.Run(c.reason, func(t *testing.T) {
			n := &corev1.Node{Status: corev1.NodeStatus{Addresses: c.addresses}}
			for caller, want := range map[Caller][]string{Neighbour: c.neighbour, Stranger: c.strange} {
				var addrs []netip.Addr
				for _, text := range want {
					addrs = append(addrs, netip.MustParseAddr(text))
				}
				if got := AddressesOf(n, caller); !slices.Equal(got, addrs) {
					t.Errorf("for %d: %v, want %v", caller, got, addrs)
				}
			}
		})
	}
}
