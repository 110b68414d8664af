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
// large between the two is dropped without a word to it. Answers are as large, and milan carries more: rome's
// gateway tells those who answer. The gateway's node has pods of its own.
func testLeast(t *testing.T, w *world) {
	g := w.rome.gateway(t)
	carry := func(gateway, other int) {
		for i, n := range w.rome.Nodes {
			mtu := gateway
			if i != g {
				mtu = other
			}
			n.Must(n.Kernel.LinkSetMTU(n.Link("eth0"), mtu))
			defer until(t, fmt.Sprintf("%s says %d", n.Name, mtu), 2*netnstest.Patience, func() bool {
				l, _ := w.rome.lease(i)
				return l != nil && l.Annotations[v1alpha1.AnnotationMTU] == fmt.Sprint(mtu)
			})
		}
	}
	carry(1400, 9000)
	defer carry(1500, 1500)
	for i, n := range w.rome.Nodes {
		for _, v4 := range netnstest.Families {
			to := netip.MustParseAddr(w.rome.view(1, 5, v4))
			until(t, fmt.Sprintf("a large packet from %s to %s", n.Name, to), 2*netnstest.Patience, func() bool {
				return n.Pod.Ping(netnstest.PodAddr(42, i, 5, v4), to, 1360, time.Second) == nil
			})
		}
	}
}
