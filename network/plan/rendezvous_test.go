package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("node-%d", i))
	}
	return out
}

// TestStable holds that a node that leaves moves only its own peerings, and one that comes
// takes only what it becomes gateway of.
func TestStable(t *testing.T) {
	all := names(20)
	for _, gone := range all {
		left := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == gone })
		for i := range 500 {
			key := fmt.Sprintf("peer-%d", i)
			before, after := Gateway(key, all, nil), Gateway(key, left, nil)
			if before == gone == (after == before) {
				t.Errorf("%s goes from %s to %s when %s leaves", key, before, after, gone)
			}
		}
	}
	order := Order("peer-3", append(all, all[0]))
	for i := range order {
		if g := Gateway("peer-3", order[i:], nil); g != order[i] {
			t.Errorf("of %v, %s is gateway", order[i:], g)
		}
	}
	if len(order) != len(all) {
		t.Errorf("%d nodes in order, want %d", len(order), len(all))
	}
	if g := Gateway("peer", nil, []string{"n"}); g != "" {
		t.Errorf("%s is gateway among nobody", g)
	}
}

// TestTold holds that of the nodes that may be gateway the first that the peer was told of is, whatever
// its hash, and that endpoints which are of no node say nothing.
func TestTold(t *testing.T) {
	at := func(name string, addresses ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		return n
	}
	nodes := []*corev1.Node{at("b", "10.0.0.2", "fd00::2", "10.0.0.9"), at("a", "10.0.0.1", "10.0.0.9"), at("c", "10.0.0.3")}
	for _, c := range []struct {
		endpoints, want []string
	}{
		{nil, nil},
		{[]string{"10.0.0.3:7100", "10.0.0.1:7100"}, []string{"c", "a"}},
		{[]string{"[fd00::2]:7100", "10.0.0.2:7100", "10.0.0.1:1"}, []string{"b", "a"}},
		{[]string{"[::ffff:10.0.0.3]:7100"}, []string{"c"}},
		{[]string{"10.0.0.9:7100", "10.0.0.2:7100"}, []string{"b"}},
		{[]string{"gw.example.org:7100", "203.0.113.7:7100", "nonsense", "10.0.0.2"}, nil},
	} {
		if d := cmp.Diff(c.want, Told(c.endpoints, ByAddress(nodes))); d != "" {
			t.Errorf("told %v (-want +got):\n%s", c.endpoints, d)
		}
	}
	all := names(20)
	first := Gateway("peer", all, nil)
	for _, n := range all {
		if g := Gateway("peer", all, []string{"gone", n, first}); g != n {
			t.Errorf("%s is gateway though the peer calls %s first", g, n)
		}
	}
	if g := Gateway("peer", all, []string{"gone"}); g != first {
		t.Errorf("%s is gateway, want %s, as the peer knows of none that lives", g, first)
	}
}

// TestBefore holds that who is gateway has nobody before it, that the one that is second becomes gateway when the
// first is gone, and so on, and that nobody counts further than was asked for.
func TestBefore(t *testing.T) {
	for _, told := range [][]string{nil, {"node-7"}, {"gone", "node-7", "node-7", "node-3", "gone"}, {"node-1", "node-2", "node-3", "node-4", "node-5"}} {
		left := map[string]bool{"node-9": false}
		for _, n := range names(9) {
			left[n] = true
		}
		for len(left) > 1 {
			alive := slices.DeleteFunc(slices.Sorted(maps.Keys(left)), func(n string) bool { return !left[n] })
			first := Gateway("peer", alive, told)
			if n := Before("peer", first, left, told, 4); n != 0 {
				t.Errorf("told %q: %d are before %s, the gateway of %q", told, n, first, alive)
			}
			places := map[int]int{}
			for _, n := range alive {
				places[Before("peer", n, left, told, 4)]++
			}
			for i := range min(4, len(alive)) {
				if places[i] != 1 {
					t.Errorf("told %q: of %q there are by how many are before them %v", told, alive, places)
				}
			}
			if places[4] != max(0, len(alive)-4) {
				t.Errorf("told %q: of %q there are by how many are before them %v", told, alive, places)
			}
			second := ""
			for _, n := range alive {
				if Before("peer", n, left, told, 4) == 1 {
					second = n
				}
			}
			delete(left, first)
			if after := Gateway("peer", slices.DeleteFunc(alive, func(n string) bool { return n == first }), told); after != second {
				t.Errorf("told %q: %q is gateway after %s, and was not the second one: %q", told, after, first, second)
			}
		}
	}
}

// TestEven holds that peerings spread: of 10,000 over 20 nodes, each has 500, give or take
// five times the deviation of 22 that chance has.
func TestEven(t *testing.T) {
	all, count := names(20), map[string]int{}
	for i := range 10_000 {
		count[Gateway(fmt.Sprintf("peer-%d", i), all, nil)]++
	}
	for _, n := range all {
		if count[n] < 390 || count[n] > 610 {
			t.Errorf("%s is gateway of %d", n, count[n])
		}
	}
}

// TestAgreement holds that the plans of all nodes agree: one of them has the gateway of a
// peering, and the routes of all others lead to it.
func TestAgreement(t *testing.T) {
	for _, alive := range []int{0, 1, 2, 5} {
		in := large(5, 40, 0)
		for i := range in.Nodes {
			in.Nodes[i].Alive = i < alive
		}
		in.Nodes[4].Addresses = nil // and has no part
		here := map[string]string{}
		var plans []Plan
		for _, n := range in.Nodes {
			in.Node = n.Name
			p := Compute(in)
			plans = append(plans, p)
			for _, g := range p.Config.Gateways {
				if other, taken := here[g.Peering]; taken {
					t.Errorf("%s and %s are gateway of %s", other, n.Name, g.Peering)
				}
				here[g.Peering] = n.Name
			}
		}
		if (alive > 0) != (len(here) == len(in.Peerings)) {
			t.Errorf("with %d alive %d peerings have a gateway", alive, len(here))
		}
		for i, p := range plans {
			for key, g := range p.Gateways {
				if g != here[key] {
					t.Errorf("%s thinks that %q is gateway of %s, which is %q", in.Nodes[i].Name, g, key, here[key])
				}
			}
			for _, r := range p.Config.Routes {
				key := keyOf(in, r)
				to := r.Node
				if r.Gateway != "" {
					to = in.Nodes[i].Name
				}
				if i < 4 && to != here[key] || i == 4 && to != "" {
					t.Errorf("%s: %s leads to %q, gateway is %q", in.Nodes[i].Name, r.Prefix, to, here[key])
				}
			}
		}
	}
}

// TestStructure holds that rules, chains and routes do not grow with pods.
func TestStructure(t *testing.T) {
	structure := func(pods int) (lines int) {
		in := large(10, 10, pods)
		for line := range strings.Lines(Compute(in).Config.String()) {
			lines++
			if strings.Contains(line, "ip route") && !strings.Contains(line, "proto 170") {
				t.Errorf("a line of another kind: %s", line)
			}
		}
		return lines
	}
	few := structure(10)
	for _, pods := range []int{100, 1000, 10_000} {
		if many := structure(pods); many != few {
			t.Errorf("10 pods have %d lines, %d have %d", few, pods, many)
		}
	}
}
