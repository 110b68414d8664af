package shadow

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// What a provider has in 10.1.0.0/16 and fd01::/64 is seen in these.
var own, own6 = netip.MustParsePrefix("10.81.0.0/16"), netip.MustParsePrefix("fd81::/64")

// viewed is home's view of a provider.
func viewed(a netip.Addr) (netip.Addr, bool) {
	b := a.AsSlice()
	switch {
	case netip.MustParsePrefix("10.1.0.0/16").Contains(a), netip.MustParsePrefix("fd01::/64").Contains(a):
		b[1] = 0x81
		if a.Is4() {
			b[1] = 81
		}
	default:
		return netip.Addr{}, false
	}
	v, ok := netip.AddrFromSlice(b)
	return v, ok
}

// TestAddresses holds what home believes of the addresses that a provider gives its pods.
func TestAddresses(t *testing.T) {
	mad := func(to string) View {
		return func(netip.Addr) (netip.Addr, bool) { return netip.MustParseAddr(to), true }
	}
	for _, c := range []struct {
		reason   string
		reported []string
		view     View
		want     []string
	}{
		{"both families, in the order of the provider", []string{"fd01::7", "10.1.0.7"}, viewed, []string{"fd81::7", "10.81.0.7"}},
		{"no network", []string{"10.1.0.7"}, nil, nil},
		{"no view of it", []string{"10.2.0.7"}, viewed, nil},
		{"one family has no view", []string{"10.2.0.7", "fd01::7"}, viewed, []string{"fd81::7"}},
		{"nothing yet", nil, viewed, nil},
		{"one of each family", []string{"10.1.0.7", "10.1.0.8", "fd01::7", "fd01::8"}, viewed, []string{"10.81.0.7", "fd81::7"}},
		{"one without a view hides no better one, as the first is the pod's", []string{"10.2.0.7", "10.1.0.8"}, viewed, nil},
		{"IPv4 in IPv6 is IPv4", []string{"::ffff:10.1.0.7"}, viewed, []string{"10.81.0.7"}},
		{"no address", []string{"", "x", "10.1.0.7:80", "10.1.0.0/16", "10.1.0.7"}, viewed, []string{"10.81.0.7"}},
		{"not of a pod", []string{"127.0.0.1", "224.0.0.1", "0.0.0.0", "169.254.169.254", "255.255.255.255", "::1", "fe80::1", "ff02::1", "::"},
			func(a netip.Addr) (netip.Addr, bool) { return a, true }, nil},
		{"not of a pod, whatever the view", []string{"127.0.0.1", "169.254.169.254"}, mad("10.81.0.1"), nil},
		{"of a link there, whatever the view", []string{"fd01::1%eth0"}, mad("fd81::1"), nil},
		{"of a link there", []string{"fd01::7%eth0"}, viewed, nil},
		{"a view of another family", []string{"10.1.0.7"}, mad("fd81::7"), nil},
		{"a view that is this machine", []string{"10.1.0.7"}, mad("127.0.0.1"), nil},
	} {
		var reported, want []corev1.PodIP
		for _, ip := range c.reported {
			reported = append(reported, corev1.PodIP{IP: ip})
		}
		for _, ip := range c.want {
			want = append(want, corev1.PodIP{IP: ip})
		}
		home := atHome()
		status := running()
		status.PodIPs = reported
		s := forged(t, home)
		s.Status.Pod = text(t, status)
		got, err := Status(home, s, here.Address, c.view)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.PodIPs); diff != "" || len(want) > 0 && got.PodIP != want[0].IP || len(want) == 0 && got.PodIP != "" {
			t.Errorf("%s: podIP %q, podIPs (-want +got):\n%s", c.reason, got.PodIP, diff)
		}
	}
}

// A pod that has ended has no address any more, and one whose address went has the new one.
func TestAddressesChange(t *testing.T) {
	home := atHome()
	home.Status = next(t, home, reporting(t, home, running()))
	if home.Status.PodIP != "10.81.1.1" {
		t.Fatalf("running at %q", home.Status.PodIP)
	}
	moved := running()
	moved.PodIPs = []corev1.PodIP{{IP: "10.1.1.2"}}
	if got := next(t, home, reporting(t, home, moved)); got.PodIP != "10.81.1.2" || len(got.PodIPs) != 1 {
		t.Errorf("moved to %s", shown(got))
	}
	if got := next(t, home, reporting(t, home, ended(0))); got.PodIP != "" || got.PodIPs != nil {
		t.Errorf("ended at %s", shown(got))
	}
}
