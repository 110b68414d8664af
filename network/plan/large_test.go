package plan

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// large is a cluster whose pods are anywhere in its range, so that each is an element, of
// which all may be reached by one of its peers.
func large(nodes, peers, pods int) Input {
	in := Input{Node: "node-0", Pods: prefixes("10.0.0.0/16", "fd42::/48"), External: prefixes("10.1.0.0/24")}
	for i := range nodes {
		in.Nodes = append(in.Nodes, Node{Name: fmt.Sprintf("node-%d", i), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)})}, Alive: true, MTU: 1500})
	}
	for i := range peers {
		view := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i + 2), 0, 0}), 16)
		in.Peerings = append(in.Peerings, Peering{
			Key: fmt.Sprintf("peer-%d", i), Role: Consumer, Limited: true, Views: []ipam.View{{Real: in.Pods[0], View: view}},
			Peer: tunnel.PublicKey{1}, ListenPort: uint16(51000 + i), Endpoints: []string{"198.51.100.7:51820", "milan.example:51820"},
		})
	}
	for i := range pods {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		n := &in.Nodes[i%nodes]
		n.Pods = append(n.Pods, a)
		p := &in.Peerings[(i/nodes)%peers]
		p.Here, p.There = append(p.Here, a), append(p.There, a)
	}
	return in
}

func keyOf(in Input, r dataplane.Route) string {
	for _, p := range in.Peerings {
		if p.Views[0].View == r.Prefix {
			return p.Key
		}
	}
	return ""
}

// processor is the time that processors have worked for this process.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCompute is the plan of one node of 100, with 100 peers and 30,000 pods. Of the
// time that counts, processors', 100 ms are too much.
func BenchmarkCompute(b *testing.B) {
	in := large(100, 100, 30_000)
	before := processor(b)
	n := 0
	for b.Loop() {
		p := Compute(in)
		if len(p.Problems) > 0 || len(p.Config.Others) != 99 {
			b.Fatal(p.Problems)
		}
		n++
	}
	took := (processor(b) - before) / time.Duration(n)
	b.ReportMetric(float64(took.Microseconds())/1000, "cpu-ms/plan")
	if took > 100*time.Millisecond {
		b.Errorf("a plan takes %s", took)
	}
}

// BenchmarkCheck is what the data plane does with it before it begins.
func BenchmarkCheck(b *testing.B) {
	p := Compute(large(100, 100, 30_000))
	for b.Loop() {
		if err := p.Config.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
