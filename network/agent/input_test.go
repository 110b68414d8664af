package agent

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

func secret(n byte) tunnel.Secret {
	key := [32]byte{1: n}
	s, err := tunnel.SecretOf(key[:])
	if err != nil {
		panic(err)
	}
	return s
}

func encoded(s tunnel.Secret) []byte {
	key := s.Reveal()
	return []byte(base64.StdEncoding.EncodeToString(key[:]))
}

func networkConfig(namespace, name string, key byte, pods string) v1alpha1.NetworkConfig {
	return v1alpha1.NetworkConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.NetworkConfigSpec{Pods: strings.Fields(pods), PublicKey: secret(key).Public().String()},
	}
}

func labelled(namespace, name string, labels ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		m.Labels[labels[i]] = labels[i+1]
	}
	return m
}

func podAt(meta metav1.ObjectMeta, node string, ips ...string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func sliceOf(meta metav1.ObjectMeta, node string, addrs ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
	for _, a := range addrs {
		e := discoveryv1.Endpoint{Addresses: []string{a}}
		if node != "" {
			e.NodeName = &node
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func nodeAt(name, address, pods string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeExternalIP, Address: "203.0.113.1"},
	}}}
	if pods != "" {
		n.Spec.PodCIDRs = []string{pods}
	}
	return n
}

const (
	atMilan = "pelago-peering-milan" // this cluster is milan's consumer
	atTurin = "pelago-tenant-turin"  // and turin's provider
)

