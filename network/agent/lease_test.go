package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// TestLease holds, at a real API server, that a Lease is made for a node that there is, says what a
// thousand tunnels are like, and is renewed whatever it cannot say.
func TestLease(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: server.Name(t, "node")}}
	if err := c.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), node) })
	own, err := NewClient(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	l := lease{client: own, namespace: server.Namespace(t), node: node.Name, log: logr.Discard()}
	at := time.Now().Truncate(time.Second)
	write := func(reason string, want outcome, tunnels, networks string) *coordinationv1.Lease {
		t.Helper()
		at = at.Add(time.Second)
		got, err := l.write(t.Context(), content{holder: node.Name, term: gatewayTerm, now: at, tunnels: &tunnels, networks: &networks})
		if err != nil || got != want {
			t.Fatalf("%s: %+v, %v", reason, got, err)
		}
		o := &coordinationv1.Lease{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: l.namespace, Name: node.Name}, o); err != nil {
			t.Fatal(err)
		}
		if !o.Spec.RenewTime.Time.Equal(at) || *o.Spec.HolderIdentity != node.Name {
			t.Errorf("%s: it was renewed at %v by %s, want %v", reason, o.Spec.RenewTime, *o.Spec.HolderIdentity, at)
		}
		return o
	}
	if o := write("the first", outcome{made: true}, "x", "10.0.0.0/8"); len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != node.UID {
		t.Errorf("it belongs to %+v", o.OwnerReferences)
	}
	reports := map[string]v1alpha1.TunnelReport{}
	for i := range 1000 {
		key := tunnel.PublicKey{byte(i), byte(i >> 8)}.String()
		reports["tenant-"+key[:40]] = v1alpha1.TunnelReport{Peer: key, Knows: key, Since: stamp(at), Problem: strings.Repeat("x", maxProblem)}
	}
	all := reportsText(reports)
	if o := write("a thousand tunnels", outcome{}, all, "10.0.0.0/8"); o.Annotations[v1alpha1.AnnotationTunnels] != all || o.Annotations[v1alpha1.AnnotationNetworks] != "10.0.0.0/8" {
		t.Errorf("it says %d bytes", len(o.Annotations[v1alpha1.AnnotationTunnels]))
	}
	for reason, size := range map[string]int{"more than annotations hold": 300 << 10, "more than a request holds": 4 << 20} {
		o := write(reason, outcome{refused: true}, strings.Repeat("x", size), "172.16.0.0/12")
		if o.Annotations[v1alpha1.AnnotationTunnels] != all || o.Annotations[v1alpha1.AnnotationNetworks] != "10.0.0.0/8" {
			t.Errorf("%s: it says something else than before", reason)
		}
	}
	if o := write("it can be said again", outcome{}, "", "172.16.0.0/12"); o.Annotations[v1alpha1.AnnotationTunnels] != "" || o.Annotations[v1alpha1.AnnotationNetworks] != "172.16.0.0/12" {
		t.Errorf("it says %v", o.Annotations)
	}
}

// manyFacts are those of a cluster of so many nodes, all alive, and of as many peerings with providers, as one
// of the nodes sees them.
func manyFacts(self string, nodes, peerings int) facts {
	f := facts{self: self, alive: map[string]bool{}, now: time.Now()}
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		f.nodes = append(f.nodes, nodeAt(name, fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250), fmt.Sprintf("10.64.%d.0/24", i%256)))
		f.alive[name] = true
	}
	for i := range peerings {
		namespace := v1alpha1.PeeringNamespace(fmt.Sprintf("p%d", i))
		f.configs = append(f.configs, networkConfig(namespace, "consumer", 1, "10.64.0.0/16"), networkConfig(namespace, "provider", 2, "10.42.0.0/16"))
	}
	return f
}

// as are the same facts as another node sees them.
func (f facts) as(self string) facts {
	f.self = self
	return f
}

// TestTermsOfMany holds what all nodes together ask of an API server, and that those who may have to take over
// ask as they would in a small cluster.
func TestTermsOfMany(t *testing.T) {
	for _, c := range []struct {
		nodes, peerings    int
		rest               term
		writes             float64 // of all but gateways and those that come next
		least, most, nexts int
	}{
		{1, 0, nextTerm, 0.2, 0, 0, 0},
		{1, 1, nextTerm, 0, 1, 1, 0},
		{4, 1, nextTerm, 0, 1, 1, 3},
		{50, 1, nextTerm, 9.3, 1, 1, 3},
		{51, 1, term{6 * time.Second, 18 * time.Second}, 8, 1, 1, 3},
		{200, 1, term{20 * time.Second, time.Minute}, 9.9, 1, 1, 3},
		{1000, 0, term{40 * time.Second, time.Minute}, 25, 0, 0, 0},
		{1000, 1, term{40 * time.Second, time.Minute}, 25, 1, 1, 3},
		{200, 10, term{20 * time.Second, time.Minute}, 9.9, 5, 10, 30},
	} {
		all, count, writes := manyFacts("", c.nodes, c.peerings), map[term]int{}, 0.0
		for i := range all.nodes {
			is := all.as(all.nodes[i].Name).standing()
			of := termOf(is == isGateway, is, c.nodes)
			count[of]++
			if is == isAlone || is == isIdle {
				if writes += 1 / of.every.Seconds(); of != c.rest {
					t.Errorf("%d nodes and %d peerings: one without a part in them has %+v, want %+v", c.nodes, c.peerings, of, c.rest)
				}
			}
		}
		if writes > c.writes {
			t.Errorf("%d nodes and %d peerings: %.2f renewals a second of those without a part in them, want %.2f", c.nodes, c.peerings, writes, c.writes)
		}
		if n := count[gatewayTerm]; n < c.least || n > c.most {
			t.Errorf("%d nodes and %d peerings: %d are gateways", c.nodes, c.peerings, n)
		}
		if n := count[nextTerm]; c.rest != nextTerm && n > c.nexts || n < min(c.nexts, nextMost) {
			t.Errorf("%d nodes and %d peerings: %d come next", c.nodes, c.peerings, n)
		}
	}
}

