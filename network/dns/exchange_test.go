package dns

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestExchanged holds that who asks while there is no Server is told nothing, and answered by the next
// one when he asks again, as resolvers do that were not refused; and that nothing is left of it.
func TestExchanged(t *testing.T) {
	s := newStage(t, func(_ string, question *wire.Msg) *wire.Msg {
		return answerBy(t, []string{"db.shop-rome.svc.cluster.local. 5 IN A 10.43.7.7"}, question)
	})
	s.seen[netnstest.PodAddr(42, 0, 5, false)] = rome
	s.server.options.Addresses = []netip.Addr{Address(), Address6()}
	stop := s.run(s.server)
	s.answers()
	stop()
	question := packed(t, ask("db.shop.svc.cluster.local.", wire.TypeA))
	said := func(c net.Conn, patience time.Duration) error {
		if _, err := c.Write(question); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, err := c.Read(make([]byte, maxDatagram))
		return err
	}
	var all []net.Conn
	for _, s.at = range []netip.Addr{Address(), Address6()} {
		c, err := s.conn(s.Nodes[0].Pod, "udp")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := said(c, netnstest.Silence); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("who asks %s while nobody is there gets %v", s.at, err)
		}
		all = append(all, c)
	}
	next := s.newServer()
	next.options.Addresses = s.server.options.Addresses
	stop = s.run(next)
	for _, s.at = range next.options.Addresses {
		s.answers()
	}
	for _, c := range all {
		if err := said(c, netnstest.Patience); err != nil {
			t.Errorf("who asks %s again gets %v", c.RemoteAddr(), err)
		}
	}
	stop()
	if err := Remove(s.Nodes[0].File); err != nil {
		t.Fatal(err)
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		netnstest.Change(t, s.Nodes[0].File, func(kernel *netlink.Handle) error {
			rules, err := kernel.RuleList(family)
			for _, r := range rules {
				if r.Priority == hushed {
					t.Errorf("left: %s", r)
				}
			}
			return err
		})
	}
}
