package content

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// within are rules of a network in which these are the tenant's addresses.
func within(ranges ...string) Rules {
	return Rules{Allows: func(a netip.Addr) bool {
		for _, r := range ranges {
			if netip.MustParsePrefix(r).Contains(a) {
				return true
			}
		}
		return false
	}}
}

const slicePorts = `"ports":[{"name":"web","port":80}]`

// sliceText is a slice of one endpoint.
func sliceText(kind, endpoint string) string {
	return `{"content":{"service":"web","type":"` + kind + `",` + slicePorts + `,"endpoints":[` + endpoint + `]}}`
}

func addressText(kind, address string) string {
	return sliceText(kind, `{"address":"`+address+`","ready":true,"serving":true}`)
}

// TestEndpointSlice: what a hostile consumer may write. An address that a slice may not
// have is refused even if the network allowed it.
func TestEndpointSlice(t *testing.T) {
	testDecode(t, "EndpointSlice", Rules{}, []decoding{
		{"there is no network, so nothing passes", addressText("IPv4", "10.1.0.7"), "endpoints[0].address: there is no network with this tenant"},
	})
	testDecode(t, "EndpointSlice", within("10.1.0.0/16", "fd00:1::/64"), []decoding{
		{"inside", addressText("IPv4", "10.1.0.7"), ""},
		{"inside, the other family", addressText("IPv6", "fd00:1::7"), ""},
		{"with a name, ending", sliceText("IPv4", `{"address":"10.1.0.7","serving":true,"terminating":true,"hostname":"db-0"}`), ""},
		{"outside", addressText("IPv4", "10.2.0.7"), `endpoints[0].address: "10.2.0.7" is not one of this tenant's`},
		{"outside, the other family", addressText("IPv6", "fd00:2::7"), "is not one of this tenant's"},
		{"the second one outside", sliceText("IPv4", `{"address":"10.1.0.7"},{"address":"10.2.0.7"}`), "endpoints[1].address"},
	})
	all := within("0.0.0.0/0", "::/0")
	var many, ports []string
	for i := range maxEndpoints + 1 {
		many = append(many, fmt.Sprintf(`{"address":"10.1.%d.%d"}`, i/250, i%250+1))
		ports = append(ports, fmt.Sprintf(`{"name":"p%d","port":%d}`, i, i+1))
	}
	cases := []decoding{
		{"as many as can be", sliceText("IPv4", strings.Join(many[1:], ",")), ""},
		{"one more", sliceText("IPv4", strings.Join(many, ",")), "1001 endpoints"},
		{"a port more", `{"content":{"service":"web","type":"IPv4","ports":[` + strings.Join(ports[:maxPorts+1], ",") + `],"endpoints":[{"address":"10.1.0.7"}]}}`, "33 ports"},
		{"too long", sliceText("IPv4", `{"address":"10.1.0.7","hostname":"`+strings.Repeat("x", MaxText)+`"}`), "bytes, at most"},
		{"no endpoints", sliceText("IPv4", ""), "endpoints: there are none"},
		{"of no Service", `{"content":{"type":"IPv4","endpoints":[{"address":"10.1.0.7"}]}}`, "service: it belongs to none"},
		{"of a path", `{"content":{"service":"../web","type":"IPv4","endpoints":[{"address":"10.1.0.7"}]}}`, "is no name of a Service"},
		{"another notation", addressText("IPv4", "::ffff:10.1.0.7"), "endpoints[0].address"},
		{"another notation as IPv6", addressText("IPv6", "::ffff:10.1.0.7"), "endpoints[0].address"},
		{"an old notation", addressText("IPv4", "10.1.0.07"), "endpoints[0].address"},
		{"a long notation", addressText("IPv6", "fd00:0001::7"), "endpoints[0].address"},
		{"with a zone", addressText("IPv6", "fd00::7%eth0"), "endpoints[0].address"},
		{"a range", addressText("IPv4", "10.1.0.0/24"), "endpoints[0].address"},
		{"a name", addressText("IPv4", "kubernetes.default"), "endpoints[0].address"},
		{"no address", addressText("IPv4", ""), "endpoints[0].address"},
		{"IPv6 in a slice of IPv4", addressText("IPv4", "fd00::7"), "is not of the type IPv4"},
		{"IPv4 in a slice of IPv6", addressText("IPv6", "10.1.0.7"), "is not of the type IPv6"},
		{"by name", addressText("FQDN", "kubernetes.default"), "type: addresses are IPv4 or IPv6"},
		{"of no type", addressText("", "10.1.0.7"), "type: addresses are IPv4 or IPv6"},
		{"on a node", sliceText("IPv4", `{"address":"10.1.0.7","nodeName":"x"}`), "nodeName"},
		{"of a pod", sliceText("IPv4", `{"address":"10.1.0.7","targetRef":{"kind":"Pod","name":"x","namespace":"kube-system"}}`), "targetRef"},
		{"in a zone", sliceText("IPv4", `{"address":"10.1.0.7","zone":"a"}`), "zone"},
		{"with hints", sliceText("IPv4", `{"address":"10.1.0.7","hints":{}}`), "hints"},
		{"of more addresses", sliceText("IPv4", `{"addresses":["10.1.0.7"]}`), "addresses"},
		{"a host that is none", sliceText("IPv4", `{"address":"10.1.0.7","hostname":"a.b"}`), "endpoints[0].hostname"},
		{"labels of the controllers", `{"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"},"content":{}}`, "labels: those of"},
		{"annotations", `{"annotations":{"a":"b"},"content":{}}`, "annotations do not travel"},
		{"no port", strings.Replace(addressText("IPv4", "10.1.0.7"), ":80", ":0", 1), "ports[0].port"},
		{"an unknown protocol", strings.Replace(addressText("IPv4", "10.1.0.7"), `"name":"web"`, `"protocol":"ICMP"`, 1), "ports[0].protocol"},
		{"a long name of a port", strings.Replace(addressText("IPv4", "10.1.0.7"), `"name":"web"`, `"name":"`+strings.Repeat("x", 64)+`"`, 1), "ports[0].name"},
		{"a long protocol above", strings.Replace(addressText("IPv4", "10.1.0.7"), `"name":"web"`, `"appProtocol":"`+strings.Repeat("x", 318)+`"`, 1), "ports[0].appProtocol"},
	}
	for address, what := range map[string]string{
		"127.0.0.1": "the machine itself (CVE-2021-25740)", "127.9.9.9": "the machine itself, elsewhere", "169.254.169.254": "a cloud's metadata",
		"0.0.0.0": "anything", "0.1.2.3": "this network", "224.0.0.1": "many", "239.1.1.1": "many, here", "255.255.255.255": "all", "240.0.0.1": "reserved",
	} {
		cases = append(cases, decoding{what, addressText("IPv4", address), "is no address of one endpoint"})
	}
	for address, what := range map[string]string{
		"::1": "the machine itself", "::": "anything", "fe80::1": "the link", "ff02::1": "many on the link", "ff05::1": "many", "::7f00:1": "the machine itself in other clothes",
	} {
		cases = append(cases, decoding{what, addressText("IPv6", address), "is no address of one endpoint"})
	}
	testDecode(t, "EndpointSlice", all, cases)
	all.Deny = []string{"EndpointSlice"}
	testDecode(t, "EndpointSlice", all, []decoding{{"denied", addressText("IPv4", "10.1.0.7"), "no EndpointSlice of this tenant"}})
}