// someFacts are those of a cluster with one provider and one tenant.
func someFacts() facts {
	f := facts{
		self: "a", mtus: map[string]int{"a": 9000, "b": 1400}, alive: map[string]bool{"a": true},
		nodes: []corev1.Node{
			nodeAt("a", "192.168.0.1", "10.42.1.0/24"), nodeAt("b", "192.168.0.2", "10.42.2.0/24"),
			{ObjectMeta: labelled("", "milan", v1alpha1.LabelType, v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering, "milan"), Spec: corev1.NodeSpec{PodCIDR: "10.42.9.0/24"}},
		},
		configs: []v1alpha1.NetworkConfig{
			networkConfig(atMilan, "consumer", 1, "10.42.0.0/16"), networkConfig(atMilan, "provider", 2, "10.42.0.0/16"),
			networkConfig(atTurin, "provider", 3, "10.42.0.0/16"), networkConfig(atTurin, "consumer", 4, "10.50.0.0/16"),
		},
		keys: map[string][]byte{"peering-milan": encoded(secret(1)), "tenant-turin": encoded(secret(3)), "other": []byte("x")},
		away: map[string][]corev1.Pod{
			"milan": {podAt(labelled("shop", "web"), "milan", "10.81.3.4")},
		},
		hosted: []corev1.Pod{
			podAt(labelled("x", "db", v1alpha1.LabelTenant, "turin"), "b", "10.42.2.7"),
			podAt(labelled("x", "other", v1alpha1.LabelTenant, "genoa"), "b", "10.42.2.8"),
		},
		given: []discoveryv1.EndpointSlice{
			sliceOf(labelled("x", "s", v1alpha1.LabelTenant, "turin"), "", "10.50.1.1"),
			sliceOf(labelled("x", "s", v1alpha1.LabelTenant, "genoa"), "", "10.50.1.2"),
		},
		maps: []v1alpha1.NamespaceMap{
			{ObjectMeta: metav1.ObjectMeta{Namespace: atMilan}, Spec: v1alpha1.NamespaceMapSpec{Namespaces: map[string]v1alpha1.NamespaceMapping{"shop": {}}}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-peering-genoa"}, Spec: v1alpha1.NamespaceMapSpec{Namespaces: map[string]v1alpha1.NamespaceMapping{"bank": {}}}},
		},
		home: map[string][]discoveryv1.EndpointSlice{
			"shop": {sliceOf(labelled("shop", "back"), "a", "10.42.1.5")},
			"bank": {sliceOf(labelled("bank", "safe"), "a", "10.42.1.6")},
		},
	}
	own, milan, turin := &f.configs[0], &f.configs[1], &f.configs[3]
	own.Spec.External, own.Spec.Port = []string{"10.43.0.0/24"}, 7100
	f.configs[2].Spec.Port = 7101
	milan.Spec.Endpoints, milan.Spec.NextPublicKey = []string{"198.51.100.1:7100"}, secret(20).Public().String()
	milan.Status.Views = []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.81.0.0/16"}}
	turin.Status.Views = []v1alpha1.NetworkView{{Real: "10.50.0.0/16", View: "10.50.0.0/16"}}
	return f
}

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// someInput is what follows from someFacts.
func someInput() plan.Input {
	view := func(real, view string) []ipam.View {
		return []ipam.View{{Real: prefixes(real)[0], View: prefixes(view)[0]}}
	}
	return plan.Input{
		Node: "a",
		Nodes: []plan.Node{
			{Name: "a", Addresses: addrs("192.168.0.1"), Alive: true, MTU: 9000, Ranges: prefixes("10.42.1.0/24")},
			{Name: "b", Addresses: addrs("192.168.0.2"), MTU: 1400, Ranges: prefixes("10.42.2.0/24")},
		},
		Pods: prefixes("10.42.0.0/16"), External: prefixes("10.43.0.0/24"),
		Peerings: []plan.Peering{
			{Key: "peering-milan", Role: plan.Consumer, Views: view("10.42.0.0/16", "10.81.0.0/16"), Limited: true, Here: addrs("10.42.1.5"), There: addrs("10.42.3.4"),
				ListenPort: 7100, Secret: "peering-milan", Peer: secret(2).Public(), NextPeer: secret(20).Public(), Endpoints: []string{"198.51.100.1:7100"}},
			{Key: "tenant-turin", Role: plan.Provider, Views: view("10.50.0.0/16", "10.50.0.0/16"), Limited: true, Here: addrs("10.42.2.7"), There: addrs("10.50.1.1"),
				ListenPort: 7101, Secret: "tenant-turin", Peer: secret(4).Public()},
		},
	}
}

func TestInput(t *testing.T) {
	long := strings.Repeat("x", 5000)
	cases := []struct {
		reason   string
		facts    func(*facts)
		input    func(*plan.Input)
		problems []string // a part of each, in order
	}{
		{reason: "all of it"},
		// What both sides have to have said.
		{reason: "a peer without a network says nothing, and then there is none", facts: func(f *facts) { f.configs = slices.Delete(f.configs, 1, 2) }, input: without(0)},
		{reason: "a peer that has not spoken yet", facts: func(f *facts) { f.configs[1].Spec.PublicKey = "" }, input: without(0)},
		{reason: "a side that has not spoken itself", facts: func(f *facts) { f.configs[0].Spec.PublicKey = "" }, input: without(0)},
		{reason: "a peering that ends", facts: func(f *facts) { f.configs[0].DeletionTimestamp = &metav1.Time{} }, input: without(0)},
		{reason: "objects of nobody", facts: func(f *facts) {
			for _, c := range []struct{ namespace, name string }{{atMilan, "x"}, {"default", "consumer"}, {"default", "provider"}} {
				f.configs = append(f.configs, networkConfig(c.namespace, c.name, 9, "10.0.0.0/8"))
			}
		}},
		// Keys.
		{reason: "the next key once it is published", facts: func(f *facts) {
			f.keys["peering-milan.next"] = append(encoded(secret(30)), '\n')
			f.configs[0].Spec.PublicKey = secret(30).Public().String()
		}, input: func(in *plan.Input) { in.Peerings[0].Secret = "peering-milan.next" }},
		{reason: "no key of ours", facts: func(f *facts) { f.keys = nil }, input: func(in *plan.Input) { in.Peerings[0].Secret, in.Peerings[1].Secret = "", "" },
			problems: []string{"peering peering-milan: the Secret pelago-network-keys has no private key", "peering tenant-turin: the Secret"}},
		{reason: "another peering's key is not this one's", facts: func(f *facts) {
			f.keys["peering-milan"], f.keys["tenant-turin"] = f.keys["tenant-turin"], f.keys["peering-milan"]
		},
			input:    func(in *plan.Input) { in.Peerings[0].Secret, in.Peerings[1].Secret = "", "" },
			problems: []string{"peering peering-milan: the Secret", "peering tenant-turin: the Secret"}},
		{reason: "a peer that says that it is we", facts: func(f *facts) { f.configs[1].Spec.PublicKey = f.configs[0].Spec.PublicKey },
			input: func(in *plan.Input) { in.Peerings[0].Peer = tunnel.PublicKey{} }, problems: []string{"this cluster's key is its own"}},
		{reason: "a peer that says that it will be we", facts: func(f *facts) { f.configs[1].Spec.NextPublicKey = f.configs[0].Spec.PublicKey },
			input: func(in *plan.Input) {
				in.Peerings[0].Peer, in.Peerings[0].NextPeer = tunnel.PublicKey{}, secret(1).Public()
			},
			problems: []string{"this cluster's key is its own"}},
		{reason: "keys that are none", facts: func(f *facts) { f.configs[1].Spec.PublicKey, f.configs[1].Spec.NextPublicKey = long, "\x00" },
			input: func(in *plan.Input) {
				in.Peerings[0].Peer, in.Peerings[0].NextPeer = tunnel.PublicKey{}, tunnel.PublicKey{}
			},
			problems: []string{"its peer's key", "its peer's next key"}},
		// What a peer may write.
		{reason: "what a peer says of its ranges means nothing here", facts: func(f *facts) {
			f.configs[1].Spec.Pods, f.configs[1].Spec.External = []string{"0.0.0.0/0"}, []string{"8.8.8.8/32"}
		}},
		{reason: "too many endpoints, and long ones", facts: func(f *facts) {
			f.configs[1].Spec.Endpoints = append([]string{long + ":1", "a:1"}, slices.Repeat([]string{"b:1"}, 9999)...)
		},
			input: func(in *plan.Input) {
				in.Peerings[0].Endpoints = append([]string{"a:1"}, slices.Repeat([]string{"b:1"}, 14)...)
			}},
		{reason: "too many views, and such that are none", facts: func(f *facts) {
			f.configs[1].Status.Views = append([]v1alpha1.NetworkView{{Real: long, View: "10.81.0.0/16"}}, slices.Repeat([]v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.81.0.0/16"}}, 99)...)
		}, input: func(in *plan.Input) { in.Peerings[0].Views = slices.Repeat(in.Peerings[0].Views, 17) }, problems: []string{"is none"}},
		{reason: "a port out of range", facts: func(f *facts) { f.configs[0].Spec.Port = 1 << 20 }, input: func(in *plan.Input) { in.Peerings[0].ListenPort = 65535 }},
		// What this cluster is.
		{reason: "each range once, of all peerings", facts: func(f *facts) { f.configs[2].Spec.Pods = []string{"10.42.0.0/16", "fd42::/48", long} },
			input: func(in *plan.Input) { in.Pods = prefixes("10.42.0.0/16", "fd42::/48") }, problems: []string{"peering tenant-turin: this cluster's range"}},
		{reason: "a node by its external address, if it has no other", facts: func(f *facts) { f.nodes[1].Status.Addresses = f.nodes[1].Status.Addresses[2:] },
			input: func(in *plan.Input) { in.Nodes[1].Addresses = addrs("203.0.113.1") }},
		{reason: "an address of each family", facts: func(f *facts) {
			f.nodes[1].Status.Addresses = append(f.nodes[1].Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "2001:db8::1"}, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "nonsense"})
		}, input: func(in *plan.Input) { in.Nodes[1].Addresses = addrs("192.168.0.2", "2001:db8::1") }},
		{reason: "a node that only knows one range", facts: func(f *facts) { f.nodes[1].Spec.PodCIDRs, f.nodes[1].Spec.PodCIDR = nil, "10.42.3.0/24" },
			input: func(in *plan.Input) {
				in.Nodes[1].Ranges, in.Nodes[1].Pods = prefixes("10.42.3.0/24"), addrs("10.42.2.7", "10.42.2.8")
			}},
		{reason: "a node whose range is none", facts: func(f *facts) { f.nodes[1].Spec.PodCIDRs = []string{"10.42.2.0"} },
			input:    func(in *plan.Input) { in.Nodes[1].Ranges, in.Nodes[1].Pods = nil, addrs("10.42.2.7", "10.42.2.8") },
			problems: []string{`node b: its pods' range "10.42.2.0" is no prefix`}},
		// Who may reach whom.
		{reason: "pods that have ended, and those of nodes, have no address", facts: func(f *facts) {
			f.hosted[0].Status.Phase = corev1.PodSucceeded
			f.away["milan"][0].Spec.HostNetwork = true
		}, input: func(in *plan.Input) { in.Peerings[0].There, in.Peerings[1].Here = nil, nil }},
		{reason: "only own pods are reached, by addresses that are some", facts: func(f *facts) {
			f.hosted[0].Status.PodIPs = []corev1.PodIP{{IP: "192.168.0.1"}, {IP: "127.0.0.1"}, {IP: "10.42.2.7%eth0"}, {IP: ""}, {IP: "::ffff:10.42.2.9"}}
			f.home["shop"] = []discoveryv1.EndpointSlice{sliceOf(labelled("shop", "x"), "", "10.96.0.1", "192.168.0.2", "db.example", "10.42.1.5", "10.42.1.5"), {AddressType: discoveryv1.AddressTypeFQDN, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.1.9"}}, {}}}}
		}, input: func(in *plan.Input) { in.Peerings[1].Here = addrs("10.42.2.9") }},
		{reason: "what is in no view is reached nowhere", facts: func(f *facts) {
			f.away["milan"][0].Status.PodIPs[0].IP = "10.82.3.4"
			f.given[0].Endpoints[0].Addresses[0] = "8.8.8.8"
		}, input: func(in *plan.Input) { in.Peerings[0].There, in.Peerings[1].There = nil, nil }},
		{reason: "pods of other virtual nodes and slices of other namespaces are others'", facts: func(f *facts) {
			f.away["genoa"] = []corev1.Pod{podAt(labelled("shop", "x"), "genoa", "10.81.1.1")}
			f.home["x"] = []discoveryv1.EndpointSlice{sliceOf(labelled("x", "x"), "", "10.42.1.7")}
		}},
		// Where pods are, with CNIs that keep to no ranges.
		{reason: "an address in no node's range is where its pod is", facts: func(f *facts) {
			f.nodes[0].Spec.PodCIDRs, f.nodes[1].Spec.PodCIDRs = nil, nil
		}, input: func(in *plan.Input) {
			in.Nodes[0].Ranges, in.Nodes[0].Pods = nil, addrs("10.42.1.5", "10.42.1.6")
			in.Nodes[1].Ranges, in.Nodes[1].Pods = nil, addrs("10.42.2.7", "10.42.2.8")
		}},
		{reason: "a pod in another node's range is where it says, but no user's slice is believed", facts: func(f *facts) {
			f.hosted[0].Spec.NodeName = "a"
			f.home["shop"] = []discoveryv1.EndpointSlice{sliceOf(labelled("shop", "back"), "b", "10.42.1.5")}
		}, input: func(in *plan.Input) { in.Nodes[0].Pods = addrs("10.42.2.7") }},
		{reason: "a pod of home's in another node's range is where it runs, by each of its addresses, whatever slices say", facts: func(f *facts) {
			f.nodes[0].Spec.PodCIDRs = append(f.nodes[0].Spec.PodCIDRs, "fd42:0:0:1::/64")
			f.home["shop"] = []discoveryv1.EndpointSlice{sliceOf(labelled("shop", "back"), "a", "10.42.1.5")}
			f.inside = map[string][]corev1.Pod{"shop": {podAt(labelled("shop", "back"), "b", "10.42.1.5", "fd42:0:0:1::5")}}
			f.configs[0].Spec.Pods = append(f.configs[0].Spec.Pods, "fd42::/48")
		}, input: func(in *plan.Input) {
			in.Pods = prefixes("10.42.0.0/16", "fd42::/48")
			in.Nodes[0].Ranges = prefixes("10.42.1.0/24", "fd42:0:0:1::/64")
			in.Nodes[1].Pods = addrs("10.42.1.5", "fd42:0:0:1::5")
		}},
		{reason: "Pelago's own slices are believed", facts: func(f *facts) {
			f.managers = []discoveryv1.EndpointSlice{sliceOf(labelled(v1alpha1.SystemNamespace, "manager"), "b", "10.42.1.8")}
			f.auth = []discoveryv1.EndpointSlice{sliceOf(labelled(v1alpha1.SystemNamespace, "auth"), "b", "10.42.1.9")}
		}, input: func(in *plan.Input) { in.Nodes[1].Pods = addrs("10.42.1.8", "10.42.1.9") }},
		{reason: "a pod on a node that is not there", facts: func(f *facts) { f.hosted[0].Spec.NodeName = "gone" }},
	}
	for _, c := range cases {
		f, want := someFacts(), someInput()
		if c.facts != nil {
			c.facts(&f)
		}
		if c.input != nil {
			c.input(&want)
		}
		k := input(f)
		if d := cmp.Diff(want, k.input, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(plan.Input{}, "AtNodes"), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
		for i, p := range k.problems {
			if i >= len(c.problems) || !strings.Contains(p.String(), c.problems[i]) {
				t.Errorf("%s: problem %s", c.reason, p)
			}
			if len(p.String()) > 300 {
				t.Errorf("%s: a problem of %d bytes", c.reason, len(p.String()))
			}
		}
		if len(k.problems) < len(c.problems) {
			t.Errorf("%s: %d problems, want %d", c.reason, len(k.problems), len(c.problems))
		}
		for _, p := range k.input.Peerings {
			if s, ok := k.secrets[p.Secret]; p.Secret != "" && (!ok || s.IsZero()) {
				t.Errorf("%s: there is no secret %s", c.reason, p.Secret)
			}
		}
	}
}

// TestInputTransit is what follows of two providers that are told of each other's pods.
func TestInputTransit(t *testing.T) {
	const atOslo = "pelago-peering-oslo"
	for _, c := range []struct {
		reason      string
		facts       func(*facts)
		pods        string
		milan, oslo string // their transit
		here        string // that milan may reach
	}{
		{"each leads to the other", nil, "10.42.0.0/16", "10.82.0.0/16", "10.81.0.0/16", "10.42.1.5 10.82.7.7"},
		{"one is told of", func(f *facts) { f.configs[4].Spec.Pods = f.configs[4].Spec.Pods[:1] }, "10.42.0.0/16", "10.82.0.0/16", "", "10.42.1.5 10.82.7.7"},
		{"what is not published leads nowhere", func(f *facts) { f.configs[0].Spec.Pods = f.configs[0].Spec.Pods[:1] }, "10.42.0.0/16", "", "10.81.0.0/16", "10.42.1.5"},
		{"a part of a view is none", func(f *facts) { f.configs[0].Spec.Pods[1] = "10.82.7.0/24" }, "10.42.0.0/16 10.82.7.0/24", "", "10.81.0.0/16", "10.42.1.5 10.82.7.7"},
		{"its own view leads not back to it", func(f *facts) { f.configs[0].Spec.Pods[1] = "10.81.0.0/16" }, "10.42.0.0/16", "", "10.81.0.0/16", "10.42.1.5"},
		{"where there is no network any more nothing leads, nor is it ours", func(f *facts) { f.configs[5].Spec.PublicKey = "" }, "10.42.0.0/16", "", "", "10.42.1.5"},
		{"a peering that ends", func(f *facts) { f.configs[4].DeletionTimestamp = &metav1.Time{} }, "10.42.0.0/16", "", "", "10.42.1.5"},
		{"to a tenant nothing leads, whatever is published", func(f *facts) { f.configs[2].Spec.Pods = []string{"10.42.0.0/16", "10.43.5.0/24"} }, "10.42.0.0/16 10.43.5.0/24", "10.82.0.0/16", "10.81.0.0/16", "10.42.1.5 10.82.7.7"},
		{"a tenant's view leads to it, and is not ours", func(f *facts) { f.configs[0].Spec.Pods[1] = "10.50.0.0/16" }, "10.42.0.0/16", "10.50.0.0/16", "10.81.0.0/16", "10.42.1.5"},
	} {
		f := someFacts()
		consumer, provider := networkConfig(atOslo, "consumer", 5, "10.42.0.0/16 10.81.0.0/16"), networkConfig(atOslo, "provider", 6, "10.42.0.0/16")
		provider.Status.Views = []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.82.0.0/16"}}
		f.configs = append(f.configs, consumer, provider)
		f.configs[0].Spec.Pods = []string{"10.42.0.0/16", "10.82.0.0/16"}
		f.keys["peering-oslo"] = encoded(secret(5))
		f.home["shop"] = append(f.home["shop"], sliceOf(labelled("shop", "far"), "oslo", "10.82.7.7", "10.99.1.1"))
		if c.facts != nil {
			c.facts(&f)
		}
		k := input(f)
		if d := cmp.Diff(prefixes(strings.Fields(c.pods)...), k.input.Pods, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
			t.Errorf("%s: the pods here (-want +got):\n%s", c.reason, d)
		}
		if len(k.problems) > 0 {
			t.Errorf("%s: problems are %v", c.reason, k.problems)
		}
		for _, p := range k.input.Peerings {
			want := map[string]string{"peering-milan": c.milan, "peering-oslo": c.oslo}[p.Key]
			if d := cmp.Diff(prefixes(strings.Fields(want)...), p.Transit, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
				t.Errorf("%s: transit of %s (-want +got):\n%s", c.reason, p.Key, d)
			}
			if d := cmp.Diff(addrs(strings.Fields(c.here)...), p.Here, cmpopts.EquateComparable(netip.Addr{})); p.Key == "peering-milan" && d != "" {
				t.Errorf("%s: what milan may reach (-want +got):\n%s", c.reason, d)
			}
		}
		for _, problem := range plan.Compute(k.input).Problems {
			if strings.Contains(problem.Text, "transit") {
				t.Errorf("%s: the plan says: %v", c.reason, problem)
			}
		}
	}
}

// without leaves out a peering, with what only that has said.
func without(i int) func(*plan.Input) {
	return func(in *plan.Input) {
		in.Peerings = slices.Delete(in.Peerings, i, i+1)
		in.External = nil
	}
}

// TestInputTold holds that the nodes at which a peer is told to call are taken in that order, and not what
// several of them have.
func TestInputTold(t *testing.T) {
	f := someFacts()
	f.nodes = append(f.nodes, nodeAt("n8", "192.168.0.8", ""), nodeAt("n9", "192.168.0.9", ""))
	for i := range f.configs {
		f.configs[i].Spec.Endpoints = []string{"203.0.113.1:7100", "192.168.0.9:7100", "192.168.0.8:7100", "192.168.0.77:7100"}
	}
	k := input(f)
	if len(k.input.Peerings) == 0 {
		t.Fatal("there is no peering")
	}
	for _, p := range k.input.Peerings {
		if d := cmp.Diff([]string{"n9", "n8"}, p.Told); d != "" {
			t.Errorf("%s (-want +got):\n%s", p.Key, d)
		}
	}
}

// TestInputOfMany holds the bound of what one peering may have in the kernel.
func TestInputOfMany(t *testing.T) {
	f := someFacts()
	var texts []string
	for i := range maxReached + 100 {
		texts = append(texts, fmt.Sprintf("10.42.%d.%d", i/256, i%256))
	}
	f.home["shop"] = []discoveryv1.EndpointSlice{sliceOf(labelled("shop", "many"), "", texts...)}
	k := input(f)
	if n := len(k.input.Peerings[0].Here); n != maxReached {
		t.Errorf("%d addresses may be reached", n)
	}
	if k.unreached["peering-milan"] != 100 || len(k.unreached) != 1 {
		t.Errorf("not reached are %v", k.unreached)
	}
	if len(k.problems) != 1 || !strings.Contains(k.problems[0].Text, "addresses may be reached on one side") {
		t.Errorf("problems are %v", k.problems)
	}
}

// TestSubjects holds that only what matters is followed.
func TestSubjects(t *testing.T) {
	usual := map[subject]bool{{node: "milan"}: true, {namespace: "shop"}: true}
	pods := map[subject]bool{{node: "milan"}: true, {namespace: "shop"}: true, {pods: "shop"}: true}
	for _, c := range []struct {
		reason string
		change func(*facts)
		want   map[subject]bool
	}{
		{"a provider, and a namespace that it has part in", func(*facts) {}, usual},
		{"a slice speaks of an address in another node's range", func(f *facts) {
			f.home["shop"] = []discoveryv1.EndpointSlice{sliceOf(labelled("shop", "back"), "b", "10.42.1.5")}
		}, pods},
		{"of IPv6", func(f *facts) {
			f.nodes[0].Spec.PodCIDRs = append(f.nodes[0].Spec.PodCIDRs, "fd42:0:0:1::/64")
			f.home["shop"] = []discoveryv1.EndpointSlice{sliceOf(labelled("shop", "back"), "b", "fd42:0:0:1::5")}
		}, pods},
		{"a tenant's pod has one", func(f *facts) { f.hosted[0].Spec.NodeName = "a" }, pods},
		{"one on a virtual node, in nobody's range, on a node that is not there, or nowhere", func(f *facts) {
			f.home["shop"] = []discoveryv1.EndpointSlice{
				sliceOf(labelled("shop", "w"), "milan", "10.42.1.5"), sliceOf(labelled("shop", "x"), "b", "10.42.7.5", "x"),
				sliceOf(labelled("shop", "y"), "gone", "10.42.1.5"), sliceOf(labelled("shop", "z"), "", "10.42.1.5"),
			}
		}, usual},
	} {
		f := someFacts()
		f.nodes = append(f.nodes, corev1.Node{ObjectMeta: labelled("", "genoa", v1alpha1.LabelType, v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering, "genoa")})
		f.maps = append(f.maps, v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: atTurin}, Spec: v1alpha1.NamespaceMapSpec{Namespaces: map[string]v1alpha1.NamespaceMapping{"theirs": {}}}})
		c.change(&f)
		if d := cmp.Diff(c.want, f.subjects(), cmp.AllowUnexported(subject{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}
