package main

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// testLeast has the node of a gateway carry less than another one, which then has to know: what is too
// large between the two is dropped without a word to it. Answers are as large, so milan carries as little.
func testLeast(t *testing.T, w *world) {
	g := w.rome.gateway(t)
	carry := func(gateway, other int) {
		for _, s := range []*side{w.rome, w.milan} {
			for i, n := range s.Nodes {
				mtu := gateway
				if s == w.rome && i != g {
					mtu = other
				}
				n.Must(n.Kernel.LinkSetMTU(n.Link("eth0"), mtu))
				defer until(t, fmt.Sprintf("%s says %d", n.Name, mtu), 2*netnstest.Patience, func() bool {
					l, _ := s.lease(i)
					return l != nil && l.Annotations[v1alpha1.AnnotationMTU] == fmt.Sprint(mtu)
				})
			}
		}
	}
	carry(1400, 9000)
	defer carry(1500, 1500)
	pod := w.rome.Nodes[1-g].Pod
	for _, v4 := range netnstest.Families {
		to := netip.MustParseAddr(w.rome.view(1, 5, v4))
		until(t, fmt.Sprintf("a large packet to %s", to), 2*netnstest.Patience, func() bool {
			return pod.Ping(netnstest.PodAddr(42, 1-g, 5, v4), to, 1360, time.Second) == nil
		})
	}
}