// TestMakeSlice: what a provider makes of a slice is this, and nothing else; labels of the
// consumer's own are passed over.
func TestMakeSlice(t *testing.T) {
	text := strings.Replace(sliceText("IPv4", `{"address":"10.1.0.7","ready":true,"serving":true,"hostname":"db-0"},{"address":"10.1.0.8","terminating":true}`),
		`{"content"`, `{"labels":{"app":"web"},"content"`, 1)
	got, wrong := Kinds["EndpointSlice"].Decode(text, within("10.1.0.0/16"))
	if wrong != "" {
		t.Fatal(wrong)
	}
	yes, no := new(true), new(false)
	want := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Labels: map[string]string{"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "pelago.dev"}},
		AddressType: "IPv4",
		Ports:       []discoveryv1.EndpointPort{{Name: new("web"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(80))}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.1.0.7"}, Hostname: new("db-0"), Conditions: discoveryv1.EndpointConditions{Ready: yes, Serving: yes, Terminating: no}},
			{Addresses: []string{"10.1.0.8"}, Conditions: discoveryv1.EndpointConditions{Ready: no, Serving: no, Terminating: yes}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestEncodeSlice: what of home's slice is sent.
func TestEncodeSlice(t *testing.T) {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io", "app": "web"},
			Annotations: map[string]string{"note": "x"}},
		AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{{Name: new("web"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(80)), AppProtocol: new("http")}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.1.0.7", "10.1.0.9"}, NodeName: new("node-1"), Zone: new("a"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-0"},
				Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}}, Hostname: new("web-0")},
			{Addresses: []string{"10.1.0.8"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}},
			{},
		},
	}
	text, wrong := Kinds["EndpointSlice"].Encode(s)
	want := `{"content":{"service":"web","type":"IPv4","ports":[{"name":"web","protocol":"TCP","appProtocol":"http","port":80}],"endpoints":[` +
		`{"address":"10.1.0.7","ready":true,"serving":true,"hostname":"web-0"},{"address":"10.1.0.8","serving":true,"terminating":true}]}}`
	if diff := cmp.Diff(want, text); diff != "" || wrong != "" {
		t.Error(wrong, diff)
	}
	s.Ports[0].Port = nil
	if _, wrong = Kinds["EndpointSlice"].Encode(s); !strings.Contains(wrong, "without a number") {
		t.Errorf("all ports: %q", wrong)
	}
}

