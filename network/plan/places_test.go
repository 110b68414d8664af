package plan

import (
	"net/netip"
	"strings"
	"testing"
)

// TestPlaces holds where no peer is called, whether an endpoint says so itself or its name leads there: into no
// tunnel, and to nobody of this cluster, but where a peer's nodes may be as well.
func TestPlaces(t *testing.T) {
	in := pathed()
	in.AtNodes = addrs("203.0.113.200")
	places := Compute(in).Places
	const view, pod, node, external, none = "of a view", "of a pod here", "of a node here", "an external address", "is none"
	for _, c := range []struct {
		at            string
		peering, path string // parts of why not
	}{
		{"198.51.100.7", "", ""},
		{"2001:db8:7::1", "", ""},
		{"10.60.1.1", view, view},
		{"::ffff:10.60.1.1", view, view},
		{"10.91.0.1", view, view},
		{"10.42.1.1", pod, pod},
		{"10.42.255.1", pod, pod},
		{"10.43.0.9", external, external},
		{"192.0.2.1", "", node}, // two clusters may share a machine, or a node's address be before a peer
		{"203.0.113.200", "", node},
		{"127.0.0.1", none, none},
		{"::1", none, none},
		{"0.0.0.0", none, none},
		{"::", none, none},
		{"::ffff:127.0.0.1", none, none},
		{"169.254.169.254", none, none},
		{"fe80::1", none, none},
		{"224.0.0.1", none, none},
		{"ff02::1", none, none},
		{"2001:db8::1%eth0", "is not written", "is not written"},
	} {
		for path, want := range map[bool]string{false: c.peering, true: c.path} {
			got := places.Refuse(netip.MustParseAddr(c.at), path)
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s, of a path %t: %q, want %q", c.at, path, got, want)
			}
		}
	}
	if why := places.Refuse(netip.Addr{}, false); why == "" {
		t.Error("no address is one that is called")
	}

	// Where nodes are in the range of pods, as in a flat network, a peer's nodes may be there too.
	in.Nodes[0].Addresses, in.Nodes[0].Ranges = addrs("10.42.0.200"), nil
	flat := Compute(in).Places
	if why := flat.Refuse(netip.MustParseAddr("10.42.9.1"), false); why != "" {
		t.Errorf("a peer in a network of both %s", why)
	}
	if flat.Refuse(netip.MustParseAddr("10.42.9.1"), true) == "" {
		t.Error("a path's other end is where pods are")
	}
	if flat.Equal(places) || !places.Equal(Compute(pathedWith("203.0.113.200")).Places) || places.Equal(nil) {
		t.Error("it is not told when others are refused")
	}
}

// pathedWith is pathed with one more address of a node.
func pathedWith(address string) Input {
	in := pathed()
	in.AtNodes = addrs(address)
	return in
}

// TestPeeringEndpoints holds that what peers write is looked at alike.
func TestPeeringEndpoints(t *testing.T) {
	in := pathed()
	in.Peerings[0].Endpoints = []string{"10.42.1.1:5", "10.43.0.9:5", "milan.example:5", "198.51.100.7:5"}
	told := map[string]bool{}
	for _, n := range in.Nodes {
		in.Node = n.Name
		p := Compute(in)
		for _, q := range p.Problems {
			told[q.String()] = true
		}
		for _, made := range p.Tunnels {
			if made.Peering == "milan" && strings.Join(made.Config.Endpoints, " ") != "milan.example:5 198.51.100.7:5" {
				t.Errorf("the peer is called at %v", made.Config.Endpoints)
			}
		}
	}
	for _, want := range []string{"peering milan: its peer's endpoint 10.42.1.1:5 is the address of a pod here", "peering milan: its peer's endpoint 10.43.0.9:5 is an external address of this cluster"} {
		if !told[want] {
			t.Errorf("not told of %q but of %v", want, told)
		}
	}
}
