package plan

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestTooLargeMapped does what TestTooLarge does with what owners map: what is too large for the side of either,
// from the pod and back, with the address by which it is mapped alone.
func TestTooLargeMapped(t *testing.T) {
	t.Parallel()
	for _, number := range []int{42, 44} {
		t.Run(fmt.Sprintf("milan's pods are in %d", number), func(t *testing.T) {
			w := newWorldOf(t, Consumer, Provider, number)
			rome, g := &w.rome.in.Peerings[0], w.rome.gateway(t)
			echoUDP(t, w.router)
			echoUDP(t, w.rome.Nodes[1-g].Place)
			for _, mtus := range [][2]int{{1400, 1500}, {1500, 1400}} {
				for _, v4 := range netnstest.Families {
					at, to := netip.MustParseAddr("10.43.0.4"), netip.MustParseAddr(outsideGateway(g))
					if !v4 {
						at, to = netip.MustParseAddr("fd43::4"), netnstest.NodeAddr(1-g, false)
					}
					// The other port, so that it is translated too.
					door := dataplane.Door{At: netip.AddrPortFrom(at, mappedPort), To: netip.AddrPortFrom(to, netnstest.Port), UDP: true, Most: 100}
					rome.Limited, rome.There = true, nil
					for i := range w.milan.Nodes {
						rome.There = append(rome.There, netnstest.PodAddr(number, i, 5, v4))
					}
					door.From = rome.There
					rome.Doors = []dataplane.Door{door}
					w.carry(t, mtus)
					for i, n := range w.milan.Nodes {
						for _, size := range []int{1360, 9000} {
							forget(n.Pod, w.router, w.rome.Nodes[1-g].Place)
							ends := hearErrors(t, n.Pod)
							if err := sendUDPTo(n.Pod, netip.AddrPortFrom(w.milan.seen(t, at), mappedPort), size); err != nil {
								t.Errorf("MTUs of rome and milan %v, IPv4 %t, %d bytes from %s: %v", mtus, v4, size, n.Pod.Name, err)
							}
							for _, a := range ends() {
								if own := netnstest.PodAddr(number, i, 5, v4); a != w.milan.seen(t, at) && a != own { // which says what comes too late
									t.Errorf("MTUs of rome and milan %v, %s hears of a packet to %s, want %s alone", mtus, n.Pod.Name, a, w.milan.seen(t, at))
								}
							}
						}
					}
				}
			}
		})
	}
}

// mappedPort is where something is mapped that listens elsewhere.
const mappedPort = 5353

// hearErrors hears errors at a place, and returns for whom packets were that they are about.
func hearErrors(t *testing.T, p *netnstest.Place) func() []netip.Addr {
	t.Helper()
	all := make(chan netip.Addr, 1000)
	stop := read(t, socket(t, p, unix.AF_PACKET, allProtocols), func(b []byte, _ unix.Sockaddr) {
		if len(b) > 14 && (binary.BigEndian.Uint16(b[12:]) == unix.ETH_P_IP && b[14+9] == unix.IPPROTO_ICMP ||
			binary.BigEndian.Uint16(b[12:]) == unix.ETH_P_IPV6 && b[14+6] == unix.IPPROTO_ICMPV6) {
			if to, is := quotes(b[14:]); is {
				all <- to
			}
		}
	})
	return func() (list []netip.Addr) {
		stop()
		close(all)
		for a := range all {
			list = append(list, a)
		}
		return list
	}
}