// TestCutSlice: behind a dead tunnel no endpoint is ready, whatever its owner says, and what was
// made before becomes so and back.
func TestCutSlice(t *testing.T) {
	k, rules := Kinds["EndpointSlice"], within("10.1.0.0/16")
	text := sliceText("IPv4", `{"address":"10.1.0.7","ready":true,"serving":true},{"address":"10.1.0.8","serving":true,"terminating":true}`)
	decoded := func(cut bool) *discoveryv1.EndpointSlice {
		rules.Cut = cut
		o, wrong := k.Decode(text, rules)
		if wrong != "" {
			t.Fatal(wrong)
		}
		return o.(*discoveryv1.EndpointSlice)
	}
	whole, cut := decoded(false), decoded(true)
	want := []discoveryv1.Endpoint{
		{Addresses: []string{"10.1.0.7"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(false)}},
		{Addresses: []string{"10.1.0.8"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(true)}},
	}
	if diff := cmp.Diff(want, cut.Endpoints); diff != "" {
		t.Errorf("cut: %s", diff)
	}
	if !*whole.Endpoints[0].Conditions.Ready || !*whole.Endpoints[1].Conditions.Serving {
		t.Errorf("not cut: %v", whole.Endpoints)
	}
	for _, c := range []struct{ have, want *discoveryv1.EndpointSlice }{{whole, cut}, {cut, whole}} {
		next, changed, replace := k.Merge(c.have, c.want)
		if diff := cmp.Diff(c.want.Endpoints, next.(*discoveryv1.EndpointSlice).Endpoints); diff != "" || !changed || replace {
			t.Errorf("changed %t, replace %t: %s", changed, replace, diff)
		}
	}
}