// TestTakeoverOfDead holds that where the gateway of a large cluster dies, and two of those that come next with
// it, the third is gateway as soon as it would be in a small one.
func TestTakeoverOfDead(t *testing.T) {
	f := manyFacts("", 200, 1)
	var s sight
	begin := time.Unix(1000, 0)
	places := map[int]string{}
	var names []string
	for i := range f.nodes {
		name := f.nodes[i].Name
		names = append(names, name)
		is := f.as(name).standing()
		s.saw(name, leaseOf("1", name, int32(termOf(is == isGateway, is, 200).holds/time.Second)), begin)
		places[plan.Before("peering-p0", name, f.alive, nil, nextMost+1)] = name
	}
	dead := map[string]bool{places[0]: true, places[1]: true, places[2]: true}
	if g := plan.Gateway("peering-p0", names, nil); g != places[0] {
		t.Fatalf("%s is gateway, want %s", g, places[0])
	}
	for at := begin; at.Before(begin.Add(nextTerm.holds + lookEvery)); at = at.Add(lookEvery) {
		lapsed, _ := s.lapsed(at)
		for _, name := range lapsed {
			version := "1"
			if !dead[name] {
				version = at.String()
			}
			s.asked(name, leaseOf(version, name, 15), true, at)
		}
		if at.Equal(begin.Add(gatewayTerm.holds)) && s.alive(places[0]) {
			t.Errorf("the gateway is alive after %s", gatewayTerm.holds)
		}
	}
	alive := s.all()
	if g := plan.Gateway("peering-p0", slices.Sorted(maps.Keys(alive)), nil); g != places[3] {
		t.Errorf("after %s %s is gateway, want %s", nextTerm.holds, g, places[3])
	}
	f.alive = alive
	fresh := 0
	for name := range alive {
		if before := f.as(name).standing(); before == isNext {
			fresh++
		}
	}
	if fresh != nextMost {
		t.Errorf("%d come next after that", fresh)
	}
}

// TestPause holds that who has something to lose tries again and again, and others ever more seldom, at
// times of their own.
func TestPause(t *testing.T) {
	for _, c := range []struct {
		failed      int
		hurries     bool
		least, most time.Duration
	}{
		{0, false, 36 * time.Second, 40 * time.Second},
		{1, false, 150 * time.Millisecond, 300 * time.Millisecond},
		{2, false, 300 * time.Millisecond, 600 * time.Millisecond},
		{4, false, 1200 * time.Millisecond, 2400 * time.Millisecond},
		{6, false, 2500 * time.Millisecond, 5 * time.Second},
		{1 << 40, false, 2500 * time.Millisecond, 5 * time.Second},
		{0, true, 40 * time.Second, 40 * time.Second},
		{1, true, 300 * time.Millisecond, 300 * time.Millisecond},
		{1000, true, 300 * time.Millisecond, 300 * time.Millisecond},
	} {
		of := restTerm(1000)
		if least, most := of.pause(c.failed, c.hurries, 1), of.pause(c.failed, c.hurries, 0); least != c.least || most != c.most {
			t.Errorf("%d failed, hurries %t: %s to %s, want %s to %s", c.failed, c.hurries, least, most, c.least, c.most)
		}
	}
	for failed := range 20 {
		if got := gatewayTerm.pause(failed+1, true, 0.5); got != 300*time.Millisecond {
			t.Errorf("a gateway waits for %s after %d", got, failed+1)
		}
	}
	var of tenure
	begin := time.Unix(1000, 0)
	if of.hurries(false, begin) || !of.hurries(true, begin) || !of.hurries(false, begin.Add(ledFor-1)) || of.hurries(false, begin.Add(ledFor)) {
		t.Errorf("who hurries: %+v", of)
	}
}

// TestMissedSooner holds that a Lease is renewed at once where its node is to be missed sooner than it says.
func TestMissedSooner(t *testing.T) {
	var of tenure
	for i, c := range []struct {
		is   standing
		want bool
	}{
		{isNext, false}, {isGateway, false}, {isNext, false}, {isIdle, false}, {isNext, true},
		{isAlone, false}, {isIdle, false}, {isGateway, true}, {isAlone, false},
	} {
		if got := of.stands(c.is); got != c.want {
			t.Errorf("%d: it is %d, and sooner is %t", i, c.is, got)
		}
	}
}
