package network

import (
	"net/netip"
	"testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestAPIServer(t *testing.T) {
	for _, c := range []struct{ reason, external, want string }{
		{"the second address", "10.254.7.0/24", "10.254.7.2:443"},
		{"of the smallest range that has one", "10.254.7.4/30", "10.254.7.6:443"},
		{"there is none", "10.254.7.0/31", ""},
		{"nor in a single address", "10.254.7.0/32", ""},
		{"nor of IPv6", "fd77::/120", ""},
		{"the last addresses there are", "255.255.255.255/32", ""},
	} {
		if got := apiServer([]netip.Prefix{netip.MustParsePrefix("fd78::/120"), netip.MustParsePrefix(c.external)}); got != c.want {
			t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
		}
	}
	if got := apiServer(nil); got != "" {
		t.Errorf("without external addresses: %q", got)
	}
}

// TestDecideAPI holds that a consumer publishes its API server and a provider does not, and that
// what a consumer says of his counts only inside what stands for no pod of his.
func TestDecideAPI(t *testing.T) {
	consumed := &pair{namespace: v1alpha1.PeeringNamespace("milan"), key: consumerKey("milan"), peering: "milan", peer: "milan", since: noon, consumes: true, wanted: true,
		consumer: &v1alpha1.NetworkConfig{}, provider: &v1alpha1.NetworkConfig{Spec: v1alpha1.NetworkConfigSpec{
			Pods: []string{"10.42.0.0/16"}, External: []string{"10.253.0.0/24"}, PublicKey: keyOf(8).Public().String(), APIServer: "10.253.0.2:443"}}}
	for _, c := range []struct{ reason, said, want string }{
		{"by the view of it", "10.254.7.2:443", "10.81.255.2:443"},
		{"at another port", "10.254.7.9:6443", "10.81.255.9:6443"},
		{"none is said", "", ""},
		{"one of his pods", "10.9.0.7:443", ""},
		{"something of ours", "10.43.0.1:443", ""},
		{"somebody else's", "192.0.2.1:443", ""},
		{"loopback", "127.0.0.1:443", ""},
		{"no port", "10.254.7.2:0", ""},
		{"no address", "kubernetes.default.svc:443", ""},
		{"IPv4 in IPv6", "[::ffff:10.254.7.2]:443", ""},
		{"with a zone", "[fe80::1%eth0]:443", ""},
		{"text", "\x00", ""},
	} {
		rome := provided("rome", noon, "10.9.0.0/16")
		rome.consumer.Spec.External, rome.consumer.Spec.APIServer = []string{"10.254.7.0/24"}, c.said
		rome.consumer.Status.Views = []v1alpha1.NetworkView{{Real: "10.254.7.0/24", View: "10.81.255.0/24"}}
		f := usual(rome, consumed)
		f.property.External = []netip.Prefix{netip.MustParsePrefix("10.252.0.0/24")}
		d := decide(f)
		if got := d.specs[consumed].APIServer; got != "10.252.0.2:443" {
			t.Errorf("%s: as a consumer it publishes %q", c.reason, got)
		}
		if got := d.specs[rome].APIServer; got != "" {
			t.Errorf("%s: as a provider it publishes %q", c.reason, got)
		}
		n := New(Options{})
		n.learn(d.picture)
		got, _ := n.HomeAPI("rome")
		if ok := got.IsValid(); ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s: home's API server is %v, %v; want %q", c.reason, got, ok, c.want)
		}
		for _, tenant := range []string{"milan", "other", ""} {
			if got, coming := n.HomeAPI(tenant); got.IsValid() || coming {
				t.Errorf("%s: %q has %v", c.reason, tenant, got)
			}
		}
		rome.consumer.Spec.External = []string{"0.0.0.0/0"}
		rome.consumer.Status.Views = nil
		n = New(Options{})
		n.learn(decide(f).picture)
		if got, _ := n.HomeAPI("rome"); got.IsValid() {
			t.Errorf("%s: in a range that is refused: %v", c.reason, got)
		}
	}
}
