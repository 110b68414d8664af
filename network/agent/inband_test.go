package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/plan"
)

// servedAt is a slice with a named port.
func servedAt(of subject, port string, number int32, addrs ...string) discoveryv1.EndpointSlice {
	s := sliceOf(labelled(of.namespace, of.service+"-1", discoveryv1.LabelServiceName, of.service), "a", addrs...)
	s.Ports = []discoveryv1.EndpointPort{{Name: ptr.To(port), Port: ptr.To(number)}}
	return s
}

// inBandFacts are those of a cluster that is called by turin and by who has an invitation, and that
// calls milan, and naples by an introduction.
func inBandFacts() facts {
	f := someFacts()
	f.namespace = v1alpha1.NetworkNamespace
	f.api = []discoveryv1.EndpointSlice{servedAt(apiSubject, apiPortName, 6443, "192.0.2.10")}
	f.auth = []discoveryv1.EndpointSlice{servedAt(authSubject, authPortName, 9443, "10.42.2.30", "10.42.1.30")}
	f.managers = []discoveryv1.EndpointSlice{servedAt(managerSubject, "api", 8443, "10.42.1.20", "192.0.2.9")}
	f.configs[0].Spec.InBand = &v1alpha1.NetworkInBand{Address: "10.255.255.254"}
	f.configs[2].Spec.InBand = &v1alpha1.NetworkInBand{}
	open := func(namespace, name string, own, peer byte, address string, endpoints ...string) {
		c := networkConfig(namespace, name, own, "10.42.0.0/16")
		c.Spec.External = []string{"10.255.255.0/24"}
		c.Spec.InBand = &v1alpha1.NetworkInBand{Address: address, PublicKey: secret(peer).Public().String(), Endpoints: endpoints}
		f.configs = append(f.configs, c)
		f.keys[name] = encoded(secret(own))
	}
	open(v1alpha1.NetworkNamespace, "invitation-x", 21, 22, "")
	open(v1alpha1.NetworkNamespace, "introduction-naples", 23, 24, "10.255.255.253", "198.51.100.7:7101")
	open("shop", "invitation-y", 25, 26, "") // written by who knows whom
	return f
}