// TestMergeSlice: what others change in a slice is put back; another type takes a new one.
func TestMergeSlice(t *testing.T) {
	k, rules := Kinds["EndpointSlice"], within("10.1.0.0/16", "fd00:1::/64")
	decoded := func(text string) *discoveryv1.EndpointSlice {
		o, wrong := k.Decode(text, rules)
		if wrong != "" {
			t.Fatal(wrong)
		}
		return o.(*discoveryv1.EndpointSlice)
	}
	want := decoded(addressText("IPv4", "10.1.0.7"))
	for _, c := range []struct {
		reason           string
		edit             func(*discoveryv1.EndpointSlice)
		changed, replace bool
	}{
		{"nothing", func(*discoveryv1.EndpointSlice) {}, false, false},
		{"a label of another's", func(s *discoveryv1.EndpointSlice) { s.Labels["x"] = "y" }, false, false},
		{"given to the provider's controllers", func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
		}, true, false},
		{"given to another Service", func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "kubernetes" }, true, false},
		{"another address", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "127.0.0.1" }, true, false},
		{"a node", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].NodeName = new("x") }, true, false},
		{"another type", func(s *discoveryv1.EndpointSlice) { s.AddressType = "IPv6" }, true, true},
	} {
		have := decoded(addressText("IPv4", "10.1.0.7"))
		have.Labels[v1alpha1.LabelTenant] = "rome"
		c.edit(have)
		next, changed, replace := k.Merge(have, want)
		got := next.(*discoveryv1.EndpointSlice)
		if changed != c.changed || replace != c.replace || got.Labels[discoveryv1.LabelManagedBy] != "pelago.dev" || got.Labels[v1alpha1.LabelTenant] != "rome" {
			t.Errorf("%s: changed %v, replace %v, %v", c.reason, changed, replace, got.Labels)
		}
		if diff := cmp.Diff(want.Endpoints, got.Endpoints); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}

// FuzzSlice: whatever a consumer writes, a slice that is made has only addresses that the
// network says are its, none of them special, and says nothing of nodes, pods and zones.
func FuzzSlice(f *testing.F) {
	for _, a := range []string{"10.1.0.7", "10.2.0.7", "127.0.0.1", "169.254.169.254", "::ffff:10.1.0.7", "010.1.0.7", "0.0.0.0", "255.255.255.255", "x"} {
		f.Add(addressText("IPv4", a))
	}
	for _, a := range []string{"fd00:1::7", "::1", "fe80::1%eth0", "::7f00:1", "ff02::1", "10.1.0.7"} {
		f.Add(addressText("IPv6", a))
	}
	f.Add(addressText("FQDN", "kubernetes.default"))
	f.Add(sliceText("IPv4", `{"address":"10.1.0.7","hostname":"a","terminating":true},{"address":"10.1.0.7","nodeName":"x"}`))
	f.Add(`{"labels":{"app":"web"},"content":{"service":"kubernetes","type":"IPv4","ports":[{"protocol":"SCTP","appProtocol":"x","port":65535}],"endpoints":[{"address":"10.1.0.7"}]}}`)
	ranges := []string{"10.1.0.0/16", "127.0.0.0/8", "0.0.0.0/32", "fd00:1::/64", "::/64", "fe80::/16"} // a network that is mistaken
	f.Fuzz(func(t *testing.T, text string) {
		rules := within(ranges...)
		if o, _ := Kinds["EndpointSlice"].Decode(text, Rules{}); o != nil {
			t.Fatal("made without a network")
		}
		o, wrong := Kinds["EndpointSlice"].Decode(text, rules)
		if wrong != "" {
			if o != nil || len(wrong) > 600 {
				t.Fatalf("says %q", wrong)
			}
			return
		}
		s := o.(*discoveryv1.EndpointSlice)
		if len(s.Labels) != 2 || s.Labels[discoveryv1.LabelManagedBy] != "pelago.dev" || s.Labels[discoveryv1.LabelServiceName] == "" || len(s.Annotations)+len(s.OwnerReferences) > 0 {
			t.Fatalf("metadata %+v", s.ObjectMeta)
		}
		if len(s.Endpoints) == 0 || len(s.Endpoints) > maxEndpoints || len(s.Ports) > maxPorts {
			t.Fatalf("%d endpoints, %d ports", len(s.Endpoints), len(s.Ports))
		}
		for _, e := range s.Endpoints {
			a := netip.MustParseAddr(e.Addresses[0])
			if len(e.Addresses) != 1 || Special(a) || !rules.Allows(a) || a.Is4() != (s.AddressType == "IPv4") || a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() {
				t.Fatalf("addresses %v of type %s", e.Addresses, s.AddressType)
			}
			if e.NodeName != nil || e.TargetRef != nil || e.Zone != nil || e.Hints != nil || e.DeprecatedTopology != nil {
				t.Fatalf("endpoint %+v", e)
			}
		}
	})
}
