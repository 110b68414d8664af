package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestAPIServer(t *testing.T) {
	const four, six, both = "192.0.2.10", "2001:db8::a", "192.0.2.10 2001:db8::a"
	for _, c := range []struct{ reason, external, servers, there, want string }{
		{"the second address", "10.254.7.0/24", four, "10.42.0.0/16", "10.254.7.2:443"},
		{"of the smallest range that has one", "10.254.7.4/30", four, "", "10.254.7.6:443"},
		{"there is none", "10.254.7.0/31", four, "", ""},
		{"nor in a single address", "10.254.7.0/32", four, "", ""},
		{"the last addresses there are", "255.255.255.255/32", four, "", ""},
		{"nowhere", "", both, "10.42.0.0/16", ""},
		{"IPv4 where there is a choice", "fd78::/120 10.254.7.0/24", both, "fd42::/56 10.42.0.0/16", "10.254.7.2:443"},
		{"nothing is known", "fd78::/120 10.254.7.0/24", "", "", "10.254.7.2:443"},
		{"the other side has IPv6 alone", "fd78::/120 10.254.7.0/24", both, "fd42::/56", "[fd78::2]:443"},
		{"the API server has IPv6 alone", "fd78::/120 10.254.7.0/24", six, "fd42::/56 10.42.0.0/16", "[fd78::2]:443"},
		{"IPv6 alone", "fd78::/120", six, "", "[fd78::2]:443"},
		{"nothing in common", "fd78::/120 10.254.7.0/24", four, "fd42::/56", ""},
	} {
		var servers []netip.Addr
		for _, text := range strings.Fields(c.servers) {
			servers = append(servers, netip.MustParseAddr(text))
		}
		if got := apiServer(prefixes(strings.Fields(c.external)), servers, prefixes(strings.Fields(c.there))); got != c.want {
			t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
		}
	}
}

// TestNameServers holds that pods are told an address that they have a way to: that of IPv4
// wherever there is any, and both before it is known.
func TestNameServers(t *testing.T) {
	for _, c := range []struct{ reason, pods, services, want string }{
		{"nothing is known", "", "", "[169.254.77.53 fd46:c73d:1b8d::53]"},
		{"IPv4", "10.42.0.0/16", "10.43.0.0/16", "[169.254.77.53]"},
		{"both", "fd42::/56 10.42.0.0/16", "fd43::/112 10.43.0.0/16", "[169.254.77.53]"},
		{"both, of which one is published", "fd42::/56", "fd43::/112 10.43.0.0/16", "[169.254.77.53]"},
		{"IPv6", "fd42::/56", "fd43::/112", "[fd46:c73d:1b8d::53]"},
		{"IPv6, and no pods yet", "", "fd43::/112", "[fd46:c73d:1b8d::53]"},
	} {
		f := usual()
		f.property.Pods, f.property.Services = prefixes(strings.Fields(c.pods)), prefixes(strings.Fields(c.services))
		n := New(Options{})
		n.learn(decide(f).picture)
		if got := fmt.Sprint(n.NameServers()); got != c.want {
			t.Errorf("%s: %s, want %s", c.reason, got, c.want)
		}
	}
	if got := len(New(Options{}).NameServers()); got != 2 {
		t.Errorf("before anything is known there are %d", got)
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

// TestNamesAreNoView holds that no view covers the address for names, or one of those that stand for the
// ends of tunnels, nor a mapping leads there, whatever a peer or an owner says.
func TestNamesAreNoView(t *testing.T) {
	p := own(grounds{clusterID: "rome"})
	for _, a := range []string{"fd46:c73d:1b8d::53", "fd46:c73d:1b8d::4", "fd46:c73d:1b8d::5", "fd46:c73d:1b8d:1::c000"} {
		at := single(addr(a))
		mapped := slices.ContainsFunc(p.hosts, func(h netip.Prefix) bool { return h.Contains(at.Addr()) })
		if p.Holds(at) == "" || p.Holds(netip.MustParsePrefix("fd46:c73d::/32")) == "" || !mapped {
			t.Errorf("%s is free to be covered, or mapped: %v", a, p.hosts)
		}
	}
}