// TestInBand holds what passes between the ends of tunnels: which doors a provider has, and who at the
// consumer calls what; and that the tunnel of an invitation carries nothing else.
func TestInBand(t *testing.T) {
	k := input(inBandFacts())
	got := map[string]*dataplane.Line{}
	for _, p := range k.input.Peerings {
		got[p.Key] = p.Line
		if strings.Contains(p.Key, "-x") || strings.Contains(p.Key, "naples") {
			if !p.Closed || !p.Limited || len(p.Views)+len(p.Here)+len(p.There)+len(p.Doors)+len(p.Calls) > 0 || p.Peer.IsZero() || k.secrets[p.Secret].IsZero() {
				t.Errorf("%s carries more than what clusters say to each other: %+v", p.Key, p)
			}
		}
	}
	api, auth := dataplane.LineDoor{Port: 443, To: netip.MustParseAddrPort("192.0.2.10:6443"), PerSecond: 50, Burst: 200}, dataplane.LineDoor{Port: 8443, To: netip.MustParseAddrPort("10.42.1.30:9443"), PerSecond: 5, Burst: 20}
	caller := []netip.Addr{netip.MustParseAddr("10.42.1.20")}
	want := map[string]*dataplane.Line{
		"peering-milan":       {Views: addrs("10.255.255.254"), Callers: caller, Ports: []uint16{443}},
		"tenant-turin":        {Doors: []dataplane.LineDoor{api}},
		"invitation-x":        {Doors: []dataplane.LineDoor{api, auth}},
		"introduction-naples": {Views: addrs("10.255.255.253"), Callers: caller, Ports: []uint16{443, 8443}},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
	for _, p := range k.input.Peerings {
		switch {
		case p.Key == "introduction-naples" && (p.Role != plan.Consumer || !cmp.Equal(p.Endpoints, []string{"198.51.100.7:7101"}) || p.Peer != secret(24).Public()),
			p.Key == "invitation-x" && (p.Role != plan.Provider || p.Peer != secret(22).Public()):
			t.Errorf("%s is %s, of %s at %v", p.Key, p.Role, p.Peer, p.Endpoints)
		}
	}
}

// TestInBandFamilies holds that doors lead to endpoints of the family in which they are called, that who
// calls does so by each address of his provider, and what is said where a consumer reaches one server only.
func TestInBandFamilies(t *testing.T) {
	f := inBandFacts()
	six := func(of subject, port string, number int32, at string) discoveryv1.EndpointSlice {
		s := servedAt(of, port, number, at)
		s.Name, s.AddressType = s.Name+"-six", discoveryv1.AddressTypeIPv6
		return s
	}
	f.configs[0].Spec.InBand.OtherAddress = "fd43::fe"
	for i := range f.configs {
		f.configs[i].Spec.Pods = append(f.configs[i].Spec.Pods, "fd42::/48")
	}
	f.api = append(f.api, six(apiSubject, apiPortName, 6443, "2001:db8::10"))
	f.managers = append(f.managers, six(managerSubject, "api", 8443, "fd42::20"))
	lines := func() (map[string]*dataplane.Line, string) {
		k, said := input(f), ""
		got := map[string]*dataplane.Line{}
		for _, p := range k.input.Peerings {
			got[p.Key] = p.Line
		}
		for _, p := range k.problems {
			said += p.String() + "\n"
		}
		return got, said
	}
	got, said := lines()
	api4, auth4 := dataplane.LineDoor{Port: 443, To: netip.MustParseAddrPort("192.0.2.10:6443"), PerSecond: 50, Burst: 200}, dataplane.LineDoor{Port: 8443, To: netip.MustParseAddrPort("10.42.1.30:9443"), PerSecond: 5, Burst: 20}
	api6, auth6 := api4, auth4
	api6.To, auth6.To = netip.MustParseAddrPort("[2001:db8::10]:6443"), netip.MustParseAddrPort("[fd42::30]:9443")
	callers := addrs("10.42.1.20", "fd42::20")
	want := map[string]*dataplane.Line{
		"peering-milan":       {Views: addrs("10.255.255.254", "fd43::fe"), Callers: callers, Ports: []uint16{443}},
		"tenant-turin":        {Doors: []dataplane.LineDoor{api4, api6}},
		"invitation-x":        {Doors: []dataplane.LineDoor{api4, auth4, api6}},
		"introduction-naples": {Views: addrs("10.255.255.253"), Callers: callers, Ports: []uint16{443, 8443}},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
	if strings.Contains(said, "endpoint") {
		t.Errorf("something is wrong with one of both families: %s", said)
	}
	// Of IPv6 alone, and where each server has one family.
	f.api = f.api[1:]
	if _, said = lines(); !strings.Contains(said, "invitation-x: the API server has an endpoint of IPv6 alone, and the authentication endpoint one of IPv4") || strings.Contains(said, "turin") {
		t.Errorf("of servers of one family each is said: %s", said)
	}
	f.auth = []discoveryv1.EndpointSlice{six(authSubject, authPortName, 9443, "fd42::30")}
	if got, said = lines(); strings.Contains(said, "endpoint") {
		t.Errorf("something is wrong with IPv6 alone: %s", said)
	}
	if d := cmp.Diff(&dataplane.Line{Doors: []dataplane.LineDoor{api6, auth6}}, got["invitation-x"], cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); d != "" {
		t.Errorf("doors of IPv6 alone (-want +got):\n%s", d)
	}
	f.configs[0].Spec.InBand.Address = "none"
	if got, said = lines(); !strings.Contains(said, "of its provider is none") || len(got["peering-milan"].Views) != 1 {
		t.Errorf("one address that is none takes the other one away, told %s", said)
	}
}

// TestInBandWithout holds that without network in band nothing is followed or carried for it, and what
// is said where a server is missing.
func TestInBandWithout(t *testing.T) {
	f := someFacts()
	f.namespace = v1alpha1.NetworkNamespace
	for _, p := range input(f).input.Peerings {
		if p.Line != nil {
			t.Errorf("%s has a line", p.Key)
		}
	}
	for s := range f.subjects() {
		if s.namespace == v1alpha1.SystemNamespace {
			t.Errorf("%v is followed", s)
		}
	}
	f = inBandFacts()
	for _, s := range []subject{managerSubject, authSubject, apiSubject} {
		if !f.subjects()[s] {
			t.Errorf("%v is not followed", s)
		}
	}
	f.api[0].Endpoints[0].Conditions.Ready = new(false)
	f.auth = nil
	f.configs = append(f.configs, v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NetworkNamespace, Name: "invitation-z"}, Spec: v1alpha1.NetworkConfigSpec{
		PublicKey: secret(27).Public().String(), InBand: &v1alpha1.NetworkInBand{PublicKey: "none"}}})
	f.managers[0].Endpoints[0].Addresses[0] = "10.99.0.1" // no pod's
	k := input(f)
	var all []string
	for _, p := range k.problems {
		all = append(all, p.String())
	}
	said := strings.Join(all, "\n")
	for _, want := range []string{"peering invitation-x: the API server has no ready endpoint", "peering invitation-x: the authentication endpoint has no ready", "invitation-z: the Secret", "invitation-z: its peer's key"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not told of in:\n%s", want, said)
		}
	}
	for _, p := range k.input.Peerings {
		if p.Line != nil && len(p.Line.Callers) > 0 {
			t.Errorf("%s may be called by %v", p.Key, p.Line.Callers)
		}
	}
}

// TestInBandAlone holds that what is said of an introduction is enough where there is no peering yet.
func TestInBandAlone(t *testing.T) {
	f := inBandFacts()
	f.configs = slices.DeleteFunc(f.configs, func(c v1alpha1.NetworkConfig) bool { return c.Name != "introduction-naples" })
	k := input(f)
	if len(k.input.Peerings) != 1 || len(k.input.Peerings[0].Line.Callers) != 1 || len(k.input.Pods) != 1 || len(k.input.External) != 1 {
		t.Fatalf("what is known is %+v", k.input)
	}
	made := plan.Compute(k.input)
	at := netip.MustParsePrefix("10.255.255.253/32")
	if !slices.ContainsFunc(made.Config.Routes, func(r dataplane.Route) bool { return r.Prefix == at && r.Gateway == "introduction-naples" }) {
		t.Errorf("there is no way to the provider: %v, told %v", made.Config.Routes, made.Problems)
	}
}

// TestInBandTrim holds that of the slices of the authentication endpoint is kept what doors follow from.
func TestInBandTrim(t *testing.T) {
	s := servedAt(authSubject, authPortName, 9443, "10.42.1.30")
	s.Endpoints[0].Conditions.Ready = new(false)
	got, err := trim(&s)
	kept := got.(*discoveryv1.EndpointSlice)
	if err != nil || len(kept.Ports) != 1 || kept.Endpoints[0].Conditions.Ready == nil {
		t.Errorf("kept is %+v, %v", kept, err)
	}
	other := servedAt(subject{namespace: corev1.NamespaceDefault, service: "web"}, "http", 80, "10.42.1.31")
	if got, _ := trim(&other); len(got.(*discoveryv1.EndpointSlice).Ports) != 0 {
		t.Error("ports of all slices are kept")
	}
}
